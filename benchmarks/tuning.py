"""Compare ``tune`` with the default options on small tables of simulated choices.

    python -m benchmarks.tuning        all ten tables
    python -m benchmarks.tuning 0 4    some of them

Each table has 400 choice sets for training and 5,000 new ones for testing. The difference of the two NLLs is taken set
by set; its standard error is over the 5,000 sets. The last row has the mean over tables, with the standard error
between tables.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness import Row, Table
from pcmcnet import ChoiceData, PCMCNet, tune
from pcmcnet.datasets import markov, mlba
from pcmcnet.evaluation.metrics import nll
from pcmcnet.evaluation.predictions import predicted_log_p
from pcmcnet.models import ChoiceModel

Floats = NDArray[np.float64]
TRAIN, TEST, TRIALS = 400, 5_000, 15
BY_SET = {"choice_set": "choice_set", "chosen": "chosen"}


class Kind(NamedTuple):
    """A simulation and the roles of its columns."""

    simulate: Callable[[int, int], Any]
    roles: dict[str, Any]

    def data(self, sets: int, seed: int) -> ChoiceData:
        """Simulate a table."""
        return ChoiceData.from_long(self.simulate(sets, seed), **BY_SET, **self.roles)


def _features(sets: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Draw price, quality and time (S, 4), and the age of the individual (S, 1)."""
    return {name: rng.normal(size=(sets, 4)) for name in ("price", "quality", "time")} | {
        "age": rng.normal(size=(sets, 1))
    }


def _chosen(utility: Floats, features: dict[str, Floats], rng: np.random.Generator) -> dict[str, Any]:
    """Draw choices from a logit and return the table in long format."""
    sets, n = utility.shape
    taken = (utility + rng.gumbel(size=utility.shape)).argmax(1)
    rows = {name: np.broadcast_to(values, (sets, n)).ravel() for name, values in features.items()}
    return {
        "choice_set": np.repeat(np.arange(sets), n),
        "chosen": (np.arange(n) == taken[:, None]).ravel().astype(int),
        **rows,
    }


def interactions(sets: int, seed: int) -> dict[str, Any]:
    """Simulate a logit with interactions of age and price, and of quality and time."""
    rng = np.random.default_rng(seed)
    x = _features(sets, rng)
    utility = (x["age"] - 1) * x["price"] + 0.7 * x["quality"] * (1 - 0.8 * x["time"]) - 0.5 * x["time"] ** 2
    return _chosen(utility, x, rng)


def latent_classes(sets: int, seed: int) -> dict[str, Any]:
    """Simulate two classes: one considers price only, the other quality and time, and is more frequent among older."""
    rng = np.random.default_rng(seed)
    x = _features(sets, rng)
    second = rng.random((sets, 1)) < 1 / (1 + np.exp(-1.5 * x["age"]))
    return _chosen(np.where(second, 2 * x["quality"] - x["time"], -3 * x["price"]), x, rng)


PERSONS = {"individual": ["age"], "features": ["price", "quality", "time"]}
KINDS = {
    "mlba": Kind(
        lambda n, seed: mlba.simulate(n, seed=seed), {"alternative": "alternative", "features": ["attr1", "attr2"]}
    ),
    "interactions": Kind(interactions, PERSONS),
    "latent classes": Kind(latent_classes, PERSONS),
    "rock-paper-scissors": Kind(
        lambda n, seed: markov.simulate_rock_paper_scissors(n, seed=seed),
        {"features": ["is_rock", "is_scissors", "is_paper"]},
    ),
}
TABLES = [
    *[("mlba", 9101), ("mlba", 9102), ("mlba", 9103), ("interactions", 9201), ("interactions", 9202)],
    *[("interactions", 9203), ("latent classes", 9301), ("latent classes", 9302)],
    *[("rock-paper-scissors", 9401), ("rock-paper-scissors", 9402)],
]


def losses(model: ChoiceModel, data: ChoiceData) -> Floats:
    """Return the NLL of each set (S,)."""
    return nll(predicted_log_p(model, data), data.offsets, data.require_chosen("a benchmark"))


def measure(name: str, seed: int) -> Row:
    """Fit the defaults and the tuned model on one table; compare on new sets."""
    kind = KINDS[name]
    train, test = kind.data(TRAIN, seed), kind.data(TEST, seed + 1_000_000)
    began = time.perf_counter()
    defaults = PCMCNet().fit(train, device="cpu", progress=False)
    fitted = time.perf_counter()
    result = tune("pcmcnet", train, trials=TRIALS, device="cpu", progress=False)
    ended = time.perf_counter()
    best = PCMCNet(**result.best).fit(train, device="cpu", progress=False)
    ours, theirs, always = (losses(model, test) for model in (defaults, result.model, best))
    difference = theirs - ours
    assert result.verdict is not None
    return {
        "table": f"{name} {seed}",
        "defaults": ours.mean(),
        "tune": theirs.mean(),
        "difference": difference.mean(),
        "s.e.": difference.std(ddof=1) / np.sqrt(TEST),
        "best trial": always.mean(),
        "gain seen": result.verdict.gain,
        "its s.e.": result.verdict.standard_error,
        "kept": "defaults" if result.kept_trial.defaults else "best",
        "fit, s": fitted - began,
        "tune, s": ended - fitted,
        "trials": str(result),
    }


def main(tables: list[tuple[str, int]] | None = None) -> list[Row]:
    """Compare on each table and on average."""
    title = (
        f"PCMC-Net with its defaults and after {TRIALS} trials on {TRAIN} choice sets: NLL of {TEST:,} fresh ones.\n"
        "difference: tune - defaults. best trial: if always used. gain seen: gain measured in the search."
    )
    numbers = dict.fromkeys(("defaults", "tune", "difference", "s.e.", "best trial", "gain seen", "its s.e."), ".4f")
    table = Table(title, {"table": "", **numbers, "kept": "", "fit, s": ".0f", "tune, s": ".0f"}, first=24)
    for name, seed in tables or TABLES:
        table.add(measure(name, seed))
    means = {
        column: float(np.mean([row[column] for row in table.rows])) for column in ("defaults", "tune", "best trial")
    }
    gaps = [row["difference"] for row in table.rows]
    error = float(np.std(gaps, ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else None
    table.add({"table": "mean", **means, "difference": float(np.mean(gaps)), "s.e.": error})
    return table.rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    for row in main([TABLES[int(word)] for word in sys.argv[1:]]):
        print(row.get("trials", ""), "\n")
