"""The paper's first experiment on one CPU thread: how long a default fit takes, and how far from the truth it ends."""

from __future__ import annotations

import time

import torch

from pcmcnet import ChoiceData, PCMCNet, evaluate
from pcmcnet.datasets import mlba

ROLES = {"choice_set": "choice_set", "chosen": "chosen", "alternative": "alternative", "features": ["attr1", "attr2"]}


def main() -> None:
    """Fit PCMC-Net 3x16 from several seeds; print seconds and the divergence on fresh sets."""
    torch.set_num_threads(1)
    train = ChoiceData.from_long(mlba.simulate(20_000, seed=1), **ROLES)
    fresh = mlba.simulate(10_000, seed=2)
    test, truth = ChoiceData.from_long(fresh, **ROLES), fresh["true_prob"].to_numpy()
    print("PCMC-Net 3x16 on 20,000 simulated choice sets, default options, one CPU thread (the paper's KL: .009)")
    print(f"{'seed':>5} {'seconds':>8} {'KL':>8}")
    for seed in range(3):
        began = time.perf_counter()
        model = PCMCNet(hidden=(16, 16, 16)).fit(train, seed=seed, device="cpu", progress=False)
        seconds = time.perf_counter() - began
        print(f"{seed:>5} {seconds:>8.1f} {evaluate(model, test, truth=truth, resamples=0).kl:>8.4f}")


if __name__ == "__main__":
    main()
