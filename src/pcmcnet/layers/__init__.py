"""Tensor layers: representation -> pairwise or factored rates -> stationary distribution -> log-likelihood."""

from pcmcnet.layers.factored import FactoredRates, factored_distribution
from pcmcnet.layers.likelihood import choice_nll, log_probabilities
from pcmcnet.layers.pairwise.pairwise_rates import PairwiseRates
from pcmcnet.layers.representation import Representation
from pcmcnet.layers.stationary import solve_chain, stationary_distribution

__all__ = [
    "FactoredRates",
    "PairwiseRates",
    "Representation",
    "choice_nll",
    "factored_distribution",
    "log_probabilities",
    "solve_chain",
    "stationary_distribution",
]
