from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.datasets import mlba
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.plots import PreferenceMap, draw_preference_maps, preference_error, preference_map
from pcmcnet.plots.preference_map import CONTEXTS

Floats = NDArray[np.float64]


def logit(attributes: Floats) -> Floats:
    """No context: P(i) proportional to exp(x_i)."""
    weight = np.exp(attributes[..., 0])
    p: Floats = weight / weight.sum(axis=1, keepdims=True)
    return p


def by_place(attributes: Floats) -> Floats:
    """P(a) = x_c / 20, P(b) = y_c / 20: the preference is x / (x + y)."""
    a, b = attributes[:, 2, 0] / 20, attributes[:, 2, 1] / 20
    return np.stack([a, b, 1 - a - b], axis=1)


class Fitted:
    """A model that knows choice sets, not attributes."""

    def predict_proba(self, data: ChoiceData) -> Floats:
        x, y = (data.features[name].plain() for name in ("ram", "battery"))
        probabilities = by_place(np.stack([x, y], axis=-1).reshape(len(data), 3, 2).astype(np.float64))
        return data.to_rows(probabilities.ravel())


def test_rows_are_the_second_attribute_and_columns_the_first() -> None:
    """Four cells of width 2 on [1, 9] have their centres at 2, 4, 6 and 8."""
    found = preference_map(by_place, cells=4)
    assert found.x.tolist() == found.y.tolist() == [2, 4, 6, 8]
    expected = [[x / (x + y) for x in (2, 4, 6, 8)] for y in (2, 4, 6, 8)]
    np.testing.assert_allclose(found.preference, expected, rtol=1e-14)


def test_a_model_without_context_has_one_preference() -> None:
    """exp(4) / (exp(4) + exp(6)) wherever c stands."""
    found = preference_map(logit, cells=8)
    np.testing.assert_allclose(found.preference, 1 / (1 + np.exp(2)), rtol=1e-14)


def test_exchanging_the_attributes_exchanges_the_two_alternatives() -> None:
    """b is a with its attributes exchanged, so the preference at (y, x) is 1 minus that at (x, y)."""
    found = preference_map(mlba.probabilities, cells=8).preference
    np.testing.assert_allclose(found, 1 - found.T, rtol=0, atol=1e-12)
    assert np.ptp(found) > 0.5


def test_the_truth_shows_attraction_similarity_and_compromise() -> None:
    """17 cells from 0.75 to 9.25 have their centres at 1, 1.5, ..., 9; without c, a and b are chosen alike."""
    found = preference_map(mlba.probabilities, span=(0.75, 9.25), cells=17)
    at = {name: found.preference[round(2 * y - 2), round(2 * x - 2)] for name, (x, y) in CONTEXTS.items()}
    assert at["attraction"] > 0.5
    assert at["similarity"] < 0.5
    assert at["compromise"] > 0.5


def test_a_fitted_model_is_asked_for_the_same_sets() -> None:
    found = preference_map(Fitted(), cells=4, features=("ram", "battery"))
    np.testing.assert_allclose(found.preference, preference_map(by_place, cells=4).preference, rtol=1e-6)  # float32


def test_the_two_alternatives_and_the_span_may_be_others() -> None:
    seen: list[Floats] = []

    def record(attributes: Floats) -> Floats:
        seen.append(attributes)
        return np.full(attributes.shape[:2], 1 / 3)

    found = preference_map(record, a=(0.0, 1.0), b=(2.0, 3.0), span=(0.0, 4.0), cells=2)
    assert (found.a, found.b) == ((0.0, 1.0), (2.0, 3.0))
    third = [[1, 1], [3, 1], [1, 3], [3, 3]]
    np.testing.assert_array_equal(seen[0], [[[0, 1], [2, 3], c] for c in third])


@pytest.mark.parametrize(("cells", "span"), [(1, (1.0, 9.0)), (4, (9.0, 1.0)), (4, (1.0, np.nan))])
def test_a_grid_without_cells_is_refused(cells: int, span: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="expected cells of at least 2 and a span from low to high, got"):
        preference_map(logit, cells=cells, span=span)


def test_probabilities_of_another_shape_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected probabilities of shape \(4, 3\), got \(4, 2\)"):
        preference_map(lambda x: np.full((len(x), 2), 0.5), cells=2)


@pytest.mark.parametrize("bad", [(np.nan, 0.5, 0.5), (0.0, 0.0, 1.0), (-0.5, 1.0, 0.5), (2.0, 1.0, 1.0)])
def test_what_is_no_probability_names_the_place(bad: tuple[float, ...]) -> None:
    def broken(attributes: Floats) -> Floats:
        p = logit(attributes)
        p[1] = bad
        return p

    with pytest.raises(InputError, match=r"third alternative at \(7\.0, 3\.0\): expected prob.*; 1 such places"):
        preference_map(broken, cells=2)


@pytest.mark.parametrize(("count", "size"), [(1, (840, 780)), (2, (1440, 780)), (6, (2640, 1460))])
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
        draw_preference_maps({"a": preference_map(logit, cells=2)}, tmp_path / "maps.jpg")


def test_the_error_is_the_distance_of_two_maps_of_the_same_cells() -> None:
    found, truth = preference_map(by_place, cells=4), preference_map(lambda x: np.full(x.shape[:2], 1 / 3), cells=4)
    error = preference_error(found, truth)
    np.testing.assert_allclose(error.preference, np.abs(found.preference - 0.5))
    assert (error.a, error.b) == (found.a, found.b)
    with pytest.raises(InputError, match="two preference maps over the same cells"):
        preference_error(found, preference_map(by_place, cells=2))
    with pytest.raises(InputError, match="two preference maps over the same cells"):
        preference_error(found, preference_map(by_place, cells=4, span=(1.0, 5.0)))


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
