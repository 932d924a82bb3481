"""The stationary layer alone: elimination (ours) beside LU, forward and backward, with the accuracy of both."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from pcmcnet import stationary_distribution


def by_lu(rates: Tensor) -> Tensor:
    """The paper's solve, batched: the last column of the generator replaced by ones."""
    n = rates.shape[-1]
    off = rates * (1 - torch.eye(n, dtype=rates.dtype, device=rates.device))
    system = (off - torch.diag_embed(off.sum(-1))).clone()
    system[..., -1] = 1
    right = rates.new_zeros(n)
    right[-1] = 1
    return torch.linalg.solve(system.mT, right.expand(rates.shape[:-1]))


def milliseconds(solve: Callable[[Tensor], Tensor], rates: Tensor) -> float:
    """Best of some forward and backward passes."""
    best = float("inf")
    for _ in range(7):
        leaf = rates.clone().requires_grad_()
        began = time.perf_counter()
        solve(leaf)[..., 0].log().sum().backward()
        best = min(best, time.perf_counter() - began)
    return best * 1e3


def worst_error(solve: Callable[[Tensor], Tensor], rates: Tensor) -> float:
    """Largest relative error of a component, against the float64 law of the same rates."""
    exact = stationary_distribution(rates.double())
    return float(((solve(rates).double() - exact).abs() / exact).max())


def main() -> None:
    """Print time and accuracy at the shapes of both experiments."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    print("stationary layer, float32, forward and backward, one CPU thread; rates log-normal")
    print(f"{'sets':>5} {'n':>4} {'sigma':>6} {'LU ms':>8} {'GTH ms':>8} {'ratio':>6} {'LU err':>9} {'GTH err':>10}")
    for sets, n, sigma in ((256, 3, 1.0), (16, 33, 1.0), (512, 33, 1.0), (512, 8, 10.0), (64, 50, 5.0)):
        rates = (torch.randn(sets, n, n, generator=generator, dtype=torch.float64) * sigma).exp().float()
        lu, gth = milliseconds(by_lu, rates), milliseconds(stationary_distribution, rates)
        time_columns = f"{lu:>8.2f} {gth:>8.2f} {lu / gth:>6.2f}"
        lost, kept = worst_error(by_lu, rates), worst_error(stationary_distribution, rates)
        print(f"{sets:>5} {n:>4} {sigma:>6} {time_columns} {lost:>9.1e} {kept:>10.1e}")


if __name__ == "__main__":
    main()
