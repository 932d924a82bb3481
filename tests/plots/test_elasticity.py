from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet.errors import InputError
from pcmcnet.insight.demand import DemandCurve
from pcmcnet.plots.elasticity import demand_chart, draw_demand


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


def test_points_go_from_left_to_right() -> None:
    (line,) = demand_chart(curve()).lines
    assert line.x.tolist() == [0.5, 1.0, 2.0]
    assert line.share.tolist() == [0.4, 0.3, 0.1]
    assert line.now == 0.3
    assert line.label == ""


def test_lines_are_named_by_curve_and_segment() -> None:
    chart = demand_chart({"MNL": curve(segments=("leisure", "work")), "net": curve()})
    assert [line.label for line in chart.lines] == ["MNL, leisure", "MNL, work", "net"]
    assert [(line.curve, line.segment) for line in chart.lines] == [(0, 0), (0, 1), (1, 0)]
    assert (chart.x_label, chart.y_label) == ("price of train, times what it is", "predicted share of bus")
    assert demand_chart(curve(scaled=False, changed="")).x_label == "price"


@pytest.mark.parametrize(
    "drawn",
    [curve(), curve(scaled=False), {"MNL": curve(segments=("$5", "b")), "net": curve(segments=("$5", "b"))}],
    ids=["factors", "values", "several"],
)
def test_a_curve_becomes_a_png(drawn: Any, tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]) -> None:
    path = draw_demand(drawn, tmp_path / "demand.png", title="at $5 or $6")
    assert png_size(path) == (1280, 800)


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one demand curve"):
        demand_chart({})
    with pytest.raises(InputError, match="of one column of one alternative"):
        demand_chart({"a": curve(), "b": curve(column="time")})
    with pytest.raises(InputError, match="does not exist"):
        draw_demand(curve(), tmp_path / "nowhere" / "demand.png")
