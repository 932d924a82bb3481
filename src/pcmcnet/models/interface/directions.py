"""Directions of monotone features: as the option ``monotone`` gives them, or as the signs of the table declare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from pcmcnet.checks import require_word
from pcmcnet.data.schema import Schema
from pcmcnet.errors import ConfigError

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
