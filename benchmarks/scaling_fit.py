"""Records of benchmarks -> the rates of the model, and what the model says of fits that were measured.

Host, steps on a CPU and sums by gloo are of ``benchmarks.scaling_parts``, processes that share a scan of
``benchmarks.streaming``, workers of ``benchmarks.cluster``, growth with the size of sets of ``benchmarks.scaling`` and
the GPU of ``benchmarks.gpu``. What cannot be measured on these machines is in ``ASSUMED``, each with what it stands
for.
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
AIRLINE = {"alternatives": 32.5, "mean_square": 1_327.0, "mean_cube": 58_937.0}  # of ``shapes.AIRLINE``
HIDDEN = (512, 512)  # of the network that the GPU was timed with


class Assumed(NamedTuple):
    """A figure that was not measured here, and what it stands for."""

    value: float
    unit: str
    stands_for: str


ASSUMED = {
    "bus": Assumed(6e9, "bytes/s", "copies from pageable memory over PCIe 5"),
    "hop": Assumed(15e-6, "s", "one step of a sum between GPUs, NVLink within and InfiniBand between machines"),
    "wire": Assumed(25e9, "bytes/s", "of such a sum for messages of about a megabyte"),
    "link": Assumed(3e9, "bytes/s", "what a worker gets of the network of a machine with 8 GPUs and 200 Gbit/s"),
    "store": Assumed(40e9, "bytes/s", "of a parallel file system, for all workers together"),
    "start": Assumed(60.0, "s", "until Ray has started 64 workers"),
    "price": Assumed(4.0, "USD/h", "of an H200, rented by the hour with its share of the machine"),
    "spread": Assumed(0.05, "", "of the logarithm of a worker's time for a step"),
    "deaths": Assumed(1e-3, "/h", "of a worker, its machine included"),
}


def figures(folder: Path = MEASURED) -> dict[str, list[Row]]:
    """Read all records of a folder; the sections have names of their own."""
    found: dict[str, list[Row]] = {}
    for file in sorted(folder.glob("*.json")):
        found |= json.loads(file.read_text())["figures"]
    return found


def _line(x: Iterable[float], y: Iterable[float]) -> tuple[float, float]:
    """Fit y = a + b x with a, b >= 0 by least squares of relative errors."""
    x, y = np.array(list(x), float), np.array(list(y), float)
    (a, b), _ = nnls(np.stack([1 / y, x / y], 1), np.ones(len(x)))
    return float(a), float(b)


def _mean(values: Iterable[float]) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(list(values)))))


def host(found: dict[str, list[Row]], table: str | None = None) -> dict[str, float]:
    """Rates of what the host does: per value over both tables, and the bytes of a row of one of them."""
    rows = found["tables"]
    extra = {"scan": 2, "learn": 0, "read": 0}  # columns beside those of the model: id and choice
    rates = {
        name: _mean(r["rows/s"] * (r["columns"] + more) for r in rows if r["part"] == name)
        for name, more in extra.items()
    }
    one = next(r for r in rows if r["table"] == (table or "airline"))
    check = _mean(r["rows/s"] * r["shard_bytes"] for r in rows if r["part"] == "check")
    plan = _mean(r["sets/s"] for r in rows if r["part"] == "plan")
    outlined = _mean(r["sets/s"] for r in rows if r["part"] == "sizes")
    sums = found["checkpoint"][0]
    sizes = {"shard_bytes": one["shard_bytes"], "encoded_bytes": one["encoded_bytes"]}
    gains = [min(r["x scan"], r["x learn"]) / r["workers"] for r in found.get("scanners", []) if r["workers"] > 1]
    rates["sharing"] = min(gains, default=1.0)
    return {**rates, "sizes": outlined, "check": check, "plan": plan, **sizes, "checkpoint": 1e6 * sums["MB/s"]}


def on_cpu(found: dict[str, list[Row]], table: str, hidden: str) -> Rates:
    """Rates of one CPU thread, of a table and a network that steps were timed with."""
    rows = [r for r in found["steps"] if r["table"] == table and r["hidden"] == hidden]
    taken = [r["ms a step"] / 1e3 for r in rows]
    step, each = _line((r["sets/s"] * seconds for r, seconds in zip(rows, taken, strict=True)), taken)
    alone, per_byte = _line((4 * r["numbers"] for r in found["group"]), (r["ms"] / 1e3 for r in found["group"]))
    pair = each / rows[0]["pairs"]  # the elimination is a hundredth of it here
    return Rates(**host(found, table), step=step, pair=pair, cube=0.0, hop=alone / 2, wire=1 / per_byte)


def on_gpu(found: dict[str, list[Row]]) -> Rates:
    """Rates of one GPU and its host, and what was assumed of the network between several."""
    timed = [r for r in found["training"] if r["shape"] == "airline" and r.get("ours")]
    step, each = _line((r["batch"] for r in timed), (r["batch"] / r["ours"] for r in timed))
    law = next(r for r in found["stationary"] if r["sets of n, sigma"] == "512 of 33, 1")
    cube = law["replayed, ms"] / 1e3 / 512 / 33**3
    pair = (each - cube * AIRLINE["mean_cube"]) / AIRLINE["mean_square"]
    issue = min(r["batch"] / r["ours"] for r in found["launched"])  # of the smallest batch: launching is all of it
    assumed = {name: ASSUMED[name].value for name in ("bus", "hop", "wire", "link", "store", "start")}
    return Rates(**host(found), step=step, pair=pair, cube=cube, issue=issue, **assumed)


def growth(found: dict[str, list[Row]]) -> tuple[Row, list[Row]]:
    """Fit a + r n + b n^2 + c n^3 to the times of a step on a CPU by the size of sets; returns it and its errors."""
    row = next(r for r in found["scaling"] if r["in"] in ("alternatives", "n"))
    n, seconds = np.array(row["sizes"]), np.array(row["seconds"])
    powers = np.stack([n**0, n, n**2, n**3], 1)
    factors, _ = nnls(powers / seconds[:, None], np.ones(len(n)))
    said = powers @ factors
    rows = [_held(f"a step, 8 sets of {int(k)}", float(p), float(s)) for k, p, s in zip(n, said, seconds, strict=True)]
    return dict(zip(("step", "row", "pair", "cube"), factors.tolist(), strict=True)), rows


def _held(what: str, said: float, measured: float, about: str = "") -> Row:
    return {"what": what, "predicted": said, "measured": measured, "error": said / measured - 1, "about": about}


def validated(found: dict[str, list[Row]]) -> list[Row]:
    """Hold the model against fits that its rates were not taken from."""
    rows: list[Row] = []
    for r in (r for r in found["tables"] if r["part"] == "read, 1 of 2"):
        known = host(found, r["table"])
        said = r["half"] * r["rows"] * r["columns"] / known["read"] + r["sets"] / known["sizes"]
        rows.append(_held(f"{r['table']}, read by 1 of 2, CPU time", said, r["seconds"]))
    for r in found.get("shared", []):
        timed = _epoch_of_workers(found, "64x64", r["workers"], r["sets"], r["parameters"])
        said = timed.compute + timed.launch  # waiting for a sum takes no time of the processor
        rows.append(_held(f"1,200 sets, {r['workers']} of gloo, CPU time each", said, r["cpu"]))
    for r in found.get("own", []):
        job, rates = _streamed(found, r)
        timed = parts(replace(job, workers=r["workers"], batch=256 / r["workers"], shards=r["shards"]), rates)
        said = timed.read + timed.sizes + timed.plan + timed.compute + timed.launch
        rows.append(_held(f"83,320 sets from disk, {r['workers']} of gloo, CPU time each", said, r["cpu"]))
    for r in found.get("workers", []):
        workers, sets = 2 if "2" in r["way"] else 1, r["sets/s"] * r["s/epoch"]
        timed = _epoch_of_workers(found, r["hidden"], workers, sets, r["parameters"])
        rows.append(_held(f"1,200 sets, {r['way']}, wall time", timed.use(AS_IT_IS) - timed.plan, r["s/epoch"]))
    for r in found.get("stream", []):
        job, rates = _streamed(found, r)
        timed, learn = parts(job, rates), learn_seconds(job, rates)
        if r["part"] == "scan":
            rows.append(_held("20.8M rows, scan, CPU time", scan_seconds(job, rates), r["cpu"]))
            rows.append(_held("20.8M rows, scan, wall time", scan_seconds(job, rates), r["wall"]))
        else:
            rows.append(
                _held("20.8M rows, fit, CPU time", learn + timed.read + timed.use(AS_IT_IS) + timed.keep, r["cpu"])
            )
            rows.append(_held("20.8M rows, fit, wall time", learn + epoch_seconds(job, rates), r["wall"]))
    for r in found.get("throughput", []):
        rates = on_cpu(found, "searches", "16x16")
        sets = r["sets/s"] * r["seconds"]
        job = Job(sets=sets, alternatives=12.48, batch=256, columns=6, parameters=14_057, memory=16 * 2**20)
        job = replace(job, mean_square=_pairs(found, "searches"))
        said = epoch_seconds(job, rates) if r["sets from"] == "disk" else parts(job, rates).use(AS_IT_IS)
        rows.append(_held(f"83,320 sets from {r['sets from']}, epoch", said, r["seconds"]))
    for r in found.get("prediction", []):
        if r.get("sets/s, table"):  # 39 columns of each of 32.5 alternatives and 60 of the individual are encoded
            said = (32.5 * 39 + 60) / host(found)["read"] + 1 / r["sets/s"]
            rows.append(_held("a set encoded and predicted, GPU, us", 1e6 * said, 1e6 / r["sets/s, table"]))
    return rows


def _epoch_of_workers(found: dict[str, list[Row]], hidden: str, workers: int, sets: float, parameters: int) -> Parts:
    """Reckon an epoch of ``benchmarks.cluster``: batches of 64 sets in memory, shared by workers of one thread."""
    each = sets / math.ceil(sets / 64) / workers
    job = Job(sets=sets, alternatives=33, workers=workers, batch=each, parameters=parameters, in_memory=True)
    return parts(replace(job, mean_square=_pairs(found, "airline")), on_cpu(found, "airline", hidden))


def _pairs(found: dict[str, list[Row]], table: str) -> float:
    return float(next(r["pairs"] for r in found["steps"] if r["table"] == table))


def _streamed(found: dict[str, list[Row]], row: dict[str, Any]) -> tuple[Job, Rates]:
    job = Job(
        sets=row["sets"],
        alternatives=row["rows"] / row["sets"],
        mean_square=row["pairs"] / row["sets"],
        batch=256,
        columns=6,
        parameters=14_057,
        memory=row["memory"],
    )
    return job, on_cpu(found, "searches", "16x16")
