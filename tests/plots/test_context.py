"""Context effects, their orders, and preference maps."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.context_effects import ContextCase, ContextSearch
from pcmcnet.insight.order_effects import ContextTerm, OrderEffects, OrderRow
from pcmcnet.insight.preference_map import PreferenceMap
from pcmcnet.plots import draw_preference_maps, preference_map
from pcmcnet.plots.charts import Bars
from pcmcnet.plots.context import (
    context_effects_chart,
    draw_context_effects,
    draw_preference_map,
    map_figure,
    order_chart,
)

CASES = (
    ContextCase(11, "a decoy", "b", "a", (2, 1, 0), -1.8, -0.7, 0.14, 0.33),
    ContextCase(
        "x", "row 7", "row 8", "an alternative with a name that goes on and on and on and on", (7, 8, 9), 0, 1, 0.5, 0.7
    ),
)
FOUND = ContextSearch("Net", CASES, removals=7, pairs=9, questions=9, mean=0.1)


def test_the_chart_has_shares_with_and_without_in_order() -> None:
    chart = context_effects_chart(FOUND)
    assert chart.labels[0] == "set 11: b against a\nadding a decoy"
    assert chart.share_with.tolist() == [0.14, 0.5]
    assert chart.share_without.tolist() == [0.33, 0.7]
    assert chart.by_adding.tolist() == pytest.approx([-1.1, -1.0])
    assert len(context_effects_chart(FOUND, most=1).labels) == 1


def test_long_names_are_truncated() -> None:
    lines = context_effects_chart(FOUND).labels[1].splitlines()
    assert max(map(len, lines)) == 60
    assert lines[0].endswith("...")


def test_cases_are_drawn_as_a_png(
    tmp_path: Path, png_size: Callable[[Path], tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cases of half an inch plus 1.1 inches, 8 inches wide, at 200 dpi; lines join the shares."""
    drawn: list[Any] = []
    hlines = Axes.hlines

    def record(axes: Axes, *args: Any, **options: Any) -> Any:
        drawn.append(args)
        return hlines(axes, *args, **options)

    monkeypatch.setattr(Axes, "hlines", record)
    assert png_size(draw_context_effects(FOUND, tmp_path / "cases.png")) == (1600, 420)
    ((_, without, present),) = drawn
    assert (without.tolist(), present.tolist()) == ([0.33, 0.7], [0.14, 0.5])


def test_empty_searches_and_invalid_paths_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one case to draw"):
        context_effects_chart(ContextSearch("Net", (), 0, 0, 0, 0.0))
    with pytest.raises(InputError, match="ends in"):
        draw_context_effects(FOUND, tmp_path / "cases.gif")


def test_the_title_of_a_map_has_the_preference_without_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, png_size: Callable[[Path], tuple[int, int]]
) -> None:
    titles: list[str] = []
    monkeypatch.setattr(Axes, "set_title", lambda _, title, **__: titles.append(title))
    grid = np.array([1.0, 2.0])
    result = PreferenceMap(grid, grid, np.full((2, 2), 0.6), (1, 2), (2, 1), (1, 1), 0.7)
    assert png_size(draw_preference_map(result, tmp_path / "map.png", features=("price", "minutes"))) == (840, 780)
    draw_preference_map(result, tmp_path / "map.png", features=("price", "minutes"), title="PCMC-Net")
    assert titles == ["without $c$: 0.70", "PCMC-Net"]


ORDERS = (
    OrderRow("1", 3, 1.0, 1.5, 0.75, 0.9, 0.0),
    OrderRow("2", 3, 0.2, 0.5, 0.25, 1.0, 0.1),
)
TERMS = (ContextTerm(8, "car", "bus", ("train", "bike"), -0.4),)


def order_effects(terms: tuple[ContextTerm, ...] = TERMS) -> OrderEffects:
    return OrderEffects(model="Net", orders=ORDERS, terms=terms, sets=1, sampled=1, pairs=3, questions=9, seed=0)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


