"""An explanation combines the other results of insight and states what it leaves out."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from choice_tables import ROLES, largest, logit_choices, read, trips
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
def test_every_part_is_available_or_left_out_with_a_reason(name: str, explained: dict[str, Explanation]) -> None:
    explanation = explained[name]
    available = [part for part in PARTS if getattr(explanation, part) is not None]
    assert sorted([*available, *explanation.left_out]) == sorted(PARTS)
    ranking = {"calibration", "elasticities", "categories", "trade_offs", "context"}
    expected = ranking if name == "rank-by" else set()
    assert set(explanation.left_out) == expected
    assert all(len(why) > 20 for why in explanation.left_out.values())


@pytest.mark.parametrize("name", ["mnl", "pcmcnet", "rf"])
def test_figures_equal_those_of_the_single_functions(
    name: str, explained: dict[str, Explanation], fitted: Fitted, driven: ChoiceData
) -> None:
    """Sets of weight 0 are not sampled, so the sample is the table without its second set."""
    explanation, model = explained[name], fitted(name)
    counted = driven.subset(driven.weights > 0)
    assert explanation.fit is not None
    assert explanation.fit.report == evaluate(model, driven)
    assert explanation.calibration is not None
    assert explanation.calibration.to_dict() == calibration(model, driven).to_dict()
    assert explanation.importance == importance(model, counted)
    assert explanation.axioms == audit(model, driven, 100, limit=2500)
    assert explanation.context is not None
    assert explanation.context.search == search(model, driven, limit=1000)
    assert explanation.elasticities is not None
    for table in explanation.elasticities.tables:
        kind = "semi" if table.column == "noise" else "elasticity"
        assert table == elasticity(model, counted, table.column, kind=kind).table()  # type: ignore[arg-type]


def test_numeric_features_are_ordered_by_importance(explained: dict[str, Explanation]) -> None:
    explanation = explained["mnl"]
    assert explanation.importance is not None
    assert explanation.elasticities is not None
    ranked = [row.name for row in explanation.importance.rows if row.name in ("price", "time", "noise")]
    assert [table.column for table in explanation.elasticities.tables] == ranked
    assert explanation.elasticities.column == ranked[0] == "price"


@pytest.mark.parametrize("name", NAMES)
def test_an_explanation_survives_json(name: str, explained: dict[str, Explanation]) -> None:
    explanation = explained[name]
    entries = json.loads(json.dumps(explanation.to_dict(), allow_nan=False))
    assert {*PARTS} == {*entries} & {*PARTS} | {*explanation.left_out}
    summary = json.loads(json.dumps(explanation.summary(), allow_nan=False))
    assert summary["found"]["choice_sets"] == 40
    assert summary["found"]["seen_in_training"] == "all"
    assert summary["left_out"] == dict(explanation.left_out)


def test_without_choices_some_parts_are_left_out(fitted: Fitted, make_driven: Callable[..., ChoiceData]) -> None:
    explanation = explain(fitted("pcmcnet"), make_driven(chosen=None), sets=10, progress=False)
    assert tuple(explanation.left_out) == NEED_CHOICES
    assert set(explanation.left_out.values()) == {"the table has no choices"}
    assert explanation.examples is not None
    assert [example.kind for example in explanation.examples] == ["typical", "uncertain", "large"]
    assert explanation.elasticities is not None
    sizes = [abs(table.rows[0].own) for table in explanation.elasticities.tables if table.kind == "elasticity"]
    assert sizes == sorted(sizes, reverse=True)


def test_tables_are_read_with_the_schema_of_the_model(tmp_path: Path) -> None:
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
    explanation = explain(model, rows, progress=False)
    assert explanation.fit is None
    assert explanation.table is not None
    assert not explanation.table.has_choices


def test_costly_parts_use_a_sample(fitted: Fitted, driven: ChoiceData) -> None:
    explanation = explain(fitted("mnl"), driven, sets=7, skip=["fit"], progress=False)
    assert explanation.elasticities is not None
    assert explanation.axioms is not None
    assert (explanation.elasticities.sets, explanation.axioms.sets, explanation.facts["sampled choice sets"]) == (
        7,
        7,
        7,
    )
    assert explanation.calibration is not None
    assert explanation.calibration.n_sets == int(((driven.sizes > 1) & (driven.weights > 0)).sum())


def test_the_seed_determines_the_explanation(fitted: Fitted, driven: ChoiceData) -> None:
    def plain(seed: int) -> dict[str, Any]:
        explanation = explain(fitted("mnl"), driven, seed, sets=7, skip=["fit", "examples"], progress=False).to_dict()
        return {part: explanation[part] for part in PARTS if part in explanation}

    assert plain(0) == plain(0)
    assert plain(0)["importance"] != plain(1)["importance"]


def test_parts_can_be_skipped(fitted: Fitted, driven: ChoiceData) -> None:
    explanation = explain(fitted("mnl"), driven, skip=PARTS[1:], progress=False)
    assert explanation.table is not None
    assert set(explanation.left_out) == set(PARTS[1:])
    with pytest.raises(ConfigError, match=r"unknown part 'axiom'.*axioms"):
        explain(fitted("mnl"), driven, skip=["axiom"], progress=False)


def test_baselines_can_be_chosen(fitted: Fitted, driven: ChoiceData) -> None:
    rest = [part for part in PARTS if part != "fit"]
    one = explain(fitted("mnl"), driven, skip=rest, baselines={"evens": Uniform()}, progress=False).fit
    none = explain(fitted("mnl"), driven, skip=rest, baselines={}, progress=False).fit
    assert one is not None
    assert one.baselines is not None
    assert [row.label for row in one.baseline_rows] == ["evens"]
    assert none is not None
    assert none.baselines is None


def test_an_ensemble_has_the_histories_of_its_members(driven: ChoiceData) -> None:
    model = Ensemble("pcmcnet", n=2, options={"hidden": (4,), "epochs": 2, "weight_decay": 0.0, "batch_size": 16})
    model.fit(driven, progress=False)
    explanation = explain(model, driven, skip=[part for part in PARTS if part != "model"], progress=False).model
    assert explanation is not None
    assert {name: len(history) for name, history in explanation.histories.items()} == {"member 1": 2, "member 2": 2}


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [(Uniform(), NotFittedError, "not fitted"), (object(), InputError, "expected a fitted model such as PCMCNet")],
)
def test_models_that_are_not_fitted_are_rejected(
    model: Any, error: type[Exception], message: str, driven: ChoiceData
) -> None:
    with pytest.raises(error, match=message):
        explain(model, driven, progress=False)


def test_invalid_samples_are_rejected(
    fitted: Fitted, driven: ChoiceData, make_driven: Callable[..., ChoiceData]
) -> None:
    with pytest.raises(ConfigError, match="sets"):
        explain(fitted("mnl"), driven, sets=0, progress=False)
    with pytest.raises(InputError, match="weight above 0"):
        explain(fitted("mnl"), driven.subset([1]), progress=False)


# -- Findings ----------------------------------------------------------------------------------------------------------
# Sentences and the figures that support them.


@pytest.fixture(scope="module")
def explanation() -> Explanation:
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


def by_part(explanation: Explanation, part: str) -> list[Finding]:
    return [finding for finding in explanation.findings if finding.part == part]


def test_every_finding_refers_to_its_part_and_figures(explanation: Explanation) -> None:
    assert len(explanation.findings) == 8
    assert len(set(explanation.findings)) == 8
    for finding in explanation.findings:
        assert finding.text.endswith(".")
        assert finding.figures
        assert getattr(explanation, finding.part) is not None
    assert explanation.to_dict()["findings"] == [finding.to_dict() for finding in explanation.findings]
    assert explanation.summary()["found"]["findings"][0] == explanation.findings[0].text


def test_the_finding_on_prices_states_the_elasticity(explanation: Explanation) -> None:
    assert explanation.elasticities is not None
    own = next(table for table in explanation.elasticities.tables if table.column == "fare").rows[0].own
    first, second = by_part(explanation, "elasticities")
    assert own < 0
    assert explanation.elasticities.price == "fare"
    curve = explanation.elasticities.demand["fare"]["the favourite of each set"]
    at = int(np.flatnonzero(np.isclose(curve.points, 1.1))[0])
    assert first.text == (
        f"If the Price of the favourite of each set rises by 10%, its share falls from {curve.now[0]:.1%} to "
        f"{curve.shares[0, at]:.1%}."
    )
    assert first.figures.startswith(f"average elasticity {own:.4g}, ")
    assert second.text.startswith("If the Time of the favourite of each set rises by 10%, its share falls from ")


def test_without_scaled_curves_the_finding_is_about_the_average(explanation: Explanation) -> None:
    part = explanation.elasticities
    assert part is not None
    table = next(table for table in part.tables if table.column == "fare")
    none = replace(part, demand={})
    first, _ = by_part(replace(explanation, elasticities=none), "elasticities")
    percent = -10 * table.rows[0].own
    share = "the share of an alternative by about"
    assert first.text == f"A 10% increase in Price lowers {share} {percent:.1f}% of its value."
    tables = tuple(replace(table, kind="semi") for table in part.tables)
    first, _ = by_part(replace(explanation, elasticities=replace(none, tables=tables)), "elasticities")
    assert first.text.startswith("One more EUR of Price lowers the share of an alternative by about ")


def test_the_price_comes_before_more_important_columns(explanation: Explanation) -> None:
    parts = [finding.part for finding in explanation.findings]
    assert parts[:4] == ["elasticities", "importance", "elasticities", "trade_offs"]
    swapped = replace(explanation.elasticities, tables=explanation.elasticities.tables[::-1])  # type: ignore[union-attr]
    again = by_part(replace(explanation, elasticities=swapped), "elasticities")
    assert again[0] == by_part(explanation, "elasticities")[0]


def test_a_share_that_hardly_changes_is_no_finding(explanation: Explanation) -> None:
    part = explanation.elasticities
    assert part is not None
    price = part.demand["fare"]
    curves = {of: replace(curve, shares=0 * curve.shares + curve.now[:, None]) for of, curve in price.items()}
    unchanged = replace(part, demand={**part.demand, "fare": curves})
    (other,) = by_part(replace(explanation, elasticities=unchanged), "elasticities")
    assert other == by_part(explanation, "elasticities")[1]
    slight = {of: replace(curve, shares=curve.shares + 0.0009) for of, curve in curves.items()}
    small = replace(part, demand={**part.demand, "fare": slight})
    assert by_part(replace(explanation, elasticities=small), "elasticities") == [other]


def test_findings_on_categories_respect_their_intervals(explanation: Explanation) -> None:
    (finding,) = by_part(explanation, "categories")
    assert finding.text == "line: Red gains, Green loses, all else equal."
    assert explanation.categories is not None
    (table,) = explanation.categories.tables
    unsure = tuple(replace(row, low=0.5, high=2.0) for row in table.rows)
    silent = replace(explanation, categories=replace(explanation.categories, tables=(replace(table, rows=unsure),)))
    assert by_part(silent, "categories") == []


def test_no_importance_is_claimed_if_intervals_reach_zero(explanation: Explanation) -> None:
    assert explanation.importance is not None
    (finding,) = by_part(explanation, "importance")
    assert finding.text.startswith(
        f"{explanation.names[explanation.importance.rows[0].name]} has the largest effect, followed by "
    )
    rows = tuple(replace(row, low=-0.1) for row in explanation.importance.rows)
    (none,) = by_part(replace(explanation, importance=replace(explanation.importance, rows=rows)), "importance")
    assert none.text.startswith("No column has a significant effect")


def test_the_finding_on_trade_offs_expresses_time_in_money(explanation: Explanation) -> None:
    assert explanation.trade_offs is not None
    row = explanation.trade_offs.rows[0]
    (finding,) = by_part(explanation, "trade_offs")
    assert finding.text == f"One min less of Time is worth {-row.median:.3g} EUR of Price."
    doubtful = replace(row, ends=(-1.0, 1.0))
    silent = replace(explanation, trade_offs=replace(explanation.trade_offs, rows=(doubtful,)))
    assert by_part(silent, "trade_offs") == []


def test_findings_depend_on_the_kind_of_model(explanation: Explanation) -> None:
    assert by_part(explanation, "context")[0].text.startswith(
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
def test_the_finding_on_calibration_is_about_favourites(gap: float, words: str, explanation: Explanation) -> None:
    assert explanation.calibration is not None
    first = explanation.calibration.first
    moved = replace(first, predicted=first.observed + gap)
    (finding,) = by_part(replace(explanation, calibration=replace(explanation.calibration, first=moved)), "calibration")
    assert finding.text.startswith(words)
    assert f"calibration error {100 * abs(gap):.1f} percentage points" in finding.figures


def test_a_wrong_sign_is_the_first_finding_and_a_caveat() -> None:
    """A logit in which every probability rises with its price."""
    data = read(trips(40), **ROLES)
    model = MNL(formula="price", fixed={"price": 0.2}).fit(data, progress=False)
    explanation = explain(model, data, sets=20, baselines={}, progress=False)
    sentence = model.sign_caveats["price"]
    assert explanation.findings[0].text == f"T{sentence[1:]}."
    assert explanation.findings[0].part == "model"
    assert explanation.findings[0].warning
    assert explanation.model is not None
    assert sentence in explanation.model.caveats
    assert json.loads(json.dumps(explanation.to_dict()))["model"]["sign_caveats"] == {"price": sentence}
    right = MNL(formula="price", fixed={"price": -0.2}).fit(data, progress=False)
    assert all(finding.part != "model" for finding in explain(right, data, sets=20, progress=False).findings)


# -- Verdict -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def halves() -> tuple[ChoiceData, ChoiceData]:
    """Return training and test sets of a logit with strong effects, of which only the test sets are explained."""
    data = read(logit_choices(300, {"x1": -2.0, "x2": 1.0}), features=["x1", "x2"])
    return data.subset(range(150)), data.subset(range(150, 300))


def verdict_of(model: MNL, data: ChoiceData) -> Finding:
    skip = [part for part in PARTS if part != "fit"]
    return explain(model, data, skip=skip, progress=False).findings[0]


def test_the_verdict_compares_the_model_with_a_logit(halves: tuple[ChoiceData, ChoiceData]) -> None:
    train, test = halves
    same, worse = MNL().fit(train, progress=False), MNL(formula="x2").fit(train, progress=False)
    close = verdict_of(same, test)
    assert close.text == "The model predicts about as well as a multinomial logit: the difference is not significant."
    assert not close.warning
    far = verdict_of(worse, test)
    assert far.text == "The model predicts worse than a multinomial logit."
    assert far.warning
    fit = explain(worse, test, skip=[part for part in PARTS if part != "fit"], progress=False).fit
    assert fit is not None
    assert f"NLL {fit.report.nll:.3f}, a multinomial logit {fit.baselines['mnl'].values['nll']:.3f}" in far.figures  # type: ignore[index]
    assert "p = 0.00" in far.figures


def test_a_better_model_is_called_better(halves: tuple[ChoiceData, ChoiceData]) -> None:
    train, test = halves
    skip = [part for part in PARTS if part != "fit"]
    weak = {"uniform": Uniform(), "mnl": MNL(formula="x2")}
    explanation = explain(MNL().fit(train, progress=False), test, skip=skip, baselines=weak, progress=False)
    assert explanation.findings[0].text == "The model predicts better than a multinomial logit."


def test_in_sample_scores_support_no_verdict(halves: tuple[ChoiceData, ChoiceData]) -> None:
    train, _ = halves
    finding = verdict_of(MNL().fit(train, progress=False), train)
    assert finding.text == (
        "Whether the model predicts better than a multinomial logit is unknown, because it was trained on these "
        "choices."
    )
    assert finding.warning
