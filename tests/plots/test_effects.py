"""Plots of importance, demand, rivals and tastes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcmcnet import Explanation
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.demand import DemandCurve
from pcmcnet.insight.importance import Importance, ImportanceRow
from pcmcnet.insight.removals import Attribution
from pcmcnet.insight.table_summary import ExampleSet
from pcmcnet.models.mixed_mnl import Tastes
from pcmcnet.plots.charts import Bars, Chart, Line
from pcmcnet.plots.effects import (
    attribution_chart,
    demand_chart,
    draw_attribution,
    draw_demand,
    draw_importance,
    draw_tastes,
    importance_chart,
    probabilities_chart,
    rival_changes_figure,
    shown_alternatives,
    taste_chart,
)
from pcmcnet.plots.page_figures import ORANGE, page_figure


def importances(*values: float, high: float = 1.0) -> Importance:
    rows = tuple(ImportanceRow(f"column $ {k}", (f"{k}",), v, 0.1, -high, high) for k, v in enumerate(values))
    return Importance("MNL", "nll", "within", 1.5, 5, rows)


def attributed(rivals: int) -> Attribution:
    push = -np.linspace(0.5, 0.1, rivals)
    names = tuple(f"rival {k}" for k in range(rivals))
    p = np.full(rivals, 0.1)
    return Attribution(1, "a $", 0.3, names, np.arange(rivals), p, p, push, push / 2)


def first_row(chart: Chart) -> tuple[object, ...]:
    """Return the name of the first row, and the values and ends of its bars."""
    bars = [mark for mark in chart.marks if isinstance(mark, Bars)]
    return chart.rows[0], *(part[0] for mark in bars for part in (mark.values, mark.low, mark.high) if part)


def test_bars_have_values_and_intervals() -> None:
    assert first_row(importance_chart(importances(0.5, 0.2))) == ("column $ 0", 0.5, -1.0, 1.0)
    assert first_row(importance_chart(importances(0.5, high=np.inf))) == ("column $ 0", 0.5, 0.5, 0.5)
    few = importance_chart(importances(*[0.1] * 30), most=7)
    assert (len(few.rows), few.note) == (7, "23 shorter bars are not shown")
    assert first_row(attribution_chart(attributed(3))) == ("rival 0", -0.5, -0.25)
    assert len(attribution_chart(attributed(30)).rows) == 12
    with pytest.raises(ConfigError, match="most"):
        importance_chart(importances(0.1), most=0)


def test_bars_are_drawn_as_png(tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]) -> None:
    path = draw_importance(importances(0.5, 0.2, -0.1), tmp_path / "importance.png", title="$5", most=2)
    assert png_size(path)[0] == 1280
    path = draw_attribution(attributed(15), tmp_path / "attribution.png", title="$5")
    assert png_size(path)[0] == 1280
    with pytest.raises(InputError, match="does not exist"):
        draw_importance(importances(0.5), tmp_path / "nowhere" / "importance.png")


def curve(points: Any = (2.0, 0.5, 1.0), segments: tuple[str, ...] = ("all",), **other: Any) -> DemandCurve:
    shares = np.array([[0.1, 0.4, 0.3]] * len(segments)) + np.arange(len(segments))[:, None] / 10
    facts: dict[str, Any] = {"column": "price", "changed": "train", "of": "bus", "scaled": True, **other}
    return DemandCurve(
        points=np.array(points),
        segments=segments,
        shares=shares,
        now=shares[:, 2],
        weights=np.ones(len(segments)),
        **facts,
    )


def lines(chart: Chart) -> list[Line]:
    return [mark for mark in chart.marks if isinstance(mark, Line)]


def test_points_are_sorted_from_left_to_right() -> None:
    """Factors of 0.5, 1 and 2 are changes of -50 %, 0 and +100 %."""
    (line,) = lines(demand_chart(curve()))
    assert line.x.tolist() == [-0.5, 0.0, 1.0]
    assert line.y.tolist() == [0.4, 0.3, 0.1]
    assert line.dot == (0.0, 0.3)
    assert line.legend == ""
    (values,) = lines(demand_chart(curve(scaled=False)))
    assert (values.x.tolist(), values.dot) == ([0.5, 1.0, 2.0], None)


def test_lines_are_named_by_curve_and_segment() -> None:
    """Segments differ by colour and curves by dashes; without segments, curves differ by colour."""
    chart = demand_chart({"MNL": curve(segments=("leisure", "work")), "net": curve()})
    assert [line.legend for line in lines(chart)] == ["MNL, leisure", "MNL, work", "net"]
    assert [(line.dash, line.colour) for line in lines(chart)] == [("solid", 0), ("solid", 1), ("dash", 0)]
    two = demand_chart({"MNL": curve(), "net": curve()})
    assert [(line.dash, line.colour) for line in lines(two)] == [("solid", 0), ("solid", 1)]
    assert (chart.x.title, chart.y.title) == ("change in price of train", "predicted share of bus")
    assert demand_chart(curve(scaled=False, changed="")).x.title == "price"


def test_the_table_of_shares_marks_missing_points() -> None:
    """Curves at factors 0.5, 1, 2 and at 0.5, 1, 3."""
    head, *rows, now = demand_chart({"a": curve(), "b": curve((3.0, 0.5, 1.0))}).numbers
    assert head == ["change in price of train", "a", "b"]
    assert rows == [
        ["-50%", "0.4000", "0.4000"],
        ["+0%", "0.3000", "0.3000"],
        ["+100%", "0.1000", "-"],
        ["+200%", "-", "0.1000"],
    ]
    assert now == ["unchanged", "0.3000", "0.3000"]


@pytest.mark.parametrize(
    "drawn",
    [curve(), curve(scaled=False), {"MNL": curve(segments=("$5", "b")), "net": curve(segments=("$5", "b"))}],
    ids=["factors", "values", "several"],
)
def test_a_curve_is_drawn_as_a_png(drawn: Any, tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]) -> None:
    path = draw_demand(drawn, tmp_path / "demand.png", title="at $5 or $6")
    assert png_size(path) == (1280, 800)


def test_incompatible_curves_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one demand curve"):
        demand_chart({})
    with pytest.raises(InputError, match="for the same column and alternative"):
        demand_chart({"a": curve(), "b": curve(column="time")})
    with pytest.raises(InputError, match="does not exist"):
        draw_demand(curve(), tmp_path / "nowhere" / "demand.png")


DRAWS = np.vstack([np.linspace(-1, 3, 1001), np.full(1001, 2.0)])
TASTES = Tastes.of(["x", "$y$"], ["uniform", "normal"], DRAWS)


def test_a_chart_is_a_density_between_the_outer_quantiles() -> None:
    chart = taste_chart(TASTES["x"], DRAWS[0])
    np.testing.assert_allclose(chart.density, 0.25, rtol=0.1)  # 1 / 4, where 4 is the width
    assert chart.edges[[0, -1]] == pytest.approx([-0.98, 2.98])
    assert chart.note == "25% below 0"
    alike = taste_chart(TASTES["$y$"], DRAWS[1])
    assert alike.note == "all above 0"
    assert np.isfinite(alike.density).all()


def test_axes_hold_one_coefficient_and_a_figure_holds_all() -> None:
    axes = Figure().subplots()
    assert draw_tastes(TASTES, "x", ax=axes) is axes
    assert axes.get_title() == "x: uniform"
    assert isinstance(draw_tastes(TASTES, "x"), Axes)
    figure = draw_tastes(TASTES)
    assert isinstance(figure, Figure)
    assert len([panel for panel in figure.axes if panel.get_visible()]) == 2
    with pytest.raises(InputError, match="ax has room for one coefficient, got 2: select one with name="):
        draw_tastes(TASTES, ax=axes)


def test_importance_is_drawn_from_bottom_to_top(explained: dict[str, Explanation]) -> None:
    part = explained["logit"].importance
    assert part is not None
    figure = page_figure(importance_chart(part))
    assert figure.traces[0]["x"] == [row.value for row in part.rows[::-1]]
    assert [row[0] for row in figure.numbers[1:]] == [row.name for row in part.rows]


def test_demand_plots_the_shares_of_every_curve(explained: dict[str, Explanation]) -> None:
    part = explained["chain"].elasticities
    assert part is not None
    figure = page_figure(demand_chart(part.curves))
    assert [trace["y"] for trace in figure.traces] == [curve.shares[0].tolist() for curve in part.curves.values()]
    assert figure.numbers[-1][0] == "unchanged"


@pytest.fixture
def example(explained: dict[str, Explanation]) -> ExampleSet:
    examples = explained["chain"].examples
    assert examples is not None
    return examples[1]


def test_the_choice_has_another_colour(example: ExampleSet) -> None:
    (trace,) = page_figure(probabilities_chart(example)).traces
    assert trace["x"] == sorted(example.p.tolist())
    assert example.chosen is not None
    chosen = [colour == ORANGE for colour in trace["marker"]["color"]]
    assert [p for p, mark in zip(trace["x"], chosen, strict=True) if mark] == [example.p[example.chosen]]


def test_large_sets_show_the_most_probable_and_the_choice(example: ExampleSet) -> None:
    p = np.arange(40, 0, -1) / np.arange(40, 0, -1).sum()
    large = replace(example, p=p, names=tuple(map(str, range(40))), chosen=39)
    assert shown_alternatives(large) == [*range(14), 39]
    assert shown_alternatives(replace(large, chosen=None)) == [*range(15)]
    assert "25 others" in page_figure(probabilities_chart(large)).caption


def test_effects_of_rivals_sum_to_the_change(example: ExampleSet) -> None:
    attribution = example.attribution
    assert attribution is not None
    logit, beyond = rival_changes_figure(attribution).traces
    order = np.argsort(-np.abs(attribution.change), kind="stable")[::-1]
    np.testing.assert_allclose(np.add(logit["x"], beyond["x"]), attribution.change[order], rtol=0, atol=1e-12)
    np.testing.assert_allclose(beyond["x"], attribution.change_beyond[order], rtol=0, atol=1e-12)


def test_small_changes_have_enough_decimals(example: ExampleSet) -> None:
    """A choice of 0.02 % loses 0.004 points to its rivals; the axis does not show -0 % and +0 %."""
    attribution = example.attribution
    assert attribution is not None
    rare = replace(
        attribution, p=2e-4, without=2e-4 + 4e-5 * np.arange(1, len(attribution.rivals) + 1) / len(attribution.rivals)
    )
    figure = rival_changes_figure(rare)
    assert figure.caption.endswith("is 0.02%.")
    assert figure.layout["xaxis"]["tickformat"] == "+.4~%"
    assert figure.numbers[1][3] == "-4e-05"
