"""Gain from a validation part, several members and a temperature, on the development tables.

    python -m benchmarks.recipe [TABLE ...]

Each table is split into 70% for training, 15% for validation and 15% for testing, by person if persons are known. All
differences are taken set by set against ``fit(train)`` on the test part, with their standard errors.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet import Calibrated, ChoiceData, Ensemble, PCMCNet
from pcmcnet.datasets import packaged
from pcmcnet.models import ChoiceModel
from pcmcnet.models.calibrated import find_temperature

Floats = NDArray[np.float64]
MEMBERS = 3


def losses(model: ChoiceModel, data: ChoiceData) -> Floats:
    """(S,) negative log-likelihoods of the choices."""
    log_p = data.from_rows(model.predict_log_proba(data))
    nll: Floats = -log_p[data.offsets[:-1] + data.require_chosen("a benchmark")]
    return nll


def ways(train: ChoiceData, valid: ChoiceData) -> Iterator[tuple[str, ChoiceModel, float]]:
    """Yield the name of each way to fit, the fitted model, and the seconds of the fit."""
    start = time.perf_counter()
    plain = PCMCNet(members=1).fit(train, progress=False)
    yield "fit(train)", plain, time.perf_counter() - start
    start = time.perf_counter()
    yield "fit(train, valid)", PCMCNet(members=1).fit(train, valid, progress=False), time.perf_counter() - start
    start = time.perf_counter()
    members: Any = Ensemble(PCMCNet(members=1), MEMBERS).fit(train, progress=False)
    yield f"{MEMBERS} members", members, time.perf_counter() - start
    start = time.perf_counter()
    temperature = find_temperature(plain, valid)
    calibrated = Calibrated(plain, temperature=temperature)
    yield f"temperature {temperature.value:.2f}", calibrated, time.perf_counter() - start


def main(names: list[str]) -> None:
    """Print a table in Markdown."""
    chosen = names or [name for name, table in packaged.TABLES.items() if table.use == "development"]
    print("| table | way | NLL | difference | seconds |\n| --- | --- | ---: | ---: | ---: |")
    for name in chosen:
        data = ChoiceData.from_schema(*packaged.long_form(name))
        train, valid, test = data.split((0.7, 0.15, 0.15), seed=0)
        first: Floats | None = None
        for way, model, seconds in ways(train, valid):
            nll = losses(model, test)
            first = nll if first is None else first
            gap = nll - first
            difference = "-" if nll is first else f"{gap.mean():+.4f} ± {gap.std() / np.sqrt(len(gap)):.4f}"
            print(f"| {name} | {way} | {nll.mean():.4f} | {difference} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
