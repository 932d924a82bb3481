"""Choice probabilities -> a picture of context: the preference of a over b as a third alternative moves.

With two attributes, higher is better, the set {a, b, c} is asked for every c on a grid of cells, and the
preference is P(a) / (P(a) + P(b)): constant for a model without context effects (figure 2 of the paper, after
figure 7 of Trueblood, Brown & Heathcote, 2014). Lighter is a higher preference for a.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.plots.files import picture_path, save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

Floats = NDArray[np.float64]
Point = tuple[float, float]
Probabilities = Callable[[Floats], ArrayLike]  # attributes (sets, 3, 2) -> probabilities (sets, 3)

A, B = (4.0, 6.0), (6.0, 4.0)  # as in the paper
CONTEXTS: Mapping[str, Point] = {"attraction": (3.0, 5.0), "similarity": (3.5, 6.5), "compromise": (2.0, 8.0)}
_COLUMNS = 4  # panels side by side


@runtime_checkable
class Predictor(Protocol):
    """What a fitted model offers here."""

    def predict_proba(self, data: ChoiceData, /) -> NDArray[Any]:
        """Return one probability per row of the table."""
        ...


class PreferenceMap(NamedTuple):
    """The preference of a over b: ``preference[j, i]`` is that with c = (x[i], y[j])."""

    x: Floats  # (cells,) centres of the cells
    y: Floats  # (cells,)
    preference: Floats  # (cells, cells), from 0 to 1
    a: Point
    b: Point


def preference_map(
    model: Probabilities | Predictor,
    *,
    a: Point = A,
    b: Point = B,
    span: Point = (1.0, 9.0),
    cells: int = 128,
    features: tuple[str, str] = ("attr1", "attr2"),
) -> PreferenceMap:
    """Compute the preference of a over b for every place of a third alternative.

    Parameters
    ----------
    model
        A function from attributes (sets, 3, 2) of a, b, c to probabilities (sets, 3), such as
        ``pcmcnet.datasets.mlba.probabilities``; or a model that was fitted on two features.
    a, b
        The two alternatives that stay.
    span
        Range of both attributes of c.
    cells
        Cells of the grid along each attribute; c stands in their centres.
    features
        Names of the two features, where ``model`` is a fitted one.

    Returns
    -------
    PreferenceMap

    Raises
    ------
    ConfigError
        When ``cells`` is below 2 or ``span`` is empty.
    InputError
        When what comes back is not a probability for each of the three alternatives.

    Examples
    --------
    >>> by_sum = lambda attributes: attributes.sum(-1) / attributes.sum((-1, -2))[:, None]
    >>> preference_map(by_sum, cells=2)
    PreferenceMap(x=array([3., 7.]), y=array([3., 7.]), preference=array([[0.5, 0.5],
           [0.5, 0.5]]), a=(4.0, 6.0), b=(6.0, 4.0))
    """
    low, high = span
    if cells < 2 or not low < high:
        raise ConfigError(f"expected cells of at least 2 and a span from low to high, got {cells} and {span}.")
    centres = low + (high - low) * (np.arange(cells) + 0.5) / cells
    attributes = np.empty((cells * cells, 3, 2))
    attributes[:, 0], attributes[:, 1] = a, b
    attributes[:, 2, 0], attributes[:, 2, 1] = np.tile(centres, cells), np.repeat(centres, cells)
    p = _probabilities(model, features)(attributes)
    preference = _preference(np.asarray(p, dtype=np.float64), attributes)
    return PreferenceMap(centres, centres.copy(), preference.reshape(cells, cells), a, b)


def _probabilities(model: Probabilities | Predictor, features: tuple[str, str]) -> Probabilities:
    """Let a fitted model look like a function of attributes."""
    if not isinstance(model, Predictor):
        return model

    def ask(attributes: Floats) -> Floats:  # (sets, 3, 2) -> (sets, 3)
        sets, n, _ = attributes.shape
        table = {
            "choice_set": np.repeat(np.arange(sets), n),
            "alternative": np.tile(list("abc"), sets),
            **{name: attributes[..., k].ravel() for k, name in enumerate(features)},
        }
        data = ChoiceData.from_long(table, choice_set="choice_set", alternative="alternative", features=features)
        return np.asarray(model.predict_proba(data)).reshape(sets, n)

    return ask


def _preference(p: Floats, attributes: Floats) -> Floats:  # (sets, 3), (sets, 3, 2) -> (sets,)
    """P(a) / (P(a) + P(b)), refusing what is no probability."""
    if p.shape != attributes.shape[:2]:
        raise InputError(f"expected probabilities of shape {attributes.shape[:2]}, got {p.shape}.")
    both = p[:, 0] + p[:, 1]
    bad = np.flatnonzero(~((p >= 0).all(axis=1) & (both > 0) & (p <= 1).all(axis=1)))
    if bad.size:
        at = bad[0]
        raise InputError(
            f"third alternative at {tuple(attributes[at, 2].tolist())}: expected probabilities of a, b and "
            f"c, one of a and b above 0, got {tuple(p[at].tolist())}; {bad.size} such places."
        )
    preference: Floats = p[:, 0] / both
    return preference


def preference_error(found: PreferenceMap, truth: PreferenceMap) -> PreferenceMap:
    """Return the distance of one map from another, cell by cell: ``preference`` is |found - truth|."""
    if found.preference.shape != truth.preference.shape or not np.array_equal(found.x, truth.x):
        raise InputError("expected two preference maps over the same cells: give both the same span and cells.")
    return found._replace(preference=np.abs(found.preference - truth.preference))


def draw_preference_maps(
    maps: Mapping[str, PreferenceMap],
    path: str | os.PathLike[str],
    *,
    features: tuple[str, str] = ("attribute 1", "attribute 2"),
    contexts: Mapping[str, Point] = CONTEXTS,
    error: tuple[str, PreferenceMap] | None = None,
) -> Path:
    """Draw preference maps side by side on one grey scale.

    Parameters
    ----------
    maps
        Title -> map.
    path
        Where the file goes, .png, .pdf or .svg; its folder must exist.
    features
        Names of the two features, for the axes.
    contexts
        Third alternatives to mark, by the effect they have on a; "attraction" is marked as c with index A.
    error
        Title and map of an error, see :func:`preference_error`, for a last panel with a scale of its own.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    InputError
        When there is no map, or the path is not that of a PNG, PDF or SVG file in an existing folder.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    target = picture_path(path)
    if not maps:
        raise InputError("expected at least one preference map to draw, got none.")
    shown = {**maps, **({error[0]: error[1]} if error is not None else {})}
    columns = len(shown) if len(shown) == _COLUMNS + 1 else min(len(shown), _COLUMNS)  # a fifth is not left alone
    rows = -(-len(shown) // columns)
    width = 1.2 + 3.0 * columns + (1.0 if error is not None else 0.0)
    apart = ConstrainedLayoutEngine(w_pad=0.08)  # the name of a scale stays clear of the panel beside it
    figure = Figure(figsize=(width, 0.5 + 3.4 * rows), layout=apart)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    names = {f"$c_{name[0].upper()}$": name for name in contexts}
    reach = max(0.05, *(float(np.abs(m.preference - 0.5).max()) for m in maps.values()))
    greys = ("gray", 0.5 - reach, 0.5 + reach)  # indifference is in the middle
    for k, (axes, (title, drawn)) in enumerate(zip(panels, shown.items(), strict=False)):
        is_error = k == len(maps)
        scale = ("gray_r", 0.0, max(0.01, float(drawn.preference.max()))) if is_error else greys
        image = _draw_map(axes, drawn, scale)
        if k == min(columns, len(maps)) - 1 or is_error:
            _draw_scale(axes, image, "absolute error" if is_error else "preference for $a$ over $b$")
        _mark(axes, {"$a$": drawn.a, "$b$": drawn.b}, marker="o")
        _mark(axes, dict(zip(names, contexts.values(), strict=True)), marker="D")
        axes.set_title(title, fontsize=13)
        _label(axes, features, bottom=k + columns >= len(shown), left=k % columns == 0)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    figure.supxlabel("     ".join(f"{label} {name}" for label, name in names.items()), fontsize=11)
    return save_picture(figure, target)


def _draw_scale(axes: Axes, image: AxesImage, label: str) -> None:
    """Draw the scale of an image beside its panel, as high as it."""
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.06, 0, 0.05, 1)))
    bar.set_label(label, fontsize=11)
    bar.ax.tick_params(labelsize=10)


