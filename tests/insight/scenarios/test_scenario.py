"""Scenarios: figures worked out by hand, derivatives, every model, and errors."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pcmcnet as pn
from choice_tables import read
from pcmcnet import MNL, MODELS, ChoiceData, Ensemble, Scenario, scenario
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.elasticity import elasticity
from pcmcnet.insight.queries import with_values
from pcmcnet.insight.scenarios.offers import ChangeExtent, ScenarioOffer
from pcmcnet.insight.scenarios.scenario import apply_result, read_sets
from pcmcnet.models import ChoiceModel
from pcmcnet.models.logit.logit_model import LogitModel

TWO = {
    "trip": [1, 1, 2, 2],
    "took": [1, 0, 0, 1],
    "mode": ["car", "bus", "car", "bus"],
    "cost": [2.0, 2.0, 2.0, 2.0],
    "w": [1, 1, 3, 3],
}


def with_coefficients(model: MNL, *values: float) -> MNL:
    fitted = model.require_fitted()
    state: Any = fitted.state
    moved = replace(state, estimates=replace(model.estimates_, values=np.array(values)))
    model.fitted_ = replace(fitted, state=moved)
    return model


@pytest.fixture
def halves() -> tuple[MNL, ChoiceData]:
    """A logit in which a unit of cost halves the odds."""
    data = read(TWO, alternative="mode", features=["cost"], weight="w")
    fitted = MNL(formula="cost | 0").fit(with_values(data, "cost", [2.0, 4.0, 3.0, 2.0]))
    return with_coefficients(fitted, -math.log(2)), data


def test_a_toll_by_hand(halves: tuple[MNL, ChoiceData]) -> None:
    """The car's odds go from 1 to 1/2: 50% -> 33.3%; the log-sum falls by log(3/4), and a unit of cost is log 2."""
    model, data = halves
    found = scenario(model, data, "cost += 1 where mode == 'car'", revenue="cost", cost="cost")
    car = found.shares["car"]
    assert (car.before, car.after, car.change) == pytest.approx((1 / 2, 1 / 3, -1 / 6))
    assert found.volumes["car"].before == pytest.approx(2)
    assert found.volumes["bus"].after == pytest.approx(4 * 2 / 3)
    assert found.revenue["car"].after == pytest.approx(4 / 3 * 3)
    assert found.revenue["all"].before == pytest.approx(8)
    assert found.diversion.of == ("car",)
    assert found.diversion["bus"].ratio == pytest.approx(1)
    surplus = found.consumer_surplus
    assert surplus.mean == pytest.approx(math.log(3 / 4) / math.log(2))
    assert surplus.total == pytest.approx(4 * surplus.mean)
    assert surplus.unit == "cost"


def test_an_alternative_that_is_new_or_gone_by_hand(halves: tuple[MNL, ChoiceData]) -> None:
    """A third one like the bus takes a third from all; without the bus the car has all."""
    model, data = halves
    new = scenario(model, data, "add tram like bus")
    assert [row.group for row in new.shares.rows] == ["bus", "car", "tram"]
    assert new.shares["tram"].after == pytest.approx(1 / 3)
    assert new.diversion.of == ("tram",)
    assert new.diversion["car"].ratio == pytest.approx(1 / 2)
    gone = scenario(model, data, ["remove bus"], cost="cost")
    assert (gone.shares["bus"].after, gone.shares["car"].after) == (0, 1)
    assert gone.consumer_surplus.mean == pytest.approx(-1)  # log 2 / log 2
    assert any("all choice sets of the table offer 'bus'" in note for note in gone.notes)


