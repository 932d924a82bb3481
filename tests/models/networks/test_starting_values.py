"""A network of labels alone starts as the chain of items."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.models import PCMC, BradleyTerry, PCMCNet, load
from pcmcnet.models.networks.pairwise_network import PCMCNetwork
from pcmcnet.models.networks.starting_values import (
    ITEM_STEPS,
    MAX_ITEM_LABELS,
    RIDGE_PER_DECAY,
    label_codes_if_alone,
    start_as_items,
)

FOLDER = Path(__file__).parents[4] / "shared" / "data"
ROLES: dict[str, Any] = {"choice_set": "s", "chosen": "took", "alternative": "item"}
CYCLE = np.array([[0, 9, 1, 2], [1, 0, 9, 2], [9, 1, 0, 2], [3, 3, 3, 0]], float)  # a to b to c to a, and a separate d


def stationary(rates: np.ndarray) -> np.ndarray:
    """Solve p G = 0, sum p = 1 by least squares."""
    generator = rates - np.diag(rates.sum(1))
    rows = np.vstack([generator.T, np.ones(len(rates))])
    return np.linalg.lstsq(rows, np.append(np.zeros(len(rates)), 1.0), rcond=None)[0]


def choices(sets: int, *, seed: int = 0, weight: float | None = None, **columns: Any) -> ChoiceData:
    """Draw from the chain on random subsets of four items. Additional columns have a value for each item."""
    rng = np.random.default_rng(seed)
    subsets = [np.array(c) for size in (2, 3, 4) for c in combinations(range(4), size)]
    rows = []
    for s in range(sets):
        items = subsets[rng.integers(len(subsets))]
        took = rng.choice(items, p=stationary(CYCLE[np.ix_(items, items)] * (1 - np.eye(len(items)))))
        rows += [(s, int(i), int(i == took)) for i in items]
    s, items, took = map(np.array, zip(*rows, strict=True))
    table = {"s": s, "item": np.array(list("abcd"))[items], "took": took}
    table |= {name: np.asarray(values)[items] for name, values in columns.items()}
    roles = {**ROLES, "features": list(columns)} if columns else ROLES
    if weight is not None:
        table["w"], roles = np.full(len(s), weight), {**roles, "weight": "w"}
    return ChoiceData.from_long(table, **roles)


def started(data: ChoiceData, decay: float) -> torch.Tensor:
    """Return the log-rates of the labels, without those of unseen labels."""
    encoder = Encoder.learn(data, labels=True)
    n = label_codes_if_alone(encoder)
    assert n is not None
    table = torch.zeros(n, n)
    start_as_items(table, encoder.encode(data), decay)
    return table[1:, 1:]


def test_the_start_is_the_item_chain_with_a_ridge_from_the_decay() -> None:
    data = choices(300)
    expected = PCMC(ridge=RIDGE_PER_DECAY * 0.5, speeds=1.0, restarts=1, max_iter=ITEM_STEPS).fit(data).log_rates_
    np.testing.assert_allclose(started(data, 0.5), expected, atol=1e-4)
    strong = started(data, 500.0)
    strengths = BradleyTerry().fit(data).strengths_
    np.testing.assert_allclose(strong - strong.T, strengths[None, :] - strengths[:, None], atol=0.05)


def test_the_start_does_not_depend_on_the_scale_of_weights() -> None:
    torch.testing.assert_close(started(choices(200, weight=1e6), 1.0), started(choices(200), 1.0), atol=1e-4, rtol=0)


@pytest.mark.parametrize("options", [{"utility": "none"}, {"rate": "softplus", "epsilon": 0.1}])
def test_only_exponential_rates_with_a_utility_have_item_rates(options: dict[str, Any]) -> None:
    encoder = Encoder.learn(choices(60), labels=True)
    assert PCMCNetwork(encoder, PCMCNet().config).items is not None
    assert PCMCNetwork(encoder, PCMCNet(**options).config).items is None


def test_item_rates_need_a_table_of_a_few_labels_alone() -> None:
    assert label_codes_if_alone(Encoder.learn(choices(60, price=[1.0, 2.0, 3.0, 4.0]), labels=True)) is None
    many = np.arange(10 * (MAX_ITEM_LABELS + 1)) % (MAX_ITEM_LABELS + 1)
    table = {
        "s": np.repeat(np.arange(len(many) // 2), 2),
        "item": [f"i{k}" for k in many],
        "took": [1, 0] * (len(many) // 2),
    }
    assert label_codes_if_alone(Encoder.learn(ChoiceData.from_long(table, **ROLES), labels=True)) is None


def test_a_cycle_is_learnt_from_labels_and_saved(tmp_path: Path) -> None:
    """No logit can learn a cycle: a beats b, b beats c and c beats a."""
    train, fresh = choices(400), choices(400, seed=1)
    model = PCMCNet(hidden=(8,), epochs=4).fit(train, progress=False)
    assert -model.score(fresh) < -BradleyTerry().fit(train).score(fresh) - 0.05
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(fresh), model.predict_proba(fresh))


def test_unseen_labels_have_equal_probabilities() -> None:
    model = PCMCNet(hidden=(8,), epochs=2, weight_decay=0.25).fit(choices(200), progress=False)
    sets = ChoiceData.from_long({"s": [0] * 4, "item": ["a", "x", "b", "y"]}, choice_set="s", alternative="item")
    p = model.predict_proba(sets)
    assert p[1] == pytest.approx(p[3], abs=1e-6)
    assert p.sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_commutes_are_predicted_as_by_the_item_chain() -> None:
    path = FOLDER / "sfwork.parquet"
    if not path.exists():
        pytest.skip(f"needs {path}, which is not part of the repository")
    data = ChoiceData.from_long(path, choice_set="choice_set", chosen="chosen", alternative="alternative")
    losses = []
    for seed in range(5):
        order = np.random.RandomState(seed).permutation(len(data))
        cut = int(0.75 * len(data))
        model = PCMCNet().fit(data.subset(order[:cut]), progress=False)
        losses.append(-model.score(data.subset(order[cut:])))
    assert round(np.mean(losses), 4) <= 0.8150
