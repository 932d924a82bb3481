"""The paper's first experiment on one CPU thread: time of a default fit and divergence from the true model."""

from __future__ import annotations

import time

import numpy as np
import torch

from benchmarks.harness import Row, Table
from benchmarks.shapes import NETWORK
from pcmcnet import ChoiceData, PCMCNet, evaluate
from pcmcnet.datasets import mlba

ROLES = {"choice_set": "choice_set", "chosen": "chosen", "alternative": "alternative", "features": ["attr1", "attr2"]}


def training_table() -> ChoiceData:
    """Simulate as many training sets as in the paper."""
    return ChoiceData.from_long(mlba.simulate(20_000, seed=1), **ROLES)


def held_out() -> tuple[ChoiceData, np.ndarray]:
    """Simulate new choice sets; return them and their true probabilities."""
    fresh = mlba.simulate(10_000, seed=2)
    return ChoiceData.from_long(fresh, **ROLES), fresh["true_prob"].to_numpy()


def main() -> list[Row]:
    """Fit PCMC-Net 3x16 with several seeds; print seconds and the divergence on new sets."""
    train, (test, truth) = training_table(), held_out()
    title = "PCMC-Net 3x16 on 20,000 simulated choice sets, default options, one CPU thread (the paper's KL: .009)"
    table = Table(title, {"seed": "", "seconds": ".1f", "KL": ".4f"})
    for seed in range(2):
        began = time.perf_counter()
        model = PCMCNet(hidden=(16, 16, 16), **NETWORK).fit(train, seed=seed, device="cpu", progress=False)
        taken = time.perf_counter() - began
        table.add({"seed": seed, "seconds": taken, "KL": evaluate(model, test, truth=truth, resamples=0).kl})
    return table.rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
