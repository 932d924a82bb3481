"""Design matrix of a function of the individual, such as class membership, with one row per choice set.

The first column is a constant, followed by the named terms and then by the terms that ``.`` adds: all other
individual-level columns, with numeric columns standardised. Rare levels of categories are pooled. A column that is
constant, or a linear combination of earlier columns, is not identified. Such a column is left out if it was added by
``.``, and raises an error if it is named in the formula.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.columns.arrays import Categorical, Numeric
from pcmcnet.errors import ArtifactError, ConfigError, InputError, SchemaError, did_you_mean
from pcmcnet.models.logit.design import MAX_COLUMNS, empty_sets, interaction
from pcmcnet.models.logit.factor_coding import Code, LevelCode, factor_columns, learn_levels, learn_number, read_code
from pcmcnet.models.logit.formula import Factor, Term, parse_formula, require_levels
from pcmcnet.models.logit.parameter_bounds import dependent_columns, listed

log = logging.getLogger("pcmcnet")

_MISMATCH = "the saved individual-level columns do not match their list of names: save the model again."


@dataclass(frozen=True)
class IndividualDesign:
    """Columns of a function of the individual, with the constant first."""

    terms: tuple[Term, ...]
    codes: Mapping[str, Code]
    names: tuple[str, ...]
    left_out: tuple[str, ...] = ()  # columns that are not identified

    @classmethod
    def learn(
        cls,
        formula: str,
        data: ChoiceData,
        *,
        least: int,
        base: Mapping[str, str] | None = None,
        option: str = "membership",
    ) -> IndividualDesign:
        """Learn the columns from the training part.

        Levels that occur in fewer than ``least`` choice sets are pooled. ``base`` maps columns to their reference
        levels. ``option`` is the name of the formula in messages.
        """
        # 1. The named terms, then, if the formula has a dot, a term for every other column.
        named, dot = parse_membership(formula)
        base = require_levels(base or {}, data)
        for factor in (f for term in named for f in term.factors):
            _require_individual(factor, data, option)
        used = {t.factors[0].column for t in named if len(t.factors) == 1}
        terms = list(named)
        for name, column in data.individual.items():
            if dot and name not in used:
                terms.append(Term((Factor(name, "standardise" if isinstance(column, Numeric) else None),)))
        # 2. Their levels and scales; then leave out columns that are not identified.
        design = cls(
            tuple(terms), {f.column: _learn(f.column, data, least, base) for t in terms for f in t.factors}, ()
        )
        return design._without_dependent(data, len(named), option)

    def _without_dependent(self, data: ChoiceData, named: int, option: str) -> IndividualDesign:
        """Drop columns that are not identified, but raise InputError if one belongs to the first ``named`` terms."""
        # 1. The names of all columns must differ.
        blocks = self._blocks(data)
        names = [name for _, endings in blocks for name in endings]
        if len(set(names)) < len(names):
            duplicate = next(name for name in names if names.count(name) > 1)
            raise SchemaError(f"{option}: two coefficients would be called {duplicate!r}: rename a column or a level.")
        # 2. Find the columns that, after subtracting their means, are linear combinations of earlier columns.
        numbers = np.concatenate([values for values, _ in blocks], axis=1)[:, 1:]
        numbers = numbers - numbers[:1]  # constant columns become exactly 0
        dependent = [(k + 1, basis) for k, basis in dependent_columns(numbers - numbers.mean(axis=0))]
        for k, basis in dependent:
            if k < sum(len(endings) for _, endings in blocks[: named + 1]):
                reason = "the same"
                if basis:
                    reason = f"a linear combination of {listed([names[j + 1] for j in basis])}"
                raise InputError(
                    f"{option}: {names[k]!r} is {reason} for everyone, so its coefficient is not identified; "
                    f"{len(dependent)} such columns: {listed([names[j] for j, _ in dependent])}. Leave it out, or "
                    f"raise min_chosen for categories."
                )
        left_out = tuple(names[k] for k, _ in dependent)
        if left_out:
            log.info("%s: these columns are left out because they are not identified: %s", option, ", ".join(left_out))
        return replace(self, names=tuple(name for name in names if name not in left_out), left_out=left_out)

    def matrix(self, data: ChoiceData) -> Floats:  # -> (S, G)
        """Return the design matrix, with a row for each choice set."""
        blocks, names = self._blocks(data), set(self.names)
        if [name for _, endings in blocks for name in endings if name in names] != list(self.names):
            raise ArtifactError(_MISMATCH)
        return np.concatenate(
            [values[:, [name in names for name in endings]] for values, endings in blocks], axis=1, dtype=np.float64
        )

    def _blocks(self, data: ChoiceData) -> list[tuple[Floats, list[str]]]:
        """Return the columns and their names, first for the constant and then for each term."""
        return [(np.ones((len(data), 1)), ["constant"]), *(self._term(term, data) for term in self.terms)]

    def _term(self, term: Term, data: ChoiceData) -> tuple[Floats, list[str]]:
        # A block of columns for each factor, then their products. A factor keeps its reference level if the formula
        # lacks the term without it.
        parts, cells = [], len(term.factors) > 1
        for factor in term.factors:
            if factor.column not in data.individual:
                raise SchemaError(
                    f"the model needs the individual-level column {factor.column!r}, which is not in the table."
                )
            rest, code = term.key - {factor}, self.codes[factor.column]
            full = bool(rest) and rest not in self._keys
            column = data.individual[factor.column]
            numbers, endings = factor_columns(factor, column, code, np.arange(len(data) + 1), full=full)
            parts.append((numbers, [f"{factor}{ending}" for ending in endings]))
            cells = cells and full and isinstance(code, LevelCode)
        numbers, names = reduce(interaction, parts)
        return (
            (numbers[:, 1:], names[1:]) if cells else (numbers, names)
        )  # the dummies of all cells sum to the constant

    @cached_property
    def _keys(self) -> frozenset[Any]:
        return frozenset(term.key for term in self.terms)

    def require_fit(self, schema: Schema) -> None:
        """Raise ArtifactError if columns read from disk do not reproduce their stored names.

        The columns are computed for a table without rows that has the column roles of ``schema``.
        """
        no_rows, names = empty_sets(schema, self.codes), {*self.names, *self.left_out}
        # Check term by term first: a damaged file may have more columns than memory holds.
        if not all(names.issuperset(self._term(term, no_rows)[1]) for term in self.terms):
            raise ArtifactError(_MISMATCH)
        self.matrix(no_rows)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""
        return {
            "terms": " + ".join(map(str, self.terms)) or "1",
            "codes": {name: asdict(code) for name, code in self.codes.items()},
            "names": list(self.names),
            "left_out": list(self.left_out),
        }

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> IndividualDesign:
        """Build the columns from the result of :meth:`to_dict`."""
        try:
            codes = {name: read_code(code) for name, code in entries["codes"].items()}
            terms, _ = parse_membership(entries["terms"])
            _ = [codes[factor.column] for term in terms for factor in term.factors]
            if len(entries["names"]) + len(entries["left_out"]) > MAX_COLUMNS:
                raise ValueError(f"too many columns: {len(entries['names']):,}")
            return cls(terms, codes, tuple(map(str, entries["names"])), tuple(map(str, entries["left_out"])))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtifactError(
                f"the saved individual-level columns are incomplete or damaged ({error!r}): save the model again."
            ) from error


def parse_membership(text: str) -> tuple[tuple[Term, ...], bool]:
    """Parse individual-level terms, and return the named terms and whether ``.`` adds all other columns."""
    expected = (
        "membership must be a formula such as 'income + age', '.' for all individual-level columns or '1' for none"
    )
    if not isinstance(text, str) or not text.strip() or "|" in text:
        raise ConfigError(f"{expected}, got {text!r}.")
    try:
        formula = parse_formula(f"| {text}")  # individual columns are the second part of a utility
    except ConfigError as error:
        raise ConfigError(f"{expected}: {error}") from error
    if written := [f for term in formula.individual for f in term.factors if f.is_user_term]:
        raise ConfigError(f"{expected}, got {written[0]}: terms of your own are supported in utilities only.")
    if formula.constants is False:
        raise ConfigError(f"{expected}, got {text!r}: membership always has a constant.")
    return formula.individual, formula.individual_dot


def _require_individual(factor: Factor, data: ChoiceData, option: str) -> None:
    """Raise SchemaError if a factor is not an individual-level column or transforms a categorical column."""
    if factor.column not in data.individual:
        raise SchemaError(
            f"{option}: {factor.column!r} is not an individual-level column."
            + did_you_mean(factor.column, data.individual)
        )
    changed = factor.function is not None or factor.divisor != 1
    if changed and not isinstance(data.individual[factor.column], Numeric):
        raise SchemaError(f"{factor}: expected a numeric column, but {factor.column!r} is categorical.")


def _learn(name: str, data: ChoiceData, least: int, base: Mapping[str, str]) -> Code:
    column = data.individual[name]
    if isinstance(column, Numeric):
        return learn_number(column.values)
    assert isinstance(column, Categorical)  # content columns (text, images) were dropped before the fit
    return learn_levels(column, np.arange(len(data)), least=least, base=base.get(name))
