"""The optimiser takes the same steps as torch's, and can resume from its state."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import forked
from pcmcnet.training.adam import Adam


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).append(nn.Linear(2, 1).double())


def gradients(module: nn.Module, seed: int, *, without: int | None = None) -> None:
    generator = torch.Generator().manual_seed(seed)
    for k, p in enumerate(module.parameters()):
        p.grad = None if k == without else torch.randn(p.shape, generator=generator, dtype=p.dtype)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_equal_those_of_torch_bit_for_bit(decay: float) -> None:
    ours, theirs = network(), network()
    adam = Adam(ours.parameters(), lr=0.01, decay=decay)
    expected = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=decay, fused=True)
    for seed in range(5):
        for module in (ours, theirs):
            gradients(module, seed, without=2 if seed == 1 else None)  # a weight may be unused in a batch
        adam.lr = expected.param_groups[0]["lr"] = 0.01 / (seed + 1)
        adam.step()
        expected.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("rate", [0.01, torch.tensor(0.01)])
def test_steps_are_the_same_without_private_functions_of_torch(
    decay: float, rate: float | torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = network(), network()
    expected = Adam(theirs.parameters(), lr=rate, decay=decay)
    for seed in range(5):
        gradients(theirs, seed, without=2 if seed == 1 else None)
        expected.step()
    for name in ("_fused_adamw_", "_foreach_add_", "_foreach_mul_"):
        monkeypatch.delattr(torch, name)
    adam = Adam(ours.parameters(), lr=rate, decay=decay)
    for seed in range(5):
        gradients(ours, seed, without=2 if seed == 1 else None)
        adam.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-8)
    for k, entries in expected.state.items():
        for name, value in entries.items():
            torch.testing.assert_close(adam.state[k][name], value, rtol=1e-6, atol=1e-8)


def test_some_weights_may_have_no_decay() -> None:
    ours, theirs = network(), network()
    spared = [p for k, p in enumerate(ours.parameters()) if k % 2]
    adam = Adam(ours.parameters(), lr=0.01, decay=0.1, without_decay=spared)
    groups = [{"params": list(theirs.parameters())[k::2], "weight_decay": decay} for k, decay in ((0, 0.1), (1, 0.0))]
    expected = torch.optim.AdamW(groups, lr=0.01, fused=True)
    for seed in range(5):
        for module in (ours, theirs):
            gradients(module, seed)
        adam.step()
        expected.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.gpu
@pytest.mark.parametrize("limit", [0.5, math.inf])
def test_kernels_clip_and_step_like_torch(limit: float) -> None:
    from pcmcnet.training.adam_triton import WEIGHTS_PER_PROGRAM, ClippedAdam

    def wide() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, WEIGHTS_PER_PROGRAM), nn.Linear(WEIGHTS_PER_PROGRAM, 1)).cuda()

    ours, theirs = wide(), wide()
    rate, total, norms = torch.tensor(0.01, device="cuda"), torch.zeros(3, dtype=torch.float64, device="cuda"), 0.0
    spared, rest = list(theirs.parameters())[:1], list(theirs.parameters())[1:]
    adam = Adam(ours.parameters(), lr=rate, decay=0.1, without_decay=list(ours.parameters())[:1])
    clipped = ClippedAdam(adam, limit)
    expected = torch.optim.AdamW([{"params": spared, "weight_decay": 0.0}, {"params": rest}], lr=0.01, weight_decay=0.1)
    for seed in range(5):
        for module in (ours, theirs):
            torch.manual_seed(seed)
            for k, p in enumerate(module.parameters()):
                p.grad = None if (k, seed) == (2, 1) else torch.randn(p.shape, device="cuda")
        clipped.step(torch.full((), 3.0, device="cuda"), torch.full((), 4.0, device="cuda"), total)
        norms += float(nn.utils.clip_grad_norm_(theirs.parameters(), limit))
        expected.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    assert total.tolist() == pytest.approx([15, 20, norms])
    assert [float(slot.step) for slot in adam.slots] == [5, 5, 4, 5]


def test_a_run_resumes_from_the_state_of_another() -> None:
    whole, parts = network(), network()
    adam = Adam(whole.parameters(), lr=0.01, decay=0.0)
    before = Adam(parts.parameters(), lr=0.01, decay=0.0)
    for seed in range(4):
        if seed == 2:
            later = Adam(parts.parameters(), lr=0.01, decay=0.0)
            later.restore(before.state)
            before = later
        for module, optimiser in ((whole, adam), (parts, before)):
            gradients(module, seed)
            optimiser.step()
    for mine, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_fit_and_load_do_not_import_the_compiler_of_torch(tmp_path: Path) -> None:
    """Loading the compiler takes longer than fitting a small table."""
    code = f"""
import sys
import pcmcnet as pn
table = {{"trip": [0, 0, 1, 1], "took": [1, 0, 0, 1], "mode": list("abab"), "price": [1.0, 2.0, 2.0, 1.0]}}
data = pn.ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["price"])
for dropout in (0.0, 0.5):  # by compiled steps, and by those of PyTorch
    model = pn.PCMCNet(hidden=(4,), epochs=1, dropout=dropout, weight_decay=0.1).fit(data, progress=False)
pn.load(model.save({str(tmp_path / "model")!r})).predict_proba(data)
assert not {"torch._dynamo", "sympy"} & sys.modules.keys()
"""
    run = forked.run(code)
    assert run.returncode == 0, run.stderr