def test_bars_show_contributions_and_the_explained_share() -> None:
    chart = order_chart(order_effects())
    (bars,) = chart.marks
    assert isinstance(bars, Bars)
    assert chart.rows == ("order 1", "order 2")
    assert (bars.values, bars.notes) == ([1.5, 0.5], ["90.0%", "100.0%"])
    axes = order_effects().plot()
    assert [bar.get_width() for bar in axes.patches] == [1.5, 0.5]
    (error,) = (line for line in axes.lines if len(set(line.get_xdata())) == 2)  # the other line is at 0
    assert list(error.get_xdata()) == [0.4, 0.6]


def test_terms_name_the_pair_and_the_others() -> None:
    chart = order_chart(order_effects(), "terms")
    (bars,) = chart.marks
    assert isinstance(bars, Bars)
    assert chart.rows == ("set 8: car against bus\nby train + bike",)
    assert (bars.values, bars.notes) == ([-0.4], ["-0.40"])
    assert order_effects().plot("terms").patches[0].get_width() == -0.4


def test_missing_terms_and_unknown_figures_are_rejected() -> None:
    with pytest.raises(InputError, match="no choice set has three alternatives"):
        order_effects(()).plot("terms")
    with pytest.raises(ConfigError, match="what"):
        order_effects().plot("pairs")  # type: ignore[arg-type]


Floats = NDArray[np.float64]


def by_place(attributes: Floats) -> Floats:
    """Return P(a) = x_c / 20 and P(b) = y_c / 20, so the preference is x / (x + y)."""
    a, b = attributes[:, 2, 0] / 20, attributes[:, 2, 1] / 20
    return np.stack([a, b, 1 - a - b], axis=1)


