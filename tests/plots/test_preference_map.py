from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pcmcnet.errors import InputError
from pcmcnet.plots import PreferenceMap, draw_preference_maps, preference_map

Floats = NDArray[np.float64]


def by_place(attributes: Floats) -> Floats:
    """P(a) = x_c / 20, P(b) = y_c / 20: the preference is x / (x + y)."""
    a, b = attributes[:, 2, 0] / 20, attributes[:, 2, 1] / 20
    return np.stack([a, b, 1 - a - b], axis=1)


@pytest.mark.parametrize(
    ("count", "size"), [(1, (840, 780)), pytest.param(2, (1440, 780), marks=pytest.mark.slow), (6, (2640, 1460))]
)
def test_maps_become_a_png_side_by_side(
    count: int, size: tuple[int, int], tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]
) -> None:
    """3 inches a panel and 1.2 beside them, 3.4 a row of at most four and 0.5 below, at 200 dots an inch."""
    maps = {f"map {k}": preference_map(by_place, cells=4) for k in range(count)}
    path = draw_preference_maps(maps, tmp_path / "maps.png", features=("ram", "battery"))
    assert png_size(path) == size
    assert [file.name for file in tmp_path.iterdir()] == ["maps.png"]


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The images drawn, in their order."""
    drawn: list[Any] = []
    imshow = Axes.imshow

    def record(axes: Axes, *args: Any, **options: Any) -> Any:
        drawn.append(imshow(axes, *args, **options))
        return drawn[-1]

    monkeypatch.setattr(Axes, "imshow", record)
    return drawn


def test_all_maps_share_a_grey_scale_on_which_lighter_favours_a(tmp_path: Path, images: list[Any]) -> None:
    """Preferences from 0.2 to 0.6 make a scale from 0.2 to 0.8, grey in the middle."""
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


def test_points_are_marked_where_they_are(tmp_path: Path, images: list[Any]) -> None:
    draw_preference_maps({"truth": preference_map(by_place, cells=4)}, tmp_path / "maps.png")
    labels = {text.get_text(): tuple(text.xy) for text in images[0].axes.texts}
    assert labels == {"$a$": (4, 6), "$b$": (6, 4), "$c_A$": (3, 5), "$c_S$": (3.5, 6.5), "$c_C$": (2, 8)}
    marks = [tuple(line.get_xydata()[0]) for line in images[0].axes.lines]
    assert marks == list(labels.values())


def test_no_maps_are_refused_and_so_is_a_path_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one preference map"):
        draw_preference_maps({}, tmp_path / "maps.png")
    with pytest.raises(InputError, match=r"ends in \.png, \.pdf or \.svg, got 'maps.jpg'"):
        draw_preference_maps({"a": preference_map(by_place, cells=2)}, tmp_path / "maps.jpg")


def test_an_error_has_a_panel_and_a_scale_of_its_own(
    tmp_path: Path, images: list[Any], png_size: Callable[[Path], tuple[int, int]]
) -> None:
    """Five panels of 3 inches stand in one row, with 1.2 inches beside them and 1 for the second scale."""
    drawn = preference_map(by_place, cells=4)
    error = drawn._replace(preference=np.full((4, 4), 0.25))
    path = draw_preference_maps({f"map {k}": drawn for k in range(4)}, tmp_path / "maps.png", error=("error", error))
    assert png_size(path) == (3440, 780)
    assert [image.get_clim() for image in images[:4]] == [images[0].get_clim()] * 4
    assert images[4].get_clim() == (0.0, 0.25)
    assert images[4].to_rgba(0.25)[:3] == (0.0, 0.0, 0.0)  # darker is a larger error
    assert [image.axes.get_title() for image in images] == ["map 0", "map 1", "map 2", "map 3", "error"]


def test_the_middle_of_the_scale_is_the_preference_without_c(tmp_path: Path, images: list[Any]) -> None:
    """Preferences of 0.6 and 0.9 about 0.8 without c: a scale from 0.6 to 1, and the third where it stands."""
    grid = np.array([1.0, 2.0])
    found = PreferenceMap(grid, 10 * grid, np.array([[0.6, 0.8], [0.8, 0.9]]), (1, 20), (2, 10), (2, 20), 0.8)
    draw_preference_maps({"net": found}, tmp_path / "map.png", contexts={})
    assert images[0].get_clim() == pytest.approx((0.6, 1.0))
    labels = {text.get_text(): tuple(text.xy) for text in images[0].axes.texts}
    assert labels == {"$a$": (1, 20), "$b$": (2, 10), "$c$": (2, 20)}
    assert images[0].axes.get_aspect() == pytest.approx(0.1)  # a square, though y spans ten times as much as x
