"""The best prices: the closed form of a logit, all price lists of a ladder, and bad input."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.special import lambertw

import pcmcnet as pn
from choice_tables import largest, read
from pcmcnet.datasets import market
from pcmcnet.errors import ConfigError, InputError

CATALOGUE = {
    "price": [0.0, 2.0, 3.0, 2.5],
    "quality": [0.0, 1.0, -0.5, 0.25],
    "cost": [9.9, 0.5, 0.7, 1.0],  # the price of the outside option is fixed
}


@pytest.fixture(scope="module")
def data() -> pn.ChoiceData:
    rng = np.random.default_rng(0)
    trip = np.repeat(np.arange(300), 4)
    price, quality = rng.uniform(1, 5, trip.size), rng.normal(size=trip.size)
    took = largest(quality - 0.8 * price + rng.gumbel(size=trip.size), trip)
    return read({"trip": trip, "took": took, "price": price, "quality": quality}, features=["price", "quality"])


def test_prices_of_a_logit_have_the_markup_in_closed_form(data: pn.ChoiceData) -> None:
    """With v = q - a x the best markup is common: (1 + W(sum exp(q_j - a c_j - 1))) / a, and the margin W(.) / a."""
    model = pn.MNL().fit(data)
    b = model.coefficients
    result = pn.optimise_prices(model, CATALOGUE, cost="cost", outside="0", bounds=(0.0, 50.0))
    cost = np.array(CATALOGUE["cost"][1:])
    w = lambertw(np.exp(b["quality"] * np.array(CATALOGUE["quality"][1:]) + b["price"] * cost - 1).sum()).real
    np.testing.assert_allclose(np.array(result.after) - cost, (1 + w) / -b["price"], rtol=0, atol=1e-8)
    assert result.value == pytest.approx(w / -b["price"], abs=1e-10)
    assert (result.exact, result.bound, result.at_bound) == (False, None, ())
    assert "local maximum" in str(result)
    assert result.value > result.value_before


@pytest.fixture(scope="module")
def nested() -> pn.models.ChoiceModel:
    """A nested logit with price slopes of 0.8, or 0.5 for premium; the outside option has its own nest."""
    rng = np.random.default_rng(1)
    trip = np.repeat(np.arange(60), 5)
    table = {
        "trip": trip,
        "mode": np.tile([*"oabcd"], 60),
        "price": rng.uniform(1, 5, trip.size),
        "premium": np.tile([0.0, 0.0, 1.0, 0.0, 1.0], 60),
        "quality": rng.normal(size=trip.size),
        "took": largest(rng.gumbel(size=trip.size), trip),
    }
    data = read(table, alternative="mode", features=["price", "premium", "quality"])
    return pn.NestedMNL(
        formula="price + price:premium + quality | 0",
        nests={"o": "none", "a": "x", "b": "x", "c": "y", "d": "y"},
        fixed={"price": -0.8, "price:premium": 0.3, "quality": 1.0, "logsum[x]": 0.5, "logsum[y]": 0.7},
    ).fit(data)


def test_prices_of_a_nested_logit_have_equal_adjusted_markups(nested: pn.models.ChoiceModel) -> None:
    """The derivative in x_j vanishes if w_j - l / b_j = R + (1 - l) sum_i q_i / b_i, with w_j = x_j - c_j.

    l is the log-sum parameter of the nest, b the slopes, q the shares within the nest and R the total margin. So the
    adjusted markup w_j - l / b_j is equal within a nest. For l <= 1, only the best prices have this property
    (Gallego & Wang, 2014).
    """
    catalogue = {
        "mode": [*"oabcd"],
        "price": [0.0, 2.0, 3.0, 2.5, 4.0],
        "premium": [0.0, 0.0, 1.0, 0.0, 1.0],
        "quality": [0.0, 1.0, 0.5, 0.25, 1.5],
        "cost": [0.0, 0.5, 0.7, 1.0, 0.2],
    }
    result = pn.optimise_prices(nested, catalogue, cost="cost", outside="o", bounds=(0.0, 50.0))
    x, c, quality = np.array(result.after), np.array(catalogue["cost"][1:]), np.array(catalogue["quality"][1:])
    slope, logsum = 0.8 - 0.3 * np.array(catalogue["premium"][1:]), np.array([0.5, 0.5, 0.7, 0.7])
    a = np.exp((quality - slope * x) / logsum)
    nest = np.repeat(a.reshape(2, 2).sum(axis=1), 2)  # for each alternative
    within = a / nest
    p = within * nest**logsum / (1 + (nest**logsum).reshape(2, 2)[:, 0].sum())
    earns = p @ (x - c)
    harmonic = np.repeat((within / slope).reshape(2, 2).sum(axis=1), 2)
    np.testing.assert_allclose(x - c - logsum / slope, earns + (1 - logsum) * harmonic, rtol=0, atol=1e-8)
    assert result.value == pytest.approx(earns, abs=1e-12)


def test_prices_with_limited_stock_are_optimal(data: pn.ChoiceData) -> None:
    """A shadow price acts as a cost: adding it to the costs in the closed form of a logit gives the prices."""
    model = pn.MNL().fit(data)
    b = model.coefficients
    options = {"cost": "cost", "outside": "0", "bounds": (0.0, 50.0)}
    free = pn.optimise_prices(model, CATALOGUE, **options)
    stock = {"1": 100 * free.probabilities[0] / 2, "3": 100.0}
    result = pn.optimise_prices(model, CATALOGUE, **options, inventory=stock, customers=100)
    shadow = np.array(result.shadow_prices)
    cost = np.array(CATALOGUE["cost"][1:])
    w = lambertw(np.exp(b["quality"] * np.array(CATALOGUE["quality"][1:]) + b["price"] * (cost + shadow) - 1).sum())
    np.testing.assert_allclose(np.array(result.after) - cost - shadow, (1 + w.real) / -b["price"], rtol=0, atol=1e-8)
    assert result.demand[0] == pytest.approx(stock["1"], abs=1e-8)
    assert shadow[0] > 0.1
    assert shadow[1:].tolist() == [0.0, 0.0]
    assert result.inventory == (stock["1"], None, 100.0)
    assert result.value < free.value
    more = pn.optimise_prices(model, CATALOGUE, **options, inventory={"1": stock["1"] + 0.01}, customers=100)
    assert 100 * (more.value - result.value) / 0.01 == pytest.approx(shadow[0], rel=1e-3)
    assert "shadow price" in str(result)
    assert result.to_frame()["shadow_price"].tolist() == shadow.tolist()


def test_sufficient_stock_changes_no_price(data: pn.ChoiceData) -> None:
    model = pn.MNL().fit(data)
    free = pn.optimise_prices(model, CATALOGUE, cost="cost", outside="0", bounds=(0.0, 50.0))
    result = pn.optimise_prices(
        model, CATALOGUE, cost="cost", outside="0", bounds=(0.0, 50.0), inventory=[0, 50, 50, 50], customers=50
    )
    np.testing.assert_allclose(result.after, free.after, atol=1e-5)
    assert result.shadow_prices == (0.0, 0.0, 0.0)


def test_insufficient_stock_is_rejected(data: pn.ChoiceData) -> None:
    with pytest.raises(InputError, match=r"no prices within the bounds .* '1' has a demand share .* enough for 0\.001"):
        pn.optimise_prices(
            pn.MNL().fit(data), CATALOGUE, outside="0", bounds=(1.0, 3.0), inventory={"1": 0.1}, customers=100
        )


def test_a_probability_that_rises_with_price_is_noted(data: pn.ChoiceData, caplog: Any) -> None:
    """The probabilities rise with the price in the first logit, and fall in the second one."""
    sentence = "the probability of '1', '2', '3' rises with its price in this model"
    for coefficient, notes in ((0.5, 1), (-0.5, 0)):
        model = pn.MNL(fixed={"price": coefficient}).fit(data)
        assert len(model.sign_caveats) == notes
        caplog.clear()
        for options in ({"bounds": (1.0, 3.0)}, {"ladder": [1.0, 3.0]}):
            result = pn.optimise_prices(model, CATALOGUE, cost="cost", outside="0", exogenous=True, **options)
            assert len(result.notes) == len(result.to_dict()["notes"]) == notes
            for text in (str(result), result.to_markdown(), *result.notes):
                assert (sentence in text) == bool(notes)
        assert caplog.text.count(sentence) == 2 * notes


def test_prices_note_wrong_signs_outside_the_catalogue(data: pn.ChoiceData) -> None:
    """In the catalogue, all probabilities fall with the price, but not in the training table or with the duration.

    The utility rises above a price of 3, and two thirds of the prices in the training table are above 3.
    """
    delay = np.random.default_rng(1).normal(size=data.n_rows)
    columns = {name: data.features[name].values.astype(float) for name in ("price", "quality")}  # type: ignore[union-attr]
    table = {**columns, "delay": delay, "trip": np.repeat(np.arange(300), 4), "took": np.arange(1200) % 4 == 0}
    fixed = {"piecewise(price, 3)[to 3]": -1.0, "piecewise(price, 3)[from 3]": 1.0, "quality": 1.0, "delay": 0.5}
    model = pn.MNL(formula="piecewise(price, 3) + quality + delay | 0", fixed=fixed)
    model.fit(read(table, features=["price", "quality", "delay"]))
    assert set(model.sign_caveats) == {"price", "delay"}
    catalogue = {**CATALOGUE, "price": [0.0, 1.5, 2.0, 2.5], "delay": [0.0] * 4}
    result = pn.optimise_prices(model, catalogue, outside="0", bounds=(1.0, 2.9), exogenous=True)
    assert result.notes == tuple(model.sign_caveats.values())


def test_prices_that_may_be_endogenous_are_noted(caplog: Any) -> None:
    """The note is left out if the model has a control function, or if the caller says that prices are exogenous."""
    data = pn.ChoiceData.from_long(market.simulate(300, seed=0), **market.ROLES)
    stage = pn.control_function(data, "price", instruments=["cost"])
    shelf = {"product": ["a", "b", "c"], "price": [3.0, 3.2, 3.4], "advertising": [0.0] * 3, "cost": [0.0] * 3}
    naive = pn.MNL(formula="price + advertising").fit(data)
    result = pn.optimise_prices(naive, shelf, outside="c")
    assert len(result.notes) == 1
    assert "treats 'price' as exogenous" in result.notes[0]
    assert "Use pn.control_function, or pass exogenous=True" in caplog.text
    assert result.notes[0] in str(result)
    caplog.clear()
    assert not pn.optimise_prices(naive, shelf, outside="c", exogenous=True).notes
    corrected = pn.MNL(formula="price + advertising + price_residual").fit(stage.data)
    shelf |= {"price_residual": [0.0] * 3}
    assert not pn.optimise_prices(corrected, shelf, outside="c").notes
    assert not caplog.text


def test_prices_stay_within_their_bounds(data: pn.ChoiceData) -> None:
    limits = {"1": (1.0, 1.5), "2": (0.0, 40.0), "3": (0.0, 40.0)}
    result = pn.optimise_prices(pn.MNL().fit(data), CATALOGUE, cost="cost", outside="0", bounds=limits)
    assert result.after[0] == pytest.approx(1.5)
    assert result.at_bound == ("1",)


@pytest.mark.parametrize("model", [pn.MNL(), pn.PCMCNet(hidden=(4,), epochs=2, weight_decay=0.1)])
def test_no_other_price_list_of_a_ladder_earns_more(data: pn.ChoiceData, model: pn.models.ChoiceModel) -> None:
    model.fit(data, progress=False)
    ladder = [1.5, 2.5, 4.0]
    result = pn.optimise_prices(model, CATALOGUE, cost="cost", outside="0", ladder=ladder)
    lists = np.array([[0.0, *prices] for prices in product(ladder, repeat=3)])
    table = {
        "trip": np.repeat(np.arange(len(lists)), 4),
        "price": lists.ravel(),
        "quality": np.tile(CATALOGUE["quality"], len(lists)),
    }
    p = model.predict_proba(table).reshape(-1, 4)
    margins = (p[:, 1:] * (lists[:, 1:] - CATALOGUE["cost"][1:])).sum(axis=1)
    assert result.exact
    assert result.value == pytest.approx(margins.max(), rel=2e-5)
    np.testing.assert_allclose(result.after, lists[margins.argmax(), 1:])
    np.testing.assert_allclose(result.probabilities, p[margins.argmax(), 1:], atol=1e-6)


def test_a_ladder_may_leave_alternatives_out(data: pn.ChoiceData) -> None:
    result = pn.optimise_prices(
        pn.MNL().fit(data), CATALOGUE, cost="cost", outside="0", ladder=[2.0, 3.0], constraints=pn.Constraints(size=1)
    )
    assert sum(price is not None for price in result.after) == 1
    assert "not offered" in str(result)
    assert result.exact
    assert result.to_dict()["after"].count(None) == 2
    assert result.to_frame()["price"].isna().sum() == 2


def test_ladder_prices_of_a_mixed_logit_are_proven_for_its_draws(data: pn.ChoiceData) -> None:
    model = pn.MixedMNL(formula="price + quality | 0", random={"quality": "normal"}, draws=20).fit(data)
    result = pn.optimise_prices(model, CATALOGUE, cost="cost", outside="0", ladder=[1.5, 2.5, 4.0])
    values = []
    for prices in product([1.5, 2.5, 4.0], repeat=3):
        table = {"trip": [1] * 4, "price": [0.0, *prices], "quality": CATALOGUE["quality"]}
        values.append(model.predict_proba(table)[1:] @ (np.array(prices) - CATALOGUE["cost"][1:]))
    assert result.value == pytest.approx(max(values), rel=1e-9)
    assert result.exact
    assert "of the ladder for 20 fixed draws" in str(result)


def test_prices_of_a_network_increase_the_margin(data: pn.ChoiceData) -> None:
    model = pn.PCMCNet(hidden=(8,), epochs=5, weight_decay=0.1).fit(data, progress=False)
    result = pn.optimise_prices(model, CATALOGUE, cost="cost", outside="0")
    low, high = np.array(CATALOGUE["price"][1:]) / 2, np.array(CATALOGUE["price"][1:]) * 2
    rng = np.random.default_rng(1)
    for prices in rng.uniform(low, high, (20, 3)):
        table = {"trip": [1] * 4, "price": [0.0, *prices], "quality": CATALOGUE["quality"]}
        assert model.predict_proba(table)[1:] @ (prices - CATALOGUE["cost"][1:]) <= result.value + 1e-5


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"price": "prise"}, InputError, "'prise' is not a feature of the model.* 'price'"),
        ({"cost": "costs"}, InputError, "cost: no column 'costs'"),
        ({"bounds": (5.0, 1.0)}, InputError, "the lowest not above the highest, got 5 and 1"),
        ({"ladder": []}, InputError, "ladder: expected at least one price"),
        ({"ladder": [1.0, float("inf")]}, InputError, "only finite numbers"),
        ({"constraints": pn.Constraints(size=1)}, ConfigError, "pass ladder="),
        ({"inventory": {"1": 5}}, ConfigError, "inventory needs customers"),
        ({"inventory": {"1": 5}, "customers": 9, "ladder": [1.0]}, ConfigError, "cannot be combined with a ladder"),
        ({"inventory": {"1": 0}, "customers": 9}, InputError, "inventory of '1': expected a number above 0"),
        ({"inventory": {"9": 5}, "customers": 9}, InputError, "'9' is not in the catalogue"),
        ({"inventory": {"1": 5}, "customers": 0}, ConfigError, "customers"),
        ({"ladder": [1.0], "bounds": (1.0, 2.0)}, ConfigError, "bounds and ladder cannot be combined"),
    ],
)
def test_bad_input_is_rejected(data: pn.ChoiceData, change: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        pn.optimise_prices(pn.MNL().fit(data), CATALOGUE, **{"outside": "0", **change})
