"""Representations of the individual and the alternatives -> rates of all ordered pairs."""

from pcmcnet.layers.pairwise.module import (
    FLOOR,
    Initialisation,
    PairwiseRates,
    RateForm,
    plain_rates,
    rates_of_scores,
    require_rate,
)
from pcmcnet.layers.pairwise.precision import Precision, compute_dtype

__all__ = [
    "FLOOR",
    "Initialisation",
    "PairwiseRates",
    "Precision",
    "RateForm",
    "compute_dtype",
    "plain_rates",
    "rates_of_scores",
    "require_rate",
]
