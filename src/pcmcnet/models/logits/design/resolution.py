"""A formula and a table -> the terms of a utility: columns in the place of every ``.``, and no term out of place."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Categorical, Column, Columns, Numeric
from pcmcnet.errors import ConfigError, InputError, SchemaError, did_you_mean
from pcmcnet.models.logits.design.formula import Factor, Formula, Term

log = logging.getLogger("pcmcnet")


def resolve(formula: Formula, data: ChoiceData, leave_out: frozenset[str]) -> Formula:
    """Put columns in the place of every '.', and check that each term stands in a part it can stand in."""
    # 1. A column in the place of every dot, unless a term names it.
    generic, individual = list(formula.generic), list(formula.individual)
    constants = data.labels is not None if formula.constants is None else formula.constants
    if formula.generic_dot:
        asked = _unnamed(data.features, (*generic, *formula.specific), leave_out)
        generic += _without_labels(asked, data) if constants else asked
    if formula.individual_dot:
        individual += _unnamed(data.individual, tuple(individual), frozenset())
    resolved = replace(
        formula,
        generic=tuple(generic),
        generic_dot=False,
        individual=tuple(individual),
        individual_dot=False,
        constants=constants,
    )
    # 2. Transformations are for numbers.
    for term in resolved.terms:
        for factor in term.factors:
            column, changed = find_column(factor.column, data), factor.function is not None or factor.divisor != 1
            if changed and not isinstance(column, Numeric):
                raise SchemaError(f"{factor}: expected numbers, but column {factor.column!r} is categorical.")
    # 3. A term of the first or third part varies within a set; one of the second part does not.
    for term in (*resolved.generic, *resolved.specific):
        if term.labels:
            _require_known(term, data)
        elif not any(f.column in data.features for f in term.factors):
            raise SchemaError(
                f"the term {term} is the same for all alternatives of a set, so it has no effect by itself: interact "
                f"it with a feature ({term}:FEATURE), or put it after '|' for a coefficient per alternative."
            )
    for term in resolved.individual:
        for factor in term.factors:
            if factor.column in data.features:
                raise SchemaError(f"the term {term} after the first '|' holds a feature: put it after a second '|'.")
    return resolved


def require_levels(base: Mapping[str, str], data: ChoiceData) -> Mapping[str, str]:
    """Refuse base levels of columns, or of levels, that the table does not have."""
    columns = {**data.features, **data.individual}
    levels = {name: column for name, column in columns.items() if isinstance(column, Categorical)}
    for name, level in base.items():
        if name not in levels:
            raise ConfigError(f"base names {name!r}, no categorical column here." + did_you_mean(name, levels))
        present = [levels[name].categories[k] for k in np.unique(levels[name].codes)]
        if level not in present:
            raise ConfigError(f"base level {level!r} of {name!r} is not in the table." + did_you_mean(level, present))
    return base


def with_offset(formula: Formula, column: str, data: ChoiceData, named: tuple[Term, ...]) -> Formula:
    """Add the term of an offset, a number that is part of the utility as it is, unless '.' has put it there.

    Refuses an offset that is among the ``named`` terms, which are written out and so have coefficients to estimate.
    """
    if column not in data.features:
        raise SchemaError(f"offset {column!r} is no feature of the table." + did_you_mean(column, data.features))
    values = data.features[column]
    if not isinstance(values, Numeric):
        raise SchemaError(f"offset: expected numbers, but column {column!r} is {values.kind}.")
    gaps = np.isnan(values.values)
    if gaps.any():
        row = data.rows[int(gaps.argmax())]
        raise SchemaError(
            f"offset: column {column!r} has {int(gaps.sum())} missing values, the first in table row {row}: every "
            f"alternative needs one."
        )
    term = Term((Factor(column),))
    if term in named:
        raise ConfigError(
            f"the formula names {column!r}, which is the offset: its coefficient would be 1 and not estimated. Leave "
            f"it out of the formula, or leave out offset={column!r}."
        )
    if term not in formula.generic:
        return replace(formula, generic=(*formula.generic, term))
    log.info("formula: '.' leaves out %r, which is the offset: its coefficient is 1", column)
    return formula


def _require_known(term: Term, data: ChoiceData) -> None:
    """Refuse a term for alternatives that the table does not have."""
    labels = require_labels(data)
    present = [labels.categories[k] for k in np.unique(labels.codes)]
    for label in term.labels:
        if label not in present:
            raise ConfigError(f"the term {term} names {label!r}, no alternative here." + did_you_mean(label, present))


def _unnamed(columns: Columns, named: tuple[Term, ...], leave_out: frozenset[str]) -> list[Term]:
    """Return a term for each column that no term names by itself."""
    used = {t.factors[0].column for t in named if len(t.factors) == 1} | leave_out
    return [Term((Factor(name),)) for name in columns if name not in used]


def _without_labels(terms: list[Term], data: ChoiceData) -> list[Term]:
    """Leave out the features that only repeat the label: constants say the same, and both make a singular design."""
    kept = []
    for term in terms:
        name = term.factors[0].column
        if data.labels is not None and _same_partition(data.features[name], data.labels):
            log.info("formula: '.' leaves out %r, which equals the label: the constants stand for it", name)
        else:
            kept.append(term)
    return kept


def _same_partition(column: Column, labels: Categorical) -> bool:
    """Tell whether each category goes with one label and each label with one category."""
    if not isinstance(column, Categorical):
        return False
    pairs = len(np.unique(column.codes.astype(np.int64) * len(labels.categories) + labels.codes))
    return pairs == len(np.unique(column.codes)) == len(np.unique(labels.codes))


def require_labels(data: ChoiceData) -> Categorical:
    """Return the labels; refuse a table without."""
    if data.labels is None:
        raise InputError(
            "coefficients per alternative need labels: read the table with alternative=<column>, or use a formula "
            "without '|'."
        )
    return data.labels


def find_column(name: str, data: ChoiceData) -> Column:
    """Return a column as it is: over alternatives, or over sets."""
    columns = {**data.features, **data.individual}
    if name not in columns:
        raise SchemaError(
            f"the utility needs column {name!r}, which the table does not have." + did_you_mean(name, columns)
        )
    return columns[name]


def row_name(data: ChoiceData, row: int) -> str:
    """Say where an alternative stands."""
    return f"table row {data.rows[row]} (choice set {data.set_ids[data.set_of_alternative[row]]!s})"
