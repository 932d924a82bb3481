"""What it brings to put networks together: held-out losses of one, of those with straight inputs, and of all."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.harness import Row, Table
from pcmcnet import ChoiceData, PCMCNet, stationary_distribution
from pcmcnet.datasets import packaged
from pcmcnet.models.networks.curve_members import MEMBERS, pieces_of

TABLES = ("mode-canada", "mtc-work", "itinerary", "car", "swissmetro", "electricity", "heating")  # of development
SPLITS, SETS = 2, 3_500
STRAIGHT = [number for number in range(MEMBERS) if not pieces_of(number)]  # the others see numbers by curves, too
COLUMNS = {
    "table": "",
    "sets": ",",
    "one": ".4f",
    "five": ".4f",
    "all seven": ".4f",
    "gain by curves": "+.4f",
    "±": ".4f",
}


def main() -> list[Row]:
    """Fit 70% of up to 3,500 sets with default options, two random parts of each table; persons stay together."""
    table = Table("held-out NLL of a default fit: one network, five, and with two that see numbers by curves", COLUMNS)
    for name in TABLES:
        rows, schema = packaged.long_form(name)
        data = ChoiceData.from_schema(rows, schema)
        found = [measured(data, seed) for seed in range(SPLITS)]
        one, five, seven, square = np.mean([split[1:] for split in found], axis=0)
        row = {"sets": found[0][0], "one": one, "five": five, "all seven": seven, "gain by curves": five - seven}
        table.add({"table": name, **row, "±": np.sqrt(square / SPLITS)})
    return table.rows


def measured(data: ChoiceData, seed: int) -> tuple[int, float, float, float, float]:
    """Return the number of sets fitted, losses of one, five and all, and the squared error of the gain by curves."""
    part = data if len(data) <= SETS else data.split((SETS / len(data), 1 - SETS / len(data)), seed=seed)[0]
    train, test = part.split((0.7, 0.3), seed=seed)
    _, chains = PCMCNet().fit(train, seed=seed, progress=False).fixed_chains(test)
    chosen = test.require_chosen("a benchmark")
    laws = (stationary_distribution(torch.from_numpy(rates)).numpy() for rates in chains)
    p = np.stack([law[:, k] for law, k in zip(laws, chosen, strict=True)])  # (S, 7)
    five, seven = -np.log(p[:, STRAIGHT].mean(1)), -np.log(p.mean(1))
    noise = float((five - seven).var() / len(five))
    return len(train), float(-np.log(p[:, STRAIGHT]).mean()), float(five.mean()), float(seven.mean()), noise