@pytest.mark.parametrize(
    ("count", "size"), [(1, (840, 780)), pytest.param(2, (1440, 780), marks=pytest.mark.slow), (6, (2640, 1460))]
)
def test_maps_are_drawn_side_by_side_as_a_png(
    count: int, size: tuple[int, int], tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]
) -> None:
    """Panels are 3 inches wide plus 1.2, rows of at most four 3.4 inches high plus 0.5, at 200 dpi."""
    maps = {f"map {k}": preference_map(by_place, cells=4) for k in range(count)}
    path = draw_preference_maps(maps, tmp_path / "maps.png", features=("ram", "battery"))
    assert png_size(path) == size
    assert [file.name for file in tmp_path.iterdir()] == ["maps.png"]


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the drawn images in order."""
    drawn: list[Any] = []
    imshow = Axes.imshow

    def record(axes: Axes, *args: Any, **options: Any) -> Any:
        drawn.append(imshow(axes, *args, **options))
        return drawn[-1]

    monkeypatch.setattr(Axes, "imshow", record)
    return drawn


def test_all_maps_share_a_grey_scale(tmp_path: Path, images: list[Any]) -> None:
    """Preferences from 0.2 to 0.6 give a scale from 0.2 to 0.8, grey in the middle; lighter favours a."""
    grid = np.array([1.0, 2.0])
    maps = {
        "low": PreferenceMap(grid, grid, np.full((2, 2), 0.2), (1, 2), (2, 1)),
        "high": PreferenceMap(grid, grid, np.array([[0.5, 0.6], [0.6, 0.6]]), (1, 2), (2, 1)),
    }
    draw_preference_maps(maps, tmp_path / "maps.png", contexts={})
    assert [image.get_clim() for image in images] == [pytest.approx((0.2, 0.8))] * 2
    black, grey = (image.to_rgba(value)[:3] for image, value in zip(images, (0.2, 0.5), strict=True))
    assert black == (0.0, 0.0, 0.0)
    assert grey == pytest.approx((0.5, 0.5, 0.5), abs=0.5 / 255)  # the nearest of 256 greys
    assert [list(image.get_extent()) for image in images] == [[0.5, 2.5, 0.5, 2.5]] * 2


def test_points_are_marked_at_their_positions(tmp_path: Path, images: list[Any]) -> None:
    draw_preference_maps({"truth": preference_map(by_place, cells=4)}, tmp_path / "maps.png")
    labels = {text.get_text(): tuple(text.xy) for text in images[0].axes.texts}
    assert labels == {"$a$": (4, 6), "$b$": (6, 4), "$c_A$": (3, 5), "$c_S$": (3.5, 6.5), "$c_C$": (2, 8)}
    marks = [tuple(line.get_xydata()[0]) for line in images[0].axes.lines]
    assert marks == list(labels.values())


def test_missing_maps_and_invalid_paths_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one preference map"):
        draw_preference_maps({}, tmp_path / "maps.png")
    with pytest.raises(InputError, match=r"ends in \.png, \.pdf or \.svg, got 'maps.jpg'"):
        draw_preference_maps({"a": preference_map(by_place, cells=2)}, tmp_path / "maps.jpg")


def test_an_error_has_its_own_panel_and_scale(
    tmp_path: Path, images: list[Any], png_size: Callable[[Path], tuple[int, int]]
) -> None:
    """Five panels of 3 inches are in one row, plus 1.2 inches and 1 inch for the second scale."""
    drawn = preference_map(by_place, cells=4)
    error = drawn._replace(preference=np.full((4, 4), 0.25))
    path = draw_preference_maps({f"map {k}": drawn for k in range(4)}, tmp_path / "maps.png", error=("error", error))
    assert png_size(path) == (3440, 780)
    assert [image.get_clim() for image in images[:4]] == [images[0].get_clim()] * 4
    assert images[4].get_clim() == (0.0, 0.25)
    assert images[4].to_rgba(0.25)[:3] == (0.0, 0.0, 0.0)  # darker is a larger error
    assert [image.axes.get_title() for image in images] == ["map 0", "map 1", "map 2", "map 3", "error"]


def test_the_middle_of_the_scale_is_the_preference_without_c(tmp_path: Path, images: list[Any]) -> None:
    """Preferences of 0.6 and 0.9, and 0.8 without c, give a scale from 0.6 to 1; c is marked at its position."""
    grid = np.array([1.0, 2.0])
    result = PreferenceMap(grid, 10 * grid, np.array([[0.6, 0.8], [0.8, 0.9]]), (1, 20), (2, 10), (2, 20), 0.8)
    draw_preference_maps({"net": result}, tmp_path / "map.png", contexts={})
    assert images[0].get_clim() == pytest.approx((0.6, 1.0))
    labels = {text.get_text(): tuple(text.xy) for text in images[0].axes.texts}
    assert labels == {"$a$": (1, 20), "$b$": (2, 10), "$c$": (2, 20)}
    assert images[0].axes.get_aspect() == pytest.approx(0.1)  # square, although y spans ten times as much as x


def test_a_map_is_grey_where_c_has_no_effect() -> None:
    """The preference spans .2 to .5 and is .4 without c, so colours extend 0.2 to each side."""
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    result = PreferenceMap(x, y, np.array([[0.2, 0.4], [0.4, 0.5]]), (1, 3), (2, 4), (1, 4), 0.4)
    figure = map_figure(result, ("price", "time"), ("a", "b", "c"))
    heat, *dots = figure.traces
    assert (heat["zmin"], heat["zmax"]) == pytest.approx((0.2, 0.6), abs=1e-12)
    assert heat["z"] == result.preference.tolist()
    colours = [colour for _, colour in heat["colorscale"]]
    assert (colours[0], colours[8], colours[-1]) == ("rgb(179,86,27)", "rgb(238,238,238)", "rgb(32,99,155)")
    assert "Grey is 40.0%, the share without c" in figure.caption
    assert "range from 20.0% to 50.0%" in figure.caption
    assert [dot["name"] for dot in dots] == ["a", "b", "c"]
    assert figure.numbers[0] == ["time \\ price", "1", "2"]
    assert figure.numbers[1] == ["4", "0.4000", "0.5000"]


def test_a_map_without_effects_can_be_drawn() -> None:
    flat = PreferenceMap(np.arange(2.0), np.arange(2.0), np.full((2, 2), 0.5), (0, 0), (1, 1))
    heat, *dots = map_figure(flat, ("price", "time"), ("a", "b", "c")).traces
    # Small differences are not exaggerated.
    assert (heat["zmin"], heat["zmax"]) == pytest.approx((0.45, 0.55), abs=1e-12)
    assert heat["colorscale"][8][1] == "rgb(238,238,238)"
    assert len(dots) == 2
