"""The check of expected signs: shares by hand, which columns it covers, and what a fit records."""

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pcmcnet as pn
from choice_tables import ROLES, panel, read, trips
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.errors import InputError
from pcmcnet.models.interface import choice_model
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.sign_check import SignCheck, _varies_within_sets, check_signs, expected_signs

WRONG = {"formula": "price", "fixed": {"price": 0.2}}  # a logit in which every probability rises with its price


def signed(sign: Any = "-", **changes: Any) -> ChoiceData:
    return read(trips(60, seed=1), **{**ROLES, "signs": {"price": sign}, **changes})


def fitted(data: ChoiceData, **options: Any) -> ChoiceModel:
    return pn.MNL(**{**WRONG, **options}).fit(data, progress=False)


def only_check(model: ChoiceModel) -> SignCheck:
    return next(check for check in model.table_.signs if check.column == "price")


# -- shares --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sign", "slope", "wrong"), [("-", 0.2, 1), ("-", -0.2, 0), ("+", 0.2, 0), ("+", -0.2, 1)])
def test_a_logit_is_wrong_in_all_sets_or_in_none(sign: str, slope: float, wrong: float) -> None:
    check = only_check(fitted(signed(sign), fixed={"price": slope}))
    assert (check.wrong, check.is_wrong, check.declared) == (wrong, bool(wrong), True)


def test_the_share_of_sets_by_hand() -> None:
    """The slope is 0.2 for work and 0.2 - 0.5 for leisure, and the sample has all sets of two or more alternatives."""
    data = signed()
    effects = {"fixed": {"price": 0.2, "price:leisure": -0.5}, "formula": "price + price:leisure | 0"}
    table = trips(60, seed=1)
    table["leisure"] = (table["purpose"] == "leisure").astype(float)
    data = read(table, **{**ROLES, "individual": ["leisure"], "signs": {"price": "-"}})
    counted = data.sizes > 1
    is_work = data.individual["leisure"].values[counted] == 0  # type: ignore[union-attr]
    check = only_check(fitted(data, **effects))
    assert check.sets == counted.sum()
    assert 0.2 < check.wrong < 0.8
    assert check.wrong == pytest.approx(is_work.mean())


def test_the_share_of_persons_counts_those_with_one_wrong_set() -> None:
    """Each person has 8 trips; the slope of x is 1 in a set with ``even`` = 1, and -1 in the others."""
    table = panel(20, lambda rng, n: np.zeros((n, 2)))
    table["even"] = (table["trip"] % 16 == 0).astype(float)  # one trip of every second person
    roles: dict[str, Any] = {"features": ["x"], "individual": ["even"], "person": "person", "signs": {"x": "-"}}
    model = fitted(read(table, **roles), formula="x + x:even | 0", fixed={"x": -1, "x:even": 2})
    (check,) = model.table_.signs
    assert (check.wrong, check.persons) == (pytest.approx(1 / 16), pytest.approx(1 / 2))
    assert "in 6% of 160 sampled choice sets, and for 50% of their persons" in check.sentence("")


def test_missing_values_and_the_outside_option_are_not_changed() -> None:
    table = {"trip": [1, 1, 2, 2, 3], "took": [1, 0, 0, 0, 0], "price": [2.0, np.nan, 3.0, 4.0, np.nan]}
    roles: dict[str, Any] = {"features": ["price"], "missing": "indicator", "outside": "none", "signs": {"price": "-"}}
    model = pn.PCMCNet(epochs=1, members=1, weight_decay=0.1).fit(read(table, **roles), progress=False)
    assert only_check(model).sets == 2  # no price is known in the third set
    assert only_check(model).wrong == 0


def test_at_most_500_sets_and_a_limited_number_of_pairs_are_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only_check(fitted(read(trips(900), **ROLES, signs={"price": "-"}))).sets == 500
    monkeypatch.setattr("pcmcnet.models.interface.sign_check.MAX_PAIRS", 100)
    data = signed()
    sets = only_check(fitted(data)).sets
    assert 100 / data.sizes.max() ** 2 <= sets <= 100 / 4


