"""Choice sets that every person of a hierarchical logit answers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from choice_tables import read
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.insight import people
from pcmcnet.insight.market_shares import market_shares
from pcmcnet.insight.people import PeoplePredictor
from pcmcnet.models import MNL, HierarchicalMNL

PRODUCTS = {"price": [1.0, 2.0, 1.5], "brand": ["A", "B", "C"]}


@pytest.fixture(scope="module")
def model() -> HierarchicalMNL:
    """Return a model of 40 persons with part-worths of price, brand[B] and brand[C] in 60 draws."""
    rng = np.random.default_rng(0)
    table = {
        "trip": np.repeat(np.arange(80), 3),
        "took": np.tile([1, 0, 0], 80),
        "price": rng.permutation(np.resize([1.0, 2.0, 5.0], 240)),
        "brand": rng.choice(["A", "B", "C"], 240),
        "person": np.repeat(np.arange(40), 6),
    }
    data = read(table, features=["price", "brand"], person="person")
    options: dict[str, Any] = {"formula": "price + brand | 0", "base": {"brand": "A"}, "min_chosen": 0}
    fitted = HierarchicalMNL(**options, chains=2, burn_in=20, draws=40, thin=1).fit(data, progress=False)
    record = fitted.require_fitted()
    worths = rng.normal(size=(40, 3, 60)).astype(np.float32)
    fitted.fitted_ = replace(record, state=replace(record.state, part_worths=worths))
    return fitted


def sets_of(model: HierarchicalMNL, *numbers: list[int]) -> ChoiceData:
    """Return choice sets of some of the products."""
    rows = [k for numbers_of_set in numbers for k in numbers_of_set]
    table = {name: [values[k] for k in rows] for name, values in PRODUCTS.items()}
    ids = np.repeat(np.arange(len(numbers)), [len(one) for one in numbers])
    return ChoiceData.from_schema({"trip": ids, **table}, model.schema.for_prediction())


@pytest.mark.parametrize("rule", ["logit", "first-choice"])
def test_shares_of_one_set_are_those_of_market_shares(rule: Any, model: HierarchicalMNL) -> None:
    """The sets of all products and of the first two are two markets."""
    data = sets_of(model, [0, 1, 2], [0, 1])
    shares = np.exp(PeoplePredictor.of(model, rule, data).predict_log_proba(data))
    assert shares.shape == (5, 60)
    for rows, n in ((slice(0, 3), 3), (slice(3, 5), 2)):
        expected = market_shares(model, {name: values[:n] for name, values in PRODUCTS.items()}, rule=rule)
        assert shares[rows].mean(axis=1) == pytest.approx([row.share for row in expected.rows], abs=1e-6)
        ends = np.quantile(shares[rows], [0.05, 0.95], axis=1).T
        assert ends == pytest.approx(np.array([(row.low, row.high) for row in expected.rows]), abs=1e-6)


def test_blocks_of_people_change_nothing(model: HierarchicalMNL, monkeypatch: pytest.MonkeyPatch) -> None:
    data = sets_of(model, [0, 1, 2])
    whole = PeoplePredictor.of(model, "logit", data).predict_log_proba(data)
    monkeypatch.setattr(people, "_UTILITIES_AT_ONCE", 3 * 60 * 7)  # seven persons
    np.testing.assert_allclose(PeoplePredictor.of(model, "logit", data).predict_log_proba(data), whole, atol=1e-12)


def test_large_tables_use_fewer_draws_and_larger_ones_are_refused(
    model: HierarchicalMNL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 people and 5 alternatives: 30 draws take 6,000 utilities. With 10 alternatives, 15 draws would be too few."""
    monkeypatch.setattr(people, "_MAX_UTILITIES", 6_000)
    assert PeoplePredictor.of(model, "logit", sets_of(model, [0, 1, 2], [0, 1])).n_draws == 30
    with pytest.raises(
        InputError, match="40 people can answer choice sets with at most 7 alternatives in total, got 10"
    ):
        PeoplePredictor.of(model, "logit", sets_of(model, *[[0, 1]] * 5))


def test_other_models_and_unknown_levels_are_refused(model: HierarchicalMNL) -> None:
    data = sets_of(model, [0, 1])
    with pytest.raises(InputError, match=r"needs the part-worths of a hierarchical logit \(hb-mnl\), got MNL"):
        PeoplePredictor.of(MNL(), "logit", data)
    odd = ChoiceData.from_schema(
        {"trip": [1, 1], "price": [1.0, 2.0], "brand": ["A", "D"]}, model.schema.for_prediction()
    )
    with pytest.raises(InputError, match="does not know the level 'D'"):
        PeoplePredictor.of(model, "logit", odd).predict_log_proba(odd)
