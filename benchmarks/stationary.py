"""The stationary layer alone: elimination (this library) against LU, forward and backward, with the accuracy of both.

On a CUDA device, elimination is also timed as part of a recorded graph, as in training; the ratio uses that time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.harness import Row, Table, best_seconds, recorded, seconds
from pcmcnet.layers import solve_chain

COLUMNS = {
    "sets of n, sigma": "",
    "ours, ms": ".3f",
    "replayed, ms": ".3f",
    "LU, ms": ".3f",
    "LU / ours": ".2f",
    "our error": ".1e",
    "LU error": ".1e",
}
CASES = ((256, 3, 1.0), (16, 33, 1.0), (512, 33, 1.0), (512, 8, 10.0), (64, 50, 5.0))
REPLAYS = 10


def by_lu(rates: Tensor) -> Tensor:
    """Solve as in the paper, batched: the last column of the generator is replaced by ones."""
    n = rates.shape[-1]
    off = rates * (1 - torch.eye(n, dtype=rates.dtype, device=rates.device))
    system = (off - torch.diag_embed(off.sum(-1))).clone()
    system[..., -1] = 1
    right = rates.new_zeros(n)
    right[-1] = 1
    return torch.linalg.solve(system.mT, right.expand(rates.shape[:-1]))


def measure(sets: int, n: int, sigma: float, *, device: str = "cpu", rounds: int = 7) -> Row:
    """Time both on log-normal rates; errors are the largest relative errors against the solution in float64."""
    generator = torch.Generator().manual_seed(0)
    rates = (torch.randn(sets, n, n, generator=generator, dtype=torch.float64) * sigma).exp().float()
    exact = solve_chain(rates.double(), torch.ones(sets, n, dtype=torch.bool))
    rates, mask = rates.to(device).requires_grad_(), torch.ones(sets, n, dtype=torch.bool, device=device)
    gradient = torch.randn(sets, n, generator=generator).to(device)

    def ours() -> None:
        torch.autograd.grad(solve_chain(rates, mask), rates, gradient)

    def lu() -> None:
        torch.autograd.grad(by_lu(rates), rates, gradient)

    times = {name: value * 1e3 for name, value in best_seconds({"ours": ours, "lu": lu}, rounds, device).items()}
    replayed = None
    if device == "cuda":
        replay = recorded(ours, REPLAYS)
        replayed = min(seconds(replay, device) for _ in range(rounds)) / REPLAYS * 1e3
    with torch.no_grad():
        solutions = {"our error": solve_chain(rates, mask), "LU error": by_lu(rates)}
    errors = {name: float(((p.double().cpu() - exact) / exact).abs().max()) for name, p in solutions.items()}
    row = {"sets of n, sigma": f"{sets:,} of {n:,}, {sigma:g}", "ours, ms": times["ours"], "replayed, ms": replayed}
    return {**row, "LU, ms": times["lu"], "LU / ours": times["lu"] / (replayed or times["ours"]), **errors}


def main() -> list[Row]:
    """Print time and accuracy at the shapes of both experiments, and for rates of many orders of magnitude."""
    table = Table("stationary layer, float32, forward and backward, one CPU thread; rates log-normal", COLUMNS)
    for case in CASES:
        table.add(measure(*case))
    return table.rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
