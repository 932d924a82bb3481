"""Read choice experiments of survey software as long tables, with a row for each concept of each task.

Sawtooth's CHO format is text. For each respondent, it contains

    id, number of extra variables, of attributes, of tasks, and 0 or 1 for "none"
    the extra variables
    for each task:  number of concepts, depth of preference (1)
                    a line for each concept: the level of each attribute, 0 if it is not shown
                    chosen concept, seconds

The concept after the last one is "none", and 0 is a missing answer. Other programs export the design, with a row for
each concept, and the answers, with a row for each respondent and a column for each task (wide format).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.checks import suggests_arguments
from pcmcnet.data.files.tabular import read_table
from pcmcnet.errors import InputError, SchemaError, did_you_mean
from pcmcnet.storage import as_path

NONE_LABEL = "none"  # of rows of pn.design, which answers call 0
NONE_OPTIONS = (0, 1)  # without and with "none"; dual responses are not supported


@suggests_arguments(call="read_cho('survey.cho')")
def read_cho(path: str | Path, attributes: Mapping[str, Sequence[str]] | Sequence[str] | None = None) -> pa.Table:
    """Read a Sawtooth CHO file as a long table.

    Parameters
    ----------
    path
        The file.
    attributes
        Names of the attributes, or a mapping from names to the labels of their levels, in the order of the file. By
        default, attributes are called ``attribute 1``, ``attribute 2``, ... and levels ``1``, ``2``, ...

    Returns
    -------
    pyarrow.Table
        A row per concept with the columns ``respondent``, ``task`` (unique over respondents), ``concept``, ``chosen``
        (0 or 1) and the attributes, as text. A task in which no row is chosen was answered by "none": read the table
        with ``outside="none"``. Tasks without an answer are left out.

    Raises
    ------
    InputError
        If the file is not in the CHO format, or has another number of attributes or levels.
    """
    # 1. The numbers of the file, line by line.
    file = as_path(path)
    if not file.is_file():
        raise InputError(f"{file} does not exist, or is not a file: expected a Sawtooth CHO file.")
    lines = _Lines(file)
    rows: dict[str, list[Any]] = {"respondent": [], "task": [], "concept": [], "chosen": []}
    levels: list[list[int]] = []
    # 2. Each respondent has a line of counts and a line of extra variables, then the tasks.
    while (header := lines.next_numbers(optional=True)) is not None:
        respondent, n_extra, n_attributes, n_tasks, none = lines.require(header, 5, "a respondent")
        if none not in NONE_OPTIONS:
            raise InputError(
                f"{lines.place}: expected 0 or 1 for the none option, got {none}. Export dual responses as two tasks."
            )
        if n_extra:
            lines.next_numbers()
        if levels and n_attributes != len(levels[0]):
            raise InputError(f"{lines.place}: expected {len(levels[0])} attributes, got {n_attributes}.")
        for task in range(1, n_tasks + 1):
            concepts, *_ = lines.require(lines.next_numbers(), 2, "a task")
            shown = [lines.require(lines.next_numbers(), n_attributes, "a concept") for _ in range(concepts)]
            picked, *_ = lines.require(lines.next_numbers(), 1, "an answer", more=True)
            if not 0 <= picked <= concepts + none:
                raise InputError(f"{lines.place}: expected a choice from 0 to {concepts + none}, got {picked}.")
            if picked:
                for concept, of_concept in enumerate(shown, start=1):
                    values = (str(respondent), f"{respondent}/{task}", str(concept), int(concept == picked))
                    for column, value in zip(rows.values(), values, strict=True):
                        column.append(value)
                    levels.append(of_concept)
    if not levels:
        raise InputError(f"{file} has no answered task: expected a Sawtooth CHO file.")
    # 3. Names and labels of the levels.
    return pa.table({**rows, **_labelled(np.array(levels, np.int64).T, attributes)})


class _Lines:
    """Lines of whole numbers of a text file, without empty lines."""

    def __init__(self, file: Path) -> None:
        self.file, self.number = file, 0
        self._numbers = self._read()

    @property
    def place(self) -> str:
        """The present line, for messages."""
        return f"{self.file}, line {self.number}"

    def next_numbers(self, *, optional: bool = False) -> list[int] | None:
        """Return the numbers of the next line, or None at the end of the file if ``optional``."""
        numbers = next(self._numbers, None)
        if numbers is None and not optional:
            raise InputError(f"{self.place}: the file ends within a respondent: export it again.")
        return numbers

    def require(self, numbers: list[int] | None, count: int, what: str, *, more: bool = False) -> list[int]:
        """Return the numbers, or raise InputError if their number is wrong."""
        assert numbers is not None
        if len(numbers) < count or (len(numbers) > count and not more):
            raise InputError(f"{self.place}: expected {count} numbers of {what}, got {len(numbers)}.")
        return numbers

    def _read(self) -> Iterator[list[int]]:
        with self.file.open(encoding="utf-8-sig", errors="replace") as lines:
            for line in lines:
                self.number += 1
                words = line.replace(",", " ").split()
                try:
                    numbers = [int(word) for word in words]
                except ValueError:
                    raise InputError(f"{self.place}: expected whole numbers, got {line.strip()[:60]!r}.") from None
                if numbers:
                    yield numbers


def _labelled(
    levels: np.ndarray, attributes: Mapping[str, Sequence[str]] | Sequence[str] | None
) -> dict[str, list[str]]:  # (A, N)
    """Return the levels of each attribute as text. Level 0 is an attribute that is not shown."""
    names = [f"attribute {k}" for k in range(1, len(levels) + 1)] if attributes is None else list(attributes)
    if len(names) != len(levels):
        raise InputError(
            f"attributes: expected {len(levels)} names, as in the file, got {len(names)}: {', '.join(names)}."
        )
    columns = {}
    for name, numbers in zip(names, levels, strict=True):
        labels = [str(k) for k in range(1, int(numbers.max(initial=0)) + 1)]
        if isinstance(attributes, Mapping):
            labels = [str(label) for label in attributes[name]]
        if numbers.min(initial=0) < 0 or numbers.max(initial=0) > len(labels):
            raise InputError(
                f"attributes: expected {int(numbers.max(initial=0))} or more labels of {name!r}, got {len(labels)}. "
                "Add the missing labels."
            )
        text = np.array(["not shown", *labels], dtype=object)
        columns[name] = text[numbers].tolist()
    return columns


@suggests_arguments()
def join_survey(
    design: Any,
    answers: Any,
    *,
    respondent: str,
    tasks: Sequence[str],
    version: str | None = None,
    task: str = "task",
    concept: str = "concept",
    keep: Sequence[str] = (),
) -> pa.Table:
    """Join the design of a choice experiment with the answers of a survey, which have a column for each task.

    Parameters
    ----------
    design
        Table with a row for each concept: columns for the task, the concept, the attributes and, if there are several
        versions of the questionnaire, the version. Tasks and concepts are numbered from 1. Concepts called "none", as
        in tables of :func:`design`, are left out.
    answers
        Table with a row for each respondent.
    respondent
        Column of ``answers`` with the id of the respondent.
    tasks
        Columns of ``answers`` with the chosen concepts, in the order of the tasks. 0 is "none", and an empty cell or
        NaN is a missing answer.
    version
        Column of the version, in both tables. Default: all respondents have the same tasks.
    task, concept
        Columns of ``design`` with the numbers of the task and the concept.
    keep
        Columns of ``answers`` to repeat for each row, such as age. Default: none.

    Returns
    -------
    pyarrow.Table
        A row for each concept of each answered task, with the columns ``respondent``, ``task`` (unique over
        respondents), ``concept``, ``chosen`` (0 or 1), the attributes, and ``keep``.

    Raises
    ------
    SchemaError
        If a column is missing.
    InputError
        If an answer is not a concept of the design, if a respondent is missing or repeated, or if the design has a
        concept of a task more than once.
    """
    # 1. Read the tables, and the rows of the design by version and task.
    if isinstance(tasks, str):
        raise InputError(f"tasks: expected a list of columns, got {tasks!r}: write [{tasks!r}].")
    plan, replies = read_table(design).to_pydict(), read_table(answers).to_pydict()
    _require_columns("design", plan, [task, concept, *([version] if version else [])])
    _require_columns("answers", replies, [respondent, *tasks, *([version] if version else []), *keep])
    _require_one_row_each(replies[respondent], respondent)
    roles = {task, concept, *([version] if version else [])}
    attributes = [name for name in plan if name not in roles]
    rows_of: dict[tuple[str, int], dict[int, int]] = {}
    for row in range(len(plan[task])):
        if plan[concept][row] == NONE_LABEL:
            continue
        key = (str(plan[version][row]) if version else "", _whole(plan[task][row], f"design, column {task!r}"))
        concepts_of_task = rows_of.setdefault(key, {})
        label = _whole(plan[concept][row], f"design, column {concept!r}")
        if label in concepts_of_task:
            raise InputError(
                f"design, row {row}: task {key[1]} has concept {label} more than once. If the design has several "
                f"versions, pass version=<column>."
            )
        concepts_of_task[label] = row
    # 2. One row for each concept of each answered task.
    out: dict[str, list[Any]] = {n: [] for n in ("respondent", "task", "concept", "chosen", *attributes, *keep)}
    for k, person in enumerate(replies[respondent]):
        for number, column in enumerate(tasks, start=1):
            if replies[column][k] in (None, "") or replies[column][k] != replies[column][k]:  # NaN
                continue
            picked = _whole(replies[column][k], f"answers, column {column!r}")
            key = (str(replies[version][k]) if version else "", number)
            concepts = rows_of.get(key, {})
            if not concepts or (picked and picked not in concepts):
                expected = f"one of {sorted(concepts)} or 0" if concepts else f"a task {number} in the design"
                raise InputError(
                    f"answers, respondent {person!s}, column {column!r}: expected {expected}, got concept {picked}"
                    + (f" of version {key[0]}." if version else ".")
                )
            for label, row in concepts.items():
                values = (str(person), f"{person}/{number}", str(label), int(label == picked))
                for name, value in zip(("respondent", "task", "concept", "chosen"), values, strict=True):
                    out[name].append(value)
                for name in attributes:
                    out[name].append(plan[name][row])
                for name in keep:
                    out[name].append(replies[name][k])
    return pa.table(out)


def _require_columns(table: str, columns: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if name not in columns:
            raise SchemaError(f"{table}: the table has no column {name!r}." + did_you_mean(name, list(columns)))


def _require_one_row_each(respondents: Sequence[Any], column: str) -> None:
    """Raise InputError if the id of a respondent is missing or occurs twice."""
    seen: set[str] = set()
    for row, person in enumerate(respondents):
        if person is None or person != person or str(person) in seen:
            problem = f"{person!s} has more than one row" if str(person) in seen else "the respondent is missing"
            raise InputError(f"answers, row {row}, column {column!r}: {problem}. Keep one row for each respondent.")
        seen.add(str(person))


def _whole(value: Any, place: str) -> int:
    """Return a cell as a whole number, or raise InputError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not number.is_integer():  # nor NaN, nor infinite
        raise InputError(f"{place}: expected a whole number, got {value!r}.")
    return int(number)