def test_a_value_of_zero_is_raised_by_a_share_of_the_deviation() -> None:
    table = trips(30) | {"price": np.zeros(len(trips(30)["trip"]))}
    table["price"][::3] = 1.0
    assert only_check(fitted(read(table, **ROLES, signs={"price": "-"}))).wrong == 1


def test_an_effect_that_a_sign_holds_at_zero_is_reported() -> None:
    """Choices are more likely at higher prices, so a network that obeys the sign "-" does not use the price."""
    data = read(trips(80, slope=0.5), **ROLES, signs={"price": "-"})
    model = pn.PCMCNet(epochs=10, members=1, weight_decay=0.1).fit(data, progress=False)
    assert (only_check(model).wrong, only_check(model).no_effect) == (0, 1)
    assert model.sign_caveats["price"] == (
        f"the probability of an alternative does not depend on its price in 100% of {only_check(model).sets} sampled "
        "choice sets: the declared sign '-' may contradict the data. Fit without it to see the effect that it prevents"
    )
    scenario = pn.scenario(model, data, "price *= 1.2 where mode == 'car'")
    assert any("does not depend on its price" in note for note in scenario.notes)


def test_a_column_that_does_not_vary_within_sets_says_nothing_about_its_sign() -> None:
    """Prices of fuel differ between the trips, but not between the modes of a trip."""
    table = trips(80, slope=-0.5)
    table["fuel"] = np.full(len(table["trip"]), 1.5)
    table["season"] = np.asarray(table["trip"], np.float64) % 7
    roles = {**ROLES, "features": [*ROLES["features"], "fuel", "season"]}
    data = read(table, **roles, signs={"price": "-", "fuel": "-", "season": "-"})
    model = pn.PCMCNet(epochs=3, members=1, weight_decay=0.1).fit(data, progress=False)
    checks = {check.column: check for check in model.table_.signs}
    assert [checks[name].varies for name in ("price", "fuel", "season")] == [True, False, False]
    assert model.sign_caveats["fuel"] == (
        f"the probability of an alternative does not depend on its fuel in 100% of {checks['fuel'].sets} sampled "
        "choice sets: all alternatives of a set have the same fuel, so the data say nothing about its effect. Remove "
        "'fuel' from the features, or add choice sets in which it differs"
    )


def test_values_of_a_set_differ_only_if_two_known_values_do() -> None:
    """Sets (1, 1, missing), (missing), (2, 2): no two known values differ. With (2, 3) in the last set, they do."""
    table = {"trip": [1, 1, 1, 2, 3, 3], "took": [1, 0, 0, 1, 1, 0], "x": [1, 1, np.nan, np.nan, 2, 2]}
    data = read(table, features=["x"], missing="indicator")
    same = np.array([1, 1, np.nan, np.nan, 2, 2], np.float32)
    assert not _varies_within_sets(data, same)
    assert _varies_within_sets(data, np.append(same[:-1], np.float32(3)))


def test_an_effect_with_the_declared_sign_is_not_reported() -> None:
    data = read(trips(80, slope=-0.5), **ROLES, signs={"price": "-"})
    model = pn.PCMCNet(epochs=10, members=1, weight_decay=0.1).fit(data, progress=False)
    assert (only_check(model).no_effect, model.sign_caveats) == (0, {})


def test_a_change_below_the_next_split_of_a_tree_is_no_missing_effect() -> None:
    """The prices are 1, 3 and 9, so a raise by a tenth crosses no split."""
    rng = np.random.default_rng(0)
    price = 3.0 ** rng.integers(0, 3, (200, 2))
    first = (-price + rng.gumbel(size=(200, 2))).argmax(axis=1) == 0
    table = {"trip": np.repeat(np.arange(200), 2), "took": np.column_stack([first, ~first]).ravel()}
    data = read(table | {"price": price.ravel()}, features=["price"], signs={"price": "-"})
    model = pn.Boosted().fit(data, progress=False)
    raised = np.where(np.arange(400) % 2, 1.0, 1.1) * price.ravel()
    assert np.array_equal(model.predict_proba(table | {"price": raised}), model.predict_proba(data))
    assert (only_check(model).no_effect, model.sign_caveats) == (0, {})


