"""Prediction beside the bare products of the hidden layers after the first: one set of 50, and many sets.

products   on the real pairs, forward, in the type that the network uses
network    from encoded sets on the device to log-probabilities there
table      ``predict_proba``, from choice sets to an array
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import torch

from benchmarks.harness import Row, Table, best_seconds
from benchmarks.shapes import AIRLINE, NETWORK
from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.layers.pairwise import compute_dtype
from pcmcnet.runtime.prediction import predict

COLUMNS = {
    "sets": "",
    "products, ms": ",.2f",
    "network, ms": ",.2f",
    "table, ms": ",.2f",
    "network / products": ".2f",
    "sets/s": ",.0f",
    "sets/s, table": ",.0f",
}


def measure(model: PCMCNet, data: ChoiceData, name: str, *, rounds: int, device: str = "cpu") -> Row:
    """Time a fitted model on some sets; the ways take turns, and the best of each counts."""
    encoded = model.encoder_.encode(data).to(torch.device(device))
    pairs = int((data.sizes**2).sum())
    kind = compute_dtype("auto", torch.device(device), model.config.hidden)
    part = min(pairs, 2**20)  # many pairs are multiplied a part at a time, as they would not fit
    operands = [
        (torch.randn(part, a, device=device).to(kind), torch.randn(a, b, device=device).to(kind))
        for a, b in pairwise(model.config.hidden)
    ]
    results = [torch.empty(part, weight.shape[1], dtype=kind, device=device) for _, weight in operands]

    def products() -> None:
        for begin in range(0, pairs, part):
            for (x, weight), out in zip(operands, results, strict=True):
                end = min(part, pairs - begin)
                torch.mm(x[:end], weight, out=out[:end])

    def network() -> None:
        for _ in predict(model.network_, encoded, pair_budget=5_000_000 if device == "cuda" else 1_000_000):
            pass

    ways = {"products": products, "network": network, "table": lambda: model.predict_proba(data)}
    times = best_seconds(ways, rounds, device)
    row = {f"{way}, ms": value * 1e3 for way, value in times.items()}
    speeds = {"sets/s": len(data) / times["network"], "sets/s, table": len(data) / times["table"]}
    return {"sets": name, **row, "network / products": times["network"] / times["products"], **speeds}


def compare(title: str, sets: int, *, rounds: int, device: str = "cpu") -> list[Row]:
    """Measure one set of 50 and many sets of the airline shape, with a network trained for an epoch."""
    table = Table(title, COLUMNS)
    model = PCMCNet(hidden=AIRLINE.hidden, dropout=AIRLINE.dropout, batch_size=16, epochs=1, **NETWORK)
    model.fit(AIRLINE.data(32), device=device, progress=False)
    table.add(measure(model, replace(AIRLINE, size=50).data(1), "one of 50", rounds=10 * rounds, device=device))
    many = AIRLINE.data(sets)
    table.add(measure(model, many, f"{sets:,} of all sizes", rounds=rounds, device=device))
    return table.rows


def main() -> list[Row]:
    """Compare on one CPU thread."""
    return compare("prediction at the airline shape, one CPU thread", 64, rounds=3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
