"""Published records: models of this library on splits of public tables for which others have published results.

    python -m benchmarks.records ltds.csv.gz [--models pcmcnet,stacking] [--seeds 0,1,2]

London Passenger Mode Choice: fits to survey years 1 and 2, tests on year 3 (:mod:`pcmcnet.datasets.lpmc`). All models
have their default options. The published results are the mean NLLs of the test part that the authors report.
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks.harness import Table
from pcmcnet import MODELS, evaluate
from pcmcnet.datasets import lpmc

PUBLISHED = {  # NLL of survey year 3
    "LightGBM": 0.6537,
    "XGBoost": 0.6568,
    "RUMBoost": 0.6627,
    "neural network": 0.6666,
    "cross-nested RUMBoost": 0.6715,
    "ResLogit": 0.6852,
    "TasteNet": 0.6911,
    "cross-nested logit": 0.7070,
    "multinomial logit": 0.7085,
}
COLUMNS = {"model": "", "seed": "", "NLL": ".4f", "±": ".4f", "accuracy": ".4f", "seconds": ".0f"}


def main(path: str, models: list[str], seeds: list[int]) -> None:
    """Fit each model with each seed, and print its NLL on the test part, below the published results."""
    train, test = lpmc.published_split(path)
    table = Table(
        f"London Passenger Mode Choice: {len(train):,} trips fitted, {len(test):,} predicted", COLUMNS, first=22
    )
    for name, nll in PUBLISHED.items():
        table.add({"model": name, "seed": "", "NLL": nll})
    for name in models:
        for seed in seeds:
            began = time.perf_counter()
            model = MODELS[name]().fit(train, seed=seed, progress=False)
            seconds = time.perf_counter() - began
            report = evaluate(model, test)
            low, high = report.intervals["nll"]
            row = {"model": name, "seed": seed, "NLL": report.nll, "±": (high - low) / 2, "accuracy": report.top[1]}
            table.add({**row, "seconds": seconds})
            if name == "stacking":
                print(model.summary(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lpmc", help="the table of London Passenger Mode Choice")
    parser.add_argument("--models", default="pcmcnet,stacking", help="comma-separated names")
    parser.add_argument("--seeds", default="0,1,2", help="comma-separated seeds")
    arguments = parser.parse_args()
    sys.exit(main(arguments.lpmc, arguments.models.split(","), [int(s) for s in arguments.seeds.split(",")]))
