"""Choice probabilities -> log-likelihood of the choices."""

from pcmcnet.layers.likelihood.log_likelihood import choice_nll, log_probabilities

__all__ = ["choice_nll", "log_probabilities"]
