"""Log-likelihoods of choice sets -> maximum, standard errors, and the table of them."""

from pcmcnet.models.logits.estimation.inference import Errors, Estimates, Ratio, infer
from pcmcnet.models.logits.estimation.logit import LogitSets
from pcmcnet.models.logits.estimation.maximum import hessian, maximise

__all__ = ["Errors", "Estimates", "LogitSets", "Ratio", "hessian", "infer", "maximise"]
