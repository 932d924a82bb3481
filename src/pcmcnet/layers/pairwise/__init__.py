"""Representations of the individual and of the alternatives -> rates of all ordered pairs."""

from pcmcnet.layers.pairwise.pairwise_rates import (
    Initialisation,
    PairwiseRates,
    Precision,
    compute_dtype,
    rates_of_scores,
    require_rate,
)
from pcmcnet.layers.pairwise.rate_forms import RATE_FLOOR, RateForm

__all__ = [
    "RATE_FLOOR",
    "Initialisation",
    "PairwiseRates",
    "Precision",
    "RateForm",
    "compute_dtype",
    "rates_of_scores",
    "require_rate",
]
