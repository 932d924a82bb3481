"""The columns that a served model reads, and where in a request they stand.

A baseline may read fewer columns than the model it stands beside, never others: so one request serves both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pcmcnet.data import Schema
from pcmcnet.errors import ConfigError, did_you_mean, shown
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.serving.refusal import RefusalError, unusable

Role = Literal["individual", "feature", "alternative", "available"]


@dataclass(frozen=True, slots=True)
class Input:
    """One column of a request."""

    name: str
    role: Role
    kind: str  # number, category, flag, or one of contents

    @property
    def of_individual(self) -> bool:
        """Whether it is given once for a set, rather than for each alternative."""
        return self.role == "individual"


def inputs_of(schema: Schema) -> dict[str, Input]:
    """List the columns that a prediction needs, the individual's first; refuses what no request can say."""
    if schema.outside is not None:
        raise ConfigError(
            f"the model has the outside option {schema.outside!r}, which a request has no place for: predict tables "
            f"with it, or fit it to a table with rows of the option, and without outside."
        )
    roles: dict[str, Role] = dict.fromkeys(schema.individual, "individual")
    if schema.alternative is not None and schema.alternative not in roles:
        roles[schema.alternative] = "alternative"
    for name in schema.features:
        roles[name] = "feature"
    if schema.available is not None:
        roles[schema.available] = "available"
    text = {*(schema.categorical or ()), *(name for name, role in roles.items() if role == "alternative")}
    kinds: dict[str, str] = {name: "category" if name in text else "number" for name in roles}
    kinds |= schema.contents
    if schema.available is not None:
        kinds[schema.available] = "flag"
    return {name: Input(name, role, kinds[name]) for name, role in roles.items()}


def require_within(baseline: ChoiceModel, main: ChoiceModel) -> None:
    """Refuse a baseline that needs what a request for the main model does not have."""
    known = inputs_of(main.schema)
    for name, column in inputs_of(baseline.schema).items():
        if name not in known:
            raise ConfigError(
                f"the baseline was trained with column {name!r}, which the model itself does not read, so that one "
                f"request cannot serve both." + did_you_mean(name, known)
            )
        there = known[name]
        if (there.of_individual, there.kind) != (column.of_individual, column.kind):
            raise ConfigError(
                f"column {name!r} is a {there.kind} ({there.role}) to the model and a {column.kind} ({column.role}) to "
                f"the baseline: train both on tables of the same form."
            )


def require_known(
    names: Iterable[str], known: Mapping[str, Input], schema: Schema, *, individual: bool, at: str
) -> None:
    """Refuse columns that the model does not read there."""
    for name in names:
        column = known.get(name)
        if column is None or column.of_individual != individual:
            raise _unknown(name, column, known, schema, individual=individual, at=at)


def _unknown(
    name: str, column: Input | None, known: Mapping[str, Input], schema: Schema, *, individual: bool, at: str
) -> RefusalError:
    if column is not None:
        place = "the individual" if column.of_individual else "each alternative"
        return unusable(f"{at}: column {shown(name)} is given for {place}: move it there.")
    unused = {schema.choice_set, schema.choices, schema.weight, *schema.kept}
    if name in unused:
        return unusable(f"{at}: column {shown(name)} takes no part in a prediction: leave it out.")
    there = [c.name for c in known.values() if c.of_individual == individual]
    hint = did_you_mean(name[:100], there) if there else " Nothing is expected there."
    return unusable(f"{at}: unknown column {shown(name)}.{hint}")


def require_keys(value: Any, *, required: Iterable[str], optional: Iterable[str] = (), at: str) -> dict[str, Any]:
    """Take an object with some keys and no others."""
    if not isinstance(value, dict):
        raise unusable(f"{at}: expected an object, got {shown(value)}.")
    needed, allowed = list(required), [*required, *optional]
    for key in value:
        if key not in allowed:
            raise unusable(f"{at}: unknown entry {shown(key)}." + did_you_mean(key[:100], allowed))
    for key in needed:
        if key not in value:
            raise unusable(f"{at}: {key!r} is missing.")
    return value
