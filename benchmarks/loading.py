"""Reading the airline table: ``ChoiceData`` against one data frame per choice set, in one run.

The table has the shape of the paper's experiment: 33,951 choice sets of 1 to 50 itineraries, about 1.1 million rows,
the columns of its appendix and three columns of ids and choices, in one CSV. The published code reads it with pandas,
numbers categories, standardises, keeps a list of groups, and makes tensors of each group in every epoch. pcmcnet reads
and checks the table, and encodes tensors once.

Each measurement runs in a separate process that has read a small table before. The processes run in turn, and the best
of some runs counts. Memory is the growth of the peak while reading. Reading uses all cores, so the ratio depends on
how many are free.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks.harness import Row, Table

SETS, LARGEST, MEAN = 33_951, 50, 33
RUNS = 3
SAMPLE = 1_000  # sets converted to tensors; the time is scaled to all sets
STEPS = {
    "grouping": "seconds to group, once parsed",
    "seconds": "... to parse and group",
    "coded": "... with coded columns",
    "tensors": "... as tensors, once",
    "growth": "growth of the peak while reading, MB",
}
CATEGORIES = ["OD", "office", "airline"]
INDIVIDUAL = ["OD", "office", "weekday", "stay_saturday", "continental", "domestic", "days_to_departure"]
FEATURES = ["airline", "price", "stay", "duration", "connections", "airlines", "departure", "arrival"]


def write_table(path: Path, sets: int, seed: int = 0) -> int:
    """Write the CSV with values in the ranges of the paper's appendix; return the number of rows."""
    rng = np.random.default_rng(seed)
    sizes = 1 + rng.binomial(LARGEST - 1, rng.beta(2.0, 2.0 * (LARGEST - MEAN) / (MEAN - 1), sets))
    owner, n = np.repeat(np.arange(sets), sizes), int(sizes.sum())
    begin = np.cumsum(sizes) - sizes
    chosen = np.zeros(n, np.int8)
    chosen[begin + rng.integers(0, sizes)] = 1
    columns = {
        "session": owner,
        "itinerary": np.arange(n) - begin[owner],
        "choice": chosen,
        "OD": np.array([f"O{k:02d}/D{k:02d}" for k in range(97)])[rng.integers(0, 97, sets)][owner],
        "office": np.array([f"OFFICE{k:02d}" for k in range(11)])[rng.integers(0, 11, sets)][owner],
        "weekday": rng.integers(0, 7, sets)[owner],
        "stay_saturday": rng.integers(0, 2, sets)[owner],
        "continental": rng.integers(0, 2, sets)[owner],
        "domestic": rng.integers(0, 2, sets)[owner],
        "days_to_departure": rng.integers(0, 344, sets)[owner],
        "airline": np.array([f"A{k:02d}" for k in range(63)])[rng.integers(0, 63, n)],
        "price": np.round(np.exp(rng.uniform(np.log(77.15), np.log(16_781.5), n)), 2),
        "stay": rng.integers(121, 434_001, n),
        "duration": rng.integers(105, 4_315, n),
        "connections": rng.integers(2, 7, n),
        "airlines": rng.integers(1, 5, n),
        "departure": 60 * rng.integers(0, 1_401, n),
        "arrival": 60 * rng.integers(0, 1_401, n),
    }
    pyarrow.csv.write_csv(pa.table(columns), path)
    return n


def choice_sets(path: Path) -> dict[str, float]:
    """Time ``from_long`` and the encoding; count the bytes of the columns in memory."""
    from pcmcnet.data import ChoiceData, Encoder
    from pcmcnet.data.columns.arrays import stored_values
    from pcmcnet.data.files.tabular import read_table

    roles = {"choice_set": "session", "chosen": "choice", "alternative": "itinerary"}
    clock = Clock()
    data = ChoiceData.from_long(path, individual=INDIVIDUAL, features=FEATURES, **roles)
    read = clock()
    sets = Encoder.learn(data).encode(data)
    coded = clock()["seconds"]
    columns = [*data.features.values(), *data.individual.values(), *([data.labels] if data.labels else [])]
    table = read_table(path)
    clock = Clock()
    ChoiceData.from_long(table, individual=INDIVIDUAL, features=FEATURES, **roles)
    grouping = clock()["seconds"]
    arrays = [*map(stored_values, columns), data.rows, data.offsets, data.set_ids, data.weights, data.chosen]
    column_bytes = sum(array.nbytes for array in arrays if array is not None)
    times = {"grouping": grouping, "coded": coded, "tensors": coded}
    return {**read, **times, "kept": column_bytes, "sets": len(sets), "rows": len(sets.numeric)}


