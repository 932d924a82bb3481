"""The heat maps of submarkets: what is selected, what is drawn, and the files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.submarkets import FactorProfile, Submarkets
from pcmcnet.plots.submarkets import draw_submarkets, plot_submarkets, submarkets_chart


def profile(differences: Any, columns: tuple[str, ...]) -> FactorProfile:
    n = len(columns)
    return FactorProfile(
        columns=columns,
        is_category=(False,) * n,
        averages=np.zeros(n),
        spreads=np.ones(n),
        differences=np.array(differences, dtype=float),
    )


def by_hand() -> Submarkets:
    """Two factors, of which the second has more choices, and three alternatives.

    Through factor 1, a and b exchange .10 + .05 = .15 of all moves, and a and c .02. Through factor 2, a and b exchange
    .06, b and c .08 + .12 = .20.
    """
    flows = np.zeros((2, 3, 3))
    flows[0, 0, 1], flows[0, 1, 0], flows[0, 0, 2] = 0.10, 0.05, 0.02
    flows[1, 0, 1], flows[1, 1, 2], flows[1, 2, 1] = 0.06, 0.08, 0.12
    flows[1, 0, 0] = 1 - flows.sum()  # moves that return
    columns = ("price", "time", "noise")
    return Submarkets(
        model="PCMCNet",
        member=1,
        members=1,
        of_class=None,
        sets=1,
        choices=np.array([0.4, 0.6]),
        moves=flows.sum((1, 2)),
        switches=np.array([1.0, 0.5]),
        features_reached=profile([[1.5, -0.9, 0.0], [-1.0, 0.6, 0.0]], columns),
        features_left=profile(np.zeros((2, 3)), columns),
        users=profile(np.zeros((2, 0)), ()),
        alternatives=("a $", "b", "c"),
        probabilities=np.array([0.5, 0.3, 0.2]),
        reached=np.array([[0.8, 0.1, 0.1], [0.3, 13 / 30, 8 / 30]]),
        entries=flows.sum((0, 1)),
        entered=flows.sum(1) / flows.sum((1, 2))[:, None],
        exits=flows.sum(2) / flows.sum((0, 2)),
        flows=flows,
        agreement=None,
    )


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_the_chart_of_flows_matches_values_by_hand() -> None:
    chart = submarkets_chart(by_hand(), "flows")
    assert chart.rows == ("a $ and b", "b and c", "a $ and c")
    assert chart.columns == ("factor 2", "factor 1")  # in the order of their choices
    np.testing.assert_allclose(chart.values, [[0.06, 0.15], [0.20, 0.0], [0.0, 0.02]], rtol=1e-12)
    np.testing.assert_allclose(chart.shares, [0.21, 0.2, 0.02], rtol=1e-12)
    assert chart.note == ""


def test_what_a_chart_leaves_out_is_noted() -> None:
    flows = submarkets_chart(by_hand(), "flows", most=1)
    assert flows.values.shape == (1, 1)
    # .21 of .21 + .20 + .02
    assert flows.note == "1 of 3 pairs are shown, with 48.8% of all exchanges; 1 of 2 factors are shown"
    features = submarkets_chart(by_hand(), most=1)
    assert (features.rows, features.columns) == (("factor 2",), ("price",))
    assert features.note == (
        "1 of 2 factors are shown, with 60.0% of the choices; 1 of 3 features and categories are shown"
    )
    assert submarkets_chart(by_hand(), "alternatives", most=2).note == "2 of 3 alternatives are shown"


def test_the_charts_of_features_and_alternatives_have_a_row_for_each_factor() -> None:
    result = by_hand()
    features, alternatives = submarkets_chart(result), submarkets_chart(result, "alternatives")
    assert features.rows == alternatives.rows == ("factor 2", "factor 1")
    np.testing.assert_array_equal(features.values, result.features_reached.differences[[1, 0]])
    np.testing.assert_array_equal(alternatives.values, result.reached[[1, 0]])
    np.testing.assert_array_equal(alternatives.shares, [0.6, 0.4])


def test_pairs_without_exchanges_are_not_shown() -> None:
    result = by_hand()
    assert result.flows is not None
    flows = result.flows.copy()
    flows[:, 0, 2] = 0.0
    assert submarkets_chart(replace(result, flows=flows), "flows").rows == ("a $ and b", "b and c")
    flows[:] = np.diag([0.5, 0.3, 0.2]) / 2
    with pytest.raises(InputError, match="no choice set has two different alternatives"):
        submarkets_chart(replace(result, flows=flows), "flows")


def test_charts_without_columns_name_a_remedy() -> None:
    empty = replace(by_hand(), alternatives=(), features_reached=profile(np.zeros((2, 0)), ()))
    for what in ("alternatives", "flows"):
        with pytest.raises(InputError, match=r"no common alternatives: pass a single set, data\.subset\(\[0\]\)"):
            submarkets_chart(empty, what)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="use what='alternatives'"):
        submarkets_chart(empty)
    with pytest.raises(InputError, match=r"between 3 alternatives would take .*np\.outer"):
        submarkets_chart(replace(by_hand(), flows=None), "flows")
    with pytest.raises(ConfigError, match=r"unknown what 'flow'\. Did you mean 'flows'"):
        submarkets_chart(empty, "flow")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="most"):
        submarkets_chart(empty, most=0)


def test_cells_and_bars_show_the_numbers() -> None:
    axes = plot_submarkets(by_hand(), what="flows")
    assert texts(axes) == ["6", "15", "20", "0", "0", "2"]
    (bars,) = axes.child_axes
    assert texts(bars) == ["21.0%", "20.0%", "2.0%"]
    assert bars.get_title() == "all factors"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a $ and b", "b and c", "a $ and c"]
    axes = by_hand().plot()
    assert texts(axes) == ["-1.0", "+0.6", "0.0", "+1.5", "-0.9", "0.0"]
    assert axes.child_axes[0].get_title() == "share of choices"
    plt.close("all")


def test_small_shares_have_decimals() -> None:
    result = by_hand()
    assert result.flows is not None
    axes = replace(result, flows=result.flows / 10).plot("flows")
    assert texts(axes) == ["0.6", "1.5", "2.0", "0.0", "0.0", "0.2"]
    plt.close("all")


def test_a_chart_is_drawn_on_the_axes_of_the_user() -> None:
    figure, axes = plt.subplots()
    assert by_hand().plot("alternatives", ax=axes) is axes
    figure.canvas.draw()  # a single $ is no formula
    plt.close(figure)


@pytest.mark.parametrize("what", ["features", "alternatives", "flows"])
def test_pictures_are_written(what: Any, tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]) -> None:
    path = draw_submarkets(by_hand(), tmp_path / "submarkets.png", what=what, title="A title")
    width, height = png_size(path)
    assert min(width, height) > 200