def test_the_outside_option_earns_and_costs_nothing() -> None:
    """Odds of 1/4 for car and bus against 1: a third for both; a unit more halves their odds: 1.5 -> 1.25."""
    table = {**TWO, "cost": [2.0, 3.0, 4.0, 2.0], "took": [1, 0, 0, 0]}
    fitted = MNL(formula="cost | 0").fit(read(table, alternative="mode", features=["cost"], outside="none"))
    model = with_coefficients(fitted, -math.log(2))
    data = read(TWO, alternative="mode", features=["cost"], outside="none")
    found = scenario(model, data, "cost += 1", revenue="cost", cost="cost")
    assert (found.steps[0].alternatives, found.shares["none"].before) == (4, pytest.approx(2 / 3))
    assert found.shares["none"].after == pytest.approx(4 / 5)
    assert (found.revenue["none"].after, found.revenue["all"].before) == (0, pytest.approx(2 * 2 / 3))
    assert found.consumer_surplus.mean == pytest.approx(math.log(1.25 / 1.5) / math.log(2))
    assert found.diversion["none"].ratio == pytest.approx(1)
    gone = scenario(model, data, ["remove car", "remove bus where trip == 1"], cost="cost")  # a set of it alone is left
    assert gone.consumer_surplus.mean == pytest.approx(np.mean([math.log(1 / 1.5), math.log(1.25 / 1.5)]) / math.log(2))
    for change in ({"cost": np.full(6, 9.0)}, lambda data: with_values(data, "cost", np.full(6, 9.0))):
        assert scenario(model, data, change).steps[0].alternatives == 4


def test_of_rankings_the_first_choices_count() -> None:
    draw = np.random.default_rng(0)
    ranks = np.concatenate([draw.permutation(3) + 1 for _ in range(20)])
    table = {"trip": np.repeat(range(20), 3), "mode": ["car", "bus", "train"] * 20, "cost": draw.uniform(1, 5, 60)}
    roles: dict[str, Any] = {"choice_set": "trip", "alternative": "mode", "features": ["cost"]}
    data = ChoiceData.from_long({**table, "place": ranks}, rank="place", **roles)
    model = MNL(formula="cost").fit(data)
    change, known = "cost += 1 where mode == 'car'", {"car": 0.5, "bus": 0.3, "train": 0.2}
    whole = scenario(model, table, change)
    moved = pn.calibrate_constants(model, table, known)
    assert (len(data), whole.sets) == (40, 20)
    for rows in (data, {**table, "place": ranks}):
        found = scenario(model, rows, change)
        assert found.sets == 20
        assert found.shares == whole.shares
        assert any("rankings: only the first choices are used" in note for note in found.notes)
        again = pn.calibrate_constants(model, rows, known)
        assert again.estimates_.values == pytest.approx(moved.estimates_.values)  # type: ignore[attr-defined]
    dearer = np.where(data.labels.plain() == "car", 1, 0) + data.features["cost"].values  # type: ignore[union-attr]
    assert scenario(model, data, with_values(data, "cost", dearer)).shares == whole.shares


def test_nothing_is_diverted_where_some_lose_and_others_gain(driven: ChoiceData) -> None:
    changes = ["price += 2 where mode == 'car'", "price -= 1 where mode == 'train'"]
    model = with_coefficients(MNL(formula="price | 0").fit(driven), -1.0)
    both = scenario(model, driven, changes)
    with pytest.raises(InputError, match="some of the changed alternatives lose share and others gain"):
        _ = both.diversion
    assert any(note.startswith("no diversion: some of the changed") for note in both.notes)
    alike = scenario(model, driven, [changes[0], "price += 2 where mode == 'train'"])
    assert sum(row.ratio for row in alike.diversion.rows) == pytest.approx(1)


def test_nothing_is_left_of_a_group_that_the_change_empties(driven: ChoiceData, fitted: Any) -> None:
    found = scenario(fitted("mnl"), driven, "comfort = 'high' where comfort == 'low'", by="comfort")
    assert (found.shares["low"].after, found.volumes["low"].after) == (0, 0)
    assert found.shares["low"].before > 0


def test_errors_by_the_delta_method(halves: tuple[MNL, ChoiceData]) -> None:
    """The share after is p = 1 / (1 + exp(-b)), whose derivative in b is p (1 - p)."""
    model, data = halves
    found = scenario(model, data, "cost += 1 where mode == 'car'", level=0.9)
    car, error = found.shares["car"], model.standard_errors()["cost"]
    reach = 1.6448536 * error * (1 / 3) * (2 / 3)
    assert car.low is not None
    assert car.high is not None
    assert (car.high - car.low) / 2 == pytest.approx(reach, rel=1e-6)
    assert (car.after_low, car.after_high) == pytest.approx((max(1 / 3 - reach, 0), min(1 / 3 + reach, 1)))
    assert "delta method, classical" in found.intervals
    assert scenario(model, data, "cost += 1", intervals=False).shares["car"].low is None


