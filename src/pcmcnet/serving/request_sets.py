"""The choice sets of a request -> choice data, every check on the way.

    {"individual": {column: value, ...}, "alternatives": [{column: value, ...}, ...]}

Values are read as a table with such rows would be read: numbers become float32, categories are named by their text,
contents are told apart by their kind. A column is looked at as a whole; only where something is wrong with it are the
single values, so that the message can say which set and which alternative. Sets and alternatives count from 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.column_reader import MISSING_CATEGORY
from pcmcnet.data.columns.arrays import Categorical, Column, Contents, Numeric
from pcmcnet.data.columns.distinct import names
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.kinds.kind import BadContentError, PixelBudget
from pcmcnet.errors import ConfigError, describe_value, did_you_mean
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.serving.request_body import RefusalError, unusable
from pcmcnet.serving.settings import ServeSettings

# -- Columns -----------------------------------------------------------------------------------------------------------
# The columns that a served model reads, and where in a request they stand.
#
# A baseline may read fewer columns than the model it stands beside, never others: so one request serves both.


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


def input_columns(schema: Schema) -> dict[str, Input]:
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
    known = input_columns(main.schema)
    for name, column in input_columns(baseline.schema).items():
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
        if column is None:
            if name in {schema.choice_set, schema.choices, schema.weight, *schema.kept_columns}:
                raise unusable(f"{at}: column {describe_value(name)} takes no part in a prediction: leave it out.")
            there = [c.name for c in known.values() if c.of_individual == individual]
            hint = did_you_mean(name[:100], there) if there else " Nothing is expected there."
            raise unusable(f"{at}: unknown column {describe_value(name)}.{hint}")
        if column.of_individual != individual:
            place = "the individual" if column.of_individual else "each alternative"
            raise unusable(f"{at}: column {describe_value(name)} is given for {place}: move it there.")


def require_keys(value: Any, *, required: Iterable[str], optional: Iterable[str] = (), at: str) -> dict[str, Any]:
    """Take an object with some keys and no others."""
    if not isinstance(value, dict):
        raise unusable(f"{at}: expected an object, got {describe_value(value)}.")
    needed, allowed = list(required), [*required, *optional]
    for key in value:
        if key not in allowed:
            raise unusable(f"{at}: unknown entry {describe_value(key)}." + did_you_mean(key[:100], allowed))
    for key in needed:
        if key not in value:
            raise unusable(f"{at}: {key!r} is missing.")
    return value


# -- Contents ----------------------------------------------------------------------------------------------------------
# Vectors, instants, lists, texts, pictures and ids in a request -> contents, as a table with them would be read.
#
# What a value must look like is for its kind to say (`pcmcnet.data.kinds`).


Where = Callable[[int], str]


def contents_of(
    values: list[Any], kind: str, at: Where, *, gaps: bool, size: int | None, pixels: PixelBudget
) -> Contents:
    """Read one column; ``at(row)`` names a place and the column, ``size`` is that of vectors where it is known."""
    given: list[Any] = []
    known: dict[str, Any] = {}  # copies of a text or a picture are looked at once
    for row, value in enumerate(values):
        try:
            if value is None and gaps and KINDS[kind].may_be_missing:
                given.append(None)
            elif isinstance(value, str) and value in known:
                given.append(known[value])
            else:
                given.append(KINDS[kind].parse_posted(value, size=size, pixels=pixels))
                if isinstance(value, str):
                    known[value] = given[-1]
        except ValueError as error:
            raise unusable(f"{at(row)}: {error}.") from None
    try:
        codes, table = KINDS[kind].read_posted(given)
    except BadContentError as bad:
        problem = re.sub(r"; \d+ such rows", "", bad.problem)
        raise RefusalError(422, f"{at(bad.row)}: {problem}") from None
    return Contents(codes, table, kind)


# -- Sets --------------------------------------------------------------------------------------------------------------


_LARGEST = float(np.finfo(np.float32).max)


class SetReader:
    """Reads sets for one model; ``accepted`` names the columns that some served model reads."""

    def __init__(
        self, schema: Schema, accepted: Mapping[str, Input], settings: ServeSettings, sizes: Mapping[str, int] = {}
    ) -> None:
        self.schema, self.accepted, self.settings = schema.for_prediction(), accepted, settings
        self.sizes = sizes  # of vectors
        self.full = schema  # to tell a column with another role from one that is not known at all
        own = input_columns(schema)
        self.individual = [c for c in own.values() if c.of_individual]
        self.alternative = [c for c in own.values() if not c.of_individual and c.role != "available"]

    def read(self, sets: Any, *, at: str = "sets") -> ChoiceData:
        """Read a list of sets; raises :class:`RefusalError`."""
        if not isinstance(sets, list) or not sets:
            raise unusable(f"{at}: expected a list with at least one choice set, got {describe_value(sets)}.")
        if len(sets) > self.settings.max_sets:
            limit = f"expected at most {self.settings.max_sets:,} choice sets in a request, got {len(sets):,}"
            raise unusable(f"{at}: {limit}: send them in several requests.")
        entries = [self._one(entry, f"set {k}") for k, entry in enumerate(sets)]
        people, groups = [who for who, _ in entries], [alternatives for _, alternatives in entries]
        pairs = sum(len(group) ** 2 for group in groups)
        if pairs > self.settings.max_pairs:
            limit = f"expected at most {self.settings.max_pairs:,} pairs of alternatives in a request, got {pairs:,}"
            raise unusable(f"{at}: {limit}: send fewer sets at once, or smaller ones.")
        return self._data(people, groups)

    def _one(self, entry: Any, at: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Check the form of a set and the names in it."""
        found = require_keys(entry, required=["alternatives"], optional=["individual"], at=at)
        who, alternatives = found.get("individual", {}), found["alternatives"]
        if not isinstance(who, dict):
            raise unusable(
                f"{at}, individual: expected an object with a value for each column, got {describe_value(who)}."
            )
        if not isinstance(alternatives, list) or not alternatives:
            raise unusable(
                f"{at}, alternatives: expected a list with at least one, got {describe_value(alternatives)}."
            )
        if len(alternatives) > self.settings.max_alternatives:
            limit = f"expected at most {self.settings.max_alternatives:,} alternatives, got {len(alternatives):,}"
            raise unusable(f"{at}: {limit}: leave some out, or raise --max-alternatives.")
        require_known(who, self.accepted, self.full, individual=True, at=f"{at}, individual")
        for i, alternative in enumerate(alternatives):
            if not isinstance(alternative, dict):
                found_here = f"expected an object with a value for each column, got {describe_value(alternative)}"
                raise unusable(f"{at}, alternative {i}: {found_here}.")
            require_known(alternative, self.accepted, self.full, individual=False, at=f"{at}, alternative {i}")
        return who, alternatives

    def _data(self, people: list[dict[str, Any]], groups: list[list[dict[str, Any]]]) -> ChoiceData:
        given = [(k, i) for k, group in enumerate(groups) for i in range(len(group))]
        every = [alternative for group in groups for alternative in group]
        open_ = self._available(every, given)
        rows, hidden = np.flatnonzero(open_), np.flatnonzero(~open_)
        set_of_row = np.array([k for k, _ in given], np.int64)
        sizes = np.bincount(set_of_row[rows], minlength=len(groups))
        if not sizes.all():
            raise unusable(f"set {int(np.argmin(sizes))}: no alternative is available, expected at least one.")
        kept_columns = [every[row] for row in rows.tolist()]
        where = _alternative_at(given, rows.tolist())
        pixels = PixelBudget(self.settings.max_pixels)
        columns = {c.name: self._column(kept_columns, c, where, pixels) for c in self.alternative}
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return ChoiceData(
            schema=self.schema,
            offsets=offsets,
            set_ids=np.arange(len(groups)),
            chosen=None,
            weights=np.ones(len(groups)),
            features={name: columns[name] for name in self.schema.features},
            labels=self._labels(columns, kept_columns, set_of_row[rows], where),
            individual={c.name: self._column(people, c, _individual_at, pixels) for c in self.individual},
            keep={},
            rows=rows,
            hidden_rows=hidden,
            hidden_sets=set_of_row[hidden],
        )

    def _available(self, every: list[dict[str, Any]], given: list[tuple[int, int]]) -> Any:
        """(M,) whether alternatives are available: so they are unless a request says otherwise."""
        column = self.schema.available
        if column is None:
            return np.ones(len(every), np.bool_)
        values = [alternative.get(column, True) for alternative in every]
        for row, value in enumerate(values):
            if not isinstance(value, int | float) or value not in (0, 1):
                at = _alternative_at(given, range(len(every)))(row)
                raise unusable(
                    f"{at}, column {column!r}: expected true or false, or 1 or 0, got {describe_value(value)}."
                )
        return np.array(values, np.bool_)

    def _labels(
        self, columns: Mapping[str, Column], kept_columns: list[dict[str, Any]], sets: Any, where: Where
    ) -> Categorical | None:
        """Labels of the alternatives, unique within a set."""
        name = self.schema.alternative
        if name is None or name not in columns:
            return None
        labels = columns[name]
        if isinstance(labels, Numeric):  # a feature too, of numbers
            labels = _categories([entry[name] for entry in kept_columns], name, where, gaps=False)
        assert isinstance(labels, Categorical)
        codes = sets * len(labels.categories) + labels.codes
        first = np.zeros(len(codes), np.bool_)
        first[np.unique(codes, return_index=True)[1]] = True
        if not first.all():
            at = int(np.argmin(first))
            label = labels.categories[labels.codes[at]]
            twice = f"the label {describe_value(label)} stands more than once in this set"
            raise unusable(f"{where(at)}, column {name!r}: {twice}: labels must be unique within a set.")
        return labels

    def _column(self, entries: list[dict[str, Any]], column: Input, where: Where, pixels: PixelBudget) -> Column:
        """Take one column out of the entries."""
        try:
            values = [entry[column.name] for entry in entries]
        except KeyError:
            row = next(k for k, entry in enumerate(entries) if column.name not in entry)
            null = " (null where it is not known)" if self.schema.missing == "indicator" else ""
            raise unusable(f"{where(row)}: column {column.name!r} is missing: give its {column.kind}{null}.") from None
        gaps = self.schema.missing == "indicator" and column.role != "alternative"
        if column.kind in KINDS:

            def at(row: int) -> str:
                return f"{where(row)}, column {column.name!r}"

            size = self.sizes.get(column.name)
            return contents_of(values, column.kind, at, gaps=gaps, size=size, pixels=pixels)
        read = _numbers if column.kind == "number" else _categories
        return read(values, column.name, where, gaps=gaps)


