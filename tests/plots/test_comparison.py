from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.datasets import mlba
from pcmcnet.errors import InputError
from pcmcnet.evaluation import compare
from pcmcnet.evaluation.comparison import Comparison, Row
from pcmcnet.models import PCMCNet
from pcmcnet.plots import ComparisonChart, comparison_chart, draw_comparison
from pcmcnet.plots.style import BLUE, ORANGE

DESIGN: dict[str, Any] = {"folds": 5, "split": None, "by": None, "valid": 0.0, "seed": 0}


def row(label: str, **facts: Any) -> Row:
    return Row(**{"label": label, "model": "net", "options": {}, **facts})


def comparison(rows: tuple[Row, ...], **change: Any) -> Comparison:
    facts: dict[str, Any] = {"n_sets": 6, "best": None, "top": (1,), "uniform": {"nll": 1.1, "top_1": 0.3}}
    return Comparison(rows=rows, **{**facts, "design": DESIGN, **change})


ROWS = (
    row("uni$form", values={"nll": 1.1, "top_1": 0.3}, intervals={"nll": (1.0, 1.2), "top_1": (0.3, 0.3)}),
    row("broken", error="no luck"),
    row("net", values={"nll": 0.8, "top_1": 0.6}, intervals={"nll": (0.7, np.inf), "top_1": (0.5, 0.7)}),
    row("forest", gives="scores", values={"nll": 0.9, "top_1": 0.5}),
    row("cheap", gives="ranking", values={"top_1": 0.4}, intervals={"top_1": (0.2, 0.6)}),
    row("sure", values={"nll": np.inf, "top_1": 0.2}, intervals={"nll": (2.0, np.inf), "top_1": (0.1, 0.3)}),
)


@pytest.fixture
def chart() -> ComparisonChart:
    return comparison_chart(comparison(ROWS, best="net"))


def test_lines_are_the_rows_of_the_table_less_the_failed(chart: ComparisonChart) -> None:
    assert chart.labels == ("uni$form", "net", "forest", "cheap", "sure")
    assert chart.best == 1
    assert chart.left_out == ("broken failed", "sure: infinite NLL", "cheap: a ranking, without NLL")


def test_dots_are_the_values_of_the_table(chart: ComparisonChart) -> None:
    nll, top = chart.panels
    assert (nll.title, nll.lower_is_better, nll.reference) == ("NLL", True, 1.1)
    assert (top.title, top.lower_is_better, top.reference) == ("TOP 1", False, 0.3)
    assert [tuple(dot) for dot in nll.dots] == [
        (0, 1.1, 1.0, 1.2, False),
        (1, 0.8, 0.7, np.inf, False),
        (2, 0.9, 0.9, 0.9, True),
    ]
    assert [dot.line for dot in top.dots] == [0, 1, 2, 3, 4]
    assert not any(dot.marked for dot in top.dots)


def test_limits_hold_all_that_is_finite_with_a_margin(chart: ComparisonChart) -> None:
    """From 0.7 to 1.2, and a twentieth of 0.5 on either side."""
    assert chart.panels[0].limits == pytest.approx((0.675, 1.225), rel=1e-12)


def test_equal_values_still_have_an_axis() -> None:
    same = row("a", values={"nll": 1.1, "top_1": 0.3})
    assert comparison_chart(comparison((same,))).panels[1].limits == pytest.approx((0.25, 0.35), rel=1e-12)


def test_the_numbers_of_a_real_comparison_are_those_of_its_table() -> None:
    table = mlba.simulate(40, seed=0)
    data = ChoiceData.from_long(table, choice_set="choice_set", chosen="chosen", features=["attr1", "attr2"])
    nets = {f"net {k}": PCMCNet(hidden=(4,), epochs=k) for k in (1, 2)}
    found = compare(nets, data, folds=2, top=(1, 2, 5), progress=False)
    frame = found.to_arrow().to_pydict()
    assert set(frame["top_5"]) == {1.0}  # sets have three alternatives: every model has it, and it is not drawn
    assert found.notes == ["TOP 5 is left out: no choice set has more than 5 alternatives."]
    assert found.cells()[0][:4] == ["model", "NLL", "TOP 1", "TOP 2"]
    for panel, name in zip(comparison_chart(found).panels, ("nll", "top_1", "top_2"), strict=True):
        assert [dot.value for dot in panel.dots] == frame[name]
        assert [dot.low for dot in panel.dots] == frame[f"{name}_low"]
        assert [dot.high for dot in panel.dots] == frame[f"{name}_high"]
        assert panel.reference == found.uniform[name]


def test_where_every_model_failed_there_is_nothing_to_draw() -> None:
    with pytest.raises(InputError, match="every model of the comparison failed"):
        comparison_chart(comparison((row("broken", error="no luck"),)))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Axes]:
    """The panels drawn, in their order."""
    seen: list[Axes] = []
    set_title = Axes.set_title

    def record(axes: Axes, *args: Any, **options: Any) -> Any:
        seen.append(axes)
        return set_title(axes, *args, **options)

    monkeypatch.setattr(Axes, "set_title", record)
    return seen


def test_the_picture_shows_dots_intervals_and_the_reference(
    chart: ComparisonChart, tmp_path: Path, drawn: list[Axes], png_size: Callable[[Path], tuple[int, int]]
) -> None:
    path = draw_comparison(chart, tmp_path / "comparison.png", title="a $ title")
    assert png_size(path) == (1480, 640)  # 1.6 + 2 2.9 by 1.5 + 5 0.34 inches, at 200 dots an inch
    assert [file.name for file in tmp_path.iterdir()] == ["comparison.png"]
    nll, top = drawn
    reference, *lines = nll.lines
    assert list(reference.get_xdata()) == [1.1, 1.1]
    intervals, dots = lines[::2], lines[1::2]
    found = [(*line.get_xdata(), line.get_ydata()[0]) for line in intervals]  # type: ignore[index, misc]
    assert found == [(1.0, 1.2, 0), (0.7, pytest.approx(1.225), 1), (0.9, 0.9, 2)]  # inf ends at the edge
    assert [(dot.get_xdata()[0], dot.get_ydata()[0]) for dot in dots] == [(1.1, 0), (0.8, 1), (0.9, 2)]  # type: ignore[index]
    assert [dot.get_color() for dot in dots] == [BLUE, ORANGE, BLUE]
    assert [dot.get_markerfacecolor() for dot in dots] == [BLUE, ORANGE, "white"]
    assert [text.get_text() for text in nll.get_yticklabels()][:2] == [r"uni\$form", "net"]
    assert top.get_title() == "TOP 1 (higher is better)"
    assert nll.get_ylim() == (4.5, -0.5)


def test_a_path_that_cannot_be_is_refused(chart: ComparisonChart, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.png, \.pdf or \.svg, got 'a.jpg'"):
        draw_comparison(chart, tmp_path / "a.jpg")
