"""Sentences, and the figures that must be behind them."""

from dataclasses import replace

import numpy as np
import pytest

from choice_tables import largest
from pcmcnet import MNL, ChoiceData, Explanation, RankBy, Uniform, explain
from pcmcnet.insight.findings import Finding


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
    assert first.text == f"A 1% rise of Price costs an alternative {-own:.1f}% of its share."
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
    assert finding.text.startswith(f"{found.names[found.importance.rows[0].name]} matters most, then ")
    rows = tuple(replace(row, low=-0.1) for row in found.importance.rows)
    (none,) = by_part(replace(found, importance=replace(found.importance, rows=rows)), "importance")
    assert none.text.startswith("No column matters for sure")


def test_time_is_made_up_for_by_money(found: Explanation) -> None:
    assert found.trade_offs is not None
    row = found.trade_offs.rows[0]
    (finding,) = by_part(found, "trade_offs")
    assert finding.text == f"One min more of Time is made up for by {-row.median:.4g} EUR less of Price."
    doubtful = replace(row, ends=(-1.0, 1.0))
    silent = replace(found, trade_offs=replace(found.trade_offs, rows=(doubtful,)))
    assert by_part(silent, "trade_offs") == []


def test_a_logit_has_no_context_effects_and_a_ranking_no_probabilities(found: Explanation) -> None:
    assert by_part(found, "context")[0].text.startswith("What else is on offer never changes the preference")
    data = ChoiceData.from_long(
        {"s": [1, 1, 2, 2], "took": [1, 0, 1, 0], "x": [1.0, 2.0, 1.0, 3.0]},
        choice_set="s",
        chosen="took",
        features=["x"],
    )
    ranked = explain(RankBy(column="x").fit(data), data, sets=2, baselines={}, skip=["axioms"], progress=False)
    assert {finding.part for finding in ranked.findings} <= {"importance", "fit", "context"}


@pytest.mark.parametrize(("gap", "words"), [(0.2, "It is surer"), (-0.2, "It is less sure"), (0.0, "On average")])
def test_calibration_is_that_of_favourites(gap: float, words: str, found: Explanation) -> None:
    assert found.calibration is not None
    first = found.calibration.first
    moved = replace(first, predicted=first.observed + gap)
    (finding,) = by_part(replace(found, calibration=replace(found.calibration, first=moved)), "calibration")
    assert finding.text.startswith(words)
    assert f"calibration error {100 * abs(gap):.1f} points" in finding.figures