def _draw_map(axes: Axes, drawn: PreferenceMap, scale: tuple[str, float, float]) -> AxesImage:
    """Draw one map with cells of their true size, on a scale of colours from low to high."""
    from matplotlib.colors import Normalize

    colours, low, high = scale
    edges = [(v[0] - (v[1] - v[0]) / 2, v[-1] + (v[1] - v[0]) / 2) for v in (drawn.x, drawn.y)]
    axes.set_xticks(np.linspace(*edges[0], 5))
    axes.set_yticks(np.linspace(*edges[1], 5))
    axes.tick_params(labelsize=10)
    return axes.imshow(
        drawn.preference,
        origin="lower",
        extent=(*edges[0], *edges[1]),
        cmap=colours,
        norm=Normalize(low, high),
        interpolation="nearest",
    )


def _label(axes: Axes, features: tuple[str, str], *, bottom: bool, left: bool) -> None:
    """Label the outer axes; inner ones repeat them."""
    if bottom:
        axes.set_xlabel(f"{features[0]} of $c$", fontsize=11)
    else:
        axes.tick_params(labelbottom=False)
    if left:
        axes.set_ylabel(f"{features[1]} of $c$", fontsize=11)
    else:
        axes.tick_params(labelleft=False)


def _mark(axes: Axes, points: Mapping[str, Point], marker: str) -> None:
    """Mark and label points so that they can be read on black and on white."""
    from matplotlib.patheffects import withStroke

    for label, (x, y) in points.items():
        axes.plot(x, y, marker, color="black", markeredgecolor="white", markersize=6, markeredgewidth=1.2)
        axes.annotate(
            label,
            (x, y),
            xytext=(5, 4),
            textcoords="offset points",
            fontsize=12,
            color="black",
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
