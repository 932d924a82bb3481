"""Factored rates -> choice probabilities, in linear time: chains whose rates are products of r factors."""

from pcmcnet.layers.factored.distribution import factored_distribution
from pcmcnet.layers.factored.factored_rates import FactoredRates
from pcmcnet.layers.factored.solution import composed_distribution, dense_rates, log_factored_distribution

__all__ = [
    "FactoredRates",
    "composed_distribution",
    "dense_rates",
    "factored_distribution",
    "log_factored_distribution",
]
