"""Context effects of items: values by hand, the logit as a special case, convexity, recovery, invalid input."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from choice_tables import item_choices
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.models import CDM, BradleyTerry
from pcmcnet.models.cdm import cdm_log_p, penalised_loss
from pcmcnet.models.items.universe import DistinctSets, Universe

NAMES = "abcdefgh"
SFWORK = Path(__file__).parents[3] / "shared" / "data" / "sfwork.parquet"


def random_effects(n: int, seed: int, spread: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), spread * rng.normal(size=(n, n)) * (1 - np.eye(n))


def all_sets(n: int) -> ChoiceData:
    """Return every subset of two or more items, once for each item as the choice."""
    subsets = [items for size in range(2, n + 1) for items in combinations(NAMES[:n], size)]
    return item_choices([("".join(items), chosen) for items in subsets for chosen in items])


def probabilities(data: ChoiceData, strengths: np.ndarray, context: np.ndarray) -> np.ndarray:  # (N,) by alternative
    sets = DistinctSets.of(data, Universe.learn(data).index(data))
    return np.exp(sets.to_alternatives(cdm_log_p(sets, strengths, context)))


def simulate(sets: int, strengths: np.ndarray, context: np.ndarray, seed: int) -> ChoiceData:
    """Simulate choices from random subsets of the items."""
    rng, n = np.random.default_rng(seed), len(strengths)
    rows = []
    for _ in range(sets):
        items = np.sort(rng.permutation(n)[: rng.integers(2, n + 1)])
        v = strengths[items] + context[np.ix_(items, items)].sum(1)
        rows.append(("".join(NAMES[i] for i in items), NAMES[items[np.argmax(v + rng.gumbel(size=len(v)))]]))
    return item_choices(rows)


def divergence(model: CDM, strengths: np.ndarray, context: np.ndarray) -> float:
    """Return the mean KL divergence over all subsets."""
    data = all_sets(len(strengths))
    p, result = probabilities(data, strengths, context), np.exp(model._log_proba(data))
    return float((p * np.log(p / result)).sum() / len(data))


@pytest.fixture(scope="module")
def truth() -> tuple[np.ndarray, np.ndarray]:
    return random_effects(4, seed=0)


@pytest.fixture(scope="module")
def sample(truth: tuple[np.ndarray, np.ndarray]) -> ChoiceData:
    return simulate(2000, *truth, seed=1)


@pytest.fixture(scope="module")
def model(sample: ChoiceData) -> CDM:
    return CDM().fit(sample)


# -- the model -----------------------------------------------------------------------------------------------------


def test_effects_add_up_in_a_set_of_three() -> None:
    """v_a = 1 + 2 - 1 = 2, v_b = 0 + 0.5 + 0 = 0.5, v_c = 0 + 0 + 1 = 1; in the pair {a, b}: v = (3, 0.5)."""
    strengths, context = np.array([1.0, 0, 0]), np.array([[0, 2.0, -1], [0.5, 0, 0], [0, 1, 0]])
    data = item_choices([("abc", "a"), ("ab", "a"), ("bc", "b")])
    v = np.array([2, 0.5, 1, 3, 0.5, 0, 1.0])
    e = np.exp(v)
    expected = e / np.repeat([e[:3].sum(), e[3:5].sum(), e[5:].sum()], [3, 2, 2])
    np.testing.assert_allclose(probabilities(data, strengths, context), expected, rtol=1e-12)


@pytest.mark.parametrize("rank", [None, 1])
def test_without_context_it_is_bradley_terry(sample: ChoiceData, rank: int | None) -> None:
    """With a ridge of 1e9, effects are about 2,000 / 1e9."""
    logit = BradleyTerry().fit(sample).predict_proba(sample)
    result = CDM(ridge=1e9, rank=rank).fit(sample)
    np.testing.assert_allclose(result.predict_proba(sample), logit, rtol=0, atol=1e-5)
    plain = CDM(ridge=1e9)
    plain.fitted_ = replace(result.require_fitted(), state=replace(result._state, context=np.zeros((4, 4))))
    np.testing.assert_allclose(np.exp(plain._log_proba(sample)), sample.from_rows(logit), rtol=0, atol=1e-5)


def test_the_objective_is_convex(sample: ChoiceData) -> None:
    """Up to rounding, the Hessian at random points has no negative eigenvalue."""
    sets = DistinctSets.of(sample, Universe.learn(sample).index(sample))
    loss = penalised_loss(sets, 4, ridge=0.0)
    gen = torch.Generator().manual_seed(0)
    for _ in range(5):
        at = torch.randn(20, generator=gen, dtype=torch.float64) * 2
        hessian = torch.autograd.functional.hessian(lambda x: loss(x[:4], x[4:].reshape(4, 4)), at)
        assert torch.linalg.eigvalsh(hessian).min() > -1e-12


def test_shifts_of_strengths_and_columns_have_no_effect(truth: tuple[np.ndarray, np.ndarray]) -> None:
    (strengths, context), data = truth, all_sets(4)
    shift = np.array([0.3, -1.0, 2.0, 0.1])
    p = probabilities(data, strengths, context)
    np.testing.assert_allclose(probabilities(data, strengths + 5, context), p, rtol=1e-12)
    np.testing.assert_allclose(probabilities(data, strengths + shift, context + shift * (1 - np.eye(4))), p, rtol=1e-12)
    published = (context - strengths) * (1 - np.eye(4))  # u_ij alone
    np.testing.assert_allclose(probabilities(data, np.zeros(4), published), p, rtol=1e-12)


def test_the_penalty_selects_the_smallest_equivalent_effects(sample: ChoiceData) -> None:
    result = CDM(ridge=1.0, tolerance=1e-14).fit(sample)
    np.testing.assert_allclose(
        result.context_.sum(0), 0, rtol=0, atol=1e-3
    )  # strengths have a ridge of 1e-6 of a count
    assert (np.diag(result.context_) == 0).all()


# -- the estimate --------------------------------------------------------------------------------------------------


def test_exact_frequencies_recover_the_probabilities(truth: tuple[np.ndarray, np.ndarray]) -> None:
    data = all_sets(4)
    chosen = data.offsets[:-1] + data.require_chosen("test")
    exact = item_choices(
        [
            ("".join(data.labels.plain()[a:b]), data.labels.plain()[c])
            for a, b, c in zip(data.offsets, data.offsets[1:], chosen, strict=False)
        ],  # type: ignore[union-attr]
        weights=(100 * probabilities(data, *truth)[chosen]).tolist(),
    )
    result = CDM(smoothing=0, ridge=0, tolerance=1e-14).fit(exact)
    np.testing.assert_allclose(np.exp(result._log_proba(data)), probabilities(data, *truth), rtol=0, atol=1e-5)


def test_simulated_probabilities_are_recovered(model: CDM, truth: tuple[np.ndarray, np.ndarray]) -> None:
    """11 parameters from 2,000 choices: an expected divergence of 11 / 4,000 = .00275."""
    assert divergence(model, *truth) < 0.006


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_probabilities_of_six_items_are_recovered_from_many_sets(seed: int) -> None:
    truth = random_effects(6, seed)
    assert divergence(CDM().fit(simulate(20_000, *truth, seed=seed)), *truth) < 0.003


def test_effects_of_low_rank_are_recovered() -> None:
    rng = np.random.default_rng(3)
    context = rng.normal(size=(5, 1)) @ rng.normal(size=(1, 5)) * (1 - np.eye(5))
    truth = rng.normal(size=5), context
    data = simulate(2000, *truth, seed=4)
    low, full = CDM(rank=1, ridge=0.1).fit(data), CDM(ridge=0.1).fit(data)
    assert low.num_parameters == 4 + 8 < full.num_parameters == 19
    assert divergence(low, *truth) < min(divergence(full, *truth), 0.006)


def test_results_do_not_depend_on_names_or_the_order_of_rows(model: CDM, sample: ChoiceData) -> None:
    names = dict(zip("abcd", "zyxw", strict=True))  # in reverse
    labels = sample.labels.plain()  # type: ignore[union-attr]
    rng = np.random.default_rng(0)
    order = rng.permutation(len(labels))
    chosen = np.zeros(len(labels), int)
    chosen[sample.offsets[:-1] + sample.require_chosen("test")] = 1
    table = {"set": sample.set_of_alternative, "item": np.array([names[x] for x in labels]), "took": chosen}
    other = ChoiceData.from_long(
        {k: v[order] for k, v in table.items()}, choice_set="set", chosen="took", alternative="item"
    )
    ridge = model.record_.penalty.penalty
    result = CDM(ridge=ridge).fit(other)
    # tolerance of the search
    np.testing.assert_allclose(result.predict_proba(other), model.predict_proba(sample)[order], rtol=0, atol=1e-4)


def test_items_that_never_meet_have_no_effect_on_each_other() -> None:
    data = item_choices({("ab", "a"): 3, ("ab", "b"): 1, ("bc", "b"): 2, ("bc", "c"): 2})
    result = CDM(ridge=0.1).fit(data)
    assert result.context_[0, 2] == result.context_[2, 0] == 0
    p = result.predict_proba(item_choices([("ac", "a"), ("abc", "a")]))
    assert np.isfinite(p).all()
    assert p[0] == pytest.approx(1 / (1 + np.exp(result.strengths_[2] - result.strengths_[0])), rel=1e-12)


def test_weights_count_as_repetitions() -> None:
    counts = {("ab", "a"): 3.0, ("ab", "b"): 2.0, ("abc", "c"): 4.0, ("abc", "a"): 1.0}
    repeated = item_choices([cell for cell, count in counts.items() for _ in range(int(count))])
    one, two = CDM(ridge=0.5).fit(item_choices(counts)), CDM(ridge=0.5).fit(repeated)
    np.testing.assert_allclose(one.context_, two.context_, rtol=0, atol=1e-6)


# -- options, invalid input, saved form ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"smoothing": -1}, {"ridge": -1}, {"ridge": "none"}, {"rank": 0}, {"max_iter": 0}])
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(options))} must be"):
        CDM(**options)


def test_a_table_without_labels_is_refused_with_a_remedy() -> None:
    table = {"set": [0, 0, 1, 1], "took": [1, 0, 0, 1], "x": [0.0, 1.0, 2.0, 3.0]}
    data = ChoiceData.from_long(table, choice_set="set", chosen="took", features=["x"])
    with pytest.raises(InputError, match=r"alternative=<column>.*linear context logit \(lcl\)"):
        CDM().fit(data)


def test_universes_too_large_are_refused() -> None:
    table = {"set": [0] * 1001, "item": [f"{k}" for k in range(1001)], "took": [1] + [0] * 1000}
    data = ChoiceData.from_long(table, choice_set="set", chosen="took", alternative="item")
    with pytest.raises(InputError, match=r"up to 1,000 items, got 1,001"):
        CDM().fit(data)


def test_an_unseen_item_is_refused(model: CDM) -> None:
    with pytest.raises(InputError, match="item 'z'"):
        model.predict_proba(item_choices([("az", "a")]))


def test_the_summary_describes_the_fit(model: CDM) -> None:
    text = str(model.summary())
    assert "learnt from 2,000 held-out sets (NLL inf:" in text
    assert "raised most by" in text


def test_a_damaged_file_is_refused(model: CDM) -> None:
    files, about = model._files(), (model.record_, model.table_)
    with pytest.raises(ArtifactError, match="cannot be read"):
        CDM()._restore({**files, "weights.safetensors": files["weights.safetensors"][:-8]}, *about)
    with pytest.raises(ArtifactError, match="match the saved items"):
        CDM()._restore({**files, "items.json": json.dumps({"items": ["a", "b"]}).encode()}, *about)
    arrays = {"strengths": np.zeros(4), "context": np.full((4, 4), np.nan)}
    with pytest.raises(ArtifactError, match="saved array context does not match"):
        CDM()._restore({**files, "weights.safetensors": save(arrays)}, *about)


def test_a_search_that_did_not_converge_is_reported(caplog: pytest.LogCaptureFixture, sample: ChoiceData) -> None:
    assert not CDM(max_iter=1, ridge=1.0).fit(sample).record_.converged
    assert "within max_iter=1" in caplog.text


@pytest.mark.slow
def test_the_loss_on_commute_choices_is_at_most_the_known_one() -> None:
    if not SFWORK.exists():
        pytest.skip(f"needs {SFWORK}, which is not part of the repository")
    data = ChoiceData.from_long(SFWORK, choice_set="choice_set", chosen="chosen", alternative="alternative")
    losses = []
    for seed in range(5):
        order, cut = np.random.RandomState(seed).permutation(len(data)), int(0.75 * len(data))
        losses.append(-CDM().fit(data.subset(order[:cut])).score(data.subset(order[cut:])))
    assert np.mean(losses) <= 0.8138 + 0.001
