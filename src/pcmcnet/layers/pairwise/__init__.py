"""Representations of the individual and the alternatives -> rates of all ordered pairs."""

from pcmcnet.layers.pairwise.dispatch import rates_of_scores
from pcmcnet.layers.pairwise.pairwise_rates import Initialisation, PairwiseRates, require_rate
from pcmcnet.layers.pairwise.precision import Precision, compute_dtype
from pcmcnet.layers.pairwise.rate_forms import FLOOR, RateForm

__all__ = [
    "FLOOR",
    "Initialisation",
    "PairwiseRates",
    "Precision",
    "RateForm",
    "compute_dtype",
    "rates_of_scores",
    "require_rate",
]
