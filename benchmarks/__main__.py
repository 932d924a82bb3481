"""Benchmarks on one CPU thread, compared with the implementation described in the paper.

    python -m benchmarks [--json FILE] [SECTION ...]

``make bench`` runs all sections.
"""

from __future__ import annotations

from benchmarks import (
    accuracy,
    commands,
    factored,
    loading,
    logit,
    members,
    precision,
    prediction,
    sharing,
    small_fits,
    stationary,
    threads,
    training,
    wide,
)
from benchmarks.harness import RUNS, Section, run

SECTIONS: dict[str, Section] = {
    "training": training.main,
    "reach": training.reach,
    "fits": small_fits.main,
    "members": members.main,
    "accuracy": accuracy.main,
    "bfloat16": precision.main,
    "threads": threads.main,
    "sharing": sharing.main,
    "prediction": prediction.main,
    "stationary": stationary.main,
    "wide": wide.main,
    "factored": factored.on_cpu,
    "loading": loading.main,
    "commands": commands.main,
    "logit": logit.main,
}

if __name__ == "__main__":
    run("benchmarks", SECTIONS, description=__doc__ or "", json_file=RUNS / "bench-cpu.json", device="cpu")
