"""Compute the rates of the model from records of benchmarks, and compare its predictions with measured fits.

Rates of the host, of steps on a CPU and of gloo sums come from ``benchmarks.scaling_parts``, processes that share a
scan from ``benchmarks.streaming``, workers from ``benchmarks.cluster``, growth with the set size from
``benchmarks.scaling`` and the GPU from ``benchmarks.gpu``. Rates that cannot be measured on these machines are in
``ASSUMED``, with their meaning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from benchmarks.harness import Row
from benchmarks.scaling_model import AS_IT_IS, Job, Parts, Rates, epoch_seconds, learn_seconds, parts, scan_seconds

MEASURED = Path(__file__).parent / "measured"
AIRLINE = {"alternatives": 32.5, "mean_square": 1_327.0, "mean_cube": 58_937.0}  # mean of ``shapes.AIRLINE``
HIDDEN = (512, 512)  # of the network in the GPU benchmarks


class Assumed(NamedTuple):
    """An assumed value and its meaning."""

    value: float
    unit: str
    stands_for: str


ASSUMED = {
    "bus": Assumed(6e9, "bytes/s", "copies from pageable memory over PCIe 5"),
    "hop": Assumed(15e-6, "s", "one step of a sum between GPUs, NVLink within and InfiniBand between machines"),
    "wire": Assumed(25e9, "bytes/s", "bandwidth of such a sum for messages of about a megabyte"),
    "link": Assumed(3e9, "bytes/s", "share of a worker in the network of a machine with 8 GPUs and 200 Gbit/s"),
    "store": Assumed(40e9, "bytes/s", "a parallel file system, for all workers together"),
    "start": Assumed(60.0, "s", "start of 64 workers by Ray"),
    "price": Assumed(4.0, "USD/h", "rent of an H200 per hour, with its share of the machine"),
    "spread": Assumed(0.05, "", "standard deviation of the logarithm of a worker's time for a step"),
    "deaths": Assumed(1e-3, "/h", "failures of a worker, including its machine"),
}


def figures(folder: Path = MEASURED) -> dict[str, list[Row]]:
    """Read all records of a folder; return rows by section."""
    records: dict[str, list[Row]] = {}
    for file in sorted(folder.glob("*.json")):
        records |= json.loads(file.read_text())["figures"]
    return records


def _line(x: Iterable[float], y: Iterable[float]) -> tuple[float, float]:
    """Fit y = a + b x with a, b >= 0 by least squares of relative errors."""
    x, y = np.array(list(x), float), np.array(list(y), float)
    (a, b), _ = nnls(np.stack([1 / y, x / y], 1), np.ones(len(x)))
    return float(a), float(b)


def _mean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(list(values)))))


def host(records: dict[str, list[Row]], table: str | None = None) -> dict[str, float]:
    """Return the rates of the host, averaged over both tables, and the bytes per row of one table."""
    rows = records["tables"]
    extra = {"scan": 2, "learn": 0, "read": 0}  # columns that are not features: id and choice
    rates = {
        name: _mean(r["rows/s"] * (r["columns"] + more) for r in rows if r["part"] == name)
        for name, more in extra.items()
    }
    one = next(r for r in rows if r["table"] == (table or "airline"))
    check = _mean(r["rows/s"] * r["shard_bytes"] for r in rows if r["part"] == "check")
    plan = _mean(r["sets/s"] for r in rows if r["part"] == "plan")
    outlined = _mean(r["sets/s"] for r in rows if r["part"] == "sizes")
    sums = records["checkpoint"][0]
    sizes = {"shard_bytes": one["shard_bytes"], "encoded_bytes": one["encoded_bytes"]}
    gains = [min(r["x scan"], r["x learn"]) / r["workers"] for r in records.get("scanners", []) if r["workers"] > 1]
    rates["sharing"] = min(gains, default=1.0)
    return {**rates, "sizes": outlined, "check": check, "plan": plan, **sizes, "checkpoint": 1e6 * sums["MB/s"]}


def on_cpu(records: dict[str, list[Row]], table: str, hidden: str) -> Rates:
    """Return the rates of one CPU thread, for a table and a network of the step benchmark."""
    rows = [r for r in records["steps"] if r["table"] == table and r["hidden"] == hidden]
    taken = [r["ms a step"] / 1e3 for r in rows]
    step, each = _line((r["sets/s"] * seconds for r, seconds in zip(rows, taken, strict=True)), taken)
    alone, per_byte = _line((4 * r["numbers"] for r in records["group"]), (r["ms"] / 1e3 for r in records["group"]))
    pair = each / rows[0]["pairs"]  # elimination takes about one percent here
    return Rates(**host(records, table), step=step, pair=pair, cube=0.0, hop=alone / 2, wire=1 / per_byte)


def on_gpu(records: dict[str, list[Row]]) -> Rates:
    """Return the rates of one GPU and its host, with assumed rates of the network between GPUs."""
    timed = [r for r in records["training"] if r["shape"] == "airline" and r.get("ours")]
    step, each = _line((r["batch"] for r in timed), (r["batch"] / r["ours"] for r in timed))
    law = next(r for r in records["stationary"] if r["sets of n, sigma"] == "512 of 33, 1")
    cube = law["replayed, ms"] / 1e3 / 512 / 33**3
    pair = (each - cube * AIRLINE["mean_cube"]) / AIRLINE["mean_square"]
    issue = min(r["batch"] / r["ours"] for r in records["launched"])  # smallest batch: launching dominates
    assumed = {name: ASSUMED[name].value for name in ("bus", "hop", "wire", "link", "store", "start")}
    return Rates(**host(records), step=step, pair=pair, cube=cube, issue=issue, **assumed)


def growth(records: dict[str, list[Row]]) -> tuple[Row, list[Row]]:
    """Fit a + r n + b n^2 + c n^3 to the times of a CPU step by set size; return the factors and the errors."""
    row = next(r for r in records["scaling"] if r["in"] in ("alternatives", "n"))
    n, seconds = np.array(row["sizes"]), np.array(row["seconds"])
    powers = np.stack([n**0, n, n**2, n**3], 1)
    factors, _ = nnls(powers / seconds[:, None], np.ones(len(n)))
    times = zip(n, powers @ factors, seconds, strict=True)
    rows = [_comparison(f"a step, 8 sets of {int(k)}", float(p), float(s)) for k, p, s in times]
    return dict(zip(("step", "row", "pair", "cube"), factors.tolist(), strict=True)), rows


def _comparison(what: str, predicted: float, measured: float, about: str = "") -> Row:
    error = predicted / measured - 1
    return {"what": what, "predicted": predicted, "measured": measured, "error": error, "about": about}


def validated(records: dict[str, list[Row]]) -> list[Row]:
    """Compare the model with fits that were not used for its rates."""
    rows: list[Row] = []
    for r in (r for r in records["tables"] if r["part"] == "read, 1 of 2"):
        rates_of_host = host(records, r["table"])
        predicted = r["half"] * r["rows"] * r["columns"] / rates_of_host["read"] + r["sets"] / rates_of_host["sizes"]
        rows.append(_comparison(f"{r['table']}, read by 1 of 2, CPU time", predicted, r["seconds"]))
    for r in records.get("shared", []):
        timed = _epoch_of_workers(records, "64x64", r["workers"], r["sets"], r["parameters"])
        predicted = timed.compute + timed.launch  # waiting for a sum takes no CPU time
        rows.append(_comparison(f"1,200 sets, {r['workers']} of gloo, CPU time each", predicted, r["cpu"]))
    for r in records.get("own", []):
        job, rates = _streamed(records, r)
        timed = parts(replace(job, workers=r["workers"], batch=256 / r["workers"], shards=r["shards"]), rates)
        predicted = timed.read + timed.sizes + timed.plan + timed.compute + timed.launch
        rows.append(_comparison(f"83,320 sets from disk, {r['workers']} of gloo, CPU time each", predicted, r["cpu"]))
    for r in records.get("workers", []):
        workers, sets = 2 if "2" in r["way"] else 1, r["sets/s"] * r["s/epoch"]
        timed = _epoch_of_workers(records, r["hidden"], workers, sets, r["parameters"])
        rows.append(_comparison(f"1,200 sets, {r['way']}, wall time", timed.use(AS_IT_IS) - timed.plan, r["s/epoch"]))
    for r in records.get("stream", []):
        job, rates = _streamed(records, r)
        timed, learn = parts(job, rates), learn_seconds(job, rates)
        if r["part"] == "scan":
            rows.append(_comparison("20.8M rows, scan, CPU time", scan_seconds(job, rates), r["cpu"]))
            rows.append(_comparison("20.8M rows, scan, wall time", scan_seconds(job, rates), r["wall"]))
        else:
            cpu = learn + timed.read + timed.use(AS_IT_IS) + timed.keep
            rows.append(_comparison("20.8M rows, fit, CPU time", cpu, r["cpu"]))
            rows.append(_comparison("20.8M rows, fit, wall time", learn + epoch_seconds(job, rates), r["wall"]))
    for r in records.get("throughput", []):
        rates = on_cpu(records, "searches", "16x16")
        sets = r["sets/s"] * r["seconds"]
        job = Job(sets=sets, alternatives=12.48, batch=256, columns=6, parameters=14_057, memory=16 * 2**20)
        job = replace(job, mean_square=_pairs(records, "searches"))
        predicted = epoch_seconds(job, rates) if r["sets from"] == "disk" else parts(job, rates).use(AS_IT_IS)
        rows.append(_comparison(f"83,320 sets from {r['sets from']}, epoch", predicted, r["seconds"]))
    for r in records.get("prediction", []):
        if r.get("sets/s, table"):  # encoded values: 39 columns of 32.5 alternatives, and 60 of the individual
            predicted = (32.5 * 39 + 60) / host(records)["read"] + 1 / r["sets/s"]
            rows.append(_comparison("a set encoded and predicted, GPU, us", 1e6 * predicted, 1e6 / r["sets/s, table"]))
    return rows


def _epoch_of_workers(records: dict[str, list[Row]], hidden: str, workers: int, sets: float, parameters: int) -> Parts:
    """Predict an epoch of ``benchmarks.cluster``: batches of 64 sets in memory, shared by workers of one thread."""
    each = sets / math.ceil(sets / 64) / workers
    job = Job(sets=sets, alternatives=33, workers=workers, batch=each, parameters=parameters, in_memory=True)
    return parts(replace(job, mean_square=_pairs(records, "airline")), on_cpu(records, "airline", hidden))


def _pairs(records: dict[str, list[Row]], table: str) -> float:
    return float(next(r["pairs"] for r in records["steps"] if r["table"] == table))


def _streamed(records: dict[str, list[Row]], row: dict[str, Any]) -> tuple[Job, Rates]:
    job = Job(
        sets=row["sets"],
        alternatives=row["rows"] / row["sets"],
        mean_square=row["pairs"] / row["sets"],
        batch=256,
        columns=6,
        parameters=14_057,
        memory=row["memory"],
    )
    return job, on_cpu(records, "searches", "16x16")