def test_logits_that_leave_the_column_out_are_not_reported() -> None:
    assert fitted(signed(), formula="minutes", fixed={"minutes": -0.1}).sign_caveats == {}


# -- what a fit records --------------------------------------------------------------------------------------------


def test_the_check_does_not_change_predictions_or_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    data, options = signed(), {"epochs": 2, "members": 1, "weight_decay": 0.1}
    checked = pn.PCMCNet(**options).fit(data, progress=False)
    state = torch.random.get_rng_state()
    checks = check_signs(checked, data)
    assert checks == checked.table_.signs
    assert (torch.random.get_rng_state() == state).all()
    monkeypatch.setattr(choice_model, "check_signs", lambda *_: ())
    plain = pn.PCMCNet(**options).fit(data, progress=False)
    assert (plain.predict_log_proba(data) == checked.predict_log_proba(data)).all()


def test_a_model_is_saved_with_its_check(tmp_path: Path) -> None:
    model = fitted(signed())
    assert pn.load(model.save(tmp_path / "model")).table_.signs == model.table_.signs


def test_the_check_covers_a_scanned_table(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(trips(60, seed=1)), tmp_path / "trips.parquet")
    scanned = ChoiceData.scan(tmp_path / "trips.parquet", **ROLES, signs={"price": "-"})
    model = fitted(scanned)  # type: ignore[arg-type]
    assert only_check(model) == only_check(fitted(signed()))


