"""Run every benchmark: ``python -m benchmarks``, or ``make bench``."""

from __future__ import annotations

import os
import platform

import torch

from benchmarks import accuracy, loading, logit, pairs, stationary, training

print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}\n")
for benchmark in (loading, logit, training, pairs, accuracy, stationary):
    benchmark.main()
    print()
