"""Models for comparisons. Their estimates can be computed by hand, and they record every fit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from choice_tables import logit_choices
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import stored_values
from pcmcnet.data.columns.ragged import log_softmax_by_set
from pcmcnet.models import ChoiceModel
from pcmcnet.models.interface.choice_model import FitRun, Gives
from pcmcnet.models.interface.fitted import FittedState, TrainingTable
from pcmcnet.reports.formats import Summary

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TiltConfig:
    scale: float = 1.0
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True, kw_only=True)
class FittedTilt(FittedState):
    theta: float


class Tilt(ChoiceModel):
    """log p_i = scale theta x_i + const, where theta is the mean of (chosen x - mean x) over the training sets."""

    name = "tilt"
    config_class = TiltConfig
    _state: FittedTilt
    gives: ClassVar[Gives] = "probabilities"
    stops_early: ClassVar[bool] = True
    fits: ClassVar[list["Tilt"]] = []
    predicted: ClassVar[list[ChoiceData]] = []

    @property
    def num_parameters(self) -> int:
        self.require_fitted()
        return 1

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedTilt:
        self.parts, self.seed, self.device = (train, valid), run.seed, run.device  # only in tests
        chosen = train.offsets[:-1] + train.require_chosen("fit")
        x = stored_values(train.features["x"])
        Tilt.fits.append(self)
        return FittedTilt(theta=float(x[chosen].mean() - x.mean()))

    @property
    def theta(self) -> float:
        return self._state.theta

    def _log_proba(self, data: ChoiceData) -> Floats:
        Tilt.predicted.append(data)
        x = stored_values(data.features["x"]).astype(np.float64)
        return log_softmax_by_set(self.config.scale * self.theta * x, data.offsets)

    def _files(self) -> dict[str, bytes]:
        return {"theta.json": str(self.theta).encode()}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedTilt:
        return FittedTilt(theta=float(files["theta.json"]), record=record)

    def summary(self) -> Summary:
        return Summary("Tilt", {}, ("theta",), ((str(self.theta),),))


class TiltRanking(Tilt):
    name = "tilt-ranking"
    gives = "ranking"


class TiltScores(Tilt):
    name = "tilt-scores"
    gives = "scores"


class Sure(Tilt):
    """Gives probability 1 to the largest x, so some choices are impossible."""

    name = "sure"

    def _log_proba(self, data: ChoiceData) -> Floats:
        x = stored_values(data.features["x"]).astype(np.float64)
        top = np.repeat(np.maximum.reduceat(x, data.offsets[:-1]), data.sizes)
        return np.where(x == top, 0.0, -np.inf)


@dataclass(frozen=True, kw_only=True)
class BrittleConfig:
    pass


class Brittle(Tilt):
    """Raises ``error`` in the fits whose numbers are in ``at``."""

    name = "brittle"
    config_class = BrittleConfig
    error: ClassVar[BaseException] = RuntimeError("out of luck")
    at: ClassVar[set[int]] = {0}
    tried: ClassVar[int] = 0

    def _fit(self, *args: Any, **options: Any) -> FittedTilt:
        Brittle.tried += 1
        if Brittle.tried - 1 in Brittle.at:
            raise Brittle.error
        object.__setattr__(self, "config", TiltConfig())
        return super()._fit(*args, **options)


def make_table(sets: int = 40, seed: int = 0) -> dict[str, Any]:
    """Sets of 2 to 6 with one feature that matters. Each person makes four trips, and some sets have weight 0."""
    table = logit_choices(sets, {"x": 2.0}, seed, sizes=(2, 6))
    colour = np.random.default_rng(seed).choice(["red", "green"], len(table["trip"]))
    return table | {"colour": colour, "weight": np.array([1.0, 2.0, 0.5, 0.0])[table["trip"] % 4]}


def read(table: dict[str, Any], **roles: Any) -> ChoiceData:
    features = ["x", "colour"]
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", features=features, keep=["person"], **roles)


@pytest.fixture
def kinds() -> dict[str, type[Tilt]]:
    """Return the classes above by name, without recorded fits."""
    Tilt.fits.clear()
    Tilt.predicted.clear()
    Brittle.tried, Brittle.at, Brittle.error = 0, {0}, RuntimeError("out of luck")
    return {kind.__name__: kind for kind in (Tilt, TiltRanking, TiltScores, Sure, Brittle)}


@pytest.fixture
def trips() -> ChoiceData:
    return read(make_table())


@pytest.fixture
def read_trips() -> Callable[..., ChoiceData]:
    return read


@pytest.fixture
def trips_table() -> Callable[..., dict[str, Any]]:
    return make_table


@pytest.fixture
def files_in() -> Callable[[Path], list[str]]:
    return lambda folder: sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