NESTS = {"car": "road", "bus": "road", "bike": "light", "train": "rail"}


@pytest.mark.parametrize(
    ("model", "step"),  # steps are those that float32, of columns and of networks, leaves room for
    [
        (MNL(), 0.001),
        (pn.NestedMNL(nests=NESTS), 0.001),
        (pn.LatentClassMNL(classes=2, membership="1", formula="price + time", starts=2), 0.001),
        (pn.PCMCNet(hidden=(8,), activation="tanh", epochs=3, weight_decay=1.0), 0.004),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_differences_of_scenarios_are_elasticities(
    model: ChoiceModel, step: float, make_driven: Callable[..., ChoiceData]
) -> None:
    data = make_driven(200)
    model.fit(data, progress=False)
    expected = elasticity(model, data, "price").between()
    for when in expected.names:
        up, down = (
            scenario(model, data, f"price *= {1 + side * step} where mode == '{when}'", intervals=False).shares
            for side in (1, -1)
        )
        for of in expected.names:
            slope = math.log(up[of].after / down[of].after) / math.log((1 + step) / (1 - step))
            assert slope == pytest.approx(expected[of, when], abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_scenarios(name: str, driven: ChoiceData, fitted: Callable[[str], ChoiceModel]) -> None:
    model = fitted(name)
    changes = ["price *= 1.5 where mode == 'car'", "remove train where time > 40", "add tram like bus with time /= 2"]
    found = scenario(model, driven, changes, revenue="price", cost="price")
    for effects in (found.shares, found.volumes):
        assert sum(row.change for row in effects.rows) == pytest.approx(0, abs=1e-5)
    assert sum(row.before for row in found.shares.rows) == pytest.approx(1)
    assert [row.group for row in found.shares.rows] == ["bike", "bus", "car", "train", "tram"]
    assert str(found).startswith(f"Scenario: {type(model).__name__} on 40 choice sets")
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.to_frame().loc["tram", "share_before"] == 0
    logit = isinstance(model, LogitModel)
    assert (found.shares["car"].low is not None) == logit
    assert ("no intervals" in found.intervals) == (not logit)
    if not logit:
        with pytest.raises(InputError, match=f"{type(model).__name__} has no utilities and no log-sum"):
            _ = found.consumer_surplus


def test_an_ensemble_has_intervals_and_a_surplus(driven: ChoiceData) -> None:
    model = Ensemble(MNL(formula="price + time"), n=4, resample=True).fit(driven, progress=False)
    found = scenario(model, driven, "price += 1 where mode == 'car'", cost="price")
    each = [scenario(m, driven, "price += 1 where mode == 'car'", cost="price") for m in model.members_]
    car = found.shares["car"]
    assert car.after == pytest.approx(np.mean([one.shares["car"].after for one in each]))
    assert car.low < car.change < car.high  # type: ignore[operator]
    assert found.consumer_surplus.mean == pytest.approx(np.mean([one.consumer_surplus.mean for one in each]))
    assert "between the 4 members" in found.intervals


def test_shares_within_segments_of_people(driven: ChoiceData, fitted: Callable[[str], ChoiceModel]) -> None:
    model = fitted("mnl")
    found = scenario(model, driven, "price *= 2 where mode == 'car'", by="purpose", intervals=False)
    work = driven.subset(driven.individual["purpose"].plain() == "work")
    alone = scenario(model, work, "price *= 2 where mode == 'car'", intervals=False)
    assert found.by == "purpose, mode"
    for row in alone.shares.rows:
        assert found.shares[f"work: {row.group}"].after == pytest.approx(row.after)
        if row.group != "car":
            assert found.diversion[f"work: {row.group}"].ratio == pytest.approx(alone.diversion[row.group].ratio)


def test_tables_without_labels_have_places_or_a_column(make_driven: Callable[..., ChoiceData]) -> None:
    data = make_driven(labels=False)
    model = MNL(formula="price + time").fit(data)
    found = scenario(model, data, "price *= 2 where comfort == 'low'")
    assert [row.group for row in found.shares.rows] == ["#1", "#2", "#3", "#4"]
    assert found.by == "place"
    comfort = scenario(model, data, "copy with price /= 2 where comfort == 'low'", by="comfort")
    assert comfort.shares["low"].change > 0
    assert comfort.diversion["high"].ratio == pytest.approx(1)
    places = scenario(model, data, "copy with price /= 2 where comfort == 'low'").shares
    assert places["(new)"].before == 0 < places["(new)"].after


def test_functions_mappings_and_changed_data_are_changes_too(driven: ChoiceData, fitted: Any) -> None:
    model = fitted("mnl")
    text = scenario(model, driven, "price *= 2 where mode == 'car'", intervals=False)
    price = driven.features["price"].values  # type: ignore[union-attr]
    car = driven.labels.plain() == "car"  # type: ignore[union-attr]
    values = np.where(car, 2 * price, price)

    def dearer(data: ChoiceData) -> ChoiceData:
        return with_values(data, "price", values)

    for change in (dearer, lambda data: {"price": values}, {"price": values}, dearer(driven)):
        found = scenario(model, driven, change, intervals=False)  # type: ignore[arg-type]
        assert found.shares == text.shares
        assert found.diversion.of == ("car",)
    assert scenario(model, driven, dearer, intervals=False).steps[0].text == "dearer"


def test_a_table_may_have_columns_that_only_the_change_names(tmp_path: Any) -> None:
    table = {**TWO, "cost": [2.0, 4.0, 3.0, 2.0], "region": ["n", "n", "s", "s"], "margin": [1.0, 2.0, 3.0, 4.0]}
    data = read(table, alternative="mode", features=["cost"], weight="w")
    model = MNL(formula="cost | 0").fit(data)
    found = scenario(model, pa.table(table), "cost += 1 where mode == 'car' and region == 's'", revenue="margin")
    assert (found.steps[0].alternatives, found.steps[0].sets) == (1, 1)
    p = model.predict_proba(data)
    assert found.revenue["car"].before == pytest.approx(p[0] * 1 + 3 * p[2] * 3)
    without = pa.table({k: v for k, v in table.items() if k not in ("took", "w")})
    assert sum(
        row.after for row in scenario(model, without, "cost += 1 where mode == 'car'").volumes.rows
    ) == pytest.approx(2)


def test_what_the_model_has_not_seen_is_said(driven: ChoiceData, fitted: Any) -> None:
    notes = scenario(fitted("mnl"), driven, ["price *= 100", "comfort = 'plush' where mode == 'car'"]).notes
    assert any("price ranges from" in note and "the model extrapolates" in note for note in notes)
    assert any("comfort 'plush' is not in the training table" in note for note in notes)
    none = scenario(MNL(formula="price").fit(driven), driven, "time += 5")
    assert any("no share changes: the model does not use the changed columns" in note for note in none.notes)
    with pytest.raises(InputError, match="all alternatives change"):
        _ = none.diversion
    with pytest.raises(InputError, match="revenue is not available"):
        _ = none.revenue
    assert any("returns scores" in note for note in scenario(fitted("rf"), driven, "price += 1").notes)
    assert any("returns a ranking" in note for note in scenario(fitted("rank-by"), driven, "price += 1").notes)


def test_bad_questions_are_refused(driven: ChoiceData, fitted: Any) -> None:
    model = fitted("mnl")
    with pytest.raises(
        InputError, match=r"change 'prize = 1': no feature or individual column 'prize'.* Did you mean 'price'"
    ):
        scenario(model, driven, "prize = 1")
    with pytest.raises(InputError, match=r"change .*: the condition selects none of .* No mode is 'plane'"):
        scenario(model, driven, "price = 1 where mode == 'plane'")
    with pytest.raises(InputError, match="changes: expected a text such as"):
        scenario(model, driven, [])
    with pytest.raises(InputError, match="changes: expected a text such as"):
        scenario(model, driven, 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="level must be a number above 0 and below 1"):
        scenario(model, driven, "price = 1", level=95)
    with pytest.raises(InputError, match="no column 'colour' in the table"):
        scenario(model, driven, "price = 1", by="colour")
    with pytest.raises(InputError, match=r"no feature or individual column 'prise'.* Did you mean 'price'"):
        scenario(model, driven, "price = 1", revenue="prise")
    with pytest.raises(InputError, match="'comfort': expected a numeric column"):
        scenario(model, driven, "price = 1", cost="comfort")
    with pytest.raises(InputError, match="revenue 'income' is an individual column: expected a feature"):
        scenario(model, driven, "price = 1", revenue="income")
    with pytest.raises(InputError, match="only logits have standard errors, got Uniform"):
        scenario(fitted("uniform"), driven, "price = 1", errors="robust")
    with pytest.raises(InputError, match="got int"):
        scenario(model, driven, lambda data: 3)
    with pytest.raises(InputError, match="expected an object with the method predict_log_proba"):
        scenario(3, driven, "price = 1")  # type: ignore[arg-type]


def test_scenarios_are_public() -> None:
    assert {"scenario", "Scenario"} <= set(pn.__all__)


# -- Result ------------------------------------------------------------------------------------------------------------
# How a scenario is shown: text, Markdown, frames and JSON.


@pytest.fixture(scope="module")
def found(driven: ChoiceData, fitted: Callable[[str], ChoiceModel]) -> Scenario:
    return scenario(fitted("mnl"), driven, "price += 1 where mode == 'car'", revenue="price", cost="price")


def test_the_text_has_all_figures(found: Scenario) -> None:
    lines = str(found).splitlines()
    assert lines[:2] == ["Scenario: MNL on 40 choice sets", "=" * 31]
    assert lines[2].split(maxsplit=1)[1].startswith("price += 1 where mode == 'car': ")
    heads = ["mode", "before", "after", "change in points", "interval", "diversion"]
    heads += ["volume before", "after", "revenue before", "after"]
    assert " ".join(heads).split() in [line.split() for line in lines]
    car = found.shares["car"]
    row = next(line for line in lines if line.startswith("car"))
    assert f"{car.before:.2%}" in row
    assert f"{100 * car.change:+.2f}" in row
    assert any(line.startswith("revenue, price  ") for line in lines)
    assert any(line.startswith("consumer surplus  -") for line in lines)
    assert "95% intervals by the delta method, classical standard errors" in lines
    assert repr(found) == str(found)


def test_the_same_in_markdown_frames_and_json(found: Scenario) -> None:
    assert found.to_markdown().startswith("# Scenario: MNL on 40 choice sets\n")
    assert "| car |" in found.to_markdown()
    assert "<td" in found._repr_html_()
    assert "car & " in found.to_latex()
    frame = found.to_frame()
    assert frame.index.name == "mode"
    assert frame.loc["car", "share_change"] == found.shares["car"].change
    assert frame.loc["bus", "diversion"] == found.diversion["bus"].ratio
    assert frame["diversion"].isna().tolist() == [False, False, True, False]
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["shares"]["car"]["after"] == found.shares["car"].after
    assert plain["consumer_surplus"]["mean"] == found.consumer_surplus.mean
    assert plain["left_out"] == {}
    assert found.to_arrow().column_names[0] == "mode"


def test_parts_print_as_tables(found: Scenario) -> None:
    assert str(found.volumes).splitlines()[0].split() == ["volume", "before", "after", "change", "interval"]
    assert str(found.diversion).splitlines()[0].split() == ["group", "diversion", "interval"]
    assert found.shares.to_markdown().startswith("| share | before |")
    assert sum(row.ratio for row in found.diversion.rows) == pytest.approx(1)
    assert str(found.consumer_surplus).startswith(f"{found.consumer_surplus.mean:.4g} price per choice set (")
    with pytest.raises(InputError, match=r"no group 'cra'\. Did you mean 'car'"):
        found.shares["cra"]
    with pytest.raises(InputError, match="no group 'car'"):
        found.diversion["car"]


# -- Tables ------------------------------------------------------------------------------------------------------------
# Tables of scenarios: columns beside the model's, and tables that somebody else has changed.


TABLE: dict[str, Any] = {
    "trip": [1, 1, 2, 2],
    "took": [1, 0, 0, 1],
    "mode": ["car", "bus", "car", "bus"],
    "price": [2.0, 4.0, 3.0, 5.0],
    "income": [10.0, 10.0, 20.0, 20.0],
}
ROLES: dict[str, Any] = {"alternative": "mode", "features": ["price"], "individual": ["income"]}


def test_a_table_is_read_with_the_columns_that_are_named() -> None:
    model = MNL(formula="price | 0").fit(read(TABLE, **ROLES))
    rows = pa.table({**TABLE, "region": ["n", "n", "s", "s"], "margin": [1, 2, 3, 4]}).drop_columns(["took"])
    found = read_sets(model, rows, ["region", "margin", "price", "nothing"])
    assert found.chosen is None
    assert found.features["region"].plain().tolist() == ["n", "n", "s", "s"]
    assert found.features["margin"].plain().tolist() == [1, 2, 3, 4]
    assert list(found.features) == ["price", "region", "margin"]


def test_new_gone_and_changed_alternatives_are_found_by_label() -> None:
    """The second set comes first, has a dearer bus, a tram and no car."""
    before = read(TABLE, **ROLES)
    after = read(
        {
            "trip": [2, 2, 1, 1],
            "took": [1, 0, 0, 1],
            "mode": ["bus", "tram", "bus", "car"],
            "price": [6.0, 1.0, 4.0, 2.0],
            "income": [20.0, 20.0, 10.0, 10.0],
        },
        **ROLES,
    )
    offer, extent = apply_result(ScenarioOffer.of(before), after)
    assert offer.data.set_ids.tolist() == [1, 2]
    assert offer.names is not None
    assert offer.names.tolist() == ["bus", "car", "bus", "tram"]
    assert offer.origin.tolist() == [1, 0, 3, -1]
    assert offer.touched.tolist() == [False, False, True, True]
    assert offer.lost.tolist() == [False, False, True, False]
    assert extent == ChangeExtent(2, 1)


def test_without_labels_places_count_and_individuals_may_change() -> None:
    roles = {**ROLES, "alternative": None}
    before = read(TABLE, **roles)
    after = read({**TABLE, "income": [10.0, 10.0, 25.0, 25.0]}, **roles)
    offer, _ = apply_result(ScenarioOffer.of(before), after)
    assert offer.touched.tolist() == [False, False, True, True]
    offer, _ = apply_result(ScenarioOffer.of(before), {"income": [10.0, 25.0]})
    assert offer.touched.tolist() == [False, False, True, True]


def test_another_tables_sets_or_columns_are_refused() -> None:
    before = read(TABLE, **ROLES)
    with pytest.raises(InputError, match="expected the 2 choice sets of the original, got the choice set 9"):
        apply_result(ScenarioOffer.of(before), read({**TABLE, "trip": [1, 1, 9, 9]}, **ROLES))
    with pytest.raises(InputError, match="expected the 2 choice sets of the original, got 1 choice sets"):
        apply_result(ScenarioOffer.of(before), before.subset([0]))
    with pytest.raises(InputError, match="expected the columns of the original"):
        apply_result(
            ScenarioOffer.of(before), read({**TABLE, "x": [1, 2, 3, 4]}, **{**ROLES, "features": ["price", "x"]})
        )
    with pytest.raises(InputError, match="got list"):
        apply_result(ScenarioOffer.of(before), [1])


def test_categories_of_other_lists_are_compared_by_name() -> None:
    roles = {**ROLES, "features": ["price", "seat"]}
    before = read({**TABLE, "seat": ["a", "b", "a", "b"]}, **roles)
    after = read({**TABLE, "seat": ["b", "b", "a", "c"]}, **roles)
    offer, _ = apply_result(ScenarioOffer.of(before), after)
    assert offer.touched.tolist() == [True, False, False, True]
    assert isinstance(offer.data, ChoiceData)
    assert np.array_equal(offer.origin, np.arange(4))


def test_a_model_of_a_wide_table_reads_wide_tables() -> None:
    table = {"choice": [1, 2, 1, 2], "car_p": [1.0, 4.0, 2.0, 3.0], "bus_p": [2.0, 3.0, 2.5, 4.0]}
    roles: dict[str, Any] = {"alternatives": {"car": 1, "bus": 2}, "features": {"p": "{alternative}_p"}}
    data = ChoiceData.from_wide(table, chosen="choice", **roles)
    model = MNL(formula="p | 0").fit(data)
    for rows in (table, {k: v for k, v in table.items() if k != "choice"}):
        found = read_sets(model, pa.table(rows), ["p"])
        assert found.features["p"].plain().tolist() == [1.0, 2.0, 4.0, 3.0, 2.0, 2.5, 3.0, 4.0]
