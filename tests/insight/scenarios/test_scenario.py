"""Scenarios: figures against values by hand and derivatives, all models, and rejected input."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import choice_tables
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
from pcmcnet.plots.scenario import scenario_chart

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
    """Return a logit in which a unit of cost halves the odds."""
    data = read(TWO, alternative="mode", features=["cost"], weight="w")
    fitted = MNL(formula="cost | 0").fit(with_values(data, "cost", [2.0, 4.0, 3.0, 2.0]))
    return with_coefficients(fitted, -math.log(2)), data


def test_a_toll_matches_values_by_hand(halves: tuple[MNL, ChoiceData]) -> None:
    """The car's odds go from 1 to 1/2: 50% -> 33.3%; the log-sum falls by log(3/4), and a unit of cost is log 2."""
    model, data = halves
    result = scenario(model, data, "cost += 1 where mode == 'car'", revenue="cost", cost="cost")
    car = result.shares["car"]
    assert (car.before, car.after, car.change) == pytest.approx((1 / 2, 1 / 3, -1 / 6))
    assert result.volumes["car"].before == pytest.approx(2)
    assert result.volumes["bus"].after == pytest.approx(4 * 2 / 3)
    assert result.revenue["car"].after == pytest.approx(4 / 3 * 3)
    assert result.revenue["all"].before == pytest.approx(8)
    assert result.diversion.of == ("car",)
    assert result.diversion["bus"].ratio == pytest.approx(1)
    surplus = result.consumer_surplus
    assert surplus.mean == pytest.approx(math.log(3 / 4) / math.log(2))
    assert surplus.total == pytest.approx(4 * surplus.mean)
    assert surplus.unit == "cost"


