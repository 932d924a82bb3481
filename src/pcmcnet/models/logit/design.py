"""A formula and a training part -> named columns of a utility, for that table and for any later one.

What is learnt (levels, references, means) comes from the training part alone and is saved with the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import zip_longest
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.columns.arrays import Categorical, Column, Numeric
from pcmcnet.data.outside import with_filled_outside_features
from pcmcnet.errors import ArtifactError, ConfigError, InputError, SchemaError, did_you_mean
from pcmcnet.models.logit.box_cox import LinearisedUtility, UtilityForm
from pcmcnet.models.logit.factor_coding import (
    SLOPE,
    Code,
    LevelCode,
    NumberCode,
    block,
    learn_levels,
    learn_number,
    read_code,
)
from pcmcnet.models.logit.formula import (
    Factor,
    Formula,
    Term,
    find_column,
    parse_formula,
    quoted,
    require_labels,
    require_levels,
    resolve,
    row_name,
    with_offset,
)

# -- Labels of alternatives -> 0/1 columns, which constants and coefficients of each alternative multiply --------------


class UnseenLabelError(InputError):
    """An alternative has a label that was not in training; ``label`` and ``what`` are for those who know its place."""

    def __init__(self, label: str, where: str, what: str) -> None:
        super().__init__(f"alternative {label!r} ({where}) {what}")
        self.label, self.what = label, what


def learn_labels(terms: Formula, data: ChoiceData, chosen: Ints, reference: str | None) -> LevelCode | None:
    """Learn the labels, where coefficients belong to alternatives; ``chosen`` are the rows of the choices."""
    if not (terms.constants or terms.individual or terms.specific):
        return None
    labels = require_labels(data)
    present = [labels.categories[k] for k in np.unique(labels.codes)]
    if reference is None and data.schema.outside in present:
        reference = data.schema.outside
    if reference is None:
        reference = learn_levels(labels, chosen, least=0).reference
    elif reference not in present:
        raise ConfigError(f"reference {reference!r} is no alternative of the table." + did_you_mean(reference, present))
    return LevelCode(reference, tuple(sorted(set(present) - {reference})), False)


def label_marks(data: ChoiceData, code: LevelCode) -> tuple[Floats, tuple[str, ...]]:  # -> (N, k), k labels
    """Mark each alternative's label, the reference first; refuse labels that training did not have."""
    labels = require_labels(data)
    place = {level: k for k, level in enumerate(code.names)}
    table = np.array([place.get(c, -1) for c in labels.categories], np.int64)
    at = table[labels.codes]
    if (at < 0).any():
        row = int(np.argmax(at < 0))
        raise UnseenLabelError(
            labels.categories[labels.codes[row]],
            f"table row {data.rows[row]}",
            f"was not in training, so it has no constant; {int((at < 0).sum())} such rows. Fit without constants "
            f"(formula '... | 0'), or use pcmcnet, which knows alternatives by their features alone.",
        )
    numbers = np.zeros((len(at), len(code.names)))
    numbers[np.arange(len(at)), at] = 1.0
    return numbers, code.names


# -- Units -------------------------------------------------------------------------------------------------------------
# Which coefficients are worths of one unit: b / u is the derivative of the utility in a column of the table.
#
# u is what the formula divides the column by. A level of a category, a constant or a mark of gaps has u = 1: it is
# worth so much beside its reference. A coefficient of log(x), of a product of numbers, or of a column that other terms
# hold as well is no worth of a unit: what one more unit brings then depends on the alternative, or on who chooses.

_STRAIGHT = (None, "standardise", "piecewise")


