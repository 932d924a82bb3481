"""Check a long table before a fit: guess the roles of its columns, count its choice sets, and find typical mistakes.

A column with ids and a column of 0 and 1 are taken for the choice set and the chosen alternative if most ids have
exactly one 1. Then a column that is constant within every set belongs to the individual, a text column whose values
differ within every set holds labels, and the other columns are features.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcmcnet.arrays import Bools, Ints
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.arrays import array_to_numpy, to_numpy
from pcmcnet.data.columns.distinct import UNREADABLE, distinct, is_text, similar_values, value_type
from pcmcnet.data.columns.wide_columns import CHOSEN_NAMES, WideColumns, recognise_wide
from pcmcnet.data.files.read_files import require_columns
from pcmcnet.data.files.tabular import read_table
from pcmcnet.data.read_wide import to_long
from pcmcnet.data.schema import Schema
from pcmcnet.errors import SchemaError

MIN_SHARE_WITH_ONE_CHOICE = 0.5  # of the ids, to take two columns for the choice set and the choices
MAX_LABELS = 1_000  # a text column with more values holds names or notes
MAX_LISTED = 5  # examples in a finding
_PATTERNS = {  # names that decide between columns whose values are alike
    "choice_set": r"(^|_)(set|trip|obs|case|choice|task|search|session|chid|occasion|ranking)|id$",
    "chosen": CHOSEN_NAMES,
    "alternative": r"(^|_)(alt|alternative|mode|brand|product|item|option|label|name)",
    "person": r"person|resp(_|$|ondent)|customer|user|travell?er|household|panel|subject|consumer|(^|_)(hh|pid)",
    "available": r"avail|^av(_|$)",
    "weight": r"^(weights?|wgt|wt)$",
}


class TableFinding(NamedTuple):
    """One observation about a table: a problem prevents a correct fit, a hint deserves a look."""

    is_problem: bool
    text: str


@dataclass(frozen=True)
class TableCheck:
    """Result of :func:`check_table`.

    Attributes
    ----------
    rows, columns
        Size of the table.
    schema
        Roles of the columns, given or guessed, or None if they could not be guessed.
    findings
        Problems, followed by hints.
    data
        The choice sets, or None if they cannot be read.
    """

    rows: int
    columns: tuple[str, ...]
    schema: Schema | None
    findings: tuple[TableFinding, ...]
    data: ChoiceData | None

    @property
    def problems(self) -> tuple[str, ...]:
        """Findings that prevent a correct fit."""
        return tuple(finding.text for finding in self.findings if finding.is_problem)

    @property
    def hints(self) -> tuple[str, ...]:
        """Findings that deserve a look."""
        return tuple(finding.text for finding in self.findings if not finding.is_problem)


def check_table(table: Any, **roles: Any) -> TableCheck:
    """Check a table, and guess the roles of its columns that are not given.

    Parameters
    ----------
    table
        A path, a mapping from column names to arrays, or a data frame.
    **roles
        Roles of columns, as in ``ChoiceData.from_long``.

    Returns
    -------
    TableCheck
        Roles, counts, problems and hints.

    Raises
    ------
    SchemaError
        If the table cannot be read, or a role names a column that does not exist.
    """
    rows = read_table(table)
    require_columns(sorted(_taken({k: v for k, v in roles.items() if k != "wide"})), rows.column_names)
    columns = [ColumnFacts.of(name, rows[name]) for name in rows.column_names]
    findings = [*_repeated_rows(columns), *_similar_values(columns)]
    # 1. Guess the roles, which are others if the table is wide.
    wide = None if roles.get("choice_set") and roles.get("chosen") else _recognise_wide(columns)
    schema: Schema | None = None
    data: ChoiceData | None = None
    try:
        if wide is not None:
            schema, more = _wide_schema(rows, columns, wide)
        else:
            schema, more = _long_schema(columns, roles)
        findings += more
        # 2. Read the table as a fit would. Its error is reported unless a finding explains it.
        if schema is not None:
            data = ChoiceData.from_schema(rows, schema)
    except SchemaError as error:
        if not any(finding.is_problem for finding in findings):
            findings.append(TableFinding(True, error.command_line or str(error)))
    return TableCheck(rows.num_rows, tuple(rows.column_names), schema, _sorted(findings), data)


def _long_schema(columns: Sequence[ColumnFacts], given: Mapping[str, Any]) -> tuple[Schema | None, list[TableFinding]]:
    """Return the schema of a long table, and findings about its sets and columns."""
    roles = guess_roles(columns, given)
    if "choice_set" not in roles:
        return None, [TableFinding(True, "no column with ids of choice sets was found: name it (choice_set)")]
    if not {"chosen", "rank", "counts"} & roles.keys():
        text = "no column of 0 and 1 with one 1 in most choice sets was found: name it (chosen)"
        return None, [*_set_findings(columns, roles), TableFinding(True, text)]
    return Schema.from_dict(roles), list(_set_findings(columns, roles))


def _wide_schema(
    rows: pa.Table, columns: Sequence[ColumnFacts], wide: WideColumns
) -> tuple[Schema | None, list[TableFinding]]:
    """Return the schema of a wide table, and findings."""
    used = {
        template.replace("{alternative}", label) for template in wide.features.values() for label in wide.alternatives
    }
    rest = [column for column in columns if column.name not in used]
    labels = ", ".join(map(repr, wide.alternatives))
    chosen = [c for c in rest if {str(v) for v in c.values.to_pylist()} <= {*wide.alternatives} and len(c.values) > 1]
    if not chosen:
        text = f"{wide.explanation()}, but no column names the chosen alternative: expected one of {labels} in each row"
        return None, [TableFinding(True, text)]
    best = max(chosen, key=lambda column: column.is_named("chosen"))
    codes = dict(zip(wide.alternatives, map(int, wide.alternatives), strict=True)) if not best.is_text else None
    individual = [c.name for c in rest if c.name != best.name and _is_input(c, rows.num_rows, is_constant=True)]
    _, schema = to_long(
        rows,
        alternatives=codes or list(wide.alternatives),
        features=wide.inputs,
        available=wide.availability,
        chosen=best.name,
        individual=individual,
    )
    return schema, [TableFinding(False, f"{wide.explanation()}. Each row is a choice set of {labels}")]


def _sorted(findings: list[TableFinding]) -> tuple[TableFinding, ...]:
    return tuple(sorted(findings, key=lambda finding: not finding.is_problem))


# -- Columns -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnFacts:
    """A column with what its role depends on. ``codes`` number the distinct values, -1 for a missing value."""

    name: str
    codes: Ints
    values: pa.Array
    flags: Bools | None  # of a column of 0 and 1

    @classmethod
    def of(cls, name: str, column: pa.ChunkedArray) -> ColumnFacts:
        """Return the facts about a column. The values of nested columns are not compared."""
        try:
            codes, values = distinct(column)
        except UNREADABLE:
            codes, values = np.arange(len(column), dtype=np.int32), pa.nulls(len(column))
        flags = None
        if 0 < len(values) <= 2 and not (codes < 0).any():
            is_one = _ones(values)
            flags = None if is_one is None else is_one[codes]
        return cls(name, codes.astype(np.int64), values, flags)

    @property
    def is_text(self) -> bool:
        """Whether the values are text."""
        return is_text(value_type(self.values.type))

    @property
    def is_id(self) -> bool:
        """Whether the values may be ids: text or integers."""
        return self.is_text or pa.types.is_integer(self.values.type)

    def is_named(self, role: str) -> bool:
        """Return True if the name of the column suggests a role."""
        return re.search(_PATTERNS[role], self.name.lower()) is not None


def _ones(values: pa.Array) -> Bools | None:
    """Return which of at most two distinct values is 1 or true, or None if there are other values."""
    if pa.types.is_boolean(values.type):
        return np.asarray(array_to_numpy(values), bool)
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return None
    numbers = np.asarray(array_to_numpy(values), float)
    return numbers == 1 if np.isin(numbers, (0, 1)).all() else None


# -- Roles -------------------------------------------------------------------------------------------------------------


def guess_roles(columns: Sequence[ColumnFacts], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given roles and, for the other columns, guessed roles."""
    roles: dict[str, Any] = {role: value for role, value in given.items() if value is not None}
    by_name = {column.name: column for column in columns}
    if "choice_set" not in roles or not {"chosen", "rank", "counts"} & roles.keys():
        roles |= _guess_choices(columns, roles)
    if roles.get("choice_set") not in by_name:
        return roles
    # 1. Find which columns are constant within each set, and which differ between all rows of each set.
    sets = by_name[roles["choice_set"]].codes
    n_sets = int(sets.max(initial=-1)) + 1
    taken = _taken(roles)
    rest = [column for column in columns if column.name not in taken]
    constant = {column.name: _is_constant(column.codes, sets, n_sets) for column in rest}
    # 2. Assign single roles by name, and labels by their values.
    for role in ("available", "weight", "person"):
        for column in rest:
            is_constant = constant[column.name]
            fits = column.flags is not None and not is_constant if role == "available" else is_constant
            is_group = role != "person" or 1 < len(column.values) < n_sets
            if role not in roles and column.is_named(role) and fits and is_group:
                roles[role] = column.name
    if "alternative" not in roles:
        labels = [
            column
            for column in rest
            if column.is_id and 1 < len(column.values) <= MAX_LABELS and _differs(column.codes, sets)
        ]
        labels = [column for column in labels if column.is_text or column.is_named("alternative")]
        if labels:
            roles["alternative"] = max(labels, key=lambda column: column.is_named("alternative")).name
    # 3. The other columns are features or belong to the individual. Names and notes are left out.
    taken = _taken(roles)
    rest = [
        column
        for column in rest
        if column.name not in taken and _is_input(column, n_sets, is_constant=constant[column.name])
    ]
    for role, is_individual in (("individual", True), ("features", False)):
        if role not in roles:
            roles[role] = [column.name for column in rest if constant[column.name] == is_individual]
    return roles