def data_frames(path: Path) -> dict[str, float]:
    """Time pandas with one frame per set, also with encoded columns, and the conversion to tensors."""
    import pandas as pd
    import torch
    from sklearn.preprocessing import LabelEncoder, StandardScaler

    clock = Clock()
    table = pd.read_csv(path)
    reading = clock()["seconds"]
    frames = [frame for _, frame in table.groupby("session")]
    read = clock()
    grouping = read["seconds"] - reading
    del frames
    clock = Clock()
    for name in CATEGORIES:
        table[name] = LabelEncoder().fit_transform(table[name])
    numbers = [name for name in (*INDIVIDUAL, *FEATURES) if name not in CATEGORIES]
    table[numbers] = StandardScaler().fit_transform(table[numbers])
    frames = [frame for _, frame in table.groupby("session")]
    coded = reading + clock()["seconds"]
    clock = Clock()
    for frame in frames[:SAMPLE]:
        torch.tensor(np.flatnonzero(frame["choice"].values == 1))
        for columns in (INDIVIDUAL[:2], INDIVIDUAL[2:]):
            torch.tensor(frame[columns].iloc[[0]].values)
        for columns in (FEATURES[:1], FEATURES[1:]):
            torch.tensor(frame[columns].values)
    tensors = coded + clock()["seconds"] * len(frames) / SAMPLE
    times = {"grouping": grouping, "coded": coded, "tensors": tensors}
    return {**read, **times, "sets": len(frames), "rows": sum(map(len, frames))}


class Clock:
    """Measures seconds and growth of the memory peak, in MB, since its creation.

    The peak is read from /proc, because getrusage also counts the process that started this one.
    """

    def __init__(self) -> None:
        self.peak, self.begin = self._peak(), time.perf_counter()

    def __call__(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self.begin, "growth": (self._peak() - self.peak) / 1e6}

    def _peak(self) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def in_own_process(reader: Callable[[Path], dict[str, float]], *paths: Path) -> dict[str, float]:
    """Measure the last of several tables in a new process, after reading the others."""
    code = "import json, sys; from pathlib import Path; from benchmarks import loading; "
    code += "print(json.dumps([getattr(loading, sys.argv[1])(Path(path)) for path in sys.argv[2:]][-1]))"
    command = [sys.executable, "-c", code, reader.__name__, *map(str, paths)]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return result


def main() -> list[Row]:
    """Print seconds, their ratio, and memory with the bytes of the columns."""
    runs: dict[str, list[dict[str, Any]]] = {"frames": [], "ours": []}
    with tempfile.TemporaryDirectory() as folder:
        small, path = Path(folder) / "small.csv", Path(folder) / "airline.csv"
        write_table(small, 50)
        rows = write_table(path, SETS)
        title = f"loading {SETS:,} choice sets, {rows:,} rows, {path.stat().st_size / 1e6:.0f} MB of CSV"
        for _ in range(RUNS):
            runs["frames"].append(in_own_process(data_frames, small, path))
            runs["ours"].append(in_own_process(choice_sets, small, path))
    for run in (*runs["frames"], *runs["ours"]):
        if (run["sets"], run["rows"]) != (SETS, rows):
            raise RuntimeError(f"expected {SETS} sets of {rows} rows, read {run}")
    columns = {"step": "", "one frame per set": ".2f", "pcmcnet": ".2f", "ratio": ".2f"}
    table = Table(title, columns, first=36)
    for key, label in STEPS.items():
        frames, ours = (min(run[key] for run in runs[way]) for way in ("frames", "ours"))
        table.add({"step": label, "one frame per set": frames, "pcmcnet": ours, "ratio": ours / frames})
    size, wide_size = runs["ours"][0]["kept"] / 1e6, rows * 18 * 8 / 1e6
    print(f"(the columns take {size:.0f} MB in memory; as 64-bit numbers they would take {wide_size:.0f} MB)")
    return table.rows


if __name__ == "__main__":
    main()
