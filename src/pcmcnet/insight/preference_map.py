"""The preference of a over b as a third alternative moves: a map of context.

    P(a) / (P(a) + P(b))   in a set that holds a, b and c, for every c on a grid of two features,

constant for a model without context effects (figure 2 of the paper, after figure 7 of Trueblood, Brown & Heathcote,
2014). ``preference_map`` takes alternatives of two attributes, as simulators know them; ``preference_map_in_set`` takes
a and b out of a table, and a third whose other columns are held.
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
from pcmcnet.insight.removals import share
from pcmcnet.models.interface.choice_model import ChoiceModel

Point = tuple[float, float]
Probabilities = Callable[[Floats], ArrayLike]  # attributes (sets, 3, 2) -> probabilities (sets, 3)

A, B = (4.0, 6.0), (6.0, 4.0)  # as in the paper


class PreferenceMap(NamedTuple):
    """The preference of a over b: ``preference[j, i]`` is that with c = (x[i], y[j])."""

    x: Floats  # (cells,) centres of the cells
    y: Floats  # (cells,)
    preference: Floats  # (cells, cells), from 0 to 1
    a: Point
    b: Point
    c: Point | None = None  # where the third stands in the table
    without: float = 0.5  # the preference where c is not there, or of indifference


def preference_map(
    model: Probabilities | ChoiceModel,
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

    Raises
    ------
    ConfigError
        When ``cells`` is below 2 or ``span`` is empty.
    InputError
        When what comes back is not a probability for each of the three alternatives.

    Examples
    --------
    >>> by_sum = lambda attributes: attributes.sum(-1) / attributes.sum((-1, -2))[:, None]
    >>> preference_map(by_sum, cells=2).preference
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    low, high = span
    if cells < 2 or not low < high:
        raise ConfigError(f"expected cells of at least 2 and a span from low to high, got {cells} and {span}.")
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
    """Return a fitted model as a function of attributes; such a function stays what it is."""
    if not hasattr(model, "predict_proba"):
        function: Probabilities = model
        return function

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
    if not (np.array_equal(found.x, truth.x) and np.array_equal(found.y, truth.y)):
        raise InputError("expected two preference maps over the same cells: give both the same span and cells.")
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
    """Compute the preference of a over b, two alternatives of a set, as a third one moves in two of its features.

    Parameters
    ----------
    model, data
        Any fitted model, and choice data or a table that its schema reads.
    a, b
        Places of two alternatives of one set; see :func:`pcmcnet.insight.queries.place_of`.
    third
        Place of the third. All its columns but the two features, and its label, are held. It may be a or b, or
        belong to another set: then a copy of it moves.
    features
        The two numeric features that move, the first along the map's x.
    others
        Whether the rest of the set is there as well. Without it the sets are {a, b, c}.
    copy
        With ``others``: whether a copy of the third moves while it stays itself.
    cells
        Cells of the grid along each feature; the third stands in their centres.
    quantiles
        Range of the grid as quantiles of each feature over the table; widened to hold a, b and the third.

    Returns
    -------
    PreferenceMap
        With the preference in the set without the third as ``without``.

    Raises
    ------
    InputError
        When a and b are not two alternatives of one set, or both have probability 0 somewhere.
    SchemaError
        When a feature is not a numeric one of the table.
    ConfigError
        When ``cells`` or ``quantiles`` are out of range.
    """
    require_number("cells", cells, whole=True, low=2)
    # 1. Where a, b and the third are, and the grid that the third moves on.
    data = require_data(model, data)
    a, b, third = (require_place(data, at, what) for at, what in ((a, "a"), (b, "b"), (third, "third")))
    here = int(set_of(data, a))
    if a == b or set_of(data, b) != here:
        raise InputError(f"a and b: expected two alternatives of one choice set, got the places {a} and {b}.")
    grids = [_grid(data, name, (a, b, third), cells, quantiles) for name in features]
    if features[0] == features[1]:
        raise ConfigError(f"expected two different features, got {features[0]!r} twice.")
    # 2. The set without the third, and with it in every cell of the grid.
    inside = places_in_set(data, here)
    moves = third if third not in (a, b) and not copy else -1  # the one that is not at its old place
    rest = inside[~np.isin(inside, (a, b, moves))] if others else np.empty(0, np.int64)
    company = np.array([a, b, *rest])
    count = cells * cells
    asked = compose_sets(data, [company, *[np.append(company, third)] * count], np.full(count + 1, here))
    at = asked.offsets[2:] - 1  # where the third is, in all sets but the first
    for name, values in zip(features, (np.tile(grids[0], cells), np.repeat(grids[1], cells)), strict=True):
        column = _numbers(asked, name).copy()
        column[at] = values
        asked = with_values(asked, name, column)
    # 3. The share of a against b in each of these sets.
    log_p = predicted_log_p(model, asked)
    log_a, log_b = log_p[asked.offsets[:-1]], log_p[asked.offsets[:-1] + 1]
    if np.isneginf(np.maximum(log_a, log_b)).any():
        raise InputError(
            f"{alternative_name(data, a)} and {alternative_name(data, b)} both get probability 0, so that neither has a share."
        )
    shares = share(log_a, log_b)
    at_a, at_b, at_c = zip(*(_numbers(data, name)[[a, b, third]].tolist() for name in features), strict=True)
    x, y = grids
    return PreferenceMap(x, y, shares[1:].reshape(cells, cells), at_a, at_b, at_c, float(shares[0]))


def _grid(data: ChoiceData, name: str, held: tuple[int, ...], cells: int, quantiles: Point) -> Floats:
    """Centres of cells that span quantiles of a feature, and the values of the alternatives named."""
    for quantile in quantiles:
        require_number("quantiles", quantile, low=0, high=1)
    if not quantiles[0] < quantiles[1]:
        raise ConfigError(f"quantiles must be two shares from low to high, got {quantiles}.")
    values = _numbers(data, name)
    known = values[~np.isnan(values)].astype(np.float64)
    low, high = np.quantile(known, quantiles) if known.size else (0.0, 0.0)
    own = values[list(held)].astype(np.float64)
    if np.isnan(own).any():
        raise InputError(f"feature {name!r} is missing for a, b or the third: choose others.")
    low, high = min(low, own.min()), max(high, own.max())
    if not low < high:
        raise ConfigError(f"feature {name!r} spans no range between the quantiles {quantiles}: choose wider ones.")
    return _centres(float(low), float(high), cells)


def _numbers(data: ChoiceData, name: str) -> NDArray[np.float32]:
    """(N,) values of a numeric feature."""
    column = data.features.get(name)
    if not isinstance(column, Numeric):
        numeric = [known for known, values in data.features.items() if isinstance(values, Numeric)]
        raise SchemaError(f"{name!r} is no numeric feature of the table." + did_you_mean(name, numeric))
    return column.values
