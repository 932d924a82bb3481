"""Orders of context effects: a logit has order 1, a CDM order 2; sums of terms are exact."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.order_effects import exact_terms, moebius, order_effects, sampled_terms
from pcmcnet.models import MNL, PCMC, ChoiceModel

Floats = NDArray[np.float64]


def make_sets(n: int, sets: int = 1) -> ChoiceData:
    """Return sets of the alternatives 0 to n - 1; the feature "item" holds the number."""
    table = {"set": np.repeat(np.arange(sets), n), "item": np.tile(np.arange(float(n)), sets)}
    return ChoiceData.from_long(table, choice_set="set", features=["item"])


class Utilities:
    """A model given by the utility of each item; subclasses define how the others change it."""

    def __init__(self, n: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.u, self.pull, self.both = rng.normal(size=n), rng.normal(size=(n, n)), rng.normal(size=(n, n, n))

    def utility(self, items: NDArray[Any]) -> Floats:
        return self.u[items]

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        items = np.asarray(data.features["item"].plain()).astype(int)
        parts = [self.utility(items[a:b]) for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True)]
        return data.to_rows(np.concatenate([u - np.log(np.exp(u).sum()) for u in parts]))


class CDM(Utilities):
    """Each other alternative adds its own pull (Seshadri, Peysakhovich & Ugander, 2019)."""

    def utility(self, items: NDArray[Any]) -> Floats:
        pull = self.pull[np.ix_(items, items)]
        return self.u[items] + pull.sum(1) - pull.diagonal()


class Triples(Utilities):
    """Pairs of others add to the utility; a single other adds nothing."""

    def utility(self, items: NDArray[Any]) -> Floats:
        result = self.u[items].copy()
        for at, i in enumerate(items):
            others = np.delete(items, at)
            result[at] += np.triu(self.both[i][np.ix_(others, others)], 1).sum()
        return result


class Nested(Utilities):
    """A nested logit: even items in one nest, odd ones in another, with a log-sum of 0.5."""

    def utility(self, items: NDArray[Any]) -> Floats:
        inside = np.exp(self.u[items] / 0.5)
        nests = np.array([inside[items % 2 == item % 2].sum() for item in items])
        return np.log(inside) + (0.5 - 1) * np.log(nests)


@given(m=st.integers(0, 5), seed=st.integers(0, 99))
def test_the_terms_of_a_subset_sum_to_its_value(m: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(3, 2**m))
    terms = moebius(values)
    for subset in range(2**m):
        inside = [part for part in range(2**m) if part & subset == part]
        np.testing.assert_allclose(terms[:, inside].sum(1), values[:, subset], atol=1e-12)


def test_terms_of_three_alternatives_match_values_by_hand() -> None:
    """With one other, its term is the log-odds in the set of three minus those of the pair."""
    model = CDM(3)
    result = exact_terms(model, make_sets(3), 0, np.array([[0, 2]]), top=5)
    alone = model.u[0] + model.pull[0, 2] - model.u[2] - model.pull[2, 0]
    added = model.pull[0, 1] - model.pull[2, 1]
    np.testing.assert_allclose(result.sums, [[alone, added]], atol=1e-12)
    np.testing.assert_allclose(result.log_odds, [alone + added], atol=1e-12)
    ((value, pair, others),) = result.largest
    assert (round(value, 10), pair, others) == (round(added, 10), 0, (1,))


def test_a_logit_has_no_term_above_the_first_order(driven: ChoiceData) -> None:
    result = order_effects(MNL().fit(driven), driven, least=0.0)
    assert result[1].explained == pytest.approx(1, abs=1e-10)
    assert max(row.contribution for row in result.orders[1:]) < 1e-10
    assert max(abs(term.value) for term in result.terms) < 1e-10


def test_nests_and_chains_have_terms_of_second_order(driven: ChoiceData) -> None:
    for model, data in ((Nested(4), make_sets(4)), (PCMC(ridge=0.1, restarts=1).fit(driven), driven)):
        result = order_effects(model, data)
        assert result[2].contribution > 0.01
        assert result[1].explained < 1


@pytest.mark.parametrize(("kind", "last"), [(Utilities, 1), (CDM, 2), (Triples, 3)])
@pytest.mark.parametrize("n", [5, 12], ids=["exact", "sampled"])
def test_a_model_has_no_terms_above_its_own_order(kind: type[Utilities], last: int, n: int) -> None:
    result = order_effects(kind(n), make_sets(n), least=0.0)
    assert result[last].contribution > 0.1
    for row in result.orders[last:]:
        assert row.contribution < 1e-10
    assert result.orders[last - 1].explained == pytest.approx(1, abs=1e-12)


@given(n=st.integers(2, 6), seed=st.integers(0, 99))
def test_the_terms_sum_to_the_log_odds_of_the_full_set(n: int, seed: int) -> None:
    model, data = Triples(n, seed), make_sets(n)
    pairs = np.stack(np.triu_indices(n, 1), 1)
    result = exact_terms(model, data, 0, pairs, top=3)
    log_p = model.predict_log_proba(data)
    np.testing.assert_allclose(result.sums.sum(1), log_p[pairs[:, 0]] - log_p[pairs[:, 1]], atol=1e-10)


def test_drawing_all_terms_equals_the_exact_terms() -> None:
    model, data, pairs = Triples(6), make_sets(6), np.array([[0, 1], [2, 5]])
    rng = np.random.default_rng(0)
    exact = exact_terms(model, data, 0, pairs, top=4)
    drawn = sampled_terms(model, data, 0, pairs, 4, orders=4, draws=50, rng=rng)
    np.testing.assert_allclose(drawn.sums, exact.sums[:, :4], atol=1e-10)
    assert not drawn.errors.any()
    np.testing.assert_allclose([t[0] for t in drawn.largest], [t[0] for t in exact.largest], atol=1e-10)


def test_sampled_terms_estimate_the_sum_within_their_errors() -> None:
    """30 of 45 groups of two others, for 20 pairs: standardised errors have a standard deviation near 1."""
    model, data = Triples(12), make_sets(12)
    pairs = np.stack(np.triu_indices(12, 1), 1)[:20]
    drawn = sampled_terms(model, data, 0, pairs, 4, orders=3, draws=30, rng=np.random.default_rng(0))
    full = sampled_terms(model, data, 0, pairs, 4, orders=3, draws=45, rng=np.random.default_rng(0))
    assert not drawn.errors[:, :2].any()
    assert not full.errors.any()
    assert (drawn.errors[:, 2] > 0).all()
    assert 0.5 < ((drawn.sums - full.sums)[:, 2] / drawn.errors[:, 2]).std() < 1.5


def test_larger_sets_report_the_rest_and_sampling_errors() -> None:
    result = order_effects(Triples(12), make_sets(12), orders=2, least=0.0)
    assert [row.order for row in result.orders] == ["1", "2", "above 2"]
    assert result[2].error == 0
    assert result.orders[-1].contribution > 0.1
    assert result.orders[-1].explained == pytest.approx(1)
    assert result.sampled == 1
    assert "more than 10 alternatives" in str(result)
    assert order_effects(Triples(14), make_sets(14), draws=10, least=0.0)[3].error > 0


def test_the_result_converts_to_text_frames_and_json(fitted: Callable[[str], ChoiceModel], driven: ChoiceData) -> None:
    result = order_effects(fitted("pcmc"), driven, top=4)
    assert result[1].share + result[2].share + result[3].share == pytest.approx(1)
    assert json.loads(json.dumps(result.to_dict()))["orders"][1]["contribution"] == result[2].contribution
    assert list(result.to_frame()["order"]) == ["1", "2", "3"]
    terms = result.to_frame("terms")
    assert len(terms) == 4
    assert terms["value"].abs().is_monotonic_decreasing
    assert set(terms["i"]) <= {"bike", "bus", "car", "train"}
    assert "Largest: choice set" in str(result)
    assert "<table" in result._repr_html_()
    assert result.to_latex().count(r"\\") >= 4


def test_invalid_decompositions_are_rejected(driven: ChoiceData, fitted: Callable[[str], ChoiceModel]) -> None:
    with pytest.raises(InputError, match="gives an alternative probability 0"):
        order_effects(fitted("rank-by"), driven, least=0.0)
    with pytest.raises(InputError, match="lower least, or draw more sets"):
        order_effects(fitted("uniform"), driven, least=0.9)
    with pytest.raises(InputError, match="order: expected one of 1, 2, 3, got 7"):
        order_effects(fitted("uniform"), driven)[7]
    with pytest.raises(ConfigError, match="orders"):
        order_effects(fitted("uniform"), driven, orders=0)
    assert order_effects(fitted("uniform"), driven)[1].explained == 1
