"""Terms of individuals -> one row of numbers per choice set, for models of who chooses rather than of what is chosen.

A constant comes first, then the terms named, then those that ``.`` stands for: all other individual columns, numbers
among them standardised. Levels of categories that too few sets have are pooled. Columns that are the same for everyone,
or combinations of earlier ones, can have no coefficient: under ``.`` they are left out, by name they are refused.
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
from pcmcnet.models.logit.design import MOST_COLUMNS, empty_sets, product
from pcmcnet.models.logit.factor_coding import Code, LevelCode, block, learn_levels, learn_number, read_code
from pcmcnet.models.logit.formula import Factor, Term, parse_formula, require_levels
from pcmcnet.models.logit.parameter_bounds import dependent_columns, listed

log = logging.getLogger("pcmcnet")

_MISFIT = "the saved columns of individuals do not fit their own names: save the model again."


@dataclass(frozen=True)
class IndividualDesign:
    """The columns of a function of the individual; the first is the constant."""

    terms: tuple[Term, ...]
    codes: Mapping[str, Code]
    names: tuple[str, ...]
    left_out: tuple[str, ...] = ()  # columns that add nothing to the others

    @classmethod
    def learn(
        cls, formula: str, data: ChoiceData, *, least: int, base: Mapping[str, str] | None = None
    ) -> IndividualDesign:
        """Learn from the training part; levels that fewer than ``least`` sets have are pooled, ``base`` has none."""
        # 1. The terms that are named, then a term for every other column, where the dot asks for them.
        named, dot = parse_membership(formula)
        base = require_levels(base or {}, data)
        for factor in (f for term in named for f in term.factors):
            _check(factor, data)
        used = {t.factors[0].column for t in named if len(t.factors) == 1}
        terms = list(named)
        for name, column in data.individual.items():
            if dot and name not in used:
                terms.append(Term((Factor(name, "standardise" if isinstance(column, Numeric) else None),)))
        # 2. Their levels and scales, and which of their columns can have a coefficient.
        design = cls(
            tuple(terms), {f.column: _learn(f.column, data, least, base) for t in terms for f in t.factors}, ()
        )
        return design._without_dependent(data, len(named))

    def _without_dependent(self, data: ChoiceData, named: int) -> IndividualDesign:
        """Leave out what adds nothing to the columns before it; refuse to, for the first ``named`` terms."""
        # 1. All columns but the constant, by their names.
        blocks = self._blocks(data)
        names = [name for _, endings in blocks for name in endings]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaError(f"two coefficients of membership would be called {twice!r}: rename a column, or a level.")
        # 2. Those that, less their mean, are combinations of earlier ones: named ones are refused, others left out.
        numbers = np.concatenate([values for values, _ in blocks], axis=1)[:, 1:]
        numbers = numbers - numbers[:1]  # columns that are the same for everyone become exactly 0
        lost = [(k + 1, others) for k, others in dependent_columns(numbers - numbers.mean(axis=0))]
        for k, others in lost:
            if k < sum(len(endings) for _, endings in blocks[: named + 1]):
                of = f"a linear combination of {listed([names[j + 1] for j in others])}" if others else "the same"
                raise InputError(
                    f"membership: {names[k]!r} is {of} for everyone, so it can have no coefficient; {len(lost)} such "
                    f"columns: {listed([names[j] for j, _ in lost])}. Leave it out, or raise min_chosen for categories."
                )
        left_out = tuple(names[k] for k, _ in lost)
        if left_out:
            log.info("membership: left out, as they add nothing to the other columns: %s", ", ".join(left_out))
        return replace(self, names=tuple(name for name in names if name not in left_out), left_out=left_out)

    def matrix(self, data: ChoiceData) -> Floats:  # -> (S, G)
        """Return the numbers that the coefficients multiply."""
        blocks, kept = self._blocks(data), set(self.names)
        if [name for _, endings in blocks for name in endings if name in kept] != list(self.names):
            raise ArtifactError(_MISFIT)
        return np.concatenate(
            [values[:, [name in kept for name in endings]] for values, endings in blocks], axis=1, dtype=np.float64
        )

    def _blocks(self, data: ChoiceData) -> list[tuple[Floats, list[str]]]:
        """Return numbers and names: of the constant, then of each term."""
        return [(np.ones((len(data), 1)), ["constant"]), *(self._term(term, data) for term in self.terms)]

    def _term(self, term: Term, data: ChoiceData) -> tuple[Floats, list[str]]:
        # A block of columns for each factor, then their products. A factor keeps its reference level where the term
        # without it is not there by itself.
        parts, cells = [], len(term.factors) > 1
        for factor in term.factors:
            if factor.column not in data.individual:
                raise SchemaError(f"the model needs the individual column {factor.column!r}, which is not there.")
            rest, code = term.key - {factor}, self.codes[factor.column]
            full = bool(rest) and rest not in self._keys
            column = data.individual[factor.column]
            numbers, endings = block(factor, column, code, np.arange(len(data) + 1), full=full)
            parts.append((numbers, [f"{factor}{ending}" for ending in endings]))
            cells = cells and full and isinstance(code, LevelCode)
        numbers, names = reduce(product, parts)
        return (numbers[:, 1:], names[1:]) if cells else (numbers, names)  # the cells of a table sum to the constant

    @cached_property
    def _keys(self) -> frozenset[Any]:
        return frozenset(term.key for term in self.terms)

    def require_fit(self, schema: Schema) -> None:
        """Refuse columns that were read and do not give their own names, by a table of no rows with these roles."""
        nobody, known = empty_sets(schema, self.codes), {*self.names, *self.left_out}
        if not all(known.issuperset(self._term(term, nobody)[1]) for term in self.terms):  # before there are too many
            raise ArtifactError(_MISFIT)
        self.matrix(nobody)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "terms": " + ".join(map(str, self.terms)) or "1",
            "codes": {name: asdict(code) for name, code in self.codes.items()},
            "names": list(self.names),
            "left_out": list(self.left_out),
        }

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> IndividualDesign:
        """Build from what :meth:`to_dict` returned."""
        try:
            codes = {name: read_code(code) for name, code in entries["codes"].items()}
            terms, _ = parse_membership(entries["terms"])
            _ = [codes[factor.column] for term in terms for factor in term.factors]
            if len(entries["names"]) + len(entries["left_out"]) > MOST_COLUMNS:
                raise ValueError(f"{len(entries['names']):,} columns")
            return cls(terms, codes, tuple(map(str, entries["names"])), tuple(map(str, entries["left_out"])))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtifactError(
                f"the saved columns of individuals are incomplete or altered ({error!r}): save the model again."
            ) from error


def parse_membership(text: str) -> tuple[tuple[Term, ...], bool]:
    """Read terms of individuals; returns those named, and whether ``.`` asks for all others."""
    wanted = "membership must be a formula such as 'income + age', '.' for all individual columns or '1' for none"
    if not isinstance(text, str) or not text.strip() or "|" in text:
        raise ConfigError(f"{wanted}, got {text!r}.")
    try:
        found = parse_formula(f"| {text}")  # individual columns stand in the second part of a utility
    except ConfigError as error:
        raise ConfigError(f"{wanted}: {error}") from error
    if found.constants is False:
        raise ConfigError(f"{wanted}, got {text!r}: shares always have a constant.")
    return found.individual, found.individual_dot


def _check(factor: Factor, data: ChoiceData) -> None:
    """Refuse what is no individual column, and transformations of categories."""
    if factor.column not in data.individual:
        raise SchemaError(
            f"membership names {factor.column!r}, which is no individual column."
            + did_you_mean(factor.column, data.individual)
        )
    changed = factor.function is not None or factor.divisor != 1
    if changed and not isinstance(data.individual[factor.column], Numeric):
        raise SchemaError(f"{factor}: expected numbers, but column {factor.column!r} is categorical.")


def _learn(name: str, data: ChoiceData, least: int, base: Mapping[str, str]) -> Code:
    column = data.individual[name]
    if isinstance(column, Numeric):
        return learn_number(column.values)
    assert isinstance(column, Categorical)  # contents are left out
    return learn_levels(column, np.arange(len(data)), least=least, base=base.get(name))
