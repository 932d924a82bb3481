"""A model whose best option is known, and small tables for it and for networks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from pcmcnet.data import ChoiceData
from pcmcnet.data.columns import raw
from pcmcnet.data.ragged import log_softmax_by_set
from pcmcnet.errors import TrainingError
from pcmcnet.models import ChoiceModel
from pcmcnet.models.interface.choice_model import FitSettings
from pcmcnet.models.interface.summary import Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class SlopeConfig:
    slope: float = 0.0
    colour: str = "red"
    fails_above: float = 99.0


class Slope(ChoiceModel):
    """log p_i = slope x_i + const: there is nothing to estimate, and every fit is recorded."""

    name = "slope"
    config_class = SlopeConfig
    fits: ClassVar[list["Slope"]] = []
    asked: ClassVar[list[ChoiceData]] = []

    @property
    def num_parameters(self) -> int:
        _ = self.schema
        return 0

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
        Slope.fits.append(self)
        self.parts, self.seed = (train, valid), settings.seed
        if self.config.slope > self.config.fails_above:
            raise TrainingError(f"slope {self.config.slope:.1f} is too steep.")

    def _log_proba(self, data: ChoiceData) -> NDArray[np.float64]:
        Slope.asked.append(data)
        if math.isinf(self.config.slope):
            return np.where(np.isin(np.arange(len(data.rows)), data.offsets), 0.0, -np.inf)
        return log_softmax_by_set(self.config.slope * raw(data.features["x"]).astype(np.float64), data.offsets)

    def _files(self) -> dict[str, bytes]:
        return {}

    def _restore(self, files: Mapping[str, bytes]) -> None:
        pass

    def summary(self) -> Summary:
        return Summary("Slope", {}, ("slope",), ((str(self.config.slope),),))


@pytest.fixture
def slope() -> type[Slope]:
    """The class above; nothing recorded yet."""
    Slope.fits.clear()
    Slope.asked.clear()
    return Slope


def make_table(sets: int = 60, seed: int = 0) -> dict[str, Any]:
    """Sets of 2 to 4; choices by a logit with slope 2."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, sets)
    trip = np.repeat(np.arange(sets), sizes)
    x = rng.normal(size=len(trip)).round(3)
    value = 2 * x + rng.gumbel(size=len(trip))
    best = np.lexsort((-value, trip))[np.cumsum(sizes) - sizes]
    return {
        "trip": trip,
        "mode": np.concatenate([np.array(["car", "bus", "bike", "train"])[rng.permutation(4)[:n]] for n in sizes]),
        "took": np.isin(np.arange(len(trip)), best).astype(int),
        "x": x,
        "y": rng.normal(size=len(trip)).round(3),
        "person": trip // 4,
    }


def read(table: dict[str, Any]) -> ChoiceData:
    return ChoiceData.from_long(
        table, choice_set="trip", chosen="took", alternative="mode", features=["x", "y"], keep=["person"]
    )


@pytest.fixture
def trips() -> ChoiceData:
    return read(make_table())


@pytest.fixture
def more_trips() -> ChoiceData:
    return read(make_table(40, seed=1))
