"""The operators under torch's compiler and exporter; test_distribution and test_exact test their values."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pcmcnet.layers import solve_chain
from pcmcnet.layers.settings import ELIMINATION_IN_BLOCKS_ABOVE_STATES as LARGE
from pcmcnet.layers.settings import ELIMINATION_TRITON_MAX_STATES as FUSED
from pcmcnet.layers.stationary import elimination, elimination_in_blocks, gradient
from pcmcnet.layers.stationary.gradient import solver_for, stationary, stationary_backward

SOURCE = Path(__file__).parents[3] / "src"
SHAPES = [(4, 5), (1, 3), (2, 1), (2, 100)]  # the last one is solved in panels


def scores_and_mask(sets: int, n: int) -> tuple[Tensor, Tensor]:
    scores = torch.randn(sets, n, n, generator=torch.Generator().manual_seed(n))
    mask = torch.arange(n) < torch.arange(n, n - sets, -1).clamp(min=1).unsqueeze(1)
    return scores, mask


def distribution_of(scores: Tensor, mask: Tensor) -> Tensor:
    return solve_chain(scores.exp(), mask)


def value_and_gradient(
    function: Callable[[Tensor, Tensor], Tensor], scores: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    leaf = scores.clone().requires_grad_()
    p = function(leaf, mask)
    (grad,) = torch.autograd.grad(p[:, 0].log().sum(), leaf)
    return p.detach(), grad


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        pytest.param(dtype, shape, marks=() if dtype == torch.float64 or shape == SHAPES[-1] else pytest.mark.slow)
        for dtype in (torch.float64, torch.float32, torch.bfloat16)
        for shape in SHAPES
    ],
)
def test_the_operators_pass_the_checks_of_torch(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    """Checks schemas, shapes without data, gradients, and the compiler with dynamic sizes."""
    scores, mask = scores_and_mask(*shape)
    rates = scores.exp().to(dtype)
    torch.library.opcheck(stationary, (rates.clone().requires_grad_(), mask))
    p, *saved = stationary(rates, mask)
    torch.library.opcheck(stationary_backward, (torch.ones_like(p), mask, *saved))


@pytest.mark.parametrize(("sets", "n"), SHAPES)
def test_a_compiled_function_gives_the_same_values_and_gradients(sets: int, n: int) -> None:
    scores, mask = scores_and_mask(sets, n)
    compiled = torch.compile(distribution_of, backend="aot_eager", fullgraph=True)
    p, grad = value_and_gradient(compiled, scores, mask)
    plain, plain_grad = value_and_gradient(distribution_of, scores, mask)
    assert torch.equal(p, plain)
    assert torch.equal(grad, plain_grad)


def test_one_compilation_handles_sets_of_all_sizes() -> None:
    """The solver is chosen at run time: 90 and 110 are on both sides of the limit."""
    torch.compiler.reset()
    compiled = torch.compile(distribution_of, backend="aot_eager", fullgraph=True, dynamic=True)
    for sets, n in ((3, 90), (5, 110), (2, 4)):
        with torch.compiler.set_stance("fail_on_recompile" if n != 90 else "default"):
            p, grad = value_and_gradient(compiled, *scores_and_mask(sets, n))
        plain, plain_grad = value_and_gradient(distribution_of, *scores_and_mask(sets, n))
        assert torch.equal(p, plain)
        assert torch.equal(grad, plain_grad)


class Chain(nn.Module):
    """A module with one weight that returns the distribution of its rates."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.5))

    def forward(self, scores: Tensor, mask: Tensor) -> Tensor:
        return distribution_of(self.weight * scores, mask)


def test_an_exported_module_handles_sets_of_all_sizes() -> None:
    module, sets, n = Chain(), torch.export.Dim("sets", min=1), torch.export.Dim("n", min=1)
    shapes = {"scores": {0: sets, 1: n, 2: n}, "mask": {0: sets, 1: n}}
    program = torch.export.export(module, scores_and_mask(4, 5), dynamic_shapes=shapes)
    assert stationary in [node.target for node in program.graph.nodes]
    for size in ((4, 5), (2, 7), (3, 110)):
        assert torch.equal(program.module()(*scores_and_mask(*size)), module(*scores_and_mask(*size)))


