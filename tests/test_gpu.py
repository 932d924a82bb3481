"""Results on a GPU match those on a CPU. Skipped if there is no GPU."""

import numpy as np
import pytest
import torch

import pcmcnet as pn
from pcmcnet.datasets import mlba

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("sets", "n"), [(64, 3), (16, 33), (4, 64)])
def test_distribution_and_gradient_match_the_cpu(sets: int, n: int) -> None:
    generator = torch.Generator().manual_seed(0)
    rates = (torch.randn(sets, n, n, generator=generator, dtype=torch.float64) * 3).exp()
    mask = torch.arange(n) < torch.randint(1, n + 1, (sets, 1), generator=generator)
    results = []
    for device in ("cpu", "cuda"):
        leaf = rates.clone().to(device).requires_grad_()
        p = pn.stationary_distribution(leaf, mask.to(device))
        p[:, 0].log().sum().backward()
        results.append((p.detach().cpu(), (leaf.grad * leaf.detach()).cpu()))  # elasticities are at most 1
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-12, atol=0)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("rank", [None, 16])
def test_a_fit_on_a_gpu_matches_the_cpu(rank: int | None) -> None:
    data = pn.ChoiceData.from_long(
        mlba.simulate(2_000, seed=1), choice_set="choice_set", chosen="chosen", features=["attr1", "attr2"]
    )
    scores = {}
    for device in ("cpu", "cuda"):
        model = pn.PCMCNet(hidden=(16, 16), rank=rank, epochs=5).fit(data, seed=0, device=device, progress=False)
        scores[device] = model.score(data)
    assert abs(scores["cpu"] - scores["cuda"]) < 0.005  # float32 products in another order, over 160 steps
    moved = model.predict_proba(data)
    model.network_.cpu()
    np.testing.assert_allclose(model.predict_proba(data), moved, rtol=0, atol=1e-5)  # float32
