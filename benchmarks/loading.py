"""Reading the airline table: ``ChoiceData.from_long`` beside one data frame per choice set.

The table has the shape of the paper's experiment: 33,951 choice sets of 1 to 50 itineraries, about 1.1 million rows,
the columns of its appendix (two ids beside them) in one CSV. The published way reads it with pandas and keeps a list
of its groups. Each measurement runs in a process of its own; memory is the growth of its peak while it reads.

    python -m benchmarks.loading
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

SETS, LARGEST, MEAN = 33_951, 50, 33
REPEATS = 3
INDIVIDUAL = (
    *("OD", "office", "departure_weekday", "stay_saturday", "continental", "domestic", "days_to_departure"),
)
FEATURES = (
    *("airline", "price", "stay_duration", "trip_duration", "connections", "airlines"),
    *("departure_time", "arrival_time"),
)


def write_table(path: Path, *, sets: int = SETS, seed: int = 0) -> int:
    """Write the CSV; returns its number of rows."""
    rng = np.random.default_rng(seed)
    sizes = 1 + rng.binomial(LARGEST - 1, rng.beta(2.0, 2.0 * (LARGEST - MEAN) / (MEAN - 1), sets))
    of_row, n = np.repeat(np.arange(sets), sizes), int(sizes.sum())
    chosen = np.zeros(n, np.int8)
    chosen[np.cumsum(sizes) - 1 - rng.integers(0, sizes)] = 1
    columns = {
        "session": of_row,
        "choice": chosen,
        "OD": np.array([f"O{k:02d}/D{k:02d}" for k in range(97)])[rng.integers(0, 97, sets)][of_row],
        "office": np.array([f"OFFICE{k:02d}" for k in range(11)])[rng.integers(0, 11, sets)][of_row],
        "departure_weekday": rng.integers(0, 7, sets)[of_row],
        "stay_saturday": rng.integers(0, 2, sets)[of_row],
        "continental": rng.integers(0, 2, sets)[of_row],
        "domestic": rng.integers(0, 2, sets)[of_row],
        "days_to_departure": rng.integers(0, 344, sets)[of_row],
        "itinerary": np.arange(n) - (np.cumsum(sizes) - sizes)[of_row],
        "airline": np.array([f"A{k:02d}" for k in range(63)])[rng.integers(0, 63, n)],
        "price": np.round(np.exp(rng.uniform(np.log(77.15), np.log(16781.5), n)), 2),
        "stay_duration": rng.integers(121, 434_001, n),
        "trip_duration": rng.integers(105, 4_315, n),
        "connections": rng.integers(2, 7, n),
        "airlines": rng.integers(1, 5, n),
        "departure_time": rng.integers(0, 1_401, n) * 60,
        "arrival_time": rng.integers(0, 1_401, n) * 60,
    }
    pyarrow.csv.write_csv(pa.table(columns), path)
    return n


def read_choice_sets(path: Path) -> dict[str, float]:
    """Time ``from_long`` and count the bytes of the columns it keeps."""
    from pcmcnet.data.choice_data import ChoiceData
    from pcmcnet.data.columns import raw

    begin, before = time.perf_counter(), _peak()
    data = ChoiceData.from_long(
        path,
        choice_set="session",
        chosen="choice",
        alternative="itinerary",
        individual=INDIVIDUAL,
        features=FEATURES,
    )
    seconds, growth = time.perf_counter() - begin, _peak() - before
    columns = [*data.features.values(), *data.individual.values()]
    arrays = [*map(raw, columns), data.offsets, data.set_ids, data.weights, data.chosen, data.rows]
    arrays += [] if data.labels is None else [data.labels.codes]
    return {"seconds": seconds, "growth": growth, "sets": len(data), "kept": sum(a.nbytes for a in arrays)}


def read_frames(path: Path) -> dict[str, float]:
    """Time pandas and one frame per set."""
    import pandas as pd

    begin, before = time.perf_counter(), _peak()
    frames = [frame for _, frame in pd.read_csv(path).groupby("session")]
    return {"seconds": time.perf_counter() - begin, "growth": _peak() - before, "sets": len(frames)}


def _peak() -> int:
    """Bytes of the largest resident set so far (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(name: str, path: Path) -> dict[str, float]:
    """Run one of the readers in a fresh process; the best time of some runs, each with its own memory."""
    code = f"import json; from pathlib import Path; from benchmarks import loading; print(json.dumps(loading.{name}(Path({str(path)!r}))))"
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        for _ in range(REPEATS)
    ]
    return min(runs, key=lambda run: run["seconds"])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "airline.csv"
        rows = write_table(path)
        print(rows, path.stat().st_size/1e6)
        ours, frames = measure("read_choice_sets", path), measure("read_frames", path)
        print(ours, frames)


if __name__ == "__main__":
    main()
