"""Prediction compared with the matrix products of the hidden layers after the first: one set of 50, and many sets.

    python -m benchmarks.prediction [CPU threads]

products   on the real pairs, forward, in the number type of the network
network    from encoded sets on the device to log-probabilities on the device
table      ``predict_proba``, from choice sets to an array

Then ``predict_proba`` from a Parquet file, a data frame and an Arrow table; decoding the file, and reading and encoding
it, without the network. ``/ network`` is the time relative to the network alone.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import torch

from benchmarks.harness import Row, Table, best_seconds
from benchmarks.shapes import AIRLINE, NETWORK
from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.data import EncodedSets
from pcmcnet.data.chunks import chunk_source
from pcmcnet.layers.pairwise import compute_dtype
from pcmcnet.training.chunks import encode_chunks
from pcmcnet.training.prediction import predict

COLUMNS = {
    "sets": "",
    "products, ms": ",.2f",
    "network, ms": ",.2f",
    "table, ms": ",.2f",
    "network / products": ".2f",
    "sets/s": ",.0f",
    "sets/s, table": ",.0f",
}
SOURCES = {"from": "", "ms": ",.1f", "sets/s": ",.0f", "/ network": ".2f"}


def measure(model: PCMCNet, data: ChoiceData, name: str, *, rounds: int, device: str = "cpu") -> Row:
    """Time a fitted model on some sets; the ways run in turn, and the best time of each counts."""
    encoded = model.encoder_.encode(data).to(torch.device(device))
    pairs = int((data.sizes**2).sum())
    kind = compute_dtype("auto", torch.device(device), model.config.hidden)
    part = min(pairs, 2**20)  # many pairs do not fit into memory and are multiplied in chunks
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

    network = partial(_drain, model, encoded, device)
    ways: dict[str, Callable[[], Any]] = {
        "products": products,
        "network": network,
        "table": lambda: model.predict_proba(data),
    }
    times = best_seconds(ways, rounds, device)
    row = {f"{way}, ms": value * 1e3 for way, value in times.items()}
    speeds = {"sets/s": len(data) / times["network"], "sets/s, table": len(data) / times["table"]}
    return {"sets": name, **row, "network / products": times["network"] / times["products"], **speeds}


def compare(title: str, sets: int, *, rounds: int, device: str = "cpu") -> list[Row]:
    """Measure one set of 50 and many sets of the airline shape, with a network trained for one epoch."""
    table = Table(title, COLUMNS)
    model = PCMCNet(hidden=AIRLINE.hidden, dropout=AIRLINE.dropout, batch_size=16, epochs=1, **NETWORK)
    model.fit(AIRLINE.data(32), device=device, progress=False)
    table.add(measure(model, replace(AIRLINE, size=50).data(1), "one of 50", rounds=10 * rounds, device=device))
    many = AIRLINE.data(sets)
    table.add(measure(model, many, f"{sets:,} of all sizes", rounds=rounds, device=device))
    return table.rows


def from_tables(title: str, sets: int, *, rounds: int, device: str = "cpu") -> list[Row]:
    """Time predictions from tables in memory and on disk, and the network alone, in turn."""
    table = Table(title, SOURCES, first=34)
    model = PCMCNet(hidden=AIRLINE.hidden, dropout=AIRLINE.dropout, batch_size=16, epochs=1, **NETWORK)
    model.fit(AIRLINE.data(32), device=device, progress=False)
    columns = pa.table(AIRLINE.table(sets))
    schema = model.schema.for_prediction()
    data = ChoiceData.from_schema(columns, schema)
    encoded = model.encoder_.encode(data, device=torch.device(device))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "airline.parquet"
        pyarrow.parquet.write_table(columns, file)
        ways: dict[str, Callable[[], Any]] = {
            "network, from encoded sets": partial(_drain, model, encoded, device),
            "choice sets": partial(model.predict_proba, data),
            "Arrow table": partial(model.predict_proba, columns),
            "Parquet file": partial(model.predict_proba, file),
            "Parquet file, decoded only": lambda: pyarrow.parquet.read_table(file, columns=list(schema.columns)),
            "Parquet file, encoded only": lambda: encode_only(model, file, device),
        }
        if find_spec("pandas"):
            ways["pandas frame"] = partial(model.predict_proba, columns.to_pandas())
        times = best_seconds(ways, rounds, device)
    alone = times["network, from encoded sets"]
    for name, value in times.items():
        table.add({"from": name, "ms": value * 1e3, "sets/s": sets / value, "/ network": value / alone})
    return table.rows


def encode_only(model: PCMCNet, file: Path, device: str) -> None:
    """Read and encode a Parquet file as a prediction on the device does, without predicting."""
    schema, place = model.schema.for_prediction(), torch.device(device)
    source = chunk_source(file, schema) if device == "cuda" else None
    if source is None:
        model.encoder_.encode(ChoiceData.from_schema(file, schema), device=place)
        return
    for _ in encode_chunks(model.encoder_, source.chunks(), place):
        pass


def _drain(model: PCMCNet, encoded: EncodedSets, device: str) -> None:
    for _ in predict(model.network_, encoded, pair_budget=5_000_000 if device == "cuda" else 1_000_000):
        pass


def main(threads: int = 1) -> list[Row]:
    """Measure on one CPU thread or on several."""
    torch.set_num_threads(threads)
    used = "one CPU thread" if threads == 1 else f"{threads} CPU threads"
    rows = compare(f"prediction at the airline shape, {used}", 64, rounds=3)
    return rows + from_tables(f"from a table to probabilities at the airline shape, 256 sets, {used}", 256, rounds=3)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