def _taken(roles: Mapping[str, Any]) -> set[str]:
    """Return the columns that have a role."""
    names: set[str] = set()
    for role, value in roles.items():
        if role not in ("outside", "conflict", "missing", "kinds", "signs"):
            names |= {value} if isinstance(value, str) else set(value)
    return names


def _guess_choices(columns: Sequence[ColumnFacts], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns with the ids of the sets and with the choices, or one of them if the other is given."""
    ids = [c for c in columns if c.name == given.get("choice_set", c.name) and (c.is_id or "choice_set" in given)]
    flags = [c for c in columns if c.name == given.get("chosen", c.name) and c.flags is not None]
    flags = [] if {"rank", "counts"} & given.keys() else flags
    best: tuple[float, dict[str, Any]] = (0.0, {})
    for column in ids:
        n_sets = len(column.values)
        if column.flags is not None or (column.codes < 0).any() or n_sets == len(column.codes):
            continue
        for flag in flags:
            assert flag.flags is not None
            counts = np.bincount(column.codes, flag.flags, minlength=n_sets)
            share = float((counts == 1).mean())
            named = 0.01 * (column.is_named("choice_set") + flag.is_named("chosen"))
            score = (
                share + named + 0.02 * n_sets / len(column.codes)
            )  # of nested ids, such as persons, prefer the finer
            if share >= MIN_SHARE_WITH_ONE_CHOICE and score > best[0]:
                best = score, {"choice_set": column.name, "chosen": flag.name}
    if best[1]:
        return best[1]
    named_ids = [c for c in ids if c.is_named("choice_set") and c.flags is None]
    return {"choice_set": named_ids[0].name} if named_ids and "choice_set" not in given else {}


def _is_constant(codes: Ints, sets: Ints, n_sets: int) -> bool:
    """Return True if a column has one value in each set."""
    first = np.zeros(n_sets, codes.dtype)
    first[sets[::-1]] = codes[::-1]
    return bool((codes == first[sets]).all())


def _differs(codes: Ints, sets: Ints) -> bool:
    """Return True if no two rows of a set have the same value."""
    pairs = sets.astype(np.int64) * (int(codes.max(initial=0)) + 2) + codes + 1
    return len(np.unique(pairs)) == len(pairs)


def _is_input(column: ColumnFacts, n_sets: int, *, is_constant: bool) -> bool:
    """Return False for ids, names and notes: text, or whole numbers, that hardly ever repeat."""
    if not column.is_id:
        return not pa.types.is_null(column.values.type)
    is_rare = len(column.values) > (n_sets if is_constant else len(column.codes)) / 2
    is_named_as_id = column.is_named("person") or column.is_named("choice_set")
    is_name = column.is_text and not _is_number_text(column)
    return not (is_rare and (is_name or is_named_as_id))


# -- Findings ----------------------------------------------------------------------------------------------------------


def _recognise_wide(columns: Sequence[ColumnFacts]) -> WideColumns | None:
    choices = {
        str(value) for column in columns if column.is_named("chosen") for value in column.values[:100].to_pylist()
    }
    return recognise_wide([column.name for column in columns], choices)


def _repeated_rows(columns: Sequence[ColumnFacts]) -> Iterator[TableFinding]:
    n_rows = n_distinct = len(columns[0].codes) if columns else 0
    row_codes = np.zeros(n_rows, np.int64)
    for column in columns:  # stops when the columns distinguish all rows
        if pa.types.is_null(column.values.type):  # nested columns cannot be compared
            return
        distinct_rows, row_codes = np.unique(row_codes * (len(column.values) + 1) + column.codes, return_inverse=True)
        n_distinct = len(distinct_rows)
        if n_distinct == n_rows:
            return
    if n := n_rows - n_distinct:
        verb = "repeats another row" if n == 1 else "repeat other rows"
        yield TableFinding(False, f"{_count(n, 'row')} {verb} in all columns: remove duplicates")


def _similar_values(columns: Sequence[ColumnFacts]) -> Iterator[TableFinding]:
    for column in columns:
        hint = (
            similar_values(column.values.to_pylist()) if column.is_text and len(column.values) <= MAX_LABELS else None
        )
        if hint is not None:
            yield TableFinding(False, f"column {column.name!r}: {hint}")


def _set_findings(columns: Sequence[ColumnFacts], roles: Mapping[str, Any]) -> Iterator[TableFinding]:
    """Yield findings about the sizes of the sets, the choices, and columns that cannot be used."""
    by_name = {column.name: column for column in columns}
    ids, chosen = by_name.get(roles["choice_set"]), by_name.get(roles.get("chosen", ""))
    if ids is None or (ids.codes < 0).any():
        return
    # 1. Choice sets.
    sizes = np.bincount(ids.codes)
    if len(sizes) == 1 and len(ids.codes) > 1:
        yield TableFinding(True, f"column {ids.name!r}: all rows have the same id, so there is only one choice set")
        return
    if len(sizes) == len(ids.codes):
        yield TableFinding(True, f"column {ids.name!r}: each row has its own id, so no choice set has two alternatives")
        return
    if (singles := int((sizes == 1).sum())) > 0:
        yield TableFinding(
            False, f"{_count(singles, 'choice set')} of one alternative: nothing can be learnt from them"
        )
    # 2. Choices.
    if chosen is not None and chosen.flags is not None and "outside" not in roles:
        counts = np.bincount(ids.codes, chosen.flags)
        for which, what in ((counts == 0, "no chosen alternative"), (counts > 1, "several chosen alternatives")):
            if which.any():
                named = ", ".join(map(str, ids.values.take(pa.array(np.flatnonzero(which)[:MAX_LISTED])).to_pylist()))
                yield TableFinding(True, f"{_count(int(which.sum()), 'choice set')} with {what} (ids {named})")
    # 3. Columns.
    for name in [*roles.get("features", ()), *roles.get("individual", ())]:
        column = by_name.get(name)
        if column is None:
            continue
        missing = int((column.codes < 0).sum()) + _count_nan(column)
        if missing and roles.get("missing") != "indicator":
            yield TableFinding(
                False, f"column {name!r}: {_count(missing, 'missing value')}: drop the rows, or mark them"
            )
        if len(column.values) == 1:
            yield TableFinding(
                False, f"column {name!r} has the same value in all rows, so nothing can be learnt from it"
            )
        if chosen is not None and _is_copy(column, chosen):
            yield TableFinding(
                True, f"column {name!r} is a copy of {chosen.name!r}, so it reveals the choice: leave it out"
            )
        if column.is_text and _is_number_text(column):
            yield TableFinding(
                False, f"column {name!r} holds numbers as text: store them as numbers, or they are categories"
            )


def _is_copy(column: ColumnFacts, chosen: ColumnFacts) -> bool:
    if column.flags is None or chosen.flags is None or column.name == chosen.name:
        return False
    return np.array_equal(column.flags, chosen.flags)


def _count_nan(column: ColumnFacts) -> int:
    if not pa.types.is_floating(column.values.type):
        return 0
    is_nan = np.isnan(to_numpy(pa.chunked_array([column.values])))
    return int(is_nan[column.codes[column.codes >= 0]].sum())


def _is_number_text(column: ColumnFacts) -> bool:
    numbers = pc.match_substring_regex(column.values, r"^\s*[$€£]?\s*-?\d+([.,]\d+)*\s*[$€£%]?\s*$")
    return len(column.values) > 1 and bool(pc.all(numbers).as_py())


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
