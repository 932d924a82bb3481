from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from pcmcnet.errors import InputError
from pcmcnet.insight.context_effects import Case, PreferenceMap, Search
from pcmcnet.plots.context import draw_effects, draw_third, effects_chart

CASES = (
    Case(11, "a decoy", "b", "a", (2, 1, 0), -1.8, -0.7, 0.14, 0.33),
    Case(
        "x", "row 7", "row 8", "an alternative with a name that goes on and on and on and on", (7, 8, 9), 0, 1, 0.5, 0.7
    ),
)
FOUND = Search("Net", CASES, removals=7, pairs=9, questions=9, mean=0.1)


def test_the_chart_has_the_shares_with_and_without_in_order() -> None:
    chart = effects_chart(FOUND)
    assert chart.labels[0] == "set 11: b against a\nwhen a decoy joins"
    assert chart.share_with.tolist() == [0.14, 0.5]
    assert chart.share_without.tolist() == [0.33, 0.7]
    assert chart.by_adding.tolist() == pytest.approx([-1.1, -1.0])
    assert len(effects_chart(FOUND, most=1).labels) == 1


def test_long_names_are_cut() -> None:
    lines = effects_chart(FOUND).labels[1].splitlines()
    assert max(map(len, lines)) == 60
    assert lines[0].endswith("...")


def test_the_cases_become_a_png(
    tmp_path: Path, png_size: Callable[[Path], tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cases of half an inch and 1.1 for the rest, 8 wide, at 200 dots an inch; lines join the shares."""
    drawn: list[Any] = []
    hlines = Axes.hlines

    def record(axes: Axes, *args: Any, **options: Any) -> Any:
        drawn.append(args)
        return hlines(axes, *args, **options)

    monkeypatch.setattr(Axes, "hlines", record)
    assert png_size(draw_effects(FOUND, tmp_path / "cases.png")) == (1600, 420)
    ((_, without, present),) = drawn
    assert (without.tolist(), present.tolist()) == ([0.33, 0.7], [0.14, 0.5])


def test_no_case_and_no_picture_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one case to draw"):
        effects_chart(Search("Net", (), 0, 0, 0, 0.0))
    with pytest.raises(InputError, match="ends in"):
        draw_effects(FOUND, tmp_path / "cases.gif")


def test_the_map_of_a_third_is_titled_by_the_preference_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, png_size: Callable[[Path], tuple[int, int]]
) -> None:
    titles: list[str] = []
    monkeypatch.setattr(Axes, "set_title", lambda _, title, **__: titles.append(title))
    grid = np.array([1.0, 2.0])
    found = PreferenceMap(grid, grid, np.full((2, 2), 0.6), (1, 2), (2, 1), (1, 1), 0.7)
    assert png_size(draw_third(found, tmp_path / "map.png", features=("price", "minutes"))) == (840, 780)
    draw_third(found, tmp_path / "map.png", features=("price", "minutes"), title="PCMC-Net")
    assert titles == ["without $c$: 0.70", "PCMC-Net"]
