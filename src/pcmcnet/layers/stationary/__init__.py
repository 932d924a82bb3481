"""Pairwise rates -> choice probabilities: the stationary law of each chain, exact to rounding, with its gradient."""

from pcmcnet.layers.stationary.distribution import solve_chain, stationary_distribution

__all__ = ["solve_chain", "stationary_distribution"]
