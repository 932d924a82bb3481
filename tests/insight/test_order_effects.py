"""Orders of context effects: none above the first in a logit nor above the second in a CDM; sums are exact."""

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


def offered(n: int, sets: int = 1) -> ChoiceData:
    """Sets of the alternatives 0 to n - 1, known by the feature "item"."""
    table = {"set": np.repeat(np.arange(sets), n), "item": np.tile(np.arange(float(n)), sets)}
    return ChoiceData.from_long(table, choice_set="set", features=["item"])


class Utilities:
    """A model given by the utility of each item within a set; a subclass says how others change it."""

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
    """Every other adds its own pull (Seshadri, Peysakhovich & Ugander, 2019)."""

    def utility(self, items: NDArray[Any]) -> Floats:
        pull = self.pull[np.ix_(items, items)]
        return self.u[items] + pull.sum(1) - pull.diagonal()


class Triples(Utilities):
    """Every two others add something together, and nothing alone."""

    def utility(self, items: NDArray[Any]) -> Floats:
        found = self.u[items].copy()
        for at, i in enumerate(items):
            others = np.delete(items, at)
            found[at] += np.triu(self.both[i][np.ix_(others, others)], 1).sum()
        return found


class Nested(Utilities):
    """A nested logit: even items in one nest, odd ones in another, with a log-sum of 0.5."""

    def utility(self, items: NDArray[Any]) -> Floats:
        inside = np.exp(self.u[items] / 0.5)
        nests = np.array([inside[items % 2 == item % 2].sum() for item in items])
        return np.log(inside) + (0.5 - 1) * np.log(nests)


@given(m=st.integers(0, 5), seed=st.integers(0, 99))
def test_the_terms_of_all_parts_of_a_subset_add_up_to_its_value(m: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(3, 2**m))
    terms = moebius(values)
    for subset in range(2**m):
        inside = [part for part in range(2**m) if part & subset == part]
        np.testing.assert_allclose(terms[:, inside].sum(1), values[:, subset], atol=1e-12)


def test_three_alternatives_have_the_terms_worked_out_by_hand() -> None:
    """One other: its term is the log-odds beside it less those of the pair alone."""
    model = CDM(3)
    found = exact_terms(model, offered(3), 0, np.array([[0, 2]]), top=5)
    alone = model.u[0] + model.pull[0, 2] - model.u[2] - model.pull[2, 0]
    added = model.pull[0, 1] - model.pull[2, 1]
    np.testing.assert_allclose(found.sums, [[alone, added]], atol=1e-12)
    np.testing.assert_allclose(found.log_odds, [alone + added], atol=1e-12)
    ((value, pair, others),) = found.largest
    assert (round(value, 10), pair, others) == (round(added, 10), 0, (1,))


def test_a_logit_has_no_term_above_the_first_order(driven: ChoiceData) -> None:
    found = order_effects(MNL().fit(driven), driven, least=0.0)
    assert found[1].explained == pytest.approx(1, abs=1e-10)
    assert max(row.contribution for row in found.orders[1:]) < 1e-10
    assert max(abs(term.value) for term in found.terms) < 1e-10


def test_nests_and_chains_have_terms_of_second_order(driven: ChoiceData) -> None:
    for model, data in ((Nested(4), offered(4)), (PCMC(ridge=0.1, restarts=1).fit(driven), driven)):
        found = order_effects(model, data)
        assert found[2].contribution > 0.01
        assert found[1].explained < 1


@pytest.mark.parametrize(("kind", "last"), [(Utilities, 1), (CDM, 2), (Triples, 3)])
@pytest.mark.parametrize("n", [5, 12], ids=["exact", "sampled"])
def test_a_model_has_no_terms_above_its_own_order(kind: type[Utilities], last: int, n: int) -> None:
    found = order_effects(kind(n), offered(n), least=0.0)
    assert found[last].contribution > 0.1
    for row in found.orders[last:]:
        assert row.contribution < 1e-10
    assert found.orders[last - 1].explained == pytest.approx(1, abs=1e-12)


