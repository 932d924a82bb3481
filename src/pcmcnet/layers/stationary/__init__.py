"""Pairwise rates -> choice probabilities: the stationary distribution of each chain, with its gradient."""

from pcmcnet.layers.stationary.distribution import stationary_distribution
from pcmcnet.layers.stationary.gradient import solve_chain

__all__ = ["solve_chain", "stationary_distribution"]
