"""An explanation is made of what the other parts of insight find, and says what it leaves out."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from choice_tables import largest
from pcmcnet import MNL, ChoiceData, Ensemble, Explanation, RankBy, Uniform, evaluate, explain
from pcmcnet.errors import ConfigError, InputError, NotFittedError
from pcmcnet.insight.axioms import audit
from pcmcnet.insight.calibration import calibration
from pcmcnet.insight.context_effects import search
from pcmcnet.insight.elasticity import elasticity
from pcmcnet.insight.explanation import NEED_CHOICES, PARTS, Finding
from pcmcnet.insight.importance import importance
from pcmcnet.models.interface.choice_model import ChoiceModel

Fitted = Callable[[str], ChoiceModel]
NAMES = ["mnl", "pcmcnet", "rf", "rank-by"]


@pytest.fixture(scope="module")
def explained(fitted: Fitted, driven: ChoiceData) -> dict[str, Explanation]:
    return {name: explain(fitted(name), driven, sets=100, progress=False) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_part_is_there_or_left_out_with_a_reason(name: str, explained: dict[str, Explanation]) -> None:
    found = explained[name]
    there = [part for part in PARTS if getattr(found, part) is not None]
    assert sorted([*there, *found.left_out]) == sorted(PARTS)
    ranking = {"calibration", "elasticities", "categories", "trade_offs", "context"}
    expected = ranking if name == "rank-by" else set()
    assert set(found.left_out) == expected
    assert all(len(why) > 20 for why in found.left_out.values())


@pytest.mark.parametrize("name", ["mnl", "pcmcnet", "rf"])
def test_numbers_are_those_of_the_functions_that_find_them(
    name: str, explained: dict[str, Explanation], fitted: Fitted, driven: ChoiceData
) -> None:
    """Sets of weight 0 are not sampled, so that the sample is the table without its second set."""
    found, model = explained[name], fitted(name)
    counted = driven.subset(driven.weights > 0)
    assert found.fit is not None
    assert found.fit.report == evaluate(model, driven)
    assert found.calibration is not None
    assert found.calibration.to_dict() == calibration(model, driven).to_dict()
    assert found.importance == importance(model, counted)
    assert found.axioms == audit(model, driven, 100, limit=2500)
    assert found.context is not None
    assert found.context.search == search(model, driven, limit=1000)
    assert found.elasticities is not None
    for table in found.elasticities.tables:
        kind = "semi" if table.column == "noise" else "elasticity"
        assert table == elasticity(model, counted, table.column, kind=kind).table()  # type: ignore[arg-type]


def test_numeric_features_come_in_the_order_of_their_importance(explained: dict[str, Explanation]) -> None:
    found = explained["mnl"]
    assert found.importance is not None
    assert found.elasticities is not None
    ranked = [row.name for row in found.importance.rows if row.name in ("price", "time", "noise")]
    assert [table.column for table in found.elasticities.tables] == ranked
    assert found.elasticities.column == ranked[0] == "price"


@pytest.mark.parametrize("name", NAMES)
def test_all_of_it_survives_json(name: str, explained: dict[str, Explanation]) -> None:
    found = explained[name]
    entries = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert {*PARTS} == {*entries} & {*PARTS} | {*found.left_out}
    summary = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert summary["found"]["choice_sets"] == 40
    assert summary["found"]["seen_in_training"] == "all"
    assert summary["left_out"] == dict(found.left_out)


def test_without_choices_the_parts_that_need_them_are_left_out_and_named(
    fitted: Fitted, make_driven: Callable[..., ChoiceData]
) -> None:
    found = explain(fitted("pcmcnet"), make_driven(chosen=None), sets=10, progress=False)
    assert tuple(found.left_out) == NEED_CHOICES
    assert set(found.left_out.values()) == {"needs choices, which the table does not have"}
    assert found.examples is not None
    assert [example.kind for example in found.examples] == ["typical", "uncertain", "large"]
    assert found.elasticities is not None
    sizes = [abs(table.rows[0].own) for table in found.elasticities.tables if table.kind == "elasticity"]
    assert sizes == sorted(sizes, reverse=True)


def test_a_table_is_read_by_the_schema_of_the_model_with_or_without_choices(tmp_path: Path) -> None:
    rows: dict[str, Any] = {
        "trip": [1, 1, 1, 2, 2, 2] * 2,
        "took": [1, 0, 0, 0, 1, 0] * 2,
        "cost": [2, 4, 3, 5, 3, 2] * 2,
    }
    rows["trip"] = np.repeat(np.arange(4), 3)
    data = ChoiceData.from_long(rows, choice_set="trip", chosen="took", features=["cost"])
    model = Uniform().fit(data)
    path = tmp_path / "trips.csv"
    pyarrow.csv.write_csv(pa.table(rows), path)
    assert explain(model, path, progress=False).fit is not None
    del rows["took"]
    found = explain(model, rows, progress=False)
    assert found.fit is None
    assert found.table is not None
    assert not found.table.has_choices


def test_costly_parts_ask_about_a_sample(fitted: Fitted, driven: ChoiceData) -> None:
    found = explain(fitted("mnl"), driven, sets=7, skip=["fit"], progress=False)
    assert found.elasticities is not None
    assert found.axioms is not None
    assert (found.elasticities.sets, found.axioms.sets, found.facts["sampled choice sets"]) == (7, 7, 7)
    assert found.calibration is not None
    assert found.calibration.n_sets == int(((driven.sizes > 1) & (driven.weights > 0)).sum())


def test_one_seed_gives_one_explanation_and_another_one_another(fitted: Fitted, driven: ChoiceData) -> None:
    def plain(seed: int) -> dict[str, Any]:
        found = explain(fitted("mnl"), driven, seed, sets=7, skip=["fit", "examples"], progress=False).to_dict()
        return {part: found[part] for part in PARTS if part in found}

    assert plain(0) == plain(0)
    assert plain(0)["importance"] != plain(1)["importance"]


def test_parts_can_be_skipped_and_an_unknown_one_is_refused(fitted: Fitted, driven: ChoiceData) -> None:
    found = explain(fitted("mnl"), driven, skip=PARTS[1:], progress=False)
    assert found.table is not None
    assert set(found.left_out) == set(PARTS[1:])
    with pytest.raises(ConfigError, match=r"no part 'axiom' to skip.*axioms"):
        explain(fitted("mnl"), driven, skip=["axiom"], progress=False)


def test_baselines_are_those_asked_for(fitted: Fitted, driven: ChoiceData) -> None:
    rest = [part for part in PARTS if part != "fit"]
    one = explain(fitted("mnl"), driven, skip=rest, baselines={"evens": Uniform()}, progress=False).fit
    none = explain(fitted("mnl"), driven, skip=rest, baselines={}, progress=False).fit
    assert one is not None
    assert one.baselines is not None
    assert [row.label for row in one.baselines.rows] == ["evens"]
    assert none is not None
    assert none.baselines is None


def test_the_histories_of_an_ensemble_are_those_of_its_members(driven: ChoiceData) -> None:
    model = Ensemble("pcmcnet", n=2, options={"hidden": (4,), "epochs": 2, "weight_decay": 0.0, "batch_size": 16})
    model.fit(driven, progress=False)
    found = explain(model, driven, skip=[part for part in PARTS if part != "model"], progress=False).model
    assert found is not None
    assert {name: len(history) for name, history in found.histories.items()} == {"member 1": 2, "member 2": 2}


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [(Uniform(), NotFittedError, "not fitted"), (object(), InputError, "expected a fitted model such as PCMCNet")],
)
def test_what_is_no_fitted_model_is_refused(
    model: Any, error: type[Exception], message: str, driven: ChoiceData
) -> None:
    with pytest.raises(error, match=message):
        explain(model, driven, progress=False)


def test_numbers_out_of_range_and_tables_without_weight_are_refused(
    fitted: Fitted, driven: ChoiceData, make_driven: Callable[..., ChoiceData]
) -> None:
    with pytest.raises(ConfigError, match="sets"):
        explain(fitted("mnl"), driven, sets=0, progress=False)
    with pytest.raises(InputError, match="weight above 0"):
        explain(fitted("mnl"), driven.subset([1]), progress=False)


# -- Findings ----------------------------------------------------------------------------------------------------------
# Sentences, and the figures that must be behind them.


@pytest.fixture(scope="module")
def found() -> Explanation:
    rng = np.random.default_rng(1)
    s = np.repeat(np.arange(150), 3)
    line, price, time = rng.integers(3, size=450), rng.uniform(1, 9, 450), rng.uniform(10, 60, 450)
    took = largest(-0.7 * price - 0.05 * time + np.array([1.5, 0.0, -1.5])[line] + rng.gumbel(size=450), s)
    table = {"trip": s, "took": took, "fare": price, "minutes": time, "line": np.array(["Red", "Blue", "Green"])[line]}
    data = ChoiceData.from_long(
        table,
        choice_set="trip",
        chosen="took",
        features=["fare", "minutes", "line"],
        columns={"fare": {"name": "Price", "unit": "EUR"}, "minutes": {"name": "Time", "unit": "min"}},
    )
    return explain(MNL().fit(data), data, sets=100, baselines={"uniform": Uniform()}, progress=False)


def by_part(found: Explanation, part: str) -> list[Finding]:
    return [finding for finding in found.findings if finding.part == part]


def test_every_sentence_names_its_figures_and_a_part_that_is_there(found: Explanation) -> None:
    assert len(found.findings) == 8
    for finding in found.findings:
        assert finding.text.endswith(".")
        assert finding.figures
        assert getattr(found, finding.part) is not None
    assert found.to_dict()["findings"] == [finding.to_dict() for finding in found.findings]
    assert found.summary()["found"]["findings"][0] == found.findings[0].text


def test_a_price_rise_costs_the_elasticity_in_per_cent(found: Explanation) -> None:
    assert found.elasticities is not None
    own = found.elasticities.tables[0].rows[0].own
    first, second = by_part(found, "elasticities")
    assert own < 0
    assert first.text == f"A 1% increase in Price lowers the share of an alternative by {-own:.1f}%."
    assert f"elasticity {own:.4g}" in first.figures
    curve = found.elasticities.curves["the favourite of each set"]
    at = int(np.flatnonzero(np.isclose(curve.points, 0.9))[0])
    assert f"rises from {curve.now[0]:.1%} to {curve.shares[0, at]:.1%}." in second.text


def test_categories_gain_and_lose_where_their_intervals_say_so(found: Explanation) -> None:
    (finding,) = by_part(found, "categories")
    assert finding.text == "line: Red gains, Green loses, all else equal."
    assert found.categories is not None
    (table,) = found.categories.tables
    unsure = tuple(replace(row, low=0.5, high=2.0) for row in table.rows)
    silent = replace(found, categories=replace(found.categories, tables=(replace(table, rows=unsure),)))
    assert by_part(silent, "categories") == []


def test_importance_is_not_claimed_where_intervals_reach_zero(found: Explanation) -> None:
    assert found.importance is not None
    (finding,) = by_part(found, "importance")
    assert finding.text.startswith(f"{found.names[found.importance.rows[0].name]} has the largest effect, followed by ")
    rows = tuple(replace(row, low=-0.1) for row in found.importance.rows)
    (none,) = by_part(replace(found, importance=replace(found.importance, rows=rows)), "importance")
    assert none.text.startswith("No column has a significant effect")


def test_time_is_made_up_for_by_money(found: Explanation) -> None:
    assert found.trade_offs is not None
    row = found.trade_offs.rows[0]
    (finding,) = by_part(found, "trade_offs")
    assert finding.text == f"One more min of Time is offset by {-row.median:.4g} EUR less of Price."
    doubtful = replace(row, ends=(-1.0, 1.0))
    silent = replace(found, trade_offs=replace(found.trade_offs, rows=(doubtful,)))
    assert by_part(silent, "trade_offs") == []


def test_a_logit_has_no_context_effects_and_a_ranking_no_probabilities(found: Explanation) -> None:
    assert by_part(found, "context")[0].text.startswith(
        "The preference between two alternatives does not depend on the others"
    )
    data = ChoiceData.from_long(
        {"s": [1, 1, 2, 2], "took": [1, 0, 1, 0], "x": [1.0, 2.0, 1.0, 3.0]},
        choice_set="s",
        chosen="took",
        features=["x"],
    )
    ranked = explain(RankBy(column="x").fit(data), data, sets=2, baselines={}, skip=["axioms"], progress=False)
    assert {finding.part for finding in ranked.findings} <= {"importance", "fit", "context"}


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (0.2, "The model is overconfident"),
        (-0.2, "The model is underconfident"),
        (0.0, "The probabilities are well calibrated"),
    ],
)
def test_calibration_is_that_of_favourites(gap: float, words: str, found: Explanation) -> None:
    assert found.calibration is not None
    first = found.calibration.first
    moved = replace(first, predicted=first.observed + gap)
    (finding,) = by_part(replace(found, calibration=replace(found.calibration, first=moved)), "calibration")
    assert finding.text.startswith(words)
    assert f"calibration error {100 * abs(gap):.1f} percentage points" in finding.figures
