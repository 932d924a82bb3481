"""Training speed, in choice sets per second: the paper's way, batched LU, this library, and a bound.

paper way    ``paper_way.py``: set by set, at the batch size of the paper
batched LU   ``batched_lu.py``: padded batches with plain autograd, at our batch size
ours         one fit through the public interface
bound        only the matrix products of the hidden layers after the first, forward and backward, on the real pairs

All ways run in turn, and the best speed of each counts. A second table shows how long a fit takes to reach the
divergence reported in the paper.
"""

from __future__ import annotations

import statistics
import time
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from benchmarks import batched_lu, paper_way
from benchmarks.accuracy import held_out, training_table
from benchmarks.harness import Row, Table, in_turn, recorded, seconds
from benchmarks.shapes import AIRLINE, MLBA, NETWORK, Shape
from pcmcnet import ChoiceData, PCMCNet, evaluate
from pcmcnet.layers.pairwise import compute_dtype

COLUMNS = {
    "shape": "",
    "batch": ",",
    "paper way": ",.0f",
    "batched LU": ",.0f",
    "ours": ",.0f",
    "bound": ",.0f",
    "ours / paper way": ",.1f",
    "ours / bound": ".2f",
}
ROOM = {"pair_budget": 20_000_000, **NETWORK}  # so that batches have the requested size
TARGET, PAPER_EPOCHS = 0.009, 100  # KL of PCMC-Net 3x16 in the paper


class Case(NamedTuple):
    """A row of the table: our sets and epochs, and the number of steps of the other ways."""

    shape: Shape
    batch_size: int
    sets: int
    paper_steps: int
    lu_steps: int
    epochs: int = 1
    skipped: int = 0  # first epochs, in which kernels are compiled and steps recorded
    bound_sets: int = 16


CASES = (
    Case(MLBA, 1, sets=1_000, paper_steps=400, lu_steps=400, bound_sets=1),
    Case(MLBA, 64, sets=20_000, paper_steps=400, lu_steps=100, bound_sets=64),
    Case(AIRLINE, 16, sets=128, paper_steps=4, lu_steps=4),
)


cached_data = cache(Shape.data)


def ours(case: Case, data: ChoiceData, device: str = "cpu", **options: Any) -> float:
    """Return the sets per second of the median epoch of a fit."""
    settings = {"hidden": case.shape.hidden, "dropout": case.shape.dropout, "batch_size": case.batch_size, **ROOM}
    model = PCMCNet(epochs=case.epochs, **(settings | options)).fit(data, device=device, progress=False)
    return len(data) / statistics.median(entry["seconds"] for entry in model.history[case.skipped :])


def bound(shape: Shape, data: ChoiceData, *, sets: int, device: str = "cpu") -> float:
    """Return the sets per second of the matrix products alone, for sets with the mean number of pairs."""
    pairs = round(sets * float((data.sizes**2).mean()))
    dtype = compute_dtype("auto", torch.device(device), shape.hidden)
    layers = []
    for a, b in pairwise(shape.hidden):
        h, d, weight = (torch.randn(size, device=device).to(dtype) for size in ((pairs, a), (pairs, b), (b, a)))
        layers.append((h, d, weight, torch.empty_like(d), torch.empty_like(h), torch.empty_like(weight)))

    def multiply() -> None:
        for h, d, weight, z, dh, dw in layers:
            torch.mm(h, weight.t(), out=z)
            torch.mm(d, weight, out=dh)
            torch.mm(d.t(), h, out=dw)

    repeats = max(1, 20_000_000 // (pairs * max(shape.hidden) ** 2))  # short calls are timed in groups

    def often() -> None:
        for _ in range(repeats):
            multiply()

    call = recorded(multiply, repeats) if device == "cuda" else often
    return sets * repeats / min(seconds(call, device) for _ in range(6))


def compare(case: Case, table: Table, *, rounds: int, device: str = "cpu") -> None:
    """Add a row: the best speed of each way, and ratios."""
    shape, data = case.shape, cached_data(case.shape, case.sets)
    few = cached_data(shape, case.paper_steps * shape.paper_batch)
    some = cached_data(shape, case.lu_steps * case.batch_size)
    lu = {"steps": case.lu_steps, "batch_size": case.batch_size, "device": device}
    speeds = in_turn(
        {
            "paper way": lambda: paper_way.sets_per_second(shape, few, steps=case.paper_steps, device=device),
            "batched LU": lambda: batched_lu.sets_per_second(shape, some, **lu),
            "ours": lambda: ours(case, data, device),
            "bound": lambda: bound(shape, data, sets=case.bound_sets, device=device),
        },
        rounds,
    )
    best = {name: max(values) for name, values in speeds.items()}
    ratios = {f"ours / {other}": best["ours"] / best[other] for other in ("paper way", "bound")}
    table.add({"shape": shape.name, "batch": case.batch_size, **best, **ratios})


def main() -> list[Row]:
    """Compare at the shapes of both experiments, on one CPU thread."""
    table = Table("training, choice sets per second, one CPU thread", COLUMNS)
    for case in CASES:
        compare(case, table, rounds=3)
    print(f"(batch size of the paper's way: {MLBA.paper_batch} for mlba, {AIRLINE.paper_batch} for airline)")
    return table.rows


def reach() -> list[Row]:
    """Fit PCMC-Net 3x16 with 1, 2, 3, ... epochs until it reaches the divergence of the paper on new sets."""
    train, (test, truth) = training_table(), held_out()
    few = MLBA.data(400)
    title = f"time of the shortest default fit of PCMC-Net 3x16 with a KL of {TARGET} or less, one CPU thread"
    columns = {"seed": "", "epochs": "", "KL": ".4f", "seconds": ".1f", "paper way, s": ",.0f", "ratio": ",.0f"}
    table = Table(title, columns)
    speed = max(paper_way.sets_per_second(MLBA, few, steps=400) for _ in range(5))
    theirs = PAPER_EPOCHS * len(train) / speed
    for seed in range(3):
        for epochs in range(1, 21):
            began = time.perf_counter()
            network = PCMCNet(hidden=MLBA.hidden, epochs=epochs, **NETWORK)
            model = network.fit(train, seed=seed, device="cpu", progress=False)
            taken = time.perf_counter() - began
            kl = evaluate(model, test, truth=truth, resamples=0).kl
            assert kl is not None
            if kl <= TARGET:
                break
        figures = {"seconds": taken, "paper way, s": theirs, "ratio": theirs / taken}
        table.add({"seed": seed, "epochs": epochs, "KL": kl, **figures})
    print(f"(the paper's way: its {PAPER_EPOCHS} epochs, from the {speed:,.0f} sets per second of 400 timed steps)")
    return table.rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
    reach()