@pytest.mark.parametrize(
    "wrapper",
    [
        lambda model: pn.Ensemble(model, n=2),
        lambda model: pn.WithConstants(model, shares={"car": 0.5, "bus": 0.5}),
        lambda model: pn.Calibrated(model),
        lambda model: pn.Stacking([model, "uniform"], folds=2),
    ],
    ids=["ensemble", "with-constants", "calibrated", "stacking"],
)
def test_a_model_of_models_is_checked_once(wrapper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    def record_and_check(model: ChoiceModel, train: Any) -> Any:
        checked.append(model.name)
        return check_signs(model, train)

    monkeypatch.setattr(choice_model, "check_signs", record_and_check)
    table = trips(60, seed=1, sizes=(2, 2))
    data = read(table, **ROLES, signs={"price": "-"})
    model = wrapper(pn.MNL(**WRONG))
    model.fit(data, data if model.stops_early else None, progress=False)
    assert checked == [model.name]
    assert only_check(model).wrong == 1
    assert len(model.sign_caveats) == 1


def test_a_failed_check_keeps_the_fit(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> Any:
        raise InputError("the probabilities of choice set 7 do not sum to 1.")

    monkeypatch.setattr(pn.MNL, "_checked_log_proba", fail)
    with caplog.at_level(logging.WARNING):
        model = fitted(signed())
    assert model.table_.signs == ()
    assert "expected signs were not checked, because a changed choice set cannot be predicted: the prob" in caplog.text


def test_rankings_are_not_checked() -> None:
    assert pn.MODELS["rank-by"](column="price").fit(signed(), progress=False).table_.signs == ()


# -- sentences -----------------------------------------------------------------------------------------------------


def test_a_declared_sign_of_a_logit_is_reported_with_a_bound() -> None:
    model = fitted(signed())
    (caveat,) = model.sign_caveats.values()
    assert caveat == (
        "the probability of an alternative rises with its price in 100% of "
        f"{only_check(model).sets} sampled choice sets, against the declared sign '-': bound its coefficients, as in "
        "bounds={'price': (None, 0)}"
    )
    assert f"Caveat: {caveat}." in str(model.summary())
    bounded = pn.MNL(formula="price", bounds={"price": (None, 0)}).fit(signed(), progress=False)
    assert bounded.sign_caveats == {}


def test_summaries_state_the_result_of_each_declared_sign() -> None:
    signs = {"price": "-", "minutes": "-"}
    wrong = fitted(signed(signs=signs))  # the coefficient of minutes is 0
    n = only_check(wrong).sets
    expected = f"price -: right in 0.0% of {n} sampled choice sets; minutes -: no effect in 100% of {n} sampled choice"
    assert expected in str(wrong.summary())
    options: dict[str, Any] = {"hidden": (4,), "members": 1, "epochs": 1, "weight_decay": 0.1}
    for model in (pn.PCMCNet(**options), pn.Ensemble(pn.PCMCNet(**options), 2), pn.Stacking(models=["mnl"])):
        model.fit(signed(signs={"price": "-"}), progress=False)
        assert re.search(rf"expected signs +price -: right in all {n} sampled choice sets\n", str(model.summary()))
    assert "expected signs" not in str(fitted(signed(signs={})).summary())


def test_a_share_that_is_not_quite_all_is_not_rounded_to_all() -> None:
    check = SignCheck(column="price", sign="-", declared=True, wrong=0.0002, sets=5_000)
    assert check.result == "right in 99.9% of 5,000 sampled choice sets"


def test_a_sign_that_is_not_declared_is_reported_as_a_question() -> None:
    model = fitted(signed(signs={}))
    assert "100% of" in model.sign_caveats["price"]
    assert model.sign_caveats["price"].endswith(
        "sampled choice sets. Is this plausible? If not, bound its coefficients, as in bounds={'price': (None, 0)}"
    )
    assert "minutes" not in model.sign_caveats  # its coefficient is 0


def test_a_bound_names_the_coefficient_that_the_formula_has() -> None:
    model = pn.MNL(formula="log(price) + minutes", fixed={"log(price)": 1.0}).fit(signed(), progress=False)
    assert "bounds={'log(price)': (None, 0)}" in model.sign_caveats["price"]


def test_models_that_cannot_obey_name_those_that_do() -> None:
    model = pn.MODELS["rumnet"](epochs=1).fit(signed("+"), progress=False)
    check = SignCheck(column="price", sign="+", declared=True, wrong=0.5, sets=10)
    assert model._sign_remedy(check) == "use a model that obeys signs, such as pcmcnet, boosted or stacking"


def test_a_network_without_declared_signs_is_told_to_declare_them() -> None:
    rising = read(trips(80, slope=0.5), **ROLES)
    model = pn.PCMCNet(epochs=10, members=1, weight_decay=0.1).fit(rising, progress=False)
    assert model.sign_caveats["price"].endswith("If not, declare signs={'price': '-'} and fit again")
    free = pn.PCMCNet(epochs=10, members=1, weight_decay=0.1, monotone={"price": "free"})
    free.fit(read(trips(80, slope=0.5), **ROLES, signs={"price": "-"}), progress=False)
    assert free.sign_caveats["price"].endswith("remove 'price' from the option monotone, and fit again")


@pytest.mark.parametrize(
    ("name", "unit", "sign"),
    [
        *[(name, "", "-") for name in ("price", "TT", "GA_cost", "travelTime", "ivt", "totalPrice", "ticket_fare")],
        *[(name, "", None) for name in ("comfort", "depTime", "arrival_time", "stay_time", "mprice", "seats", "att")],
        ("amount", "EUR", "-"),
        ("amount", "kg", None),
    ],
)
def test_columns_that_look_like_prices_or_durations(name: str, unit: str, sign: str | None) -> None:
    names = {name: {"unit": unit}} if unit else {}
    schema = Schema(choice_set="trip", features=[name], named=names)
    assert expected_signs(schema).get(name) == sign


def test_declared_signs_replace_the_guess() -> None:
    assert expected_signs(Schema(choice_set="trip", features=["price"], signs={"price": "+"})) == {"price": "+"}


def test_individual_level_and_categorical_columns_are_not_guessed() -> None:
    schema = Schema(choice_set="trip", features=["fare"], individual=["cost"], categorical=["fare"])
    assert expected_signs(schema) == {}
