"""Seconds of a default fit of every model on one CPU thread, on packaged tables of up to 5,000 choice sets.

Tables and models are those of the leaderboard, with the same options::

    python -m benchmarks.model_times mtc-work swissmetro
    python -m benchmarks.model_times mtc-work --models pcmc-linear cdm
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch

from benchmarks.harness import Row, Table
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.leaderboard_entries import MAX_SETS, build_contestants, require_contestants, require_tables
from pcmcnet.models import ChoiceModel


def main(tables: Sequence[str], models: Sequence[str] | None = None) -> list[Row]:
    """Fit every model once to each table; print one row per model."""
    read = {table.name: table.read(MAX_SETS).data for table in require_tables(list(tables), None)}
    titles = {name: f"{name}, {len(data):,} sets" for name, data in read.items()}
    table = Table("default fits, seconds of one CPU thread", {"model": "", **dict.fromkeys(titles.values(), ".1f")})
    for label, contestant in require_contestants(models).items():
        row: Row = {"model": label}
        for name, data in read.items():
            present, _ = build_contestants({label: contestant}, data)
            if label in present:
                row[titles[name]] = seconds(present[label], data)
        table.add(row)
    return table.rows


def seconds(model: ChoiceModel, data: ChoiceData) -> float | None:
    """Return the CPU seconds of one fit, or None if the model does not support the table."""
    began = time.process_time()
    try:
        model.fit(data, progress=False)
    except InputError:
        return None
    return time.process_time() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=["mtc-work", "swissmetro"])
    parser.add_argument("--models", nargs="+")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    main(arguments.tables, arguments.models)
