"""Cost of monotonicity constraints: PCMC-Net with and without ``monotone`` on real tables.

    python -m benchmarks.monotone [TABLE ...]
    python -m benchmarks.monotone --signs [--split] MODEL ...

Each table is split into 80% for training and 20% for testing, by person if persons are known. The difference in NLL is
taken set by set, with its standard error. "wrong" is the share of test sets in which the probability of some
alternative rises with its own price. The price moves over a grid from the lowest to the highest price of the table;
the other alternatives do not change. Increases of log-probabilities below ``TOLERANCE`` are rounding errors of float32.

With ``--signs``, models named as on the command line are cross-validated with and without the declared signs of
``SIGNS``, in ``FOLDS`` folds for each seed. With ``--split``, they are fitted to 80% of the table and judged on the
rest, the same split for all seeds. Times are CPU seconds. "right" is the share of held-out sets in which no probability
moves against the sign of any signed column.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import numpy as np

from benchmarks.recipe import Floats, losses
from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.data.schema import Sign
from pcmcnet.datasets import packaged
from pcmcnet.insight.elasticity import elasticity
from pcmcnet.insight.queries import with_values
from pcmcnet.models import MODELS, ChoiceModel

SIGNS: dict[str, dict[str, Sign]] = {"mode-canada": {"cost": "-", "ivt": "-", "ovt": "-"}}
SEEDS, FOLDS = (0, 1, 2), 5
PRICES = {"mode-canada": "cost", "swissmetro": "cost", "electricity": "pf"}
POINTS = 11  # grid points
TOLERANCE = 1e-5


def largest_rises(model: ChoiceModel, data: ChoiceData, column: str, grid: Floats) -> Floats:
    """(S,) largest increase of the log-probability of an alternative between neighbouring grid points."""
    values = data.features[column].values.astype(np.float64)  # type: ignore[union-attr]
    place = consecutive_indices(np.zeros(len(data), np.int64), data.sizes)  # position within the set
    rises = np.full(len(data), -np.inf)
    for k in range(data.largest):
        at = [
            data.from_rows(model.predict_log_proba(with_values(data, column, np.where(place == k, point, values))))
            for point in grid
        ]
        rows = np.flatnonzero(place == k)
        increase = np.diff(np.stack(at)[:, rows], axis=0).max(0)
        sets = data.set_of_alternative[rows]
        rises[sets] = np.maximum(rises[sets], increase)
    return rises


def own_elasticities(model: ChoiceModel, data: ChoiceData, column: str) -> str:
    """Return the own elasticity of each label, or of all alternatives, as text."""
    rows = elasticity(model, data, column).table(by=data.schema.alternative).rows
    return ", ".join(f"{row.segment} {row.own:+.2f}" for row in rows)


def right_sets(model: ChoiceModel, data: ChoiceData, signs: dict[str, Sign]) -> float:
    """Return the share of sets in which no probability moves against the sign of any signed column."""
    is_right = np.ones(len(data), bool)
    for column, sign in signs.items():
        values = data.features[column].values.astype(np.float64)  # type: ignore[union-attr]
        grid = np.linspace(values.min(), values.max(), POINTS)
        is_right &= largest_rises(model, data, column, grid if sign == "-" else grid[::-1]) <= TOLERANCE
    return float(is_right.mean())


def compare_signs(name: str, table: str, seed: int, *, split: bool) -> str:
    """Return a row of the table of ``--signs``: a model with and without signs on the same folds, or on a split."""
    rows, schema = packaged.long_form(table)
    ways = [ChoiceData.from_schema(rows, replace(schema, signs=signs)) for signs in ({}, SIGNS[table])]
    parts_of_ways = ([data.split((0.8, 0.2), seed=0)] if split else data.folds(FOLDS, seed=seed) for data in ways)
    nll: tuple[list[Floats], list[Floats]] = [], []
    right, seconds = (([], []) for _ in range(2))  # type: tuple[tuple[list[float], list[float]], ...]
    for parts in zip(*parts_of_ways, strict=True):
        for way, (train, held_out) in enumerate(parts):
            start = time.process_time()
            model = MODELS[name]().fit(train, seed=seed, progress=False)
            seconds[way].append(time.process_time() - start)
            nll[way].append(losses(model, held_out))
            right[way].append(right_sets(model, held_out, SIGNS[table]))
    free, signed = (np.concatenate(values) for values in nll)
    gap = signed - free
    difference = f"{gap.mean():+.4f} ± {gap.std() / np.sqrt(len(gap)):.4f}"
    shares = " | ".join(f"{np.mean(values):.1%}" for values in right)
    times = " | ".join(f"{np.mean(values):.1f}" for values in seconds)
    factor = np.sum(seconds[1]) / np.sum(seconds[0])
    scores = f"{free.mean():.4f} | {signed.mean():.4f} | {difference}"
    return f"| {name} | {seed} | {scores} | {shares} | {times} | {factor:.2f} |"


def signs_main(names: list[str], *, split: bool) -> None:
    """Print a table in Markdown: models with and without the declared signs of a table. Times are CPU seconds."""
    for table, signs in SIGNS.items():
        print(f"{table}, signs {signs}, {'one split' if split else f'{FOLDS} folds'}\n")
        columns = ("NLL free", "NLL signed", "difference", "right free", "right signed", "s free", "s signed", "factor")
        print(f"| model | seed | {' | '.join(columns)} |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        for name in names:
            for seed in SEEDS:
                print(compare_signs(name, table, seed, split=split), flush=True)


def main(names: list[str]) -> None:
    """Print a table in Markdown."""
    print("| table | monotone | NLL | difference | wrong | own elasticity | seconds |")
    print("| --- | --- | ---: | ---: | ---: | --- | ---: |")
    for name in names or list(PRICES):
        column = PRICES[name]
        data = ChoiceData.from_schema(*packaged.long_form(name))
        train, test = data.split((0.8, 0.2), seed=0)
        prices = data.features[column].values  # type: ignore[union-attr]
        grid = np.linspace(prices.min(), prices.max(), POINTS)
        first: Floats | None = None
        for way, monotone in (("-", {}), (f"{column}: decreasing", {column: "decreasing"})):
            start = time.perf_counter()
            model = PCMCNet(monotone=monotone).fit(train, progress=False)
            seconds = time.perf_counter() - start
            nll = losses(model, test)
            first = nll if first is None else first
            gap = nll - first
            difference = "-" if nll is first else f"{gap.mean():+.4f} ± {gap.std() / np.sqrt(len(gap)):.4f}"
            wrong = (largest_rises(model, test, column, grid) > TOLERANCE).mean()
            signs = own_elasticities(model, test, column)
            scores = f"{nll.mean():.4f} | {difference} | {wrong:.1%}"
            print(f"| {name} | {way} | {scores} | {signs} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--signs"]:
        signs_main([name for name in sys.argv[2:] if name != "--split"], split="--split" in sys.argv)
    else:
        main(sys.argv[1:])
