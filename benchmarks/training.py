"""Training throughput on one CPU thread: pcmcnet beside the paper's way of computing, in one run."""

from __future__ import annotations

import torch

from benchmarks.paper_way import sets_per_second
from benchmarks.shapes import AIRLINE, MLBA, Shape
from pcmcnet import PCMCNet


def ours(shape: Shape, sets: int, batch_size: int, epochs: int) -> float:
    """Sets per second of the fastest of some epochs through the public interface."""
    model = PCMCNet(hidden=shape.hidden, dropout=shape.dropout, batch_size=batch_size, epochs=epochs)
    model.fit(shape.data(sets), device="cpu", progress=False)
    return sets / min(entry["seconds"] for entry in model.history)


def main() -> None:
    """Print sets per second and their ratio at the shapes of both experiments."""
    torch.set_num_threads(1)
    print("training, choice sets per second, one CPU thread")
    print(f"{'shape':<9} {'batch':>6} {'paper way':>10} {'pcmcnet':>10} {'ratio':>7}")
    for shape, steps, sets, batches in ((MLBA, 400, 20_000, (1, 128)), (AIRLINE, 6, 256, (16,))):
        reference = sets_per_second(shape, shape.data(steps * shape.paper_batch), steps=steps)
        for batch in batches:
            speed = ours(shape, sets if batch > 1 else 1_000, batch, epochs=2)
            print(f"{shape.name:<9} {batch:>6} {reference:>10,.0f} {speed:>10,.0f} {speed / reference:>7.1f}")
    print(f"(the paper's way uses its own batch sizes: {MLBA.paper_batch} for mlba, {AIRLINE.paper_batch} for airline)")


if __name__ == "__main__":
    main()
