"""Convert the record of a run to a row of benchmarks/RESULTS.md.

python -m benchmarks.results runs/bench-cpu.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Pick = tuple[str, dict[str, Any], str, str]  # section, row, column, format

CPU: dict[str, Pick] = {
    "mlba sets/s, batch 64": ("training", {"shape": "mlba", "batch": 64}, "ours", ",.0f"),
    "x paper way": ("training", {"shape": "mlba", "batch": 64}, "ours / paper way", ",.0f"),
    "airline sets/s, batch 16": ("training", {"shape": "airline", "batch": 16}, "ours", ",.1f"),
    "x paper way ": ("training", {"shape": "airline", "batch": 16}, "ours / paper way", ".1f"),
    "of the bound": ("training", {"shape": "airline", "batch": 16}, "ours / bound", ".2f"),
    "x paper way in bfloat16": ("bfloat16", {"products in": "bfloat16"}, "x paper way", ".1f"),
    "KL .009 after, s": ("reach", {"seed": 0}, "seconds", ".1f"),
    "law, 512 sets of 33, ms": ("stationary", {"sets of n, sigma": "512 of 33, 1"}, "ours, ms", ".1f"),
    "one set of 50 / products": ("prediction", {"sets": "one of 50"}, "network / products", ".2f"),
    "one set of 2,000, s": ("wide", {"one set of": 2_000}, "seconds a step", ".0f"),
    "peak GiB": ("wide", {"one set of": 2_000}, "peak GiB", ".2f"),
}
GPU: dict[str, Pick] = {
    **{
        f"airline sets/s, batch {size:,}": ("training", {"shape": "airline", "batch": size}, "ours", ",.0f")
        for size in (16, 64, 256, 512, 1_024)
    },
    "paper way": ("training", {"shape": "airline", "batch": 16}, "paper way", ",.0f"),
    "bound": ("training", {"shape": "airline", "batch": 1_024}, "bound", ",.0f"),
    "law, 512 sets of 33, ms": ("stationary", {"sets of n, sigma": "512 of 33, 1"}, "replayed, ms", ".3f"),
    "LU, ms": ("stationary", {"sets of n, sigma": "512 of 33, 1"}, "LU, ms", ".2f"),
    "prediction sets/s": ("prediction", {"sets": "27,160 of all sizes"}, "sets/s", ",.0f"),
    "one set of 2,000, s": ("wide", {"one set of": 2_000}, "seconds a step", ".2f"),
    "peak GiB": ("wide", {"one set of": 2_000}, "peak GiB", ".2f"),
    "66 epochs of 27,160 sets, s": ("paper_scale", {"sets": 27_160}, "seconds", ".0f"),
}


def cell(figures: dict[str, Any], pick: Pick) -> str:
    """Return a figure, or a dash if it was not measured."""
    section, which, column, form = pick
    for row in figures.get(section, []):
        if all(row.get(key) == value for key, value in which.items()) and row.get(column) is not None:
            return f"{row[column]:{form}}"
    return "-"


def lines(record: dict[str, Any]) -> list[str]:
    """Return header, rule and row of the table."""
    picks = GPU if record["command"].startswith("python -m benchmarks.gpu") else CPU
    versions = f"torch {record['versions']['torch']}"
    start = [record["date"][:10], f"{record['machine']}; {versions}", f"`{record['command']}`"]
    header = ["date", "machine", "command", *(name.strip() for name in picks)]
    rows = [
        header,
        ["---"] * 3 + ["---:"] * len(picks),
        [*start, *(cell(record["figures"], p) for p in picks.values())],
    ]
    return [f"| {' | '.join(row)} |" for row in rows]


if __name__ == "__main__":
    for file in sys.argv[1:]:
        print("\n".join(lines(json.loads(Path(file).read_text()))))
