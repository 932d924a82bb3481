"""The model that knows nothing: p_i = 1 / n in a set of n alternatives. What any other model has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import spread
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.options import takes
from pcmcnet.models.rules.rule import Rule
from pcmcnet.reports.formats import Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class UniformConfig:
    """The uniform model has no options."""


class Uniform(Rule):
    """Equal probabilities for the available alternatives of a set; no options, no parameters.

    Examples
    --------
    >>> table = {"trip": [1, 1, 2, 2, 2], "took": [1, 0, 0, 0, 1]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took")
    >>> Uniform().fit(data).predict_proba(data).round(3)
    array([0.5  , 0.5  , 0.333, 0.333, 0.333])
    """

    name = "uniform"
    is_logit = True
    config_class = UniformConfig
    config: UniformConfig

    @takes(UniformConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
        """There is nothing to estimate."""

    def _log_proba(self, data: ChoiceData) -> Floats:
        log_p: Floats = spread(-np.log(data.sizes), data.offsets)
        return log_p

    def summary(self) -> Summary:
        """Say what the model does; there is nothing to list."""
        return Summary("Uniform", self._facts(), ("alternative", "probability"), (("each of n", "1 / n"),))
