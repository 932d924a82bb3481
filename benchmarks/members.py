"""What it brings to put five networks together: held-out losses of the members alone and of their mean."""

from __future__ import annotations

import numpy as np
from torch import nn

from benchmarks.harness import Row, Table
from pcmcnet import ChoiceData, PCMCNet, evaluate
from pcmcnet.datasets import packaged
from pcmcnet.models.networks.chain_network import PCMCNetwork

TABLES = ("mode-canada", "mtc-work", "itinerary", "car", "swissmetro", "electricity", "heating")  # of development
SPLITS, SETS = 2, 3_500
COLUMNS = {"table": "", "sets": ",", "one network": ".4f", "five": ".4f", "gain": ".4f", "± of one": ".4f"}


def main() -> list[Row]:
    """Fit 70% of up to 3,500 sets with default options, two random parts of each table; persons stay together."""
    table = Table("held-out NLL of a default fit: mean of five networks, and the same networks one by one", COLUMNS)
    for name in TABLES:
        rows, schema = packaged.long_form(name)
        data = ChoiceData.from_schema(rows, schema)
        found = [measured(data, seed) for seed in range(SPLITS)]
        alone, together, spread = np.mean([split[1:] for split in found], axis=0)
        row = {"sets": found[0][0], "one network": alone, "five": together, "gain": alone - together}
        table.add({"table": name, **row, "± of one": spread})
    return table.rows


def measured(data: ChoiceData, seed: int) -> tuple[int, float, float, float]:
    """Return the number of sets fitted, the mean loss of one network, the loss of all, and the spread of the former."""
    part = data if len(data) <= SETS else data.split((SETS / len(data), 1 - SETS / len(data)), seed=seed)[0]
    train, test = part.split((0.7, 0.3), seed=seed)
    model = PCMCNet().fit(train, seed=seed, progress=False)
    network = model.network_
    assert isinstance(network, PCMCNetwork)
    together, members = float(evaluate(model, test).nll or 0.0), network.members
    network.others = nn.ModuleList()
    alone = []
    for member in members:
        model.network_ = member
        alone.append(float(evaluate(model, test).nll or 0.0))
    return len(train), float(np.mean(alone)), together, float(np.std(alone, ddof=1))
