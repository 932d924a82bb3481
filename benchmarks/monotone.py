"""What right signs cost: PCMC-Net with and without ``monotone`` on real tables.

    python -m benchmarks.monotone [TABLE ...]

Each table is cut into 80% to fit and 20% to test, by person where persons are known. The difference in NLL is taken set
by set, with its standard error. "wrong" is the share of test sets in which some alternative becomes more probable
somewhere on the way as its own price goes through a grid from the least to the largest price of the table, the others
staying as they are. Rises of log-probabilities below ``TOLERANCE`` are rounding errors of float32.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from benchmarks.recipe import Floats, losses
from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.datasets import packaged
from pcmcnet.insight.elasticity import elasticity
from pcmcnet.insight.queries import with_values
from pcmcnet.models import ChoiceModel

PRICES = {"mode-canada": "cost", "swissmetro": "cost", "electricity": "pf"}
POINTS = 11  # of the grid
TOLERANCE = 1e-5


def largest_rises(model: ChoiceModel, data: ChoiceData, column: str, grid: Floats) -> Floats:
    """(S,) the most that the log-probability of an alternative rises from one point of the grid to the next."""
    values = data.features[column].values.astype(np.float64)  # type: ignore[union-attr]
    place = consecutive_indices(np.zeros(len(data), np.int64), data.sizes)  # of each alternative within its set
    rises = np.full(len(data), -np.inf)
    for k in range(data.largest):
        at = [
            data.from_rows(model.predict_log_proba(with_values(data, column, np.where(place == k, point, values))))
            for point in grid
        ]
        there = np.flatnonzero(place == k)
        found = np.diff(np.stack(at)[:, there], axis=0).max(0)
        sets = data.set_of_alternative[there]
        rises[sets] = np.maximum(rises[sets], found)
    return rises


def own_elasticities(model: ChoiceModel, data: ChoiceData, column: str) -> str:
    """Say the own elasticity of each label, or of all alternatives."""
    rows = elasticity(model, data, column).table(by=data.schema.alternative).rows
    return ", ".join(f"{row.segment} {row.own:+.2f}" for row in rows)


def main(names: list[str]) -> None:
    """Print a table in Markdown."""
    print("| table | monotone | NLL | difference | wrong | own elasticity | seconds |")
    print("| --- | --- | ---: | ---: | ---: | --- | ---: |")
    for name in names or list(PRICES):
        column = PRICES[name]
        data = ChoiceData.from_schema(*packaged.long_form(name))
        train, test = data.split((0.8, 0.2), seed=0)
        known = data.features[column].values  # type: ignore[union-attr]
        grid = np.linspace(known.min(), known.max(), POINTS)
        first: Floats | None = None
        for way, monotone in (("-", {}), (f"{column}: decreasing", {column: "decreasing"})):
            start = time.perf_counter()
            model = PCMCNet(monotone=monotone).fit(train, progress=False)
            seconds = time.perf_counter() - start
            found = losses(model, test)
            first = found if first is None else first
            gap = found - first
            told = "-" if found is first else f"{gap.mean():+.4f} ± {gap.std() / np.sqrt(len(gap)):.4f}"
            wrong = (largest_rises(model, test, column, grid) > TOLERANCE).mean()
            signs = own_elasticities(model, test, column)
            print(
                f"| {name} | {way} | {found.mean():.4f} | {told} | {wrong:.1%} | {signs} | {seconds:.0f} |", flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1:])
