"""A model whose best option is known, and small tables for it and for networks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from choice_tables import logit_choices, read
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import stored_values
from pcmcnet.data.columns.ragged import log_softmax_by_set
from pcmcnet.errors import TrainingError
from pcmcnet.models import ChoiceModel
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.fitted import FittedState, TrainingTable
from pcmcnet.reports.formats import Summary


@dataclass(frozen=True, kw_only=True)
class SlopeConfig:
    slope: float = 0.0
    colour: str = "red"
    fails_above: float = 99.0


class Slope(ChoiceModel):
    """log p_i = slope x_i + const: nothing is estimated, and every fit is recorded."""

    name = "slope"
    config_class = SlopeConfig
    fits: ClassVar[list["Slope"]] = []
    predicted: ClassVar[list[ChoiceData]] = []

    @property
    def num_parameters(self) -> int:
        self.require_fitted()
        return 0

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedState:
        Slope.fits.append(self)
        self.parts, self.seed = (train, valid), run.seed
        if self.config.slope > self.config.fails_above:
            raise TrainingError(f"slope {self.config.slope:.1f} is too steep.")
        return FittedState()

    def _log_proba(self, data: ChoiceData) -> NDArray[np.float64]:
        Slope.predicted.append(data)
        if math.isinf(self.config.slope):
            return np.where(np.isin(np.arange(len(data.rows)), data.offsets), 0.0, -np.inf)
        return log_softmax_by_set(
            self.config.slope * stored_values(data.features["x"]).astype(np.float64), data.offsets
        )

    def _files(self) -> dict[str, bytes]:
        return {}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedState:
        return FittedState(record=record)

    def summary(self) -> Summary:
        return Summary("Slope", {}, ("slope",), ((str(self.config.slope),),))


@pytest.fixture
def slope() -> type[Slope]:
    """Return the class above with an empty record."""
    Slope.fits.clear()
    Slope.predicted.clear()
    return Slope


def make_trips(sets: int = 60, seed: int = 0) -> ChoiceData:
    """Make sets of 2 to 4; choices follow a logit with slope 2."""
    table = logit_choices(sets, {"x": 2.0, "y": 0.0}, seed)
    return read(table, alternative="mode", features=["x", "y"], keep=["person"])


@pytest.fixture
def trips() -> ChoiceData:
    return make_trips()


@pytest.fixture
def more_trips() -> ChoiceData:
    return make_trips(40, seed=1)
