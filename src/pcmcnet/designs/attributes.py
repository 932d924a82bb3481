"""Attributes of a choice experiment: their levels, the coded columns of a utility, and the allowed profiles.

A profile is a combination of one level of each of K attributes, stored as level numbers (..., K). A numeric attribute
is one column of the utility. A categorical attribute with L levels has L - 1 columns, for every level but the first:

    dummy      1 for the level, else 0
    effects    1 for the level, -1 for the first level, else 0

The alternative "none" has no attributes. Its columns are 0, except for its constant, which is the last column.

A profile a dominates a profile b if a is at least as good in every attribute and better in one. An attribute has a
direction if its best level is known: from an expected sign, or from a prior. In an attribute without a direction, a and
b must have the same level.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import require_word
from pcmcnet.errors import InputError, did_you_mean

NONE = "none"  # label of the alternative without attributes, and name of its constant
RESERVED = (
    *(NONE, "version", "task", "alternative", "person", "choice_set", "chosen", "choice"),
    *("dominance", "dominated", "dominates"),
)
MAX_LEVEL = 1e50  # the information is proportional to the squares of levels, which must not overflow
MAX_INVOLVED_PROFILES = 1_000_000  # combinations of the attributes of all prohibitions that are enumerated

Coding = Literal["dummy", "effects"]
Prohibition = Mapping[str, Any]
Attributes = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, kw_only=True)
class DesignAttribute:
    """An attribute of the alternatives: its name, and its levels as numbers or as texts."""

    name: str
    levels: tuple[float, ...] | tuple[str, ...]
    is_categorical: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its coefficients."""
        return tuple(f"{self.name}[{level}]" for level in self.levels[1:]) if self.is_categorical else (self.name,)

    def columns(self, coding: Coding) -> Floats:  # -> (L, columns)
        """Return the coded columns of each level."""
        if not self.is_categorical:
            return np.array(self.levels, dtype=np.float64)[:, None]
        columns = np.eye(len(self.levels))[:, 1:]
        if coding == "effects":
            columns[0] = -1
        return columns


