"""Pairwise rates -> choice probabilities: the stationary distribution of each chain, with its gradient."""

from pcmcnet.layers.stationary.dispatch import solve_chain
from pcmcnet.layers.stationary.distribution import stationary_distribution

__all__ = ["solve_chain", "stationary_distribution"]
