"""Directions of monotone features, from the option ``monotone`` and from the signs that the table declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from pcmcnet.checks import require_word
from pcmcnet.data import Encoder, Schema
from pcmcnet.errors import ConfigError, did_you_mean

Direction = Literal["decreasing", "increasing", "free"]


def as_directions(monotone: object) -> dict[str, Direction]:
    """Return the direction of each monotone column, or raise ConfigError if ``monotone`` is not valid."""
    if not isinstance(monotone, Mapping) or not all(isinstance(name, str) for name in monotone):
        raise ConfigError(
            f"monotone must map columns to directions, as in {{'price': 'decreasing'}}, got {monotone!r}."
        )
    for name, direction in monotone.items():
        require_word(f"direction of the monotone column {name!r}:", direction, get_args(Direction))
    return dict(monotone)


def directions_of(monotone: Mapping[str, Direction], schema: Schema) -> dict[str, Direction]:
    """Return the direction of each constrained feature: the signs of the table, unless ``monotone`` overrides them."""
    declared: dict[str, Direction] = {
        name: "increasing" if sign == "+" else "decreasing" for name, sign in schema.signs.items()
    }
    return {name: direction for name, direction in {**declared, **monotone}.items() if direction != "free"}


def positions_of(name: str, encoder: Encoder) -> list[int]:
    """Return the positions of a monotone column among the numeric features: the number, and its bins if it has any.

    Raises
    ------
    ConfigError
        If the column is not a numeric feature.
    """
    numeric = [code.name for code in encoder.features.numeric]
    if positions := [k for k, each in enumerate(numeric) if each == name]:
        return positions
    schema = encoder.schema
    if name in schema.individual:
        reason = "an individual-level column: all alternatives of a set have the same value."
    elif name in schema.features or name == schema.alternative:
        reason = "which is not a numeric column."
    else:
        reason = "which is not a numeric feature." + did_you_mean(name, numeric)
    raise ConfigError(f"monotone includes {name!r}, {reason}")
