"""Fits of small tables with default options, with compiled steps and with PyTorch steps."""

from __future__ import annotations

import time
from functools import partial
from typing import Any
from unittest import mock

from benchmarks.accuracy import ROLES
from benchmarks.harness import Row, Table, in_turn
from pcmcnet import ChoiceData, PCMCNet, evaluate
from pcmcnet.datasets import mlba, packaged
from pcmcnet.errors import ConfigError
from pcmcnet.training import compiled_steps

WAYS = {  # name: options, and True for compiled steps
    "PyTorch": ({"members": 1}, False),
    "compiled": ({"members": 1}, True),
    "default": ({}, True),  # compiled, and six networks
}
COLUMNS = {
    "table": "",
    "sets": ",",
    **{f"{way}, s": ".2f" for way in WAYS},
    **{f"x {way}": ".1f" for way in list(WAYS)[1:]},
    **{f"NLL, {way}": ".4f" for way in WAYS},
}
ROUNDS = 2


def main() -> list[Row]:
    """Fit four fifths of each table in all ways, in turn; measure CPU seconds, and losses on the other fifth."""
    if compiled_steps.compiled_library() is None:
        raise ConfigError("the package was built without compiled steps: reinstall it with a C compiler available.")
    table = Table("default fits of small tables, seconds of one CPU thread", COLUMNS)
    for name in ("mode-canada", "mtc-work"):
        rows, schema = packaged.long_form(name)
        table.add(measured(name, ChoiceData.from_schema(rows, schema), {}))
    table.add(
        measured("mlba 3x16", ChoiceData.from_long(mlba.simulate(8_000, seed=0), **ROLES), {"hidden": (16, 16, 16)})
    )
    return table.rows


def measured(name: str, data: ChoiceData, options: dict[str, Any]) -> Row:
    """Fit and evaluate in all ways; ratios are relative to PyTorch."""
    train, test = data.split((0.8, 0.2), seed=0)
    library, losses = compiled_steps.compiled_library, dict[str, float]()

    def fit(way: str) -> float:
        way_options, compiled = WAYS[way]
        with mock.patch.object(compiled_steps, "compiled_library", library if compiled else lambda: None):
            began = time.process_time()
            model = PCMCNet(**options, **way_options).fit(train, progress=False)
            took = time.process_time() - began
        losses[way] = evaluate(model, test).nll or 0.0
        return took

    times = in_turn({way: partial(fit, way) for way in WAYS}, ROUNDS)
    best = {way: min(seconds) for way, seconds in times.items()}
    return {
        "table": name,
        "sets": len(train),
        **{f"{way}, s": seconds for way, seconds in best.items()},
        **{f"x {way}": best["PyTorch"] / seconds for way, seconds in best.items()},
        **{f"NLL, {way}": loss for way, loss in losses.items()},
    }