def require_unit(design: Design, data: ChoiceData, name: str, *, money: bool = True) -> float:
    """Return u for a column of the design; ``data`` may be without rows.

    Coefficients that are no worth of a unit are refused; with ``money``, also those of levels and constants.
    """
    # 1. The term of the coefficient, and its numbers. Without any, it belongs to a level or a constant.
    if name not in design.columns:
        raise InputError(f"the utility has no coefficient {name!r}." + did_you_mean(name, design.columns))
    term = design.owners(data)[design.columns.index(name)]
    numbers = [] if term is None else [f for f in term.factors if isinstance(design.codes[f.column], NumberCode)]
    if term is None or not numbers or "[missing]" in name:
        if money:
            raise InputError(
                f"{name!r} has no unit in which others could be expressed: name the coefficient of a number."
            )
        return 1.0
    # 2. What a unit is worth must be one number: the coefficient over what the formula divides the column by.
    reason = _reason(design, term, numbers)
    if reason:
        raise InputError(
            f"the coefficient {name!r} is not what one unit of {numbers[0].column!r} is worth: {reason}. "
            f"pcmcnet.insight.willingness_to_pay gives the distribution over the alternatives of a table."
        )
    (factor,) = numbers
    code = design.codes[factor.column]
    assert isinstance(code, NumberCode)
    return factor.divisor * (code.scale if factor.function == "standardise" else 1.0)


def _reason(design: Design, term: Term, numbers: list[Factor]) -> str:
    """Say why a unit has no worth of its own; nothing, if it has."""
    if len(numbers) > 1:
        return f"{term} is a product of numbers"
    if numbers[0].function not in _STRAIGHT:
        return f"{numbers[0]} is no straight line"
    for other in design.terms.terms:
        shared = any(factor.column == numbers[0].column for factor in other.factors)
        apart = term.labels and other.labels and not {*term.labels} & {*other.labels}
        if other is not term and shared and not apart:
            return f"the term {other} depends on it as well"
    return ""


def empty_sets(schema: Schema, codes: Mapping[str, Code]) -> ChoiceData:
    """Return a table of no rows with columns of the kinds that the codes are for.

    By it a design that was read shows what columns it gives before any table is asked of it.
    """
    none, word = np.empty(0, np.int64), Categorical(np.empty(0, np.int32), ())

    def columns(names: Sequence[str]) -> dict[str, Column]:
        number = Numeric(np.empty(0, np.float32))
        return {name: number if isinstance(codes.get(name), NumberCode) else word for name in names}

    return ChoiceData(
        schema=schema,
        offsets=np.zeros(1, np.int64),
        set_ids=none,
        chosen=None,
        weights=np.empty(0),
        features=columns(schema.features),
        labels=None if schema.alternative is None else word,
        individual=columns(schema.individual),
        keep={},
        rows=none,
    )


_MISFIT = "the saved design does not fit its own names of coefficients: save the model again."
MOST_COLUMNS = 100_000  # no table has the choices to estimate so many coefficients


