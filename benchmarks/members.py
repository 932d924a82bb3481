"""Gain from averaging networks: held-out losses of one network, of all six, and of a logit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.harness import Row, Table
from benchmarks.shapes import Shape
from pcmcnet import MNL, ChoiceData, PCMCNet, evaluate, stationary_distribution
from pcmcnet.datasets import packaged

TABLES = ("mode-canada", "mtc-work", "itinerary", "car", "swissmetro", "electricity", "heating")  # development tables
SIMULATED = {  # from logits with linear effects; the number is that of training sets
    "logit of 14 columns": (Shape("", individual=8, features=6, hidden=(), dropout=0, paper_batch=1, size=4), 300),
    "logit of 40 columns": (Shape("", individual=25, features=15, hidden=(), dropout=0, paper_batch=1, size=6), 800),
}
SPLITS, SETS, TEST = 2, 3_500, 1_000
COLUMNS = {"table": "", "sets": ",", "MNL": ".4f", "one": ".4f", "six": ".4f", "gain": "+.4f", "±": ".4f", "curved": ""}


def main() -> list[Row]:
    """Fit 70% of up to 3,500 sets with default options, in two random splits of each table, by person."""
    table = Table("held-out NLL of a logit, of the first network of a default fit, and of all six", COLUMNS)
    for name in (*TABLES, *SIMULATED):
        splits = [measured(train, test, seed) for seed, (train, test) in enumerate(parts(name))]
        logit, one, six, square = np.mean([split[1] for split in splits], axis=0)
        curved = ", ".join(str(split[2]) for split in splits)
        row = {"table": name, "sets": splits[0][0], "MNL": logit, "one": one, "six": six, "gain": one - six}
        table.add({**row, "±": np.sqrt(square / SPLITS), "curved": curved})
    return table.rows


def parts(name: str, splits: int = SPLITS) -> Iterator[tuple[ChoiceData, ChoiceData]]:
    """Yield training and test parts of a table, for each random split."""
    for seed in range(splits):
        if name in SIMULATED:
            shape, sets = SIMULATED[name]
            data = shape.data(sets + TEST, seed)
            yield data[:sets], data[sets:]
            continue
        rows, schema = packaged.long_form(name)
        data = ChoiceData.from_schema(rows, schema)
        part = data if len(data) <= SETS else data.split((SETS / len(data), 1 - SETS / len(data)), seed=seed)[0]
        train, test = part.split((0.7, 0.3), seed=seed)
        yield train, test


def measured(train: ChoiceData, test: ChoiceData, seed: int) -> tuple[int, tuple[float, float, float, float], int]:
    """Return the number of training sets, the losses and squared error of the gain, and the networks with bins."""
    model, chosen = PCMCNet().fit(train, seed=seed, progress=False), test.require_chosen("a benchmark")
    _, chains = model.fixed_chains(test)
    distributions = (stationary_distribution(torch.from_numpy(rates)).numpy() for rates in chains)
    p = np.stack([q[:, k] for q, k in zip(distributions, chosen, strict=True)])  # (S, members)
    one, six = -np.log(p[:, 0]), -np.log(p.mean(1))
    logit = evaluate(MNL().fit(train, progress=False), test).nll
    assert logit is not None
    noise = float((one - six).var() / len(six))
    curved = sum(bins > 0 for bins in model.spec_.bins)
    return len(train), (logit, float(one.mean()), float(six.mean()), noise), curved
