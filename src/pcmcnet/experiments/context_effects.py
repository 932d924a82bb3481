"""Experiment 1 of the paper, what table 1 and figure 2 share: choice sets with context effects, and models of them.

Two alternatives a and b are joined by a third, c, uniform on [1, 9]^2; the choice is drawn by the MLBA model, whose
probabilities are known (``pcmcnet.datasets.mlba``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Categorical, raw
from pcmcnet.datasets import mlba
from pcmcnet.errors import SchemaError
from pcmcnet.evaluation import evaluate
from pcmcnet.experiments import published
from pcmcnet.models import MNL, PCMC, ChoiceModel, PCMCNet

ROLES: Mapping[str, Any] = {
    "choice_set": "choice_set",
    "chosen": "chosen",
    "alternative": "alternative",
    "features": ["attr1", "attr2"],
}
TRAIN_SETS, TEST_SETS = published.sizes("table1")
AS_PUBLISHED = ", the paper's settings"


@dataclass(frozen=True)
class Contestant:
    """A row of the table to be: how to make its model, and the row of the paper that it stands beside."""

    label: str
    row: published.Divergence
    make: Callable[[], ChoiceModel]
    drawn: bool = True  # whether the seed makes a difference


@dataclass(frozen=True)
class Fresh:
    """Choice sets to test on, with the probabilities they were drawn from, one per row."""

    data: ChoiceData
    truth: Floats

    @classmethod
    def of(cls, table: pa.Table) -> Fresh:
        """Read a simulated table."""
        return cls(ChoiceData.from_long(table, **ROLES), table["true_prob"].to_numpy())

    def floor(self) -> tuple[float, float]:
        """NLL and TOP 1 of the true model itself, which no model can expect to beat."""
        best = evaluate(_Truth(self.truth), self.data, top=[1], resamples=0)
        assert best.nll is not None
        return best.nll, best.top[1]


@dataclass(frozen=True)
class _Truth:
    """The known probabilities as a model."""

    p: Floats

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        with np.errstate(divide="ignore"):  # probability 0 is -inf
            log_p: Floats = np.log(self.p)
        return log_p


def simple_models() -> list[Contestant]:
    """Return the logit with two coefficients, and the chain over 8 x 8 bins and the two fixed alternatives."""
    rows = published.table1()
    return [
        Contestant("MNL", rows["MNL"], lambda: MNL(formula="attr1 + attr2 | 0"), drawn=False),
        Contestant("PCMC", rows["PCMC"], _binned, drawn=False),
    ]


def _binned() -> PCMC:
    """One start: others end at the same objective."""
    return PCMC(bins={"attr1": 8, "attr2": 8}, identified=("a", "b"), restarts=1, ridge=0.1, speeds=1.0)


def networks(epochs: int | None = None, *, depths: Sequence[int] = (1, 2, 3)) -> list[Contestant]:
    """Return PCMC-Net with this library's training but for learning rate and decay, 16 nodes a layer.

    It has the paper's inputs and weights: features alone, without labels and without a logit inside. One layer of 16
    learns too slowly at the default of 0.005; two and three layers do not mind the higher rate. A few hundred weights
    for 20,000 choice sets need next to no decay, which need not be searched for anew in each of the fits.
    """
    options: dict[str, Any] = {"lr": 0.02, "labels": False, "utility": "none", "weight_decay": 0.01}
    options |= {} if epochs is None else {"epochs": epochs}
    return [_network(depth, lambda hidden: PCMCNet(hidden=hidden, **options), "") for depth in depths]


def paper_networks(epochs: int | None = None) -> list[Contestant]:
    """Return PCMC-Net with the paper's settings: 100 epochs of one choice set per step."""
    options: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    return [_network(depth, lambda hidden: PCMCNet.paper(hidden, **options), AS_PUBLISHED) for depth in (1, 2, 3)]


def _network(depth: int, make: Callable[[tuple[int, ...]], ChoiceModel], suffix: str) -> Contestant:
    name = f"PCMC-Net {depth}x16"
    return Contestant(f"{name}{suffix}", published.table1()[name], lambda: make((16,) * depth))


def training_part(data: str | Path | None, sets: int, seed: int) -> ChoiceData:
    """Read the choice sets to learn from, or simulate them."""
    return _named(ChoiceData.from_long(mlba.simulate(sets, seed=seed + 1) if data is None else data, **ROLES))


def _named(data: ChoiceData) -> ChoiceData:
    """Call the alternatives a, b and c, whatever the table calls them: a and b are known by their attributes."""
    assert data.labels is not None
    attributes = np.column_stack([raw(data.features[name]) for name in ROLES["features"]])
    names = []
    for k in range(len(data.labels.categories)):
        rows = attributes[data.labels.codes == k]
        names.append(next((name for name, at in (("a", mlba.A), ("b", mlba.B)) if (rows == at).all()), "c"))
    if sorted(names) != ["a", "b", "c"]:
        raise SchemaError(
            f"expected three alternatives, of which one always has the attributes {mlba.A} and another {mlba.B}; found "
            f"{list(data.labels.categories)}. Use a table of the form that `pcmcnet simulate mlba` writes."
        )
    return replace(data, labels=Categorical(data.labels.codes, tuple(names)))


def source(data: str | Path | None, train: ChoiceData, seed: int) -> str:
    """Say where the choice sets to learn from came from."""
    where = f"simulated, seed {seed + 1}" if data is None else f"{Path(data).name}, SHA-256 {train.fingerprint()}"
    return f"{len(train):,} ({where})"
