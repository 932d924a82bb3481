"""Fits that everybody runs: small tables with default options, by compiled steps and by steps through PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.accuracy import ROLES
from benchmarks.harness import Row, Table, in_turn
from pcmcnet import ChoiceData, PCMCNet, evaluate
from pcmcnet.datasets import mlba, packaged
from pcmcnet.errors import ConfigError
from pcmcnet.training import compiled_steps

COLUMNS = {
    "table": "",
    "sets": ",",
    "PyTorch, s": ".2f",
    "compiled, s": ".2f",
    "ratio": ".1f",
    "NLL, PyTorch": ".4f",
    "NLL, compiled": ".4f",
}
ROUNDS = 2


def main() -> list[Row]:
    """Fit four fifths of each table both ways, in turns; seconds of the processor, losses on the other fifth."""
    if compiled_steps.library() is None:
        raise ConfigError("the package was built without compiled steps: install it where there is a C compiler.")
    table = Table("default fits of small tables, seconds of one CPU thread", COLUMNS)
    for name in ("mode-canada", "mtc-work"):
        rows, schema = packaged.long_form(name)
        table.add(measured(name, ChoiceData.from_schema(rows, schema), {}))
    table.add(
        measured("mlba 3x16", ChoiceData.from_long(mlba.simulate(8_000, seed=0), **ROLES), {"hidden": (16, 16, 16)})
    )
    return table.rows


def measured(name: str, data: ChoiceData, options: dict[str, Any]) -> Row:
    """Fit and evaluate both ways."""
    train, test = data.split((0.8, 0.2), seed=0)
    losses: dict[str, float] = {}

    def fit(way: str, library: Callable[[], Any]) -> float:
        with mock.patch.object(compiled_steps, "library", library):
            began = time.process_time()
            model = PCMCNet(**options).fit(train, progress=False)
            took = time.process_time() - began
        losses[way] = evaluate(model, test).nll
        return took

    library = compiled_steps.library
    ways = {"PyTorch": lambda: fit("PyTorch", lambda: None), "compiled": lambda: fit("compiled", library)}
    best = {way: float(np.min(times)) for way, times in in_turn(ways, ROUNDS).items()}
    return {
        "table": name,
        "sets": len(train),
        "ratio": best["PyTorch"] / best["compiled"],
        **{f"{way}, s": seconds for way, seconds in best.items()},
        **{f"NLL, {way}": loss for way, loss in losses.items()},
    }