@dataclass(frozen=True)
class Design:
    """The columns of a utility: what the formula asks for, with what was learnt in training."""

    formula: str
    terms: Formula  # with every '.' replaced by the columns it stands for
    codes: Mapping[str, Code]
    labels: LevelCode | None  # where some coefficient belongs to an alternative
    columns: tuple[str, ...]
    cost: str | None = None  # the column in whose units the others' parameters are, in a space of willingness to pay
    offset: str | None = None  # the column whose coefficient is 1
    exponents: Mapping[str, float] = field(default_factory=dict)  # of the Box-Cox terms without one; 1 if not given

    @cached_property
    def form(self) -> UtilityForm:
        """How coefficients follow from parameters."""
        curves = dict.fromkeys(f.column for term in self.terms.terms for f in term.factors if f.is_curve)
        return UtilityForm(self.columns, tuple(curves), self.cost, self.offset)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters: of the columns, and of exponents that are to be estimated."""
        return self.form.names

    @classmethod
    def learn(
        cls,
        formula: str,
        data: ChoiceData,
        *,
        reference: str | None = None,
        least: int = 0,
        base: Mapping[str, str] | None = None,
        offset: str | None = None,
        cost: str | None = None,
        leave_out: frozenset[str] = frozenset(),
    ) -> Design:
        """Learn a design from the training part.

        Parameters
        ----------
        formula
            See ``formula.py``.
        data
            Choice sets with choices.
        reference
            Label of the alternative whose constant is 0; if not given, the outside option or the one chosen most often.
        least
            Levels of categorical features chosen fewer times are pooled.
        base
            Levels without a coefficient, by column; elsewhere those chosen most often.
        offset
            Feature that has a term of its own, whose coefficient is not to be estimated; the formula must not name it.
        cost
            Column of the utility in whose units all others are measured: parameters are willingnesses to pay.
        leave_out
            Features that ``.`` does not stand for.
        """
        # 1. The terms of the utility: columns in the place of every dot, and the offset.
        data = with_filled_outside_features(data)
        written, base = parse_formula(formula), require_levels(base or {}, data)
        terms = resolve(written, data, leave_out)
        terms = terms if offset is None else with_offset(terms, offset, data, written.generic)
        # 2. Levels and scales of the columns. The outside option has no features of its own, so its rows do not count.
        chosen = data.offsets[:-1] + data.require_chosen("fitting")
        inside = np.ones(len(data.rows), np.bool_) if data.outside is None else ~data.outside
        codes: dict[str, Code] = {}
        for name in dict.fromkeys(f.column for t in terms.terms for f in t.factors):
            column = find_column(name, data)
            if name in data.features and name != data.schema.outside_feature:
                column = column.take(np.flatnonzero(inside))
            if isinstance(column, Numeric):
                codes[name] = learn_number(column.values)
            else:
                assert isinstance(column, Categorical)  # contents are left out
                picked = np.arange(len(data))
                if name in data.features:
                    picked = (np.cumsum(inside) - 1)[chosen[inside[chosen]]]
                codes[name] = learn_levels(column, picked, least=least, base=base.get(name))
        # 3. The names of the columns, which the design gives for a table of no rows.
        design = cls(formula, terms, codes, learn_labels(terms, data, chosen, reference), ())
        nobody = data.subset([])
        names = design._build(nobody)[1]
        if not names:
            raise InputError(f"formula {formula!r} has no column to estimate a coefficient for: name some features.")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaError(f"two coefficients would be called {twice!r}: rename a column, or a level.")
        # 4. The space of the parameters.
        known = None if offset is None else quoted(offset)
        design = replace(design, columns=tuple(names), cost=cost, offset=known)
        if cost is not None:
            require_unit(design, nobody, cost)
        return design

    def matrix(self, data: ChoiceData, slope_in: str | None = None) -> Floats:  # -> (N, L)
        """Return the numbers that the coefficients multiply, alternative by alternative.

        With ``slope_in`` a column of the table, return their derivative in its exponent.
        """
        numbers, names = self._build(data, slope_in)
        if tuple(names) != self.columns:
            raise ArtifactError(_MISFIT)
        return numbers

    def given(self, values: Floats) -> Design:  # (K,)
        """Return the design with the exponents among these parameters."""
        if not self.form.curves:
            return self
        exponents = self.form.exponents(values).tolist()
        return replace(self, exponents=dict(zip(self.form.curves, exponents, strict=True)))

    def utilities(self, data: ChoiceData, values: Floats) -> Floats:  # (K,) -> (N,)
        """Return the utility of each alternative at these parameters."""
        utilities: Floats = self.given(values).matrix(data) @ self.form.coefficients(values)
        return utilities

    def linearised(self, data: ChoiceData, values: Floats) -> LinearisedUtility:  # (K,)
        """Return a linear utility with the value and the derivatives of this one at these parameters."""
        here, b = self.given(values), self.form.coefficients(values)
        with np.errstate(invalid="ignore", over="ignore"):  # exponents may lead beyond any number
            slopes = [here.matrix(data, curve) @ b for curve in self.form.curves]
            numbers = np.column_stack([here.matrix(data), *slopes])
        return LinearisedUtility(numbers, np.append(b, np.zeros(len(slopes))), self.form.chain(values))

    def sources(self, data: ChoiceData) -> list[str]:
        """Return the term that each column comes from, as the formula writes it; "1" for the constants."""
        return ["1" if owner is None else str(owner) for owner in self.owners(data)]

    def owners(self, data: ChoiceData) -> list[Term | None]:
        """Return the term that each column comes from; None for the constants."""
        terms = self.terms
        owners = [*terms.generic, *([None] if terms.constants else []), *terms.individual, *terms.specific]
        blocks = self._blocks(data.subset([]))
        return [owner for owner, (_, names) in zip(owners, blocks, strict=True) for _ in names]

    def _build(self, data: ChoiceData, slope_in: str | None = None) -> tuple[Floats, list[str]]:
        blocks = list(self._blocks(with_filled_outside_features(data), slope_in))
        numbers = np.column_stack([b for b, _ in blocks]) if blocks else np.zeros((len(data.rows), 0))
        return numbers, [name for _, names in blocks for name in names]

    def _blocks(self, data: ChoiceData, slope_in: str | None = None) -> Iterator[tuple[Floats, list[str]]]:
        """Yield numbers and names: of each generic term, of the constants, of each term of the other parts."""
        yield from (self._generic(term, data, slope_in) for term in self.terms.generic)
        if self.labels is not None:
            dummies, levels = label_marks(data, self.labels)
            if self.terms.constants:
                constants = dummies[:, 1:] if slope_in is None else np.zeros_like(dummies[:, 1:])
                yield constants, [f"constant[{level}]" for level in levels[1:]]
            for term in self.terms.individual:
                yield _by_label(self._term(term, data, slope_in), dummies[:, 1:], levels[1:])
            for term in self.terms.specific:
                yield _by_label(self._features(term, data, slope_in), dummies, levels)

    def _features(self, term: Term, data: ChoiceData, slope_in: str | None) -> tuple[Floats, list[str]]:
        """Return the numbers of a term with features, which are 0 for the outside option."""
        numbers, names = self._term(term, data, slope_in)
        own = term.labels or any(factor.column == data.schema.outside_feature for factor in term.factors)
        if data.outside is None or own:
            return numbers, names
        return np.where(data.outside[:, None], 0.0, numbers), names

    def _generic(self, term: Term, data: ChoiceData, slope_in: str | None) -> tuple[Floats, list[str]]:
        """Return the numbers of a term; 0 for alternatives that it does not name, where it names some."""
        numbers, names = self._features(term, data, slope_in)
        if not term.labels:
            return numbers, names
        labels = require_labels(data)
        counts = np.isin(labels.categories, term.labels)[labels.codes]
        return numbers * counts[:, None], [f"{name}[{','.join(term.labels)}]" for name in names]

    def _term(self, term: Term, data: ChoiceData, slope_in: str | None) -> tuple[Floats, list[str]]:
        # 1. A block of columns for each factor. ``cells``: all factors keep all their levels, so that each column marks
        #    a cell of the table of levels.
        parts, cells = [], len(term.factors) > 1
        for factor in term.factors:
            column, code = _column(factor, data), self.codes[factor.column]
            full = self._keeps_reference(term, factor, data)
            own = self._with_exponent(factor, slope_in)
            numbers, endings = block(own, column, code, data.offsets, full=full, place=partial(row_name, data))
            parts.append((numbers, [f"{factor}{ending}" for ending in endings]))
            cells = cells and full and isinstance(code, LevelCode)
        # 2. Their products; the derivative in an exponent is 0 for a term without it.
        numbers, names = reduce(product, parts)
        if slope_in is not None and not any(f.is_curve and f.column == slope_in for f in term.factors):
            numbers = np.zeros_like(numbers)
        if cells and (self.terms.constants or not (term.labels or term.key in self._individual)):
            return numbers[:, 1:], names[1:]  # the cells sum to a constant, which is there or has no effect
        return numbers, names

    def _with_exponent(self, factor: Factor, slope_in: str | None) -> Factor:
        """Give a Box-Cox term its exponent; with ``slope_in`` its column, make it the derivative."""
        if not factor.is_curve:
            return factor
        function = SLOPE if factor.column == slope_in else factor.function
        return replace(factor, function=function, numbers=(self.exponents.get(factor.column, 1.0),))

    def _keeps_reference(self, term: Term, factor: Factor, data: ChoiceData) -> bool:
        """Tell whether all levels have a coefficient: where the term without the factor is not there by itself."""
        rest = term.key - {factor}
        if term.key in self._individual:
            return rest not in self._individual if rest else not self.terms.constants
        if term.labels and len(term.factors) == 1:  # the levels sum to 1 for these alternatives
            return not self.terms.constants
        varies = term.labels or any(f.column in data.features for f in term.factors if f != factor)
        return bool(varies) and rest not in self._others

    @cached_property
    def _individual(self) -> frozenset[Any]:
        """Terms of individuals by their keys."""
        return frozenset(term.key for term in self.terms.individual)

    @cached_property
    def _others(self) -> frozenset[Any]:
        """All other terms by their keys."""
        return frozenset(term.key for term in (*self.terms.generic, *self.terms.specific))

    def require_fit(self, schema: Schema) -> None:
        """Refuse a design that was read and does not give its own names, by a table of no rows with these roles."""
        # One name after the other, until one differs: there may be more than any memory holds.
        names = (name for _, block_names in self._blocks(empty_sets(schema, self.codes)) for name in block_names)
        if not all(ours == theirs for ours, theirs in zip_longest(names, self.columns)):
            raise ArtifactError(_MISFIT)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "formula": self.formula,
            "resolved": str(self.terms),
            "codes": {name: asdict(code) for name, code in self.codes.items()},
            "labels": None if self.labels is None else asdict(self.labels),
            "names": list(self.columns),
            "cost": self.cost,
            "offset": self.offset,
        }

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Design:
        """Build from what :meth:`to_dict` returned."""
        try:
            codes = {name: read_code(code) for name, code in entries["codes"].items()}
            labels = None if entries["labels"] is None else read_code(entries["labels"])
            assert labels is None or isinstance(labels, LevelCode)
            terms = parse_formula(entries["resolved"])
            _ = [codes[factor.column] for term in terms.terms for factor in term.factors]
            if len(entries["names"]) > MOST_COLUMNS:
                raise ValueError(f"{len(entries['names']):,} columns")
            columns, cost, offset = tuple(map(str, entries["names"])), entries["cost"], entries["offset"]
            if not {cost, offset} <= {None, *columns}:
                raise ValueError(f"cost {cost!r}, offset {offset!r}")
            return cls(entries["formula"], terms, codes, labels, columns, cost, offset)
        except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
            raise ArtifactError(
                f"the saved design is incomplete or altered ({error!r}): save the model again."
            ) from error


def _column(factor: Factor, data: ChoiceData) -> Column:
    """Return a column over alternatives."""
    column = find_column(factor.column, data)
    return column if factor.column in data.features else column.take(data.set_of_alternative)


def product(a: tuple[Floats, list[str]], b: tuple[Floats, list[str]]) -> tuple[Floats, list[str]]:
    """Multiply all columns of one block by all of another."""
    if len(a[1]) * len(b[1]) > MOST_COLUMNS:
        raise InputError(
            f"the product of {a[1][0]!r} and {b[1][0]!r}, and their other levels, has {len(a[1]) * len(b[1]):,} "
            f"columns, at most {MOST_COLUMNS:,} are estimated: leave it out, or raise min_chosen."
        )
    return _columnwise(a[0], b[0]), [f"{left}:{right}" for left in a[1] for right in b[1]]


def _by_label(a: tuple[Floats, list[str]], dummies: Floats, levels: tuple[str, ...]) -> tuple[Floats, list[str]]:
    return _columnwise(a[0], dummies), [f"{name}[{level}]" for name in a[1] for level in levels]


def _columnwise(a: Floats, b: Floats) -> Floats:  # (N, p), (N, q) -> (N, p q)
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), a.shape[1] * b.shape[1])
