"""Map of context effects: the preference of a over b as the features of a third alternative vary.

In a set with a, b and c, the preference P(a) / (P(a) + P(b)) is computed for every position of c on a grid of two
features. The map is constant for a model without context effects (figure 2 of the paper, after figure 7 of Trueblood,
Brown & Heathcote, 2014).

``preference_map`` uses alternatives with only two attributes, as in simulations. ``preference_map_in_set`` uses
alternatives from a table, and keeps all other columns of the third alternative constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.errors import ConfigError, InputError, SchemaError, did_you_mean
from pcmcnet.evaluation.predictions import Predictor, predicted_log_p, require_data
from pcmcnet.insight.queries import alternative_name, compose_sets, places_in_set, require_place, set_of, with_values
from pcmcnet.insight.removals import pair_share
from pcmcnet.models.interface.choice_model import ChoiceModel

Point = tuple[float, float]
Probabilities = Callable[[Floats], ArrayLike]  # attributes (sets, 3, 2) -> probabilities (sets, 3)

A, B = (4.0, 6.0), (6.0, 4.0)  # as in the paper


class PreferenceMap(NamedTuple):
    """Preference of a over b on a grid of positions of a third alternative c.

    Attributes
    ----------
    x, y
        Centres of the cells along each feature, (cells,).
    preference
        Preferences (cells, cells) from 0 to 1, where ``preference[j, i]`` is the preference if c = (x[i], y[j]).
    a, b
        Values of the two features of a and of b.
    c
        Values of the two features of the third alternative in the table, or None if there is no table.
    without
        Preference of a over b without c, or 0.5 (indifference) if there is no table.
    """

    x: Floats
    y: Floats
    preference: Floats
    a: Point
    b: Point
    c: Point | None = None
    without: float = 0.5


def preference_map(
    model: Probabilities | ChoiceModel,
    *,
    a: Point = A,
    b: Point = B,
    span: Point = (1.0, 9.0),
    cells: int = 128,
    features: tuple[str, str] = ("attr1", "attr2"),
) -> PreferenceMap:
    """Compute the preference of a over b for every position of a third alternative c.

    Parameters
    ----------
    model
        A model that was fitted on two features, or a function from attributes (sets, 3, 2) of a, b and c to
        probabilities (sets, 3), such as ``pcmcnet.datasets.mlba.probabilities``.
    a, b
        Attributes of the two fixed alternatives. The defaults are (4, 6) and (6, 4), as in the paper.
    span
        Range of both attributes of c (1 to 9 by default).
    cells
        Number of grid cells along each attribute (128 by default). Alternative c is placed at the centre of each cell.
    features
        Names of the two features, if ``model`` is a fitted model ("attr1" and "attr2" by default).

    Returns
    -------
    PreferenceMap
        The preference in every cell.

    Raises
    ------
    ConfigError
        If ``cells`` is below 2 or ``span`` is empty.
    InputError
        If the model does not return a probability for each of the three alternatives.

    Examples
    --------
    >>> by_sum = lambda attributes: attributes.sum(-1) / attributes.sum((-1, -2))[:, None]
    >>> preference_map(by_sum, cells=2).preference
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    low, high = span
    if cells < 2 or not low < high:
        raise ConfigError(f"expected cells >= 2 and a span (low, high) with low < high, got {cells} and {span}.")
    centres = _centres(low, high, cells)
    attributes = np.empty((cells * cells, 3, 2))
    attributes[:, 0], attributes[:, 1] = a, b
    attributes[:, 2, 0], attributes[:, 2, 1] = np.tile(centres, cells), np.repeat(centres, cells)
    p = _probabilities(model, features)(attributes)
    preference = _preference(np.asarray(p, dtype=np.float64), attributes)
    return PreferenceMap(centres, centres.copy(), preference.reshape(cells, cells), a, b)


def _centres(low: float, high: float, cells: int) -> Floats:
    centres: Floats = low + (high - low) * (np.arange(cells) + 0.5) / cells
    return centres


def _probabilities(model: Any, features: tuple[str, str]) -> Probabilities:
    """Return a function from attributes to probabilities, given such a function or a fitted model."""
    if not hasattr(model, "predict_proba"):
        function: Probabilities = model
        return function

    def predict(attributes: Floats) -> Floats:  # (sets, 3, 2) -> (sets, 3)
        sets, n, _ = attributes.shape
        table = {
            "choice_set": np.repeat(np.arange(sets), n),
            "alternative": np.tile(list("abc"), sets),
            **{name: attributes[..., k].ravel() for k, name in enumerate(features)},
        }
        data = ChoiceData.from_long(table, choice_set="choice_set", alternative="alternative", features=features)
        return np.asarray(model.predict_proba(data)).reshape(sets, n)

    return predict


def _preference(p: Floats, attributes: Floats) -> Floats:  # (sets, 3), (sets, 3, 2) -> (sets,)
    """Return P(a) / (P(a) + P(b)), or raise InputError if the input values are not probabilities."""
    if p.shape != attributes.shape[:2]:
        raise InputError(f"expected probabilities of shape {attributes.shape[:2]}, got {p.shape}.")
    both = p[:, 0] + p[:, 1]
    bad = np.flatnonzero(~((p >= 0).all(axis=1) & (both > 0) & (p <= 1).all(axis=1)))
    if bad.size:
        at = bad[0]
        raise InputError(
            f"third alternative at {tuple(attributes[at, 2].tolist())}: expected probabilities of a, b and c, with "
            f"P(a) or P(b) above 0, got {tuple(p[at].tolist())} ({bad.size} such cells)."
        )
    preference: Floats = p[:, 0] / both
    return preference