@given(n=st.integers(2, 6), seed=st.integers(0, 99))
def test_the_terms_add_up_to_the_log_odds_of_the_full_set(n: int, seed: int) -> None:
    model, data = Triples(n, seed), offered(n)
    pairs = np.stack(np.triu_indices(n, 1), 1)
    found = exact_terms(model, data, 0, pairs, top=3)
    log_p = model.predict_log_proba(data)
    np.testing.assert_allclose(found.sums.sum(1), log_p[pairs[:, 0]] - log_p[pairs[:, 1]], atol=1e-10)


def test_all_terms_drawn_are_those_of_all_subsets() -> None:
    model, data, pairs = Triples(6), offered(6), np.array([[0, 1], [2, 5]])
    rng = np.random.default_rng(0)
    exact = exact_terms(model, data, 0, pairs, top=4)
    drawn = sampled_terms(model, data, 0, pairs, 4, orders=4, draws=50, rng=rng)
    np.testing.assert_allclose(drawn.sums, exact.sums[:, :4], atol=1e-10)
    assert not drawn.errors.any()
    np.testing.assert_allclose([t[0] for t in drawn.largest], [t[0] for t in exact.largest], atol=1e-10)


def test_some_terms_drawn_estimate_the_sum_within_their_errors() -> None:
    """45 groups of two others, 30 drawn, 20 pairs: standardised misses have a standard deviation near 1."""
    model, data = Triples(12), offered(12)
    pairs = np.stack(np.triu_indices(12, 1), 1)[:20]
    drawn = sampled_terms(model, data, 0, pairs, 4, orders=3, draws=30, rng=np.random.default_rng(0))
    full = sampled_terms(model, data, 0, pairs, 4, orders=3, draws=45, rng=np.random.default_rng(0))
    assert not drawn.errors[:, :2].any()
    assert not full.errors.any()
    assert (drawn.errors[:, 2] > 0).all()
    assert 0.5 < ((drawn.sums - full.sums)[:, 2] / drawn.errors[:, 2]).std() < 1.5


def test_of_larger_sets_the_rest_and_the_errors_are_told() -> None:
    found = order_effects(Triples(12), offered(12), orders=2, least=0.0)
    assert [row.order for row in found.orders] == ["1", "2", "above 2"]
    assert found[2].error == 0
    assert found.orders[-1].contribution > 0.1
    assert found.orders[-1].explained == pytest.approx(1)
    assert found.sampled == 1
    assert "more than 10 alternatives" in str(found)
    assert order_effects(Triples(14), offered(14), draws=10, least=0.0)[3].error > 0


def test_the_result_is_a_table_a_frame_and_json(fitted: Callable[[str], ChoiceModel], driven: ChoiceData) -> None:
    found = order_effects(fitted("pcmc"), driven, top=4)
    assert found[1].share + found[2].share + found[3].share == pytest.approx(1)
    assert json.loads(json.dumps(found.to_dict()))["orders"][1]["contribution"] == found[2].contribution
    assert list(found.to_frame()["order"]) == ["1", "2", "3"]
    terms = found.to_frame("terms")
    assert len(terms) == 4
    assert terms["value"].abs().is_monotonic_decreasing
    assert set(terms["i"]) <= {"bike", "bus", "car", "train"}
    assert "Largest: choice set" in str(found)
    assert "<table" in found._repr_html_()
    assert found.to_latex().count(r"\\") >= 4


def test_what_cannot_be_taken_apart_is_refused(driven: ChoiceData, fitted: Callable[[str], ChoiceModel]) -> None:
    with pytest.raises(InputError, match="gives an alternative probability 0"):
        order_effects(fitted("rank-by"), driven, least=0.0)
    with pytest.raises(InputError, match="lower least, or draw more sets"):
        order_effects(fitted("uniform"), driven, least=0.9)
    with pytest.raises(InputError, match="order: expected one of 1, 2, 3, got 7"):
        order_effects(fitted("uniform"), driven)[7]
    with pytest.raises(ConfigError, match="orders"):
        order_effects(fitted("uniform"), driven, orders=0)
    assert order_effects(fitted("uniform"), driven)[1].explained == 1