def _alternative_at(given: Sequence[tuple[int, int]], rows: Sequence[int]) -> Where:
    return lambda row: "set {}, alternative {}".format(*given[rows[row]])


def _individual_at(row: int) -> str:
    return f"set {row}, individual"


def _numbers(values: list[Any], name: str, where: Where, *, gaps: bool) -> Numeric:
    """Read finite numbers; ``gaps`` admits null."""
    kinds = set(map(type, values))
    try:
        if kinds <= ({int, float, type(None)} if gaps else {int, float}):
            numbers = np.array(values, np.float64)  # null becomes NaN
            if (np.abs(numbers) <= _LARGEST).sum() + values.count(None) == len(values):
                return Numeric(numbers.astype(np.float32))
    except OverflowError:  # a whole number beyond 1e308
        pass
    raise _first(values, name, where, lambda value: _bad_number(value, gaps))


def _bad_number(value: Any, gaps: bool) -> str | None:
    if value is None:
        return None if gaps else "expected a number, got null"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"expected a number, got {describe_value(value)}"
    return None if abs(value) <= _LARGEST else f"expected a number below 3.4e38, got {describe_value(value)}"


def _categories(values: list[Any], name: str, where: Where, *, gaps: bool) -> Categorical:
    """Read the names of categories; numbers and truth values have their text for a name."""
    kinds = set(map(type, values))
    plain = {str, int, float, bool} | ({type(None)} if gaps else set())
    if not kinds <= plain or (float in kinds and any(isinstance(v, float) and not math.isfinite(v) for v in values)):
        raise _first(values, name, where, lambda value: _bad_category(value, gaps))
    texts = names(pa.array([MISSING_CATEGORY if v is None else str(v) for v in values], pa.string()))
    place: dict[str, int] = {}
    codes = [place.setdefault(str(text), len(place)) for text in texts]
    return Categorical(np.array(codes, np.int32), tuple(place))


def _bad_category(value: Any, gaps: bool) -> str | None:
    if value is None:
        return None if gaps else "expected a category, got null"
    if isinstance(value, float) and not math.isfinite(value):
        return "expected a category, got a number that is not finite"
    return None if isinstance(value, str | int | float) else f"expected a category, got {describe_value(value)}"


def _first(values: list[Any], name: str, where: Where, problem: Callable[[Any], str | None]) -> RefusalError:
    """Build the refusal of the first bad value."""
    row, what = next((row, what) for row, value in enumerate(values) if (what := problem(value)) is not None)
    return unusable(f"{where(row)}, column {name!r}: {what}.")
