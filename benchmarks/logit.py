"""Conditional logit from a file to estimates with standard errors: pcmcnet, larch and xlogit, in one run.

There are two problems. One is the packaged itinerary table (a compressed CSV), with price and duration standardised.
The other has a million simulated rows of 10 numbers, in sets of 5 to 10 alternatives, in a Parquet file. The ways are
those of ``benchmarks/logit_ways.py``. Each runs in a separate process with one thread, in turn. Imports and the first
fit of a process are timed separately; the best of the other fits, over some rounds, counts. larch compiles its code and
caches it on disk: its first process starts with an empty cache.

larch needs an older scipy than the tested one. Install the peers in a separate environment, and set PCMCNET_PEERS to
its interpreter. Otherwise this interpreter is used; a peer that cannot be imported is skipped::

    python3 -m venv ../peers && ../peers/bin/pip install larch==6.0.46 xlogit==0.2.7 pandas pyarrow
    PCMCNET_PEERS=../peers/bin/python python -m benchmarks.logit
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.harness import Row, Table
from benchmarks.logit_ways import WAYS
from pcmcnet.datasets import packaged
from pcmcnet.errors import DatasetError

ROUNDS = 3
SETS, SMALLEST, LARGEST, WIDTH = 133_333, 5, 10, 10
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA", "NUMEXPR")}
AGREE = 1e-3  # largest difference of log-likelihoods; packages have different stopping rules
NEAR = 0.05  # largest differences of estimates, in standard errors, and of standard errors, relative

COLUMNS = {
    "package": "",
    "prepare": ".2f",
    "fit": ".2f",
    "total": ".2f",
    "ratio": ".2f",
    "first call": ".2f",
    "import": ".1f",
}


def itinerary() -> dict[str, Any]:
    """Return the task for the itinerary table."""
    return {
        "file": str(packaged.path("itinerary")),
        "choice_set": "individual",
        "alternative": "alternative",
        "chosen": "choice",
        "features": ["totalPrice", "totalTripDurationMinutes", "nFlights"],
        "standardised": ["totalPrice", "totalTripDurationMinutes"],
    }


def simulated(path: Path, seed: int = 0) -> dict[str, Any]:
    """Write choices drawn from a logit with known coefficients."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(SMALLEST, LARGEST + 1, SETS)
    owner, begin = np.repeat(np.arange(SETS), sizes), np.cumsum(sizes) - sizes
    x = rng.standard_normal((len(owner), WIDTH))
    utility = x @ np.linspace(-1, 1, WIDTH) + rng.gumbel(size=len(owner))
    chosen = (utility == np.maximum.reduceat(utility, begin)[owner]).astype(np.int8)
    features = {f"x{k}": x[:, k] for k in range(WIDTH)}
    columns = {"set": owner, "place": np.arange(len(owner)) - begin[owner], "chosen": chosen, **features}
    pa.parquet.write_table(pa.table(columns), path)
    roles = {"choice_set": "set", "alternative": "place", "chosen": "chosen"}
    return {"file": str(path), **roles, "features": list(features), "standardised": []}


def in_own_process(way: str, task: dict[str, Any], cache: str) -> dict[str, Any]:
    """Run a way on a task with one thread; peers run with the interpreter in PCMCNET_PEERS."""
    # Links are not resolved: they identify the environment.
    peers = Path(os.environ.get("PCMCNET_PEERS", sys.executable)).absolute()
    python = sys.executable if way == "pcmcnet" else str(peers)
    command = [python, "-m", "benchmarks.logit_ways", way, json.dumps(task)]
    surroundings = {**os.environ, **ONE_THREAD, "NUMBA_CACHE_DIR": cache}
    root = Path(__file__).parents[1]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=surroundings, cwd=root)
    if done.returncode:
        raise RuntimeError(f"{way} failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # a peer may print other lines first
    return result


def measure(task: dict[str, Any], cache: str) -> dict[str, list[dict[str, Any]]]:
    """Run the ways in turn; print and skip those that are not installed."""
    rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way in list(rounds):
            result = in_own_process(way, task, cache)
            if "missing" in result:
                print(f"(skipped: {way}, which cannot be imported: {result['missing']})")
                del rounds[way]
            else:
                rounds[way].append(result)
    return rounds


def check(rounds: dict[str, list[dict[str, Any]]]) -> float:
    """Check that all ways found the same maximum; return the largest difference of log-likelihoods."""
    fits = [(way, fit) for way, results in rounds.items() for result in results for fit in result["fits"]]
    ours = rounds["pcmcnet"][0]["fits"][0]
    values, errors = np.array(ours["coefficients"]), np.array(ours["errors"])
    for way, fit in fits:
        shift, stretch = np.abs(fit["coefficients"] - values) / errors, np.abs(fit["errors"] / errors - 1)
        if not max(shift.max(), stretch.max()) < NEAR:
            raise RuntimeError(f"{way} and pcmcnet disagree: {fit} and {ours}")
    apart = float(np.ptp([fit["log_likelihood"] for _, fit in fits]))
    if not apart < AGREE:
        raise RuntimeError(f"expected log-likelihoods within {AGREE}, got a difference of {apart} between {fits}")
    return apart


def compare(title: str, task: dict[str, Any], cache: str) -> list[Row]:
    """Print the best seconds of each way and the ratio of totals."""
    cold = not any(Path(cache).iterdir())
    rounds = measure(task, cache)
    apart = check(rounds)
    table = Table(title, COLUMNS)
    best = {way: min((fit for r in results for fit in r["fits"][1:]), key=_total) for way, results in rounds.items()}
    for way, results in rounds.items():
        row = {"package": f"{way} {results[0]['version']}", **{k: best[way][k] for k in ("prepare", "fit", "total")}}
        firsts = {"first call": min(_total(r["fits"][0]) for r in results), "import": min(r["import"] for r in results)}
        table.add({**row, "ratio": best["pcmcnet"]["total"] / best[way]["total"], **firsts})
    if cold and "larch" in rounds:
        start = rounds["larch"][0]
        print(f"(larch with an empty cache: import {start['import']:.1f}, first call {_total(start['fits'][0]):.1f})")
    if len(rounds) > 1:
        print(f"(log-likelihoods agree: {best['pcmcnet']['log_likelihood']:.3f}, largest difference {apart:.0e})")
    return [{"problem": title.strip(), **row} for row in table.rows]


def main() -> list[Row]:
    """Compare the packages on both problems."""
    print("conditional logit, seconds from a file to estimates with standard errors, one CPU thread")
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        try:
            found += compare("\nitinerary table, 615 sets, 20,144 rows, 3 coefficients", itinerary(), cache)
        except DatasetError as error:
            print(f"(skipped: the itinerary table. {error})")
        task = simulated(Path(folder) / "choices.parquet")
        rows = pa.parquet.read_metadata(task["file"]).num_rows
        found += compare(f"\n{SETS:,} simulated sets, {rows:,} rows, {WIDTH} coefficients", task, cache)
    return found


def _total(fit: dict[str, Any]) -> float:
    seconds: float = fit["total"]
    return seconds


if __name__ == "__main__":
    main()
