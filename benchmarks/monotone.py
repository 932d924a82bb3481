"""Cost of monotonicity constraints: PCMC-Net with and without ``monotone`` on real tables.

    python -m benchmarks.monotone [TABLE ...]

Each table is split into 80% for training and 20% for testing, by person if persons are known. The difference in NLL is
taken set by set, with its standard error. "wrong" is the share of test sets in which the probability of some
alternative rises with its own price. The price moves over a grid from the lowest to the highest price of the table;
the other alternatives do not change. Increases of log-probabilities below ``TOLERANCE`` are rounding errors of float32.
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
    main(sys.argv[1:])