def preference_error(found: PreferenceMap, truth: PreferenceMap) -> PreferenceMap:
    """Return the absolute difference between two maps in every cell.

    Parameters
    ----------
    found
        The map to compare.
    truth
        The reference map, over the same cells.

    Returns
    -------
    PreferenceMap
        A map in which ``preference`` holds |found - truth|.

    Raises
    ------
    InputError
        If the two maps have different cells.
    """
    if not (np.array_equal(found.x, truth.x) and np.array_equal(found.y, truth.y)):
        raise InputError("expected two preference maps over the same cells: use the same span and cells for both.")
    return found._replace(preference=np.abs(found.preference - truth.preference))


def preference_map_in_set(
    model: Predictor,
    data: Any,
    a: int,
    b: int,
    third: int,
    features: tuple[str, str],
    *,
    others: bool = False,
    copy: bool = False,
    cells: int = 32,
    quantiles: Point = (0.05, 0.95),
) -> PreferenceMap:
    """Compute the preference of a over b in a choice set, as two features of a third alternative vary.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that matches the model's schema.
    a, b
        Flat indices of two alternatives of the same set, as returned by :func:`pcmcnet.insight.queries.place_of`.
    third
        Flat index of the third alternative, whose label and other columns stay constant. If the third alternative is a
        or b, or belongs to another set, a copy of it is used.
    features
        The two numeric features that vary, the first along the x axis of the map.
    others
        If True, the other alternatives of the set are also offered. By default, the sets contain only a, b and c.
    copy
        If True and ``others`` is True, a copy of the third alternative varies, while the original stays in the set
        (False by default).
    cells
        Number of grid cells along each feature (32 by default). The third alternative is placed at the centre of each
        cell.
    quantiles
        Range of the grid as quantiles of each feature over the table (0.05 to 0.95 by default). The grid is extended to
        include a, b and the third alternative.

    Returns
    -------
    PreferenceMap
        The preference in every cell. The attribute ``without`` is the preference without the third alternative.

    Raises
    ------
    InputError
        If a and b are not two alternatives of the same set, or both have probability 0 in a cell.
    SchemaError
        If a feature is not a numeric feature of the table.
    ConfigError
        If ``cells`` or ``quantiles`` is out of range.
    """
    require_number("cells", cells, whole=True, low=2)
    # 1. Find the alternatives, and the grid of the third.
    data = require_data(model, data)
    a, b, third = (require_place(data, at, what) for at, what in ((a, "a"), (b, "b"), (third, "third")))
    position = int(set_of(data, a))
    if a == b or set_of(data, b) != position:
        raise InputError(
            f"a and b: expected two alternatives of the same choice set, got the flat indices {a} and {b}."
        )
    grids = [_grid(data, name, (a, b, third), cells, quantiles) for name in features]
    if features[0] == features[1]:
        raise ConfigError(f"expected two different features, got {features[0]!r} twice.")
    # 2. Build the set without the third, and with it in every cell of the grid.
    inside = places_in_set(data, position)
    moves = third if third not in (a, b) and not copy else -1  # replaced by the moving one; -1 if a copy moves
    rest = inside[~np.isin(inside, (a, b, moves))] if others else np.empty(0, np.int64)
    fixed = np.array([a, b, *rest])
    count = cells * cells
    sets = compose_sets(data, [fixed, *[np.append(fixed, third)] * count], np.full(count + 1, position))
    at = sets.offsets[2:] - 1  # place of the third in all sets but the first
    for name, values in zip(features, (np.tile(grids[0], cells), np.repeat(grids[1], cells)), strict=True):
        column = _numbers(sets, name).copy()
        column[at] = values
        sets = with_values(sets, name, column)
    # 3. Compute the share of a relative to b in each of these sets.
    log_p = predicted_log_p(model, sets)
    log_a, log_b = log_p[sets.offsets[:-1]], log_p[sets.offsets[:-1] + 1]
    if np.isneginf(np.maximum(log_a, log_b)).any():
        raise InputError(
            f"{alternative_name(data, a)} and {alternative_name(data, b)} both have probability 0, so their shares are "
            f"undefined."
        )
    shares = pair_share(log_a, log_b)
    at_a, at_b, at_c = zip(*(_numbers(data, name)[[a, b, third]].tolist() for name in features), strict=True)
    x, y = grids
    return PreferenceMap(x, y, shares[1:].reshape(cells, cells), at_a, at_b, at_c, float(shares[0]))


def _grid(data: ChoiceData, name: str, held: tuple[int, ...], cells: int, quantiles: Point) -> Floats:
    """Return the centres of cells that cover a feature's quantiles and its values at the flat indices ``held``."""
    for quantile in quantiles:
        require_number("quantiles", quantile, low=0, high=1)
    if not quantiles[0] < quantiles[1]:
        raise ConfigError(f"quantiles: expected two increasing numbers from 0 to 1, got {quantiles}.")
    values = _numbers(data, name)
    present = values[~np.isnan(values)].astype(np.float64)
    low, high = np.quantile(present, quantiles) if present.size else (0.0, 0.0)
    included = values[list(held)].astype(np.float64)
    if np.isnan(included).any():
        raise InputError(f"feature {name!r} is missing for a, b or the third alternative: choose other alternatives.")
    low, high = min(low, included.min()), max(high, included.max())
    if not low < high:
        raise ConfigError(f"feature {name!r} is constant between the quantiles {quantiles}: use a wider range.")
    return _centres(float(low), float(high), cells)


def _numbers(data: ChoiceData, name: str) -> NDArray[np.float32]:
    """Return the values (N,) of a numeric feature."""
    column = data.features.get(name)
    if not isinstance(column, Numeric):
        numeric = [feature for feature, values in data.features.items() if isinstance(values, Numeric)]
        raise SchemaError(f"{name!r} is not a numeric feature of the table." + did_you_mean(name, numeric))
    return column.values
