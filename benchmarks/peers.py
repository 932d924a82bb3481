"""Compare log-likelihoods, estimates and standard errors of the same logits in pcmcnet and other packages.

There are three problems on packaged tables: Greene's travel modes, and the Swissmetro survey as a multinomial and as a
nested logit. The packages are statsmodels (ConditionalLogit), xlogit and Biogeme; each runs in a separate process with
``benchmarks/peers_ways.py``. They can be in separate environments: set PCMCNET_PEERS to their interpreters, separated
by colons. A missing package is skipped::

    python3 -m venv ../peers && ../peers/bin/pip install statsmodels==0.15.0 xlogit==0.2.7 pandas
    python3 -m venv ../biogeme && ../biogeme/bin/pip install biogeme==3.2.14 'tomlkit<0.14'
    PCMCNET_PEERS=../peers/bin/python:../biogeme/bin/python python -m benchmarks.peers
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
import pyarrow.csv

from benchmarks.harness import Row, Table
from benchmarks.peers_ways import WAYS
from pcmcnet.datasets import packaged
from pcmcnet.errors import DatasetError

AGREE = 2e-3  # largest difference of log-likelihoods; packages have different stopping rules
COLUMNS = {"package": "", "log-likelihood": ".4f", "estimate apart": ".0e", "classical": ".1e", "robust": ".1e"}


def travel_mode(path: Path) -> dict[str, Any]:
    """Write Greene's table with constants for three of four modes."""
    rows = packaged.load("modechoice")
    table = {name: rows[name].to_numpy().astype(float) for name in rows.column_names}
    mode = table["mode"].astype(int)
    columns = {"set": table["individual"].astype(int), "alternative": mode, "chosen": table["choice"].astype(int)}
    columns |= {"gc": table["gc"], "ttme": table["ttme"], "airinc": np.where(mode == 1, table["hinc"], 0.0)}
    columns |= {name: (mode == k).astype(float) for k, name in ((1, "air"), (2, "train"), (3, "bus"))}
    return _written(path, columns, ["gc", "ttme", "airinc", "air", "train", "bus"])


def swissmetro(path: Path, nests: dict[str, str] | None = None) -> dict[str, Any]:
    """Write the survey with a row for each available alternative, time and cost in hundreds."""
    rows = packaged.load("swissmetro")
    table = {name: rows[name].to_numpy() for name in rows.column_names}
    parts = []
    for k, mode in enumerate(("TRAIN", "SM", "CAR"), start=1):
        free = (table["GA"] == 1) & (mode != "CAR")
        parts.append(
            {
                "set": np.arange(len(rows)),
                "alternative": np.full(len(rows), k),
                "chosen": (table["CHOICE"] == k).astype(int),
                "time": table[f"{mode}_TT"] / 100,
                "cost": np.where(free, 0, table[f"{mode}_CO"]) / 100,
                "train": np.full(len(rows), float(mode == "TRAIN")),
                "car": np.full(len(rows), float(mode == "CAR")),
                "offered": table[f"{mode}_AV"],
            }
        )
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    keep = columns.pop("offered") == 1
    columns = {name: column[keep] for name, column in columns.items()}
    return {**_written(path, columns, ["time", "cost", "train", "car"]), "nests": nests}


def _written(path: Path, columns: dict[str, Any], features: list[str]) -> dict[str, Any]:
    order = np.lexsort((columns["alternative"], columns["set"]))
    pa.csv.write_csv(pa.table({name: column[order] for name, column in columns.items()}), path)
    return {"file": str(path), "features": features, "nests": None}


def in_own_process(way: str, task: dict[str, Any]) -> dict[str, Any]:
    """Run a way with the first interpreter that has its package."""
    named = os.environ.get("PCMCNET_PEERS", sys.executable).split(os.pathsep)
    result: dict[str, Any] = {"missing": "no interpreter"}
    for python in [sys.executable] if way == "pcmcnet" else [str(Path(name).absolute()) for name in named]:
        command = [python, "-m", "benchmarks.peers_ways", way, json.dumps(task)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        if done.returncode:
            raise RuntimeError(f"{way} failed:\n{done.stderr}")
        result = json.loads(done.stdout.splitlines()[-1])  # a package may print other lines first
        if "missing" not in result:
            break  # this one has the package
    return result


def compare(title: str, task: dict[str, Any]) -> list[Row]:
    """Print the log-likelihood of each package, and the differences of its results from ours."""
    table = Table(title, COLUMNS)
    ours: dict[str, Any] = {}
    for way in WAYS:
        result = in_own_process(way, task)
        if "missing" in result:
            print(f"(skipped: {way}, which cannot be imported: {result['missing']})")
        if "values" not in result:  # not installed, or without such a model
            continue
        ours = ours or result
        if not abs(result["log_likelihood"] - ours["log_likelihood"]) < AGREE:
            raise RuntimeError(f"{way} and pcmcnet disagree: {result} and {ours}")
        errors = np.array(ours["classical"])
        row = {"package": f"{way} {result['version']}", "log-likelihood": result["log_likelihood"]}
        row["estimate apart"] = float(np.abs((np.array(result["values"]) - ours["values"]) / errors).max())
        for kind in ("classical", "robust"):
            ratio = np.array(result.get(kind) or [np.nan]) / np.array(ours[kind])
            row[kind] = float(np.abs(ratio - 1).max())
        table.add(row)
    return [{"problem": title.strip(), **row} for row in table.rows]


def main() -> list[Row]:
    """Compare the packages on the three problems."""
    print("logits by several packages: log-likelihood; largest difference of estimates from ours, in standard errors;")
    print("largest relative difference of classical and of robust standard errors (nan: not computed)")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path, nests = Path(folder) / "choices.csv", {"1": "existing", "2": "new", "3": "existing"}
        problems = (
            ("\nGreene's travel modes, multinomial logit", lambda: travel_mode(path)),
            ("\nSwissmetro, multinomial logit", lambda: swissmetro(path)),
            ("\nSwissmetro, nested logit: train and car in one nest", lambda: swissmetro(path, nests)),
        )
        for title, task in problems:
            try:
                rows += compare(title, task())
            except DatasetError as error:
                print(f"(skipped: {title.strip()}. {error})")
    return rows


if __name__ == "__main__":
    main()
