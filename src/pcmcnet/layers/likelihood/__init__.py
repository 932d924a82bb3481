"""Choice probabilities -> log-likelihood of the choices."""

from pcmcnet.layers.likelihood.log_likelihood import choice_nll, log_probabilities, mean_nll, weighted_mean

__all__ = ["choice_nll", "log_probabilities", "mean_nll", "weighted_mean"]
