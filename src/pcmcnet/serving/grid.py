"""A map: one alternative of a set moves over a grid of two of its columns, and two alternatives share the rest.

The share of a against b is p_a / (p_a + p_b). Under independence of irrelevant alternatives it does not depend on a
third one, so that what the map of a third alternative shows is the effect of context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Numeric
from pcmcnet.errors import did_you_mean, shown
from pcmcnet.insight.what_if import compose, with_values
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.serving.about import column_facts
from pcmcnet.serving.refusal import unusable
from pcmcnet.serving.settings import ServeSettings

POINTS = 25
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Grid:
    """The set, what moves, and the values of both axes; places count the available alternatives."""

    data: ChoiceData
    x: str
    y: str
    place: int
    between: tuple[int, int]
    x_values: Floats
    y_values: Floats

    @classmethod
    def read(cls, asked: Mapping[str, Any], data: ChoiceData, model: ChoiceModel, settings: ServeSettings) -> Grid:
        """Check a request for a map of the one set in ``data``; ranges are by default those of the training table."""
        x, y = (number_column(asked[axis], data, axis) for axis in ("x", "y"))
        if x == y:
            raise unusable(f"y: expected another column than x, got {x!r} twice.")
        place = place_of(asked["place"], data, "place")
        between = asked["between"]
        if not isinstance(between, list) or len(between) != 2:
            raise unusable(f"between: expected the places of two alternatives, got {shown(between)}.")
        a, b = (place_of(value, data, f"between, entry {k}") for k, value in enumerate(between))
        if a == b:
            raise unusable(f"between: expected two different alternatives, got {shown(between[0])} twice.")
        given = asked.get("points", min(POINTS, settings.max_points))
        points = whole(given)
        if points is None or not 2 <= points <= settings.max_points:
            raise unusable(
                f"points: expected a whole number from 2 to {settings.max_points} along each axis, got {shown(given)}."
            )
        pairs = points**2 * len(data.rows) ** 2
        if pairs > settings.max_pairs:
            raise unusable(
                f"points: expected at most {settings.max_pairs:,} pairs of alternatives in a map, got {pairs:,}: ask "
                f"for fewer points, or leave out alternatives."
            )
        axes = [
            np.linspace(*_range(asked.get(f"{axis}_range"), column, axis, data, model), points)
            for axis, column in (("x", x), ("y", y))
        ]
        return cls(data, x, y, place, (a, b), axes[0], axes[1])

    def sets(self) -> ChoiceData:
        """Return a set for each point, x running fastest."""
        n, points = len(self.data.rows), len(self.x_values) * len(self.y_values)
        many = compose(self.data, [np.arange(n)] * points, np.zeros(points, np.int64))
        moving = np.arange(points) * n + self.place
        for column, values in (
            (self.x, np.tile(self.x_values, len(self.y_values))),
            (self.y, np.repeat(self.y_values, len(self.x_values))),
        ):
            before = many.features[column]
            assert isinstance(before, Numeric)
            changed = before.values.copy()
            changed[moving] = values
            many = with_values(many, column, changed)
        return many

    def answer(self, log_p: Floats) -> dict[str, Any]:
        """Return the axes and ``share[row of y][column of x]``; null where neither alternative is ever chosen."""
        each = log_p.reshape(-1, len(self.data.rows))
        a, b = (each[:, place] for place in self.between)
        with np.errstate(invalid="ignore"):  # -inf less -inf
            share = np.exp(a - np.logaddexp(a, b))
        shares = [None if np.isnan(value) else float(value) for value in share]
        width = len(self.x_values)
        rows = [shares[start : start + width] for start in range(0, len(shares), width)]
        return {"x": self.x_values.tolist(), "y": self.y_values.tolist(), "share": rows}


def number_column(name: Any, data: ChoiceData, axis: str) -> str:
    """Take the name of a feature of numbers."""
    known = [name for name, column in data.features.items() if isinstance(column, Numeric)]
    if not isinstance(name, str) or name not in known:
        hint = did_you_mean(name[:100], known) if isinstance(name, str) else ""
        raise unusable(f"{axis}: expected a column of the alternatives with numbers, got {shown(name)}.{hint}")
    return name


def place_of(value: Any, data: ChoiceData, at: str) -> int:
    """Turn a place in the request into one among the available alternatives."""
    place = whole(value)
    if place is None or not 0 <= place < data.n_rows:
        raise unusable(f"{at}: expected the place of an alternative, from 0 to {data.n_rows - 1}, got {shown(value)}.")
    found = np.flatnonzero(data.rows == place)
    if not found.size:
        raise unusable(f"{at}: alternative {place} is not available: choose another.")
    return int(found[0])


def whole(value: Any) -> int | None:
    """Take a whole number, which JSON may also write as 2.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _range(asked: Any, column: str, axis: str, data: ChoiceData, model: ChoiceModel) -> tuple[float, float]:
    """Take the range asked for, that of the training table, or one around the set's own values."""
    if asked is not None:
        return _asked_range(asked, f"{axis}_range")
    facts = column_facts(model, column)
    if facts.get("min") is not None:
        low, high = float(facts["min"]), float(facts["max"])
    else:
        values = data.features[column]
        assert isinstance(values, Numeric)
        if np.isnan(values.values).all():
            raise unusable(f"{axis}: nothing is known of the range of {column!r}: give it as {axis}_range.")
        low, high = float(np.nanmin(values.values)), float(np.nanmax(values.values))
        low, high = low - (high - low) / 2, high + (high - low) / 2
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _asked_range(asked: Any, at: str) -> tuple[float, float]:
    numbers = isinstance(asked, list) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in asked)
    if not numbers or len(asked) != 2:
        raise unusable(f"{at}: expected the lowest and the highest value as [low, high], got {shown(asked)}.")
    if not all(abs(v) <= _LARGEST for v in asked) or not asked[0] < asked[1]:
        ends = f"[{shown(asked[0])}, {shown(asked[1])}]"
        raise unusable(f"{at}: expected a low end below the high one, both below {_LARGEST:.2g}, got {ends}.")
    return float(asked[0]), float(asked[1])