def test_margins_match_values_by_hand(halves: tuple[MNL, ChoiceData]) -> None:
    """A sale costs 0.5 by car and 1 by bus: 2 x 1.5 + 2 x 1 = 5 before the toll, and 4/3 x 2.5 + 8/3 x 1 = 6 after."""
    model, _ = halves
    table = {**TWO, "spend": [{"car": 0.5, "bus": 1.0}[mode] for mode in TWO["mode"]]}
    result = scenario(model, table, "cost += 1 where mode == 'car'", revenue="cost", unit_cost="spend")
    assert (result.margin["all"].before, result.margin["all"].after) == pytest.approx((5, 6))
    assert result.margin["car"].after == pytest.approx(10 / 3)
    assert result.to_rows()[0]["margin_change"] == pytest.approx(2 / 3)  # the bus comes first
    assert "margin, cost - spend" in str(result)
    with pytest.raises(InputError, match="by: expected the name of a column, got"):
        scenario(model, table, "cost += 1", by=["mode"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unit_cost='spend' needs the revenue"):
        scenario(model, table, "cost += 1", unit_cost="spend")
    with pytest.raises(InputError, match="margin is not available: pass revenue"):
        _ = scenario(model, table, "cost += 1", revenue="cost").margin


def test_added_and_removed_alternatives_match_values_by_hand(halves: tuple[MNL, ChoiceData]) -> None:
    """A copy of the bus gives each alternative a third; without the bus, the car has all."""
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
    """Car and bus have odds of 1/4 each against 1, together a third. A unit of cost halves them: 1.5 -> 1.25."""
    table = {**TWO, "cost": [2.0, 3.0, 4.0, 2.0], "took": [1, 0, 0, 0]}
    fitted = MNL(formula="cost | 0").fit(read(table, alternative="mode", features=["cost"], outside="none"))
    model = with_coefficients(fitted, -math.log(2))
    data = read(TWO, alternative="mode", features=["cost"], outside="none")
    result = scenario(model, data, "cost += 1", revenue="cost", cost="cost")
    assert (result.steps[0].alternatives, result.shares["none"].before) == (4, pytest.approx(2 / 3))
    assert result.shares["none"].after == pytest.approx(4 / 5)
    assert (result.revenue["none"].after, result.revenue["all"].before) == (0, pytest.approx(2 * 2 / 3))
    assert result.consumer_surplus.mean == pytest.approx(math.log(1.25 / 1.5) / math.log(2))
    assert result.diversion["none"].ratio == pytest.approx(1)
    # Only the outside option is left.
    gone = scenario(model, data, ["remove car", "remove bus where trip == 1"], cost="cost")
    assert gone.consumer_surplus.mean == pytest.approx(np.mean([math.log(1 / 1.5), math.log(1.25 / 1.5)]) / math.log(2))
    for change in ({"cost": np.full(6, 9.0)}, lambda data: with_values(data, "cost", np.full(6, 9.0))):
        assert scenario(model, data, change).steps[0].alternatives == 4


def test_only_first_choices_of_rankings_count() -> None:
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
        result = scenario(model, rows, change)
        assert result.sets == 20
        assert result.shares == whole.shares
        assert any("rankings: only the first choices are used" in note for note in result.notes)
        again = pn.calibrate_constants(model, rows, known)
        assert again.estimates_.values == pytest.approx(moved.estimates_.values)  # type: ignore[attr-defined]
    dearer = np.where(data.labels.plain() == "car", 1, 0) + data.features["cost"].values  # type: ignore[union-attr]
    assert scenario(model, data, with_values(data, "cost", dearer)).shares == whole.shares


def test_diversion_is_undefined_if_changed_shares_move_both_ways(driven: ChoiceData) -> None:
    changes = ["price += 2 where mode == 'car'", "price *= 0.5 where mode == 'train'"]
    model = with_coefficients(MNL(formula="price | 0").fit(driven), -1.0)
    both = scenario(model, driven, changes)
    with pytest.raises(InputError, match="some of the changed alternatives lose share and others gain"):
        _ = both.diversion
    assert any(note.startswith("no diversion: some of the changed") for note in both.notes)
    alike = scenario(model, driven, [changes[0], "price += 2 where mode == 'train'"])
    assert sum(row.ratio for row in alike.diversion.rows) == pytest.approx(1)


def test_a_group_that_the_change_empties_has_share_0(driven: ChoiceData, fitted: Any) -> None:
    result = scenario(fitted("mnl"), driven, "comfort = 'high' where comfort == 'low'", by="comfort")
    assert (result.shares["low"].after, result.volumes["low"].after) == (0, 0)
    assert result.shares["low"].before > 0


def test_standard_errors_follow_the_delta_method(halves: tuple[MNL, ChoiceData]) -> None:
    """The share after is p = 1 / (1 + exp(-b)), whose derivative in b is p (1 - p)."""
    model, data = halves
    result = scenario(model, data, "cost += 1 where mode == 'car'", level=0.9)
    car, error = result.shares["car"], model.standard_errors()["cost"]
    reach = 1.6448536 * error * (1 / 3) * (2 / 3)
    assert car.low is not None
    assert car.high is not None
    assert (car.high - car.low) / 2 == pytest.approx(reach, rel=1e-6)
    assert (car.after_low, car.after_high) == pytest.approx((max(1 / 3 - reach, 0), min(1 / 3 + reach, 1)))
    assert "delta method, robust" in result.intervals
    assert scenario(model, data, "cost += 1", intervals=False).shares["car"].low is None


NESTS = {"car": "road", "bus": "road", "bike": "light", "train": "rail"}


@pytest.mark.parametrize(
    ("model", "step"),  # the steps allow for the float32 of columns and networks
    [
        (MNL(), 0.001),
        (pn.NestedMNL(nests=NESTS), 0.001),
        (pn.LatentClassMNL(classes=2, membership="1", formula="price + time", starts=2), 0.001),
        (pn.PCMCNet(hidden=(8,), activation="tanh", epochs=3, weight_decay=1.0), 0.004),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_scenarios_of_small_changes_give_elasticities(
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
def test_every_model_runs_scenarios(name: str, driven: ChoiceData, fitted: Callable[[str], ChoiceModel]) -> None:
    model = fitted(name)
    changes = ["price *= 1.5 where mode == 'car'", "remove train where time > 40", "add tram like bus with time /= 2"]
    result = scenario(model, driven, changes, revenue="price", cost="price")
    for effects in (result.shares, result.volumes):
        assert sum(row.change for row in effects.rows) == pytest.approx(0, abs=1e-5)
    assert sum(row.before for row in result.shares.rows) == pytest.approx(1)
    assert [row.group for row in result.shares.rows] == ["bike", "bus", "car", "train", "tram"]
    assert str(result).startswith(f"Scenario: {type(model).__name__} on 40 choice sets")
    json.dumps(result.to_dict(), allow_nan=False)
    assert result.to_frame().loc["tram", "share_before"] == 0
    logit = isinstance(model, LogitModel)
    has_intervals = logit or name == "hb-mnl"
    assert (result.shares["car"].low is not None) == has_intervals
    assert ("no intervals" in result.intervals) == (not has_intervals)
    if not logit:  # the part-worths of a price have both signs, unless a sign is declared
        priced = "raises utility for .* of the people" if name == "hb-mnl" else "has no utilities and no log-sum"
        with pytest.raises(InputError, match=priced):
            _ = result.consumer_surplus


def test_an_ensemble_has_intervals_and_a_surplus(driven: ChoiceData) -> None:
    model = Ensemble(MNL(formula="price + time"), n=4, resample=True).fit(driven, progress=False)
    result = scenario(model, driven, "price += 1 where mode == 'car'", cost="price")
    each = [scenario(m, driven, "price += 1 where mode == 'car'", cost="price") for m in model.members_]
    car = result.shares["car"]
    assert car.after == pytest.approx(np.mean([one.shares["car"].after for one in each]))
    assert car.low < car.change < car.high  # type: ignore[operator]
    assert result.consumer_surplus.mean == pytest.approx(np.mean([one.consumer_surplus.mean for one in each]))
    assert "from the 4 members" in result.intervals


def test_intervals_of_a_hierarchical_logit_are_quantiles_over_populations(driven: ChoiceData, fitted: Any) -> None:
    """Each draw of the population gives one change; 95% of the 40 draws lie within the interval."""
    model = fitted("hb-mnl")
    change = "price += 1 where mode == 'car'"
    result = scenario(model, driven, change)
    changes = [
        scenario(one, driven, change, intervals=False).shares["car"].change for one in model.posterior_models(40)
    ]
    low, high = np.quantile(changes, [0.025, 0.975])
    car = result.shares["car"]
    assert (car.low, car.high) == (pytest.approx(min(low, car.change)), pytest.approx(max(high, car.change)))
    assert result.intervals == "95% intervals from 40 draws of the population"


def test_shares_are_computed_within_segments(driven: ChoiceData, fitted: Callable[[str], ChoiceModel]) -> None:
    model = fitted("mnl")
    result = scenario(model, driven, "price *= 2 where mode == 'car'", by="purpose", intervals=False)
    work = driven.subset(driven.individual["purpose"].plain() == "work")
    alone = scenario(model, work, "price *= 2 where mode == 'car'", intervals=False)
    assert result.by == "purpose, mode"
    for row in alone.shares.rows:
        assert result.shares[f"work: {row.group}"].after == pytest.approx(row.after)
        if row.group != "car":
            assert result.diversion[f"work: {row.group}"].ratio == pytest.approx(alone.diversion[row.group].ratio)


def test_tables_without_labels_group_by_place_or_column(make_driven: Callable[..., ChoiceData]) -> None:
    data = make_driven(labels=False)
    model = MNL(formula="price + time").fit(data)
    result = scenario(model, data, "price *= 2 where comfort == 'low'")
    assert [row.group for row in result.shares.rows] == ["#1", "#2", "#3", "#4"]
    assert result.by == "place"
    comfort = scenario(model, data, "copy with price /= 2 where comfort == 'low'", by="comfort")
    assert comfort.shares["low"].change > 0
    assert comfort.diversion["high"].ratio == pytest.approx(1)
    places = scenario(model, data, "copy with price /= 2 where comfort == 'low'").shares
    assert places["(new)"].before == 0 < places["(new)"].after


def test_functions_mappings_and_changed_data_are_accepted(driven: ChoiceData, fitted: Any) -> None:
    model = fitted("mnl")
    text = scenario(model, driven, "price *= 2 where mode == 'car'", intervals=False)
    price = driven.features["price"].values  # type: ignore[union-attr]
    car = driven.labels.plain() == "car"  # type: ignore[union-attr]
    values = np.where(car, 2 * price, price)

    def dearer(data: ChoiceData) -> ChoiceData:
        return with_values(data, "price", values)

    for change in (dearer, lambda data: {"price": values}, {"price": values}, dearer(driven)):
        result = scenario(model, driven, change, intervals=False)  # type: ignore[arg-type]
        assert result.shares == text.shares
        assert result.diversion.of == ("car",)
    assert scenario(model, driven, dearer, intervals=False).steps[0].text == "dearer"


def test_changes_may_use_columns_that_the_model_lacks(tmp_path: Any) -> None:
    table = {**TWO, "cost": [2.0, 4.0, 3.0, 2.0], "region": ["n", "n", "s", "s"], "margin": [1.0, 2.0, 3.0, 4.0]}
    data = read(table, alternative="mode", features=["cost"], weight="w")
    model = MNL(formula="cost | 0").fit(data)
    result = scenario(model, pa.table(table), "cost += 1 where mode == 'car' and region == 's'", revenue="margin")
    assert (result.steps[0].alternatives, result.steps[0].sets) == (1, 1)
    p = model.predict_proba(data)
    assert result.revenue["car"].before == pytest.approx(p[0] * 1 + 3 * p[2] * 3)
    without = pa.table({k: v for k, v in table.items() if k not in ("took", "w")})
    assert sum(
        row.after for row in scenario(model, without, "cost += 1 where mode == 'car'").volumes.rows
    ) == pytest.approx(2)


def test_extrapolation_is_noted(driven: ChoiceData, fitted: Any) -> None:
    notes = scenario(fitted("mnl"), driven, ["price *= 100", "comfort = 'plush' where mode == 'car'"]).notes
    assert any("price ranges from" in note and "the model extrapolates" in note for note in notes)
    assert any("comfort: 'plush' not seen in training" in note for note in notes)
    none = scenario(MNL(formula="price").fit(driven), driven, "time += 5")
    assert any("no share changes: the model ignores the changed columns" in note for note in none.notes)
    with pytest.raises(InputError, match="no unchanged groups"):
        _ = none.diversion
    with pytest.raises(InputError, match="revenue is not available"):
        _ = none.revenue
    assert any("returns scores" in note for note in scenario(fitted("rf"), driven, "price += 1").notes)
    assert any("returns a ranking" in note for note in scenario(fitted("rank-by"), driven, "price += 1").notes)


def test_invalid_arguments_are_rejected(driven: ChoiceData, fitted: Any) -> None:
    model = fitted("mnl")
    with pytest.raises(
        InputError, match=r"change 'prize = 1': .* feature or individual-level column 'prize'.* Did you mean 'price'"
    ):
        scenario(model, driven, "prize = 1")
    with pytest.raises(InputError, match=r"change .*: the condition selects none of .* No mode is 'plane'"):
        scenario(model, driven, "price = 1 where mode == 'plane'")
    with pytest.raises(InputError, match="changes: expected a string such as"):
        scenario(model, driven, [])
    with pytest.raises(InputError, match="changes: expected a string such as"):
        scenario(model, driven, 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="level must be a number above 0 and below 1"):
        scenario(model, driven, "price = 1", level=95)
    with pytest.raises(InputError, match="the table has no column 'colour'"):
        scenario(model, driven, "price = 1", by="colour")
    with pytest.raises(InputError, match=r"no feature or individual-level column 'prise'.* Did you mean 'price'"):
        scenario(model, driven, "price = 1", revenue="prise")
    with pytest.raises(InputError, match="'comfort': expected a numeric column"):
        scenario(model, driven, "price = 1", cost="comfort")
    with pytest.raises(InputError, match="revenue 'income' is an individual-level column: expected a feature"):
        scenario(model, driven, "price = 1", revenue="income")
    with pytest.raises(InputError, match="errors: Uniform has no standard errors"):
        scenario(fitted("uniform"), driven, "price = 1", errors="robust")
    with pytest.raises(InputError, match="got int"):
        scenario(model, driven, lambda data: 3)
    with pytest.raises(InputError, match="expected an object with a predict_log_proba method"):
        scenario(3, driven, "price = 1")  # type: ignore[arg-type]


def test_scenarios_are_public() -> None:
    assert {"scenario", "Scenario"} <= set(pn.__all__)


# -- Result ------------------------------------------------------------------------------------------------------------
# A scenario as text, Markdown, data frame and JSON.


@pytest.fixture(scope="module")
def result(driven: ChoiceData, fitted: Callable[[str], ChoiceModel]) -> Scenario:
    return scenario(fitted("mnl"), driven, "price += 1 where mode == 'car'", revenue="price", cost="price")


def test_the_text_has_all_figures(result: Scenario) -> None:
    lines = str(result).splitlines()
    assert lines[:2] == ["Scenario: MNL on 40 choice sets", "=" * 31]
    assert lines[2].split(maxsplit=1)[1].startswith("price += 1 where mode == 'car': ")
    heads = ["mode", "before", "after", "change in points", "interval", "diversion"]
    heads += ["volume before", "after", "revenue before", "after"]
    assert " ".join(heads).split() in [line.split() for line in lines]
    car = result.shares["car"]
    row = next(line for line in lines if line.startswith("car"))
    assert f"{car.before:.2%}" in row
    assert f"{100 * car.change:+.2f}" in row
    assert any(line.startswith("revenue, price  ") for line in lines)
    assert any(line.startswith("consumer surplus  -") for line in lines)
    assert "95% intervals by the delta method, robust standard errors" in lines
    assert repr(result) == str(result)


def test_markdown_frames_and_json_agree(result: Scenario) -> None:
    assert result.to_markdown().startswith("# Scenario: MNL on 40 choice sets\n")
    assert "| car |" in result.to_markdown()
    assert "<td" in result._repr_html_()
    assert "car & " in result.to_latex()
    frame = result.to_frame()
    assert frame.index.name == "mode"
    assert frame.loc["car", "share_change"] == result.shares["car"].change
    assert frame.loc["bus", "diversion"] == result.diversion["bus"].ratio
    assert frame["diversion"].isna().tolist() == [False, False, True, False]
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["shares"]["car"]["after"] == result.shares["car"].after
    assert plain["consumer_surplus"]["mean"] == result.consumer_surplus.mean
    assert plain["left_out"] == {}
    assert result.to_arrow().column_names[0] == "mode"


def test_the_plot_shows_both_states_with_an_interval(result: Scenario) -> None:
    chart = scenario_chart(result)
    before, after = chart.marks
    assert chart.rows == tuple(row.group for row in result.shares.rows)
    assert before.values == [row.before for row in result.shares.rows]  # type: ignore[union-attr]
    assert after.low == [row.after_low for row in result.shares.rows]  # type: ignore[union-attr]
    one = scenario_chart(result, most=1)
    assert one.rows == (max(result.shares.rows, key=lambda row: abs(row.change)).group,)
    assert one.note == "3 groups with smaller changes are not shown"
    axes = result.plot("revenue")
    assert axes.get_xlabel() == "predicted revenue, price"
    assert [label.get_text() for label in axes.get_yticklabels()] == list(chart.rows)
    with pytest.raises(InputError, match="revenue is not available"):
        replace(result, parts={**result.parts, "revenue": "revenue is not available"}).plot("revenue")
    with pytest.raises(ConfigError, match="what"):
        result.plot("share")  # type: ignore[arg-type]


def test_parts_of_the_result_print_as_tables(result: Scenario) -> None:
    assert str(result.volumes).splitlines()[0].split() == ["volume", "before", "after", "change", "interval"]
    assert str(result.diversion).splitlines()[0].split() == ["group", "diversion", "interval"]
    assert result.shares.to_markdown().startswith("| share | before |")
    assert sum(row.ratio for row in result.diversion.rows) == pytest.approx(1)
    assert str(result.consumer_surplus).startswith(f"{result.consumer_surplus.mean:.4g} price per choice set (")
    with pytest.raises(InputError, match=r"no group 'cra'\. Did you mean 'car'"):
        result.shares["cra"]
    with pytest.raises(InputError, match="no group 0"):
        result.shares[0]  # type: ignore[index]
    with pytest.raises(InputError, match="no group 'car'"):
        result.diversion["car"]


# -- Tables ------------------------------------------------------------------------------------------------------------
# Tables with columns that the model lacks, and tables that were changed outside the library.


TABLE: dict[str, Any] = {
    "trip": [1, 1, 2, 2],
    "took": [1, 0, 0, 1],
    "mode": ["car", "bus", "car", "bus"],
    "price": [2.0, 4.0, 3.0, 5.0],
    "income": [10.0, 10.0, 20.0, 20.0],
}
ROLES: dict[str, Any] = {"alternative": "mode", "features": ["price"], "individual": ["income"]}


def test_a_table_is_read_with_the_named_columns() -> None:
    model = MNL(formula="price | 0").fit(read(TABLE, **ROLES))
    rows = pa.table({**TABLE, "region": ["n", "n", "s", "s"], "margin": [1, 2, 3, 4]}).drop_columns(["took"])
    result = read_sets(model, rows, ["region", "margin", "price", "nothing"])
    assert result.chosen is None
    assert result.features["region"].plain().tolist() == ["n", "n", "s", "s"]
    assert result.features["margin"].plain().tolist() == [1, 2, 3, 4]
    assert list(result.features) == ["price", "region", "margin"]


def test_labels_identify_added_removed_and_changed_alternatives() -> None:
    """The second set comes first, has a more expensive bus, a tram and no car."""
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


def test_without_labels_rows_are_matched_by_place() -> None:
    roles = {**ROLES, "alternative": None}
    before = read(TABLE, **roles)
    after = read({**TABLE, "income": [10.0, 10.0, 25.0, 25.0]}, **roles)
    offer, _ = apply_result(ScenarioOffer.of(before), after)
    assert offer.touched.tolist() == [False, False, True, True]
    offer, _ = apply_result(ScenarioOffer.of(before), {"income": [10.0, 25.0]})
    assert offer.touched.tolist() == [False, False, True, True]


def test_tables_with_other_sets_or_columns_are_rejected() -> None:
    before = read(TABLE, **ROLES)
    with pytest.raises(InputError, match="expected the 2 choice sets of the original, got the choice set 9"):
        apply_result(ScenarioOffer.of(before), read({**TABLE, "trip": [1, 1, 9, 9]}, **ROLES))
    with pytest.raises(InputError, match="expected the 2 choice sets of the original, got 1 choice sets"):
        apply_result(ScenarioOffer.of(before), before.subset([0]))
    with pytest.raises(InputError, match="expected the features of the original"):
        apply_result(
            ScenarioOffer.of(before), read({**TABLE, "x": [1, 2, 3, 4]}, **{**ROLES, "features": ["price", "x"]})
        )
    with pytest.raises(InputError, match="got list"):
        apply_result(ScenarioOffer.of(before), [1])


def test_categories_are_compared_by_name() -> None:
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
        result = read_sets(model, pa.table(rows), ["p"])
        assert result.features["p"].plain().tolist() == [1.0, 2.0, 4.0, 3.0, 2.0, 2.5, 3.0, 4.0]


def test_a_wrong_sign_is_noted_if_the_column_changes() -> None:
    """The probability rises with the price in this logit, and minutes have no effect."""
    data = read(choice_tables.trips(40), **choice_tables.ROLES)
    model = MNL(formula="price", fixed={"price": 0.2}).fit(data, progress=False)
    sentence = model.sign_caveats["price"]
    for change, is_noted in (
        ("price *= 1.1 where mode == 'bus'", True),
        ("minutes += 5", False),
        ("price *= 1", False),
    ):
        assert (sentence in scenario(model, data, change, intervals=False).notes) is is_noted
