"""Read and check the choice sets of a request.

    {"individual": {column: value, ...}, "alternatives": [{column: value, ...}, ...]}

Values are read like the rows of a table: numbers become float32, categories are identified by their text, and rich
values (vectors, text, images) are read according to their kind. Each column is checked as a whole. If this check fails,
the values of the column are checked one by one, so that the message can name the set and the alternative. Sets and
alternatives are counted from 0.
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
from pcmcnet.serving.request_body import RequestError, unprocessable
from pcmcnet.serving.settings import ServeSettings

# -- Columns -----------------------------------------------------------------------------------------------------------
# The columns that a served model reads, and their position in a request. A baseline may read fewer columns than the
# main model, but no others, so that one request fits both.


Role = Literal["individual", "feature", "alternative", "available"]


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A column of a request."""

    name: str
    role: Role
    kind: str  # "number", "category", "flag", or a kind of rich values

    @property
    def is_individual(self) -> bool:
        """True if the column has one value per choice set, not one per alternative."""
        return self.role == "individual"


def input_columns(schema: Schema) -> dict[str, InputColumn]:
    """Return the columns of a request, individual-level ones first. Raise ConfigError if there is an outside option."""
    if schema.outside is not None:
        raise ConfigError(
            f"the service does not support the model's outside option {schema.outside!r}: use `pcmcnet predict` "
            f"on a table, or fit the model to a table that has rows for the option, without outside=."
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
    return {name: InputColumn(name, role, kinds[name]) for name, role in roles.items()}


def require_compatible_baseline(baseline: ChoiceModel, main: ChoiceModel) -> None:
    """Raise ConfigError if the baseline reads a column that the main model does not read, or reads differently."""
    main_columns = input_columns(main.schema)
    for name, column in input_columns(baseline.schema).items():
        if name not in main_columns:
            raise ConfigError(
                f"the baseline reads column {name!r}, which the main model does not read, so the same request "
                f"cannot be used for both." + did_you_mean(name, main_columns)
            )
        expected = main_columns[name]
        if (expected.is_individual, expected.kind) != (column.is_individual, column.kind):
            raise ConfigError(
                f"column {name!r} is a {expected.kind} ({expected.role}) for the main model and a {column.kind} "
                f"({column.role}) for the baseline: train both on tables with the same columns."
            )


def require_known_columns(
    names: Iterable[str], columns: Mapping[str, InputColumn], schema: Schema, *, individual: bool, at: str
) -> None:
    """Raise RequestError if a name is not a column of the individual (``individual=True``) or of an alternative."""
    for name in names:
        column = columns.get(name)
        if column is None:
            if name in {schema.choice_set, schema.choices, schema.weight, *schema.kept_columns}:
                raise unprocessable(f"{at}: column {describe_value(name)} is not used in predictions: remove it.")
            expected = [c.name for c in columns.values() if c.is_individual == individual]
            hint = did_you_mean(name[:100], expected) if expected else " No column is expected here."
            raise unprocessable(f"{at}: unknown column {describe_value(name)}.{hint}")
        if column.is_individual != individual:
            owner = "the individual" if column.is_individual else "each alternative"
            raise unprocessable(f"{at}: column {describe_value(name)} belongs to {owner}: move it there.")


def require_keys(value: Any, *, required: Iterable[str], optional: Iterable[str] = (), at: str) -> dict[str, Any]:
    """Return a JSON object. Raise RequestError if the value is not an object, or has wrong keys."""
    if not isinstance(value, dict):
        raise unprocessable(f"{at}: expected an object, got {describe_value(value)}.")
    needed, allowed = list(required), [*required, *optional]
    for key in value:
        if key not in allowed:
            raise unprocessable(f"{at}: unknown entry {describe_value(key)}." + did_you_mean(key[:100], allowed))
    for key in needed:
        if key not in value:
            raise unprocessable(f"{at}: {key!r} is missing.")
    return value


# -- Contents ----------------------------------------------------------------------------------------------------------
# Rich values in a request (vectors, instants, lists, text, images, ids) are read like those of a table. Each kind in
# `pcmcnet.data.kinds` defines the form of its values.


RowName = Callable[[int], str]  # a row -> its name in messages, such as "set 0, alternative 2"


def parse_contents(
    values: list[Any], kind: str, at: RowName, *, nullable: bool, size: int | None, pixels: PixelBudget
) -> Contents:
    """Read a column of rich values. ``at(row)`` names row and column in messages. ``size`` is the length of vectors."""
    parsed: list[Any] = []
    by_text: dict[str, Any] = {}  # repeated texts and images are parsed once
    for row, value in enumerate(values):
        try:
            if value is None and nullable and KINDS[kind].may_be_missing:
                parsed.append(None)
            elif isinstance(value, str) and value in by_text:
                parsed.append(by_text[value])
            else:
                parsed.append(KINDS[kind].parse_posted(value, size=size, pixels=pixels))
                if isinstance(value, str):
                    by_text[value] = parsed[-1]
        except ValueError as error:
            raise unprocessable(f"{at(row)}: {error}.") from None
    try:
        codes, table = KINDS[kind].read_posted(parsed)
    except BadContentError as bad:
        problem = re.sub(r"; \d+ such rows?", "", bad.problem)
        raise RequestError(422, f"{at(bad.row)}: {problem}") from None
    return Contents(codes, table, kind)


# -- Sets --------------------------------------------------------------------------------------------------------------


_MAX_FLOAT32 = float(np.finfo(np.float32).max)


class SetReader:
    """Reader of choice sets for one model. ``accepted`` contains the columns that at least one served model reads."""

    def __init__(
        self,
        schema: Schema,
        accepted: Mapping[str, InputColumn],
        settings: ServeSettings,
        sizes: Mapping[str, int] = {},
    ) -> None:
        self.schema, self.accepted, self.settings = schema.for_prediction(), accepted, settings
        self.sizes = sizes  # of vectors
        self.full = schema  # distinguishes a column with another role from an unknown one
        columns = input_columns(schema).values()
        self.individual = [c for c in columns if c.is_individual]
        self.alternative = [c for c in columns if not c.is_individual and c.role != "available"]

    def read(self, sets: Any, *, at: str = "sets") -> ChoiceData:
        """Read a list of choice sets. Raise :class:`RequestError` if a choice set is not valid."""
        if not isinstance(sets, list) or not sets:
            raise unprocessable(f"{at}: expected a list with at least one choice set, got {describe_value(sets)}.")
        if len(sets) > self.settings.max_sets:
            limit = f"expected at most {self.settings.max_sets:,} choice sets in a request, got {len(sets):,}"
            raise unprocessable(f"{at}: {limit}: send them in several requests.")
        entries = [self._check_set(entry, f"set {k}") for k, entry in enumerate(sets)]
        individuals, groups = [individual for individual, _ in entries], [alternatives for _, alternatives in entries]
        pairs = sum(len(group) ** 2 for group in groups)
        if pairs > self.settings.max_pairs:
            limit = f"expected at most {self.settings.max_pairs:,} pairs of alternatives in a request, got {pairs:,}"
            raise unprocessable(f"{at}: {limit}: send fewer or smaller sets.")
        return self._data(individuals, groups)

    def _check_set(self, entry: Any, at: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Check the form and the column names of a set, and return its individual and its alternatives."""
        parts = require_keys(entry, required=["alternatives"], optional=["individual"], at=at)
        individual, alternatives = parts.get("individual", {}), parts["alternatives"]
        if not isinstance(individual, dict):
            raise unprocessable(
                f"{at}, individual: expected an object with a value for each column, got {describe_value(individual)}."
            )
        if not isinstance(alternatives, list) or not alternatives:
            raise unprocessable(
                f"{at}, alternatives: expected a list with at least one alternative, got "
                f"{describe_value(alternatives)}."
            )
        if len(alternatives) > self.settings.max_alternatives:
            limit = f"expected at most {self.settings.max_alternatives:,} alternatives, got {len(alternatives):,}"
            raise unprocessable(f"{at}: {limit}: remove some, or raise --max-alternatives.")
        require_known_columns(individual, self.accepted, self.full, individual=True, at=f"{at}, individual")
        for i, alternative in enumerate(alternatives):
            if not isinstance(alternative, dict):
                problem = f"expected an object with a value for each column, got {describe_value(alternative)}"
                raise unprocessable(f"{at}, alternative {i}: {problem}.")
            require_known_columns(alternative, self.accepted, self.full, individual=False, at=f"{at}, alternative {i}")
        return individual, alternatives

    def _data(self, individuals: list[dict[str, Any]], groups: list[list[dict[str, Any]]]) -> ChoiceData:
        """Return the choice data of checked sets."""
        # 1. Separate available from unavailable alternatives.
        positions = [(k, i) for k, group in enumerate(groups) for i in range(len(group))]
        every = [alternative for group in groups for alternative in group]
        available = self._available(every, positions)
        rows, hidden = np.flatnonzero(available), np.flatnonzero(~available)
        set_of_row = np.array([k for k, _ in positions], np.int64)
        sizes = np.bincount(set_of_row[rows], minlength=len(groups))
        if not sizes.all():
            raise unprocessable(f"set {int(np.argmin(sizes))}: expected at least one available alternative, got none.")
        available_entries = [every[row] for row in rows.tolist()]
        # 2. Read the columns of the available alternatives and of the individuals.
        row_name = _alternative_name(positions, rows.tolist())
        pixels = PixelBudget(self.settings.max_pixels)
        columns = {c.name: self._column(available_entries, c, row_name, pixels) for c in self.alternative}
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return ChoiceData(
            schema=self.schema,
            offsets=offsets,
            set_ids=np.arange(len(groups)),
            chosen=None,
            weights=np.ones(len(groups)),
            features={name: columns[name] for name in self.schema.features},
            labels=self._labels(columns, available_entries, set_of_row[rows], row_name),
            individual={c.name: self._column(individuals, c, _individual_name, pixels) for c in self.individual},
            keep={},
            rows=rows,
            hidden_rows=hidden,
            hidden_sets=set_of_row[hidden],
        )

    def _available(self, every: list[dict[str, Any]], positions: list[tuple[int, int]]) -> Any:
        """Return an (M,) mask of available alternatives. Alternatives are available by default."""
        column = self.schema.available
        if column is None:
            return np.ones(len(every), np.bool_)
        values = [alternative.get(column, True) for alternative in every]
        for row, value in enumerate(values):
            if not isinstance(value, int | float) or value not in (0, 1):
                at = _alternative_name(positions, range(len(every)))(row)
                raise unprocessable(
                    f"{at}, column {column!r}: expected true or false, or 1 or 0, got {describe_value(value)}."
                )
        return np.array(values, np.bool_)

    def _labels(
        self, columns: Mapping[str, Column], entries: list[dict[str, Any]], sets: Any, row_name: RowName
    ) -> Categorical | None:
        """Return the labels of the alternatives. Raise RequestError if a label occurs twice in a set."""
        name = self.schema.alternative
        if name is None or name not in columns:
            return None
        labels = columns[name]
        if isinstance(labels, Numeric):  # the label is also a numeric feature
            labels = _categories([entry[name] for entry in entries], name, row_name, nullable=False)
        assert isinstance(labels, Categorical)
        codes = sets * len(labels.categories) + labels.codes
        first = np.zeros(len(codes), np.bool_)
        first[np.unique(codes, return_index=True)[1]] = True
        if not first.all():
            at = int(np.argmin(first))
            label = labels.categories[labels.codes[at]]
            problem = f"the label {describe_value(label)} occurs more than once in this set"
            raise unprocessable(f"{row_name(at)}, column {name!r}: {problem}: labels must be unique within a set.")
        return labels

    def _column(
        self, entries: list[dict[str, Any]], column: InputColumn, row_name: RowName, pixels: PixelBudget
    ) -> Column:
        """Read one column from the entries of a request."""
        try:
            values = [entry[column.name] for entry in entries]
        except KeyError:
            row = next(k for k, entry in enumerate(entries) if column.name not in entry)
            null = " (null if it is unknown)" if self.schema.missing == "indicator" else ""
            raise unprocessable(
                f"{row_name(row)}: column {column.name!r} is missing: add a value of kind {column.kind}{null}."
            ) from None
        nullable = self.schema.missing == "indicator" and column.role != "alternative"
        if column.kind in KINDS:

            def at(row: int) -> str:
                return f"{row_name(row)}, column {column.name!r}"

            size = self.sizes.get(column.name)
            return parse_contents(values, column.kind, at, nullable=nullable, size=size, pixels=pixels)
        read = _numbers if column.kind == "number" else _categories
        return read(values, column.name, row_name, nullable=nullable)


def _alternative_name(positions: Sequence[tuple[int, int]], rows: Sequence[int]) -> RowName:
    return lambda row: "set {}, alternative {}".format(*positions[rows[row]])


def _individual_name(row: int) -> str:
    return f"set {row}, individual"


def _numbers(values: list[Any], name: str, row_name: RowName, *, nullable: bool) -> Numeric:
    """Read finite numbers, and null if ``nullable`` is True."""
    kinds = set(map(type, values))
    try:
        if kinds <= ({int, float, type(None)} if nullable else {int, float}):
            numbers = np.array(values, np.float64)  # null becomes NaN
            if (np.abs(numbers) <= _MAX_FLOAT32).sum() + values.count(None) == len(values):
                return Numeric(numbers.astype(np.float32))
    except OverflowError:  # an integer beyond 1e308
        pass
    raise _first_error(values, name, row_name, lambda value: _bad_number(value, nullable))


def _bad_number(value: Any, nullable: bool) -> str | None:
    if value is None:
        return None if nullable else "expected a number, got null"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"expected a number, got {describe_value(value)}"
    return None if abs(value) <= _MAX_FLOAT32 else f"expected a number below 3.4e38, got {describe_value(value)}"


def _categories(values: list[Any], name: str, row_name: RowName, *, nullable: bool) -> Categorical:
    """Read categories. Numbers and booleans are converted to text."""
    kinds = set(map(type, values))
    plain = {str, int, float, bool} | ({type(None)} if nullable else set())
    if not kinds <= plain or (float in kinds and any(isinstance(v, float) and not math.isfinite(v) for v in values)):
        raise _first_error(values, name, row_name, lambda value: _bad_category(value, nullable))
    texts = names(pa.array([MISSING_CATEGORY if v is None else str(v) for v in values], pa.string()))
    place: dict[str, int] = {}
    codes = [place.setdefault(str(text), len(place)) for text in texts]
    return Categorical(np.array(codes, np.int32), tuple(place))


def _bad_category(value: Any, nullable: bool) -> str | None:
    if value is None:
        return None if nullable else "expected a category, got null"
    if isinstance(value, float) and not math.isfinite(value):
        return "expected a category, got a number that is not finite"
    return None if isinstance(value, str | int | float) else f"expected a category, got {describe_value(value)}"


def _first_error(values: list[Any], name: str, row_name: RowName, problem: Callable[[Any], str | None]) -> RequestError:
    """Return the error for the first invalid value."""
    row, what = next((row, what) for row, value in enumerate(values) if (what := problem(value)) is not None)
    return unprocessable(f"{row_name(row)}, column {name!r}: {what}.")