@dataclass(frozen=True, kw_only=True, eq=False)
class ProfileSpace:
    """The attributes of a design, whether there is an alternative "none", and the prohibited combinations.

    ``prohibitions`` holds, for each prohibition, the positions of its attributes and a mask over the levels of each.
    """

    attributes: tuple[DesignAttribute, ...]
    none: bool
    coding: Coding
    prohibitions: tuple[tuple[tuple[int, ...], tuple[Bools, ...]], ...] = ()

    @property
    def sizes(self) -> Ints:
        """Number of levels of each attribute, (K,)."""
        return np.array([len(attribute.levels) for attribute in self.attributes])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients, with the constant of "none" last."""
        names = [name for attribute in self.attributes for name in attribute.names]
        return (*names, *([NONE] if self.none else []))

    @cached_property
    def _tables(self) -> tuple[Floats, ...]:
        return tuple(attribute.columns(self.coding) for attribute in self.attributes)

    def encode(self, levels: Ints) -> Floats:  # (..., J, K) -> (..., J or J + 1, P)
        """Return the columns of the utility of each alternative. The alternative "none" is added as the last one."""
        blocks = [table[levels[..., k]] for k, table in enumerate(self._tables)]
        columns = np.concatenate(blocks, axis=-1)
        if not self.none:
            return columns
        shape = columns.shape
        out = np.zeros((*shape[:-2], shape[-2] + 1, shape[-1] + 1))
        out[..., :-1, :-1] = columns
        out[..., -1, -1] = 1
        return out

    def scales(self) -> Floats:  # -> (P,)
        """Return the largest absolute value of each column, in which the numbers of a design are well scaled."""
        scales = [np.abs(table).max(axis=0) for table in self._tables]
        return np.concatenate([*scales, np.ones(int(self.none))])

    def prohibited(self, levels: Ints) -> Bools:  # (..., K) -> (...)
        """Return True for profiles that contain a prohibited combination."""
        found = np.zeros(levels.shape[:-1], dtype=np.bool_)
        for places, masks in self.prohibitions:
            matches = [mask[levels[..., k]] for k, mask in zip(places, masks, strict=True)]
            found |= np.logical_and.reduce(matches)
        return found

    def position(self, name: str, where: str) -> int:
        """Return the position of an attribute, or raise InputError if there is none of this name."""
        names = [attribute.name for attribute in self.attributes]
        if name not in names:
            raise InputError(f"{where}: unknown attribute {name!r}." + did_you_mean(name, names))
        return names.index(name)


def profile_space(
    attributes: Attributes,
    *,
    none: bool = False,
    categorical: Sequence[str] = (),
    coding: Coding = "dummy",
    prohibited: Iterable[Prohibition] = (),
) -> ProfileSpace:
    """Check the attributes of a design and its prohibited combinations, and return them.

    Raises
    ------
    InputError
        If an attribute has fewer than two levels, if a name is unknown, or if prohibitions leave a level without any
        allowed profile.
    """
    require_word("coding", coding, ("dummy", "effects"))
    if not isinstance(attributes, Mapping) or not attributes:
        raise InputError("attributes: expected a mapping from names to lists of levels, as in {'price': [1, 2, 3]}.")
    if isinstance(categorical, str):
        raise InputError(f"categorical: expected a list of attributes, got {categorical!r}: write [{categorical!r}].")
    for name in categorical:
        if name not in attributes:
            raise InputError(f"categorical: unknown attribute {name!r}." + did_you_mean(name, attributes))
    checked = tuple(_attribute(name, levels, name in categorical) for name, levels in attributes.items())
    space = ProfileSpace(attributes=checked, none=bool(none), coding=coding)
    rules = tuple(_prohibition(space, number, rule) for number, rule in enumerate(prohibited, start=1))
    space = ProfileSpace(attributes=checked, none=bool(none), coding=coding, prohibitions=rules)
    _require_allowed_levels(space)
    return space


def _attribute(name: str, levels: Sequence[Any], categorical: bool) -> DesignAttribute:
    """Return a checked attribute. Its levels are numbers, or texts if one of them is not a number."""
    if not isinstance(name, str) or not name or name in RESERVED:
        raise InputError(f"attribute {name!r}: expected a name other than {', '.join(RESERVED)}. Rename it.")
    if isinstance(levels, str) or not isinstance(levels, Sequence | np.ndarray):
        raise InputError(f"attribute {name!r}: expected a list of levels, got {levels!r}.")
    values = [value.item() if isinstance(value, np.generic) else value for value in levels]
    if unknown := [
        value
        for value in values
        if not isinstance(value, str) and (value is None or isinstance(value, Mapping | Sequence))
    ]:
        raise InputError(f"attribute {name!r}: expected numbers or texts as levels, got {unknown[0]!r}.")
    is_numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if is_numeric and not all(abs(value) <= MAX_LEVEL for value in values):
        raise InputError(f"attribute {name!r}: expected finite levels of at most {MAX_LEVEL:g} in size, got {values}.")
    if len(set(map(str, values))) < len(values):
        raise InputError(f"attribute {name!r}: expected distinct levels, got {values}. Remove the repeated ones.")
    if len(values) < 2:
        raise InputError(
            f"attribute {name!r}: expected at least two levels, got {values}. An attribute that never changes has no "
            "effect that can be estimated: add a level, or leave the attribute out."
        )
    chosen = tuple(values) if is_numeric and not categorical else tuple(map(str, values))
    return DesignAttribute(name=name, levels=chosen, is_categorical=categorical or not is_numeric)


# -- Prohibited combinations -------------------------------------------------------------------------------------------


def _prohibition(space: ProfileSpace, number: int, rule: Prohibition) -> tuple[tuple[int, ...], tuple[Bools, ...]]:
    """Return the positions and level masks of a prohibition such as {"brand": "A", "price": [1, 2]}."""
    where = f"prohibited, combination {number}"
    if not isinstance(rule, Mapping) or len(rule) < 2:
        raise InputError(
            f"{where}: expected levels of at least two attributes, as in {{'brand': 'A', 'price': [1, 2]}}; got "
            f"{rule!r}. To remove a single level, remove it from the attribute."
        )
    places, masks = [], []
    for name, wanted in rule.items():
        place = space.position(name, where)
        levels = list(map(str, space.attributes[place].levels))
        values = list(wanted) if isinstance(wanted, list | tuple | set | np.ndarray) else [wanted]
        mask = np.zeros(len(levels), dtype=np.bool_)
        for value in values:
            mask[_level_number(space.attributes[place], value, where)] = True
        places.append(place)
        masks.append(mask)
    return tuple(places), tuple(masks)


def _level_number(attribute: DesignAttribute, value: Any, where: str) -> int:
    """Return the number of a level, or raise InputError if the attribute has no such level."""
    for number, level in enumerate(attribute.levels):
        if level == value or str(level) == str(value):
            return number
    listed = ", ".join(map(str, attribute.levels))
    raise InputError(f"{where}: attribute {attribute.name!r} has no level {value!r}. Its levels are {listed}.")


def _require_allowed_levels(space: ProfileSpace) -> None:
    """Raise InputError if the prohibitions leave a level without an allowed profile.

    Only the attributes that occur in prohibitions matter, so only their combinations are enumerated.
    """
    involved = sorted({place for places, _ in space.prohibitions for place in places})
    if not involved:
        return
    n_profiles = math.prod(int(space.sizes[k]) for k in involved)
    if n_profiles > MAX_INVOLVED_PROFILES:
        raise InputError(
            f"prohibited: {n_profiles:,} combinations of the attributes in prohibitions are too many to check; at most "
            f"{MAX_INVOLVED_PROFILES:,} are allowed. Prohibit combinations of fewer attributes."
        )
    profiles = np.zeros((n_profiles, len(space.attributes)), dtype=np.int64)
    profiles[:, involved] = np.array(list(product(*(range(space.sizes[k]) for k in involved))))
    allowed = profiles[~space.prohibited(profiles)]
    for k in involved:
        for number, level in enumerate(space.attributes[k].levels):
            if not (allowed[:, k] == number).any():
                raise InputError(
                    f"prohibited: no allowed profile has level {level!r} of attribute {space.attributes[k].name!r}. "
                    "Remove a prohibition, or remove the level from the attribute."
                )


# -- Dominance ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Directions:
    """Value of each level of each attribute from 0 (worst) to 1 (best), with None for attributes without direction."""

    values: tuple[Floats | None, ...]

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions of the attributes with a direction."""
        return tuple(k for k, value in enumerate(self.values) if value is not None)

    def of(self, levels: Ints) -> Floats:  # (..., K) -> (..., D)
        """Return the values of profiles in the D attributes with a direction."""
        columns = [self.values[k][levels[..., k]] for k in self.positions]  # type: ignore[index]  # they have values
        return np.stack(columns, axis=-1)

    def dominates(self, levels: Ints) -> Bools:  # (..., J, K) -> (..., J, J)
        """Return a matrix whose entry i, j is True if profile i dominates profile j."""
        if not self.positions:
            return np.zeros((*levels.shape[:-1], levels.shape[-2]), dtype=np.bool_)
        v = self.of(levels)
        gain = v[..., :, None, :] - v[..., None, :, :]
        better: Bools = np.logical_and((gain >= 0).all(axis=-1), (gain > 0).any(axis=-1))
        for k in range(levels.shape[-1]):
            if self.values[k] is None:
                better = np.logical_and(better, levels[..., :, None, k] == levels[..., None, :, k])
        return better


def level_directions(space: ProfileSpace, signs: Mapping[str, str], coefficients: Floats) -> Directions:
    """Return the direction of each attribute, from its expected sign or else from coefficients (P,).

    The levels of a categorical attribute with the sign "+" are in ascending order. A coefficient of 0 gives no
    direction.
    """
    for name, sign in signs.items():
        space.position(name, "signs")
        require_word(f"sign of {name!r}", sign, ("+", "-"))
    values: list[Floats | None] = []
    start = 0
    for attribute in space.attributes:
        columns = attribute.columns(space.coding)
        worth = columns @ coefficients[start : start + columns.shape[1]]
        start += columns.shape[1]
        if attribute.name in signs:
            order = range(len(worth)) if attribute.is_categorical else attribute.levels
            worth = np.array(order, dtype=np.float64) * (1 if signs[attribute.name] == "+" else -1)
        spread = float(np.ptp(worth))
        values.append((worth - worth.min()) / spread if spread > 0 else None)
    return Directions(tuple(values))
