"""A network starts at the penalised maximum likelihood estimate of its logit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.batches import DistinctContents
from pcmcnet.layers.inner_logit import LinearUtility
from pcmcnet.models import MNL, PCMCNet
from pcmcnet.models.networks import trainer
from pcmcnet.models.networks.pairwise_network import PCMCNetwork
from pcmcnet.models.networks.starting_values import LOGIT_START_DECAY, start_as_logit
from pcmcnet.training import train

MakeTrips = Callable[..., pa.Table]


def started(data: ChoiceData, *, labels: bool = True) -> tuple[LinearUtility, Encoder]:
    encoder = Encoder.learn(data, labels=labels)
    utility = LinearUtility(encoder.features, 2, 3)
    start_as_logit(utility, encoder.encode(data))
    return utility, encoder


def penalised(utility: LinearUtility, encoder: Encoder, data: ChoiceData) -> Tensor:
    """Return the negative log-likelihood of the linear part, set by set, plus the prior."""
    sets, double = encoder.encode(data), utility.double()
    u = double.plain(
        sets.numeric.double(), sets.categorical, [DistinctContents(c.table, c.codes) for c in sets.contents]
    )
    share = torch.from_numpy(data.weights / data.weights.mean())
    begin = data.offsets[:-1].tolist()
    nll = torch.stack(
        [
            w * (u[a : a + n].logsumexp(0) - u[a + c])
            for w, a, n, c in zip(share, begin, data.sizes.tolist(), sets.chosen.tolist(), strict=True)
        ]
    )
    return nll.sum() + 0.5 * sum((p.square().sum() for p in double.plain_weights), torch.zeros(()).double())


def rich_table(sets: int = 80, seed: int = 0) -> dict[str, Any]:
    """Return sets of two with a vector, a list and a text that all affect the choice."""
    rng, n = np.random.default_rng(seed), 2 * sets
    v = rng.normal(size=(n, 2)).astype(np.float32)
    pool, quiet = rng.random(n) < 0.5, rng.random(n) < 0.5
    u = (v[:, 0] + pool + quiet + rng.gumbel(size=n)).reshape(sets, 2)
    return {
        "s": np.repeat(np.arange(sets), 2),
        "took": (u == u.max(1, keepdims=True)).ravel().astype(int),
        "v": v,
        "has": [["pool", "bar"] if one else ["bar"] for one in pool],
        "about": ["a quiet room" if one else f"a room of {k}" for k, one in enumerate(quiet)],
    }


def rich(sets: int = 80) -> ChoiceData:
    kinds: dict[str, Any] = {"v": "vector", "has": "multi", "about": "text"}
    return ChoiceData.from_long(rich_table(sets), choice_set="s", chosen="took", features=list(kinds), kinds=kinds)


# -- maximum -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [True, False])
def test_the_gradient_is_0_at_the_start(trips: ChoiceData, labels: bool) -> None:
    """L-BFGS stops at gradients of 1e-5, and weights are rounded to float32. At weights of 0 it would be above 1."""
    utility, encoder = started(trips, labels=labels)
    result = torch.autograd.grad(penalised(utility, encoder, trips), utility.plain_weights)
    assert max(float(g.abs().max()) for g in result if g.numel()) < 1e-3
    fresh = LinearUtility(encoder.features, 2, 3)
    before = torch.autograd.grad(penalised(fresh, encoder, trips), fresh.plain_weights)
    assert max(float(g.abs().max()) for g in before if g.numel()) > 1


def test_the_gradient_is_0_with_contents_and_on_a_subset() -> None:
    """The contents of a subset are numbered differently."""
    whole = rich(80)
    encoder = Encoder.learn(whole)
    for data in (whole, whole.subset(np.arange(3, 60))):
        utility = LinearUtility(encoder.features, 0, 3)
        start_as_logit(utility, encoder.encode(data))
        assert len(list(utility.worths)) == 3
        result = torch.autograd.grad(penalised(utility, encoder, data), utility.plain_weights)
        assert max(float(g.abs().max()) for g in result if g.numel()) < 1e-3
        assert all(bool(p.any()) for p in utility.worths.parameters())


def test_only_the_linear_weights_are_set(trips: ChoiceData) -> None:
    utility, _ = started(trips)
    assert utility.taste is not None
    assert not utility.worth.any()
    assert not utility.taste.any()
    assert utility.slopes.any()
    assert [c[0].item() for c in utility.constants] == [0.0, 0.0]  # unseen category


def test_the_start_agrees_with_mnl_if_the_prior_is_weak() -> None:
    """With 2,000 sets, the effect of a standard normal prior is of the order of 1 in 2,000."""
    rng, sets = np.random.default_rng(0), 2_000
    x = rng.normal(size=(sets, 3))
    u = 0.8 * x + np.array([0.0, 0.5, -0.5]) + rng.gumbel(size=x.shape)
    table = {
        "s": np.repeat(np.arange(sets), 3),
        "mode": np.tile(["bus", "car", "walk"], sets),
        "took": (u == u.max(1, keepdims=True)).ravel().astype(int),
        "x": x.ravel(),
    }
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", alternative="mode", features=["x"])
    utility, encoder = started(data)
    logit = MNL().fit(data)
    scale = encoder.features.numeric[0].scale
    assert utility.slopes[0].item() / scale == pytest.approx(logit.coefficients["x"], rel=0.01)
    _, bus, car, walk = utility.constants[0].flatten().tolist()
    expected = [logit.coefficients[f"constant[{mode}]"] for mode in ("bus", "walk")]  # relative to that of car
    assert [bus - car, walk - car] == pytest.approx(expected, rel=0.01)


# -- weights of sets -----------------------------------------------------------------------------------------------


def pair(weight: list[float] | None) -> ChoiceData:
    """Return twenty sets of the same two labels. The first ten choose a, the others b."""
    table: dict[str, Any] = {
        "s": np.repeat(np.arange(20), 2),
        "mode": ["a", "b"] * 20,
        "took": [1, 0] * 10 + [0, 1] * 10,
    }
    if weight is not None:
        table["weight"] = np.repeat(weight, 2)
    given = {} if weight is None else {"weight": "weight"}
    return ChoiceData.from_long(table, choice_set="s", chosen="took", alternative="mode", **given)


def test_weights_of_sets_matter_but_their_scale_does_not() -> None:
    """With equal weights a and b have equal utilities. If choices of a weigh three times as much, a has more."""
    even, heavy, heavier = (
        started(pair(weight))[0].constants[0].flatten().tolist()
        for weight in (None, [3.0] * 10 + [1.0] * 10, [30.0] * 10 + [10.0] * 10)
    )
    assert even == pytest.approx([0, 0, 0], abs=1e-6)
    assert heavier == pytest.approx(heavy, abs=1e-6)
    a, b = heavy[1:]
    assert a == pytest.approx(-b, abs=1e-6)
    # 20 sets of mean weight 1, three quarters for a: the gradient in a, 20 sigma(a - b) - 15 + a, is 0.
    assert 20 / (1 + np.exp(b - a)) - 15 + a == pytest.approx(0, abs=1e-4)


# -- in a fit ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.99, 1.0])
def test_a_network_with_strong_decay_starts_as_the_logit(
    factor: float, trips: ChoiceData, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    slopes: list[Tensor] = []  # the weights at the start of training

    def noted(network: PCMCNetwork, *arguments: Any, **options: Any) -> Any:
        assert network.utility is not None
        slopes.append(network.utility.slopes.detach().clone())
        return train(network, *arguments, **options)

    monkeypatch.setattr(trainer, "train", noted)
    model = PCMCNet(**quick | {"weight_decay": factor * LOGIT_START_DECAY, "epochs": 1}).fit(trips, progress=False)
    utility = LinearUtility(model.encoder_.features, 2, 7)
    if factor == 1.0:
        start_as_logit(utility, model.encoder_.encode(trips))
        assert utility.slopes.any()
    torch.testing.assert_close(slopes[0], utility.slopes.detach(), rtol=0, atol=1e-6)