@pytest.mark.parametrize(("sets", "n"), SHAPES)
def test_no_two_results_share_memory(sets: int, n: int) -> None:
    """A compiler may overwrite one result while another is still needed."""
    scores, mask = scores_and_mask(sets, n)
    results = stationary(scores.double().exp(), mask)
    assert len({result.untyped_storage().data_ptr() for result in results}) == 5


@pytest.mark.parametrize("n", [5, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rates_and_gradients_may_have_any_memory_layout(n: int, dtype: torch.dtype) -> None:
    scores, mask = scores_and_mask(4, n)
    rates = scores.exp().to(dtype)
    weight = torch.arange(n, dtype=dtype).expand(4, n)  # all sets share memory
    (expected,) = torch.autograd.grad(solve_chain(rates.requires_grad_(), mask), rates, weight.contiguous())
    turned = rates.detach().mT.contiguous().mT.requires_grad_()
    p = solve_chain(turned, mask.mT.contiguous().mT)
    (grad,) = torch.autograd.grad(p, turned, weight)
    assert not turned.is_contiguous()
    torch.testing.assert_close(p, solve_chain(rates, mask), rtol=0, atol=0)
    torch.testing.assert_close(grad, expected, rtol=1e-6 if dtype == torch.float32 else 1e-10, atol=1e-15)


def test_only_the_distribution_has_a_gradient() -> None:
    rates = torch.ones(1, 3, 3, requires_grad=True)
    p, *other_results = stationary(rates, torch.ones(1, 3, dtype=torch.bool))
    assert p.requires_grad
    assert not any(other.requires_grad for other in other_results)


@pytest.mark.slow
def test_solving_loads_neither_compiler_nor_kernels() -> None:
    code = (
        "import sys, torch, pcmcnet.layers as layers;"
        "layers.stationary_distribution(torch.ones(3, 3, requires_grad=True))[0].backward();"
        "print(*{'torch._dynamo', 'triton', 'pcmcnet.layers.stationary.elimination_triton'} & sys.modules.keys())"
    )
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": path}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert run.stdout.split() == []


# -- Dispatch ----------------------------------------------------------------------------------------------------------
# The choice of the solver.


def sets(n: int, device: str = "cpu") -> Any:
    """Return a stand-in for a batch on a device that need not exist."""
    return SimpleNamespace(shape=(2, n), device=torch.device(device))


@pytest.mark.parametrize(
    ("n", "expected"), [(1, elimination), (LARGE, elimination), (LARGE + 1, elimination_in_blocks)]
)
@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_large_sets_are_solved_in_panels(n: int, expected: ModuleType, device: str) -> None:
    assert solver_for(sets(n, device)) is expected


def test_rates_and_their_gradient_use_the_same_solver() -> None:
    assert solver_for(torch.ones(2, 97, 97)) is solver_for(torch.ones(2, 97)) is elimination_in_blocks
    assert solver_for(torch.ones(97, 3, 3)) is solver_for(torch.ones(97, 3)) is elimination


def test_a_gpu_without_triton_uses_the_solver_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient, "has_triton", lambda: False)
    assert solver_for(sets(3, "cuda")) is elimination
    assert solver_for(sets(LARGE + 1, "cuda")) is elimination_in_blocks


def test_a_gpu_with_triton_uses_the_kernel_up_to_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = ModuleType(gradient.ELIMINATION_KERNELS)
    monkeypatch.setitem(sys.modules, gradient.ELIMINATION_KERNELS, kernels)
    monkeypatch.setattr(gradient, "has_triton", lambda: True)
    assert solver_for(sets(3, "cuda")) is kernels
    assert solver_for(sets(FUSED, "cuda")) is kernels
    assert solver_for(sets(FUSED + 1, "cuda")) is elimination_in_blocks
    assert solver_for(sets(3, "cpu")) is elimination
