"""Log-likelihoods of choice sets -> maximum, standard errors, and the table of them."""

from pcmcnet.models.logits.estimation.logit_likelihood import LogitSets
from pcmcnet.models.logits.estimation.maximum_likelihood import Maximum, hessian, maximise
from pcmcnet.models.logits.estimation.standard_errors import Errors, Estimates, Ratio, infer

__all__ = ["Errors", "Estimates", "LogitSets", "Maximum", "Ratio", "hessian", "infer", "maximise"]
