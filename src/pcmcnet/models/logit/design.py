"""Design matrix of a utility: a formula and a training part define the columns, which can be computed for any table.

Levels, reference levels and means are learnt only from the training part and are saved with the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import zip_longest
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.columns.arrays import Categorical, Column, Numeric
from pcmcnet.data.columns.connected import connected_groups
from pcmcnet.data.columns.ragged import spread
from pcmcnet.data.outside import with_filled_outside_features
from pcmcnet.errors import (
    ArtifactError,
    ConfigError,
    InputError,
    SchemaError,
    UndefinedTermError,
    did_you_mean,
    such_rows,
)
from pcmcnet.models.logit.box_cox import LinearisedUtility, UtilityForm
from pcmcnet.models.logit.factor_coding import (
    SLOPE,
    Code,
    LevelCode,
    NumberCode,
    factor_columns,
    learn_levels,
    learn_number,
    read_code,
)
from pcmcnet.models.logit.formula import (
    EXPONENT,
    Factor,
    Formula,
    Term,
    backquoted,
    find_column,
    parse_formula,
    require_labels,
    require_levels,
    resolve,
    row_name,
    with_offset,
)
from pcmcnet.models.logit.scale_groups import ScaleGroups
from pcmcnet.models.logit.user_terms import fingerprint, require_same_term, user_term

# -- Dummy variables of labels, for constants and alternative-specific coefficients ------------------------------------


class UnseenLabelError(InputError):
    """Error for an alternative with a label that was not in the training part.

    A caller can use the attributes ``label`` and ``what`` (the end of the message) to describe the row differently.
    """

    def __init__(self, label: str, where: str, what: str) -> None:
        super().__init__(f"alternative {label!r} ({where}) {what}")
        self.label, self.what = label, what


def learn_labels(terms: Formula, data: ChoiceData, chosen: Ints, reference: str | None) -> LevelCode | None:
    """Learn the labels, or return None if the formula has no constants or alternative-specific coefficients.

    ``chosen`` contains the row numbers of the chosen alternatives.
    """
    if not (terms.constants or terms.individual or terms.specific):
        return None
    labels = require_labels(data)
    present = [labels.categories[k] for k in np.unique(labels.codes)]
    if reference is None and data.schema.outside in present:
        reference = data.schema.outside
    if reference is None:
        reference = learn_levels(labels, chosen, least=0).reference
    elif reference not in present:
        raise ConfigError(
            f"reference {reference!r} is not an alternative of the table." + did_you_mean(reference, present)
        )
    return LevelCode(reference, tuple(sorted(set(present) - {reference})), False)


def label_dummies(data: ChoiceData, code: LevelCode) -> tuple[Floats, tuple[str, ...]]:  # -> (N, k), k labels
    """Return dummy variables of labels, with the reference first, or raise UnseenLabelError for an unknown label."""
    labels = require_labels(data)
    index = {level: k for k, level in enumerate(code.names)}
    column_of_code = np.array([index.get(c, -1) for c in labels.categories], np.int64)
    column = column_of_code[labels.codes]
    if (column < 0).any():
        row = int(np.argmax(column < 0))
        raise UnseenLabelError(
            labels.categories[labels.codes[row]],
            f"table row {data.rows[row]}",
            f"was not in the training data, so it has no constant ({such_rows(int((column < 0).sum()))}). Fit without "
            f"constants (formula '... | 0'), or use pcmcnet, which uses only the features of alternatives.",
        )
    dummies = np.zeros((len(column), len(code.names)))
    dummies[np.arange(len(column)), column] = 1.0
    return dummies, code.names


# -- Groups of alternatives that are never offered together ------------------------------------------------------------
# Constants and individual-level terms have one coefficient per label, and only differences between the coefficients
# within choice sets matter. If no chain of choice sets connects two groups of labels, adding a number to all constants
# of one group does not change the likelihood. By convention, each group has a reference whose coefficients are 0. The
# reference of the formula has no column. The references of other groups have columns whose coefficients are fixed at 0,
# so that they can be fixed at other values, or calibrated to known shares.


@dataclass(frozen=True)
class LabelGroup:
    """Labels that no chain of choice sets connects with the reference, and their columns.

    Parameters
    ----------
    labels
        Labels of the group. The first is the reference of the group.
    columns
        Rows of columns, with a column per label. In each row, the coefficients are identified up to a common constant.
    """

    labels: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> LabelGroup:
        """Build a group from a dictionary read from JSON, or raise ValueError if it is inconsistent."""
        labels, columns = tuple(map(str, entries["labels"])), tuple(tuple(map(str, row)) for row in entries["columns"])
        if not labels or not columns or any(len(row) != len(labels) for row in columns):
            raise ValueError("a group of labels does not match its columns")
        return cls(labels, columns)


def unconnected_labels(data: ChoiceData, chosen: Ints, code: LevelCode) -> list[tuple[str, ...]]:
    """Return the groups of labels that are not connected with the reference of ``code``.

    The first label of a group is its reference: the label chosen most often.
    """
    labels = require_labels(data)
    groups = connected_groups(labels.codes.astype(np.int64), data.offsets, len(labels.categories))
    counts = np.bincount(labels.codes[chosen], minlength=len(labels.categories))
    place = {name: k for k, name in enumerate(labels.categories)}
    members: dict[int, list[str]] = {}
    for name in sorted(code.levels, key=lambda name: (-counts[place[name]], name)):
        members.setdefault(int(groups[place[name]]), []).append(name)
    members.pop(int(groups[place[code.reference]]), None)
    return [(first, *sorted(rest)) for first, *rest in members.values()]


# -- Marginal utilities ------------------------------------------------------------------------------------------------
# For some coefficients b / u is the marginal utility of a column of the table, where u is the number that the formula
# divides the column by. A level of a category, a constant or a missing-value indicator has u = 1: its utility is
# relative to the reference level. A coefficient of log(x), of a product of numeric columns, or of a column that occurs
# in other terms is not a marginal utility: the effect of one more unit then varies over alternatives or individuals.

_LINEAR_FUNCTIONS = (None, "standardise", "piecewise")


def require_unit(design: Design, data: ChoiceData, name: str, *, money: bool = True) -> float:
    """Return the unit u of a coefficient, given a table that may have no rows.

    Raise InputError if the coefficient is not a marginal utility. If ``money`` is True, also raise InputError if the
    coefficient belongs to a level or a constant.
    """
    # 1. The term of the coefficient and its numeric factors. A level or a constant has none.
    if name not in design.columns:
        raise InputError(f"the utility has no coefficient {name!r}." + did_you_mean(name, design.columns))
    term = design.column_terms(data)[design.columns.index(name)]
    numeric = [] if term is None else [f for f in term.factors if isinstance(design.codes[f.column], NumberCode)]
    if term is None or not numeric or "[missing]" in name:
        if money:
            raise InputError(
                f"{name!r} has no unit in which to express willingness to pay: use the coefficient of a numeric column."
            )
        return 1.0
    # 2. The marginal utility must be a constant: the coefficient over the divisor of the column in the formula.
    reason = _nonlinearity(design, term, numeric)
    if reason:
        raise InputError(
            f"the coefficient {name!r} is not the marginal utility of {numeric[0].column!r}: {reason}. "
            f"pcmcnet.insight.willingness_to_pay gives the distribution over the alternatives of a table."
        )
    (factor,) = numeric
    code = design.codes[factor.column]
    assert isinstance(code, NumberCode)
    return factor.divisor * (code.scale if factor.function == "standardise" else factor.unit)


def _nonlinearity(design: Design, term: Term, numeric: list[Factor]) -> str:
    """Return the reason why a coefficient is not a marginal utility, or "" if it is one."""
    if len(numeric) > 1:
        return f"{term} is a product of numeric columns"
    if numeric[0].function not in _LINEAR_FUNCTIONS:
        return f"{numeric[0]} is not linear"
    for other in design.terms.terms:
        shared = any(numeric[0].column in factor.columns for factor in other.factors)
        disjoint = term.labels and other.labels and not {*term.labels} & {*other.labels}
        if other is not term and shared and not disjoint:
            return f"the term {other} also depends on it"
    return ""


def empty_sets(schema: Schema, codes: Mapping[str, Code]) -> ChoiceData:
    """Return an empty table with columns of the kinds that the codes expect.

    The empty table gives the columns of a design that was read from disk, before the design is applied to real data.
    """
    no_ids, no_categories = np.empty(0, np.int64), Categorical(np.empty(0, np.int32), ())

    def columns(names: Sequence[str]) -> dict[str, Column]:
        no_numbers = Numeric(np.empty(0, np.float32))
        return {name: no_numbers if isinstance(codes.get(name), NumberCode) else no_categories for name in names}

    return ChoiceData(
        schema=schema,
        offsets=np.zeros(1, np.int64),
        set_ids=no_ids,
        chosen=None,
        weights=np.empty(0),
        features=columns(schema.features),
        labels=None if schema.alternative is None else no_categories,
        individual=columns(schema.individual),
        keep={},
        rows=no_ids,
    )


_MISMATCH = "the saved design does not match its list of coefficient names: save the model again."
MAX_COLUMNS = 100_000  # no table has enough choices to estimate more coefficients


@dataclass(frozen=True)
class Design:
    """Columns of a utility: the terms of the formula, and the coding learnt from the training part."""

    formula: str
    terms: Formula  # every '.' is replaced by the columns it stands for
    codes: Mapping[str, Code]
    labels: LevelCode | None  # if some coefficients are alternative-specific
    columns: tuple[str, ...]
    cost: str | None = None  # in WTP space, the column in whose units the other parameters are
    offset: str | None = None  # the column with a coefficient of 1
    by_term: bool = False  # whether each term has Box-Cox exponents of its own, or each column
    exponents: Mapping[str, float] = field(default_factory=dict)  # parameters of transformations; default: the start
    groups: tuple[LabelGroup, ...] = ()  # of labels that no chain of choice sets connects with the reference
    scale: ScaleGroups | None = None  # groups of choice sets whose utilities have their own scale
    multipliers: Floats | None = None  # (G,) scales of the groups; default 1

    @cached_property
    def form(self) -> UtilityForm:
        """Description of how the coefficients depend on the parameters."""
        curves = {
            self._curve(term, factor, name): start
            for term in self.terms.terms
            for factor in term.factors
            for name, start in factor.parameters.items()
        }
        scales = () if self.scale is None else self.scale.names
        return UtilityForm(self.columns, tuple(curves), self.cost, self.offset, scales, tuple(curves.values()))

    def _curve(self, term: Term, factor: Factor, parameter: str) -> str:
        """Return the name of a parameter of a transformation."""
        of_column = factor.column if parameter == EXPONENT and not factor.is_user_term else str(factor)
        if not self.by_term:
            return f"{parameter}[{of_column}]"
        several = sum(bool(f.parameters) for f in term.factors) > 1
        return f"{parameter}[{term}, {of_column}]" if several else f"{parameter}[{term}]"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters: one for each column, each exponent to estimate, and each scale to estimate."""
        return self.form.names

    @property
    def group_sizes(self) -> list[int]:
        """Numbers of labels of all groups, with that of the reference first."""
        assert self.labels is not None
        sizes = [len(group.labels) for group in self.groups]
        return [len(self.labels.names) - sum(sizes), *sizes]

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
        scale: str | None = None,
        leave_out: frozenset[str] = frozenset(),
        by_term: bool = False,
    ) -> Design:
        """Learn a design from the training part.

        Parameters
        ----------
        formula
            Formula of the utility. Its syntax is described in ``formula.py``.
        data
            Choice sets with known choices.
        reference
            Label of the alternative whose constant is 0. By default, the outside option or else the label chosen most
            often.
        least
            Levels of categorical features that are chosen fewer times than this are pooled. Default 0.
        base
            Reference levels by column. By default, the level chosen most often is the reference.
        offset
            Feature that enters the utility with a coefficient of 1. The formula must not contain this feature.
        cost
            Column of the utility in whose units the other parameters are measured (WTP space). If None (default), the
            model is in preference space.
        scale
            Individual-level column whose groups have their own scale of utility. ``base`` may contain the group with a
            scale of 1. If None (default), all choice sets have the same scale.
        leave_out
            Features that ``.`` does not include.
        by_term
            Whether each term has Box-Cox exponents of its own. By default, all terms with a column share its exponent.
        """
        # 1. The terms of the utility: replace every dot by columns, and add the offset.
        data, base = with_filled_outside_features(data), dict(base or {})
        groups_of_sets = None if scale is None else ScaleGroups.learn(scale, data, base.pop(scale, None))
        written, base = parse_formula(formula), require_levels(base, data)
        terms = resolve(written, data, leave_out)
        terms = terms if offset is None else with_offset(terms, offset, data, written.generic)
        # 2. Levels and scales of the columns. The outside option has no features, so its rows do not count.
        chosen = data.offsets[:-1] + data.require_chosen("fitting")
        inside = np.ones(len(data.rows), np.bool_) if data.outside is None else ~data.outside
        codes: dict[str, Code] = {}
        for name in dict.fromkeys(name for t in terms.terms for f in t.factors for name in f.columns):
            column = find_column(name, data)
            if name in data.features and name != data.schema.outside_feature:
                column = column.take(np.flatnonzero(inside))
            if isinstance(column, Numeric):
                codes[name] = learn_number(column.values)
            else:
                assert isinstance(column, Categorical)  # content columns (text, images) were dropped before the fit
                picked = np.arange(len(data))
                if name in data.features:
                    picked = (np.cumsum(inside) - 1)[chosen[inside[chosen]]]
                codes[name] = learn_levels(column, picked, least=least, base=base.get(name))
        # 3. The names of the columns: apply the design to a table without rows.
        design = cls(formula, terms, codes, learn_labels(terms, data, chosen, reference), (), by_term=by_term)
        for factor in {f for t in terms.terms for f in t.factors if f.is_user_term}:
            defined, columns = user_term(str(factor.function)), _user_columns(factor, data, codes)
            defined.require_valid(columns, str(factor), partial(_row_name, data))
        no_rows = data.subset([])
        names = design._build(no_rows)[1]
        if not names:
            raise InputError(f"formula {formula!r} has no column with a coefficient to estimate: add features.")
        if len(set(names)) < len(names):
            duplicate = next(name for name in names if names.count(name) > 1)
            raise SchemaError(f"two coefficients would be called {duplicate!r}: rename a column or a level.")
        # 4. Groups of labels that are never offered together, with their coefficients relative to a reference.
        rows = design._rows_by_label(no_rows)
        unconnected = unconnected_labels(data, chosen, design.labels) if rows and design.labels is not None else []
        groups = tuple(
            LabelGroup(labels, tuple(tuple(row[label] for label in labels) for row in rows)) for labels in unconnected
        )
        # 5. WTP space needs a cost with a constant marginal utility.
        offset_column = None if offset is None else backquoted(offset)
        design = replace(
            design, columns=tuple(names), cost=cost, offset=offset_column, groups=groups, scale=groups_of_sets
        )
        if cost is not None:
            require_unit(design, no_rows, cost)
        return design

    def matrix(self, data: ChoiceData, slope_in: str | None = None) -> Floats:  # -> (N, L)
        """Return the design matrix, with a row for each alternative, multiplied by the scales of the choice sets.

        If ``slope_in`` is a parameter of a transformation, return the derivative of the matrix in this parameter.
        """
        numbers, names = self._build(data, slope_in)
        if tuple(names) != self.columns:
            raise ArtifactError(_MISMATCH)
        if self.scale is not None and self.multipliers is not None:
            by_set = self.scale.multipliers(data, self.multipliers)
            numbers[:, self._scaled_columns] *= spread(by_set, data.offsets)[:, None]
        return numbers

    @cached_property
    def _scaled_columns(self) -> Ints:
        """Columns that the scale of a choice set multiplies: all but the offset."""
        return np.array([k for k, name in enumerate(self.columns) if name != self.offset], np.int64)

    def at(self, values: Floats) -> Design:  # (K,)
        """Return the design with the exponents and scales taken from ``values``."""
        if not (self.form.curves or self.form.scales):
            return self
        exponents = self.form.exponents(values).tolist()
        return replace(
            self,
            exponents=dict(zip(self.form.curves, exponents, strict=True)),
            multipliers=self.form.multipliers(values) if self.scale is not None else None,
        )

    def utilities(self, data: ChoiceData, values: Floats) -> Floats:  # (K,) -> (N,)
        """Return the utility of each alternative at the given parameters."""
        utilities: Floats = self.at(values).matrix(data) @ self.form.coefficients(values)
        return utilities

    def linearised(self, data: ChoiceData, values: Floats) -> LinearisedUtility:  # (K,)
        """Return the linear utility with the same value and derivatives at the given parameters."""
        return self.lineariser(data)(values)

    def lineariser(self, data: ChoiceData) -> Callable[[Floats], LinearisedUtility]:
        """Return a function that maps parameters (K,) to :meth:`linearised`, for repeated use."""
        # 1. What does not depend on the parameters: the group of each alternative and, without exponents, the matrix.
        form, unscaled, scaled = self.form, replace(self, multipliers=None), self._scaled_columns
        group = None if self.scale is None else spread(self.scale.codes(data), data.offsets)
        constant = None if form.curves else unscaled.matrix(data)

        def linearise(values: Floats) -> LinearisedUtility:
            b, design = form.coefficients(values), replace(unscaled.at(values), multipliers=None)
            with np.errstate(invalid="ignore", over="ignore"):  # a large exponent overflows; the likelihood is -inf
                # 2. The matrix, and its derivatives in the exponents times b.
                x = design.matrix(data) if constant is None else constant
                slopes = [design.matrix(data, curve) @ b for curve in form.curves]
                if group is not None:
                    # 3. The derivative in a scale is the utility before scaling, in the choice sets of its group.
                    mu, utility = np.append(1.0, form.multipliers(values))[group], x[:, scaled] @ b[scaled]
                    slopes = [mu * slope for slope in slopes]
                    slopes += [np.where(group == g + 1, utility, 0.0) for g in range(len(form.scales))]
                    x = x.copy()
                    x[:, scaled] *= mu[:, None]
            return LinearisedUtility(
                np.column_stack([x, *slopes]), np.append(b, np.zeros(len(slopes))), form.chain(values)
            )

        return linearise

    def sources(self, data: ChoiceData) -> list[str]:
        """Return the term of each column as written in a formula, where "1" stands for the constants."""
        return ["1" if term is None else str(term) for term in self.column_terms(data)]

    def column_terms(self, data: ChoiceData) -> list[Term | None]:
        """Return the term of each column, or None for a constant."""
        formula = self.terms
        terms = [*formula.generic, *([None] if formula.constants else []), *formula.individual, *formula.specific]
        blocks = self._blocks(data.subset([]))
        return [term for term, (_, names) in zip(terms, blocks, strict=True) for _ in names]

    def _rows_by_label(self, data: ChoiceData) -> list[dict[str, str]]:
        """Return the columns by label, in a dictionary for the constants and for each individual-level column."""
        if self.labels is None or not self.labels.levels:
            return []
        levels, terms = self.labels.levels, self.column_terms(data)
        names = [
            name
            for term, name in zip(terms, self._build(data.subset([]))[1], strict=True)
            if term is None or term in self.terms.individual
        ]
        return [dict(zip(levels, names[k : k + len(levels)], strict=True)) for k in range(0, len(names), len(levels))]

    def _build(self, data: ChoiceData, slope_in: str | None = None) -> tuple[Floats, list[str]]:
        blocks = list(self._blocks(with_filled_outside_features(data), slope_in))
        numbers = np.column_stack([b for b, _ in blocks]) if blocks else np.zeros((len(data.rows), 0))
        return numbers, [name for _, names in blocks for name in names]

    def _blocks(self, data: ChoiceData, slope_in: str | None = None) -> Iterator[tuple[Floats, list[str]]]:
        """Yield the columns and names of each generic term, of the constants, and of each term in the other parts."""
        yield from (self._generic(term, data, slope_in) for term in self.terms.generic)
        if self.labels is not None:
            dummies, levels = label_dummies(data, self.labels)
            if self.terms.constants:
                constants = dummies[:, 1:] if slope_in is None else np.zeros_like(dummies[:, 1:])
                yield constants, [f"constant[{level}]" for level in levels[1:]]
            for term in self.terms.individual:
                yield _by_label(self._term(term, data, slope_in), dummies[:, 1:], levels[1:])
            for term in self.terms.specific:
                yield _by_label(self._features(term, data, slope_in), dummies, levels)

    def _features(self, term: Term, data: ChoiceData, slope_in: str | None) -> tuple[Floats, list[str]]:
        """Return the columns of a term with features, with values of 0 for the outside option."""
        numbers, names = self._term(term, data, slope_in)
        covers_outside = term.labels or any(data.schema.outside_feature in factor.columns for factor in term.factors)
        if data.outside is None or covers_outside:
            return numbers, names
        return np.where(data.outside[:, None], 0.0, numbers), names

    def _generic(self, term: Term, data: ChoiceData, slope_in: str | None) -> tuple[Floats, list[str]]:
        """Return the columns of a generic term, with 0 for alternatives that the term's labels exclude."""
        numbers, names = self._features(term, data, slope_in)
        if not term.labels:
            return numbers, names
        labels = require_labels(data)
        in_group = np.isin(labels.categories, term.labels)[labels.codes]
        return numbers * in_group[:, None], [f"{name}[{','.join(term.labels)}]" for name in names]

    def _term(self, term: Term, data: ChoiceData, slope_in: str | None) -> tuple[Floats, list[str]]:
        # 1. A block of columns for each factor. ``cells`` is True if all factors keep all their levels: each column is
        #    then the dummy variable of a cell of their cross table.
        parts, cells = [], len(term.factors) > 1
        for factor in term.factors:
            column, code = _column(factor.column, data), self.codes[factor.column]
            full = self._keeps_reference(term, factor, data)
            if factor.is_user_term:
                parts.append((self._user_values(term, factor, data, slope_in)[:, None], [str(factor)]))
                continue
            coded = self._with_exponent(term, factor, slope_in)
            place = partial(row_name, data)
            numbers, endings = factor_columns(coded, column, code, data.offsets, full=full, place=place)
            parts.append((numbers, [f"{factor}{ending}" for ending in endings]))
            cells = cells and full and isinstance(code, LevelCode)
        # 2. Their products; the derivative in a parameter is 0 for a term without it.
        numbers, names = reduce(interaction, parts)
        if slope_in is not None and slope_in not in [
            self._curve(term, f, p) for f in term.factors for p in f.parameters
        ]:
            numbers = np.zeros_like(numbers)
        if cells and (self.terms.constants or not (term.labels or term.key in self._individual)):
            return numbers[:, 1:], names[1:]  # the cells sum to a constant: collinear, or without effect
        return numbers, names

    def _with_exponent(self, term: Term, factor: Factor, slope_in: str | None) -> Factor:
        """Return a Box-Cox factor with its exponent, or its derivative if ``slope_in`` is this exponent."""
        if not factor.parameters:
            return factor
        name = self._curve(term, factor, EXPONENT)
        function = SLOPE if name == slope_in else factor.function
        return replace(factor, function=function, numbers=(self.exponents.get(name, 1.0),))

    def _user_values(self, term: Term, factor: Factor, data: ChoiceData, slope_in: str | None) -> Floats:  # -> (N,)
        """Return the values of a user's function, or its derivative if ``slope_in`` is one of its parameters."""
        defined = user_term(str(factor.function))
        names = {name: self._curve(term, factor, name) for name in defined.parameters}
        values = [self.exponents.get(names[name], start) for name, start in defined.parameters.items()]
        columns = _user_columns(factor, data, self.codes)
        for name, curve in names.items():
            if curve == slope_in:
                return defined.slopes(columns, values, name) / factor.divisor
        return defined.values(columns, values) / factor.divisor

    def _keeps_reference(self, term: Term, factor: Factor, data: ChoiceData) -> bool:
        """Return True if every level needs a coefficient, because the formula lacks the term without this factor."""
        rest = term.key - {factor}
        if term.key in self._individual:
            return rest not in self._individual if rest else not self.terms.constants
        if term.labels and len(term.factors) == 1:  # the levels sum to 1 for these alternatives
            return not self.terms.constants
        others = (name for f in term.factors if f != factor for name in f.columns)
        varies = term.labels or any(name in data.features for name in others)
        return bool(varies) and rest not in self._feature_terms

    @cached_property
    def _individual(self) -> frozenset[Any]:
        """Keys of the individual-level terms."""
        return frozenset(term.key for term in self.terms.individual)

    @cached_property
    def _feature_terms(self) -> frozenset[Any]:
        """Keys of the terms with features."""
        return frozenset(term.key for term in (*self.terms.generic, *self.terms.specific))

    def require_fit(self, schema: Schema) -> None:
        """Raise ArtifactError if a design read from disk does not reproduce its stored column names.

        The design is applied to an empty table with the column roles of ``schema``.
        """
        # Compare name by name and stop at the first difference: a damaged design may have more names than memory holds.
        names = (name for _, block_names in self._blocks(empty_sets(schema, self.codes)) for name in block_names)
        if not all(name == saved for name, saved in zip_longest(names, self.columns)):
            raise ArtifactError(_MISMATCH)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""
        return {
            "formula": self.formula,
            "resolved": str(self.terms),
            "codes": {name: asdict(code) for name, code in self.codes.items()},
            "labels": None if self.labels is None else asdict(self.labels),
            "names": list(self.columns),
            "cost": self.cost,
            "offset": self.offset,
            **({"groups": [asdict(group) for group in self.groups]} if self.groups else {}),
            **({} if self.scale is None else {"scale": asdict(self.scale)}),
            **({"by_term": True} if self.by_term else {}),
            **({"user_terms": self._user_terms()} if self._user_terms() else {}),
        }

    def _user_terms(self) -> dict[str, Any]:
        """Return the facts that identify the functions of user terms, for a check when the design is loaded."""
        factors = {f.function: f for term in self.terms.terms for f in term.factors if f.is_user_term}
        facts = {}
        for name, factor in factors.items():
            codes = [code for c in factor.columns if isinstance(code := self.codes[c], NumberCode)]
            points = [code.mean + code.scale * np.array([-0.5, 0.0, 1.0]) for code in codes]
            points[0] = points[0] / factor.unit
            facts[str(name)] = fingerprint(user_term(str(name)), points)
        return facts

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Design:
        """Build a design from the result of :meth:`to_dict`."""
        try:
            for name, saved in entries.get("user_terms", {}).items():
                require_same_term(str(name), saved)
            codes = {name: read_code(code) for name, code in entries["codes"].items()}
            labels = None if entries["labels"] is None else read_code(entries["labels"])
            assert labels is None or isinstance(labels, LevelCode)
            terms = parse_formula(entries["resolved"])
            _ = [codes[name] for term in terms.terms for factor in term.factors for name in factor.columns]
            if len(entries["names"]) > MAX_COLUMNS:
                raise ValueError(f"too many columns: {len(entries['names']):,}")
            columns, cost, offset = tuple(map(str, entries["names"])), entries["cost"], entries["offset"]
            if not {cost, offset} <= {None, *columns}:
                raise ValueError(f"unknown cost {cost!r} or offset {offset!r}")
            groups = tuple(LabelGroup.from_dict(group) for group in entries.get("groups", ()))
            if not {name for group in groups for row in group.columns for name in row} <= {*columns}:
                raise ValueError("unknown columns of a group of labels")
            if not {name for group in groups for name in group.labels} <= {*(labels.levels if labels else ())}:
                raise ValueError("unknown labels of a group of labels")
            scale = None if entries.get("scale") is None else ScaleGroups.from_dict(entries["scale"])
            return cls(
                entries["formula"],
                terms,
                codes,
                labels,
                columns,
                cost,
                offset,
                by_term=bool(entries.get("by_term", False)),
                groups=groups,
                scale=scale,
            )
        except (ArtifactError, UndefinedTermError):
            raise
        except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
            raise ArtifactError(
                f"the saved design is incomplete or damaged ({error!r}): save the model again."
            ) from error


def _column(name: str, data: ChoiceData) -> Column:
    """Return a column with a value for each alternative."""
    column = find_column(name, data)
    return column if name in data.features else column.take(data.set_of_alternative)


def _row_name(data: ChoiceData, row: int) -> str:
    """Return the row of the table and the choice set of an alternative, for messages."""
    return f"row {data.rows[row]} (choice set {data.set_ids[data.set_of_alternative[row]]})"


def _user_columns(factor: Factor, data: ChoiceData, codes: Mapping[str, Code]) -> list[Floats]:  # -> k x (N,)
    """Return the columns of a user's function, or raise SchemaError if they are not numbers or have missing values."""
    columns = []
    for name, unit in zip(factor.columns, (factor.unit, *[1.0] * len(factor.others)), strict=True):
        column = _column(name, data)
        if not isinstance(column, Numeric) or isinstance(codes[name], LevelCode):
            raise SchemaError(f"{factor}: expected a numeric column, but {name!r} is {column.kind}.")
        values = column.values.astype(np.float64)
        if np.isnan(values).any():
            raise SchemaError(
                f"{factor}: column {name!r} has {int(np.isnan(values).sum())} missing values, which terms of your own "
                f"do not support: fill them in."
            )
        columns.append(values / unit)
    return columns


def interaction(a: tuple[Floats, list[str]], b: tuple[Floats, list[str]]) -> tuple[Floats, list[str]]:
    """Return the products of each column of one block with each column of another block."""
    if len(a[1]) * len(b[1]) > MAX_COLUMNS:
        raise InputError(
            f"the interaction of {a[1][0]!r}, {b[1][0]!r} and their other levels has {len(a[1]) * len(b[1]):,} "
            f"columns, but the limit is {MAX_COLUMNS:,}: remove the interaction, or raise min_chosen."
        )
    return _columnwise(a[0], b[0]), [f"{left}:{right}" for left in a[1] for right in b[1]]


def _by_label(a: tuple[Floats, list[str]], dummies: Floats, levels: tuple[str, ...]) -> tuple[Floats, list[str]]:
    return _columnwise(a[0], dummies), [f"{name}[{level}]" for name in a[1] for level in levels]


def _columnwise(a: Floats, b: Floats) -> Floats:  # (N, p), (N, q) -> (N, p q)
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), a.shape[1] * b.shape[1])


def columns_of(
    name: str, names: Sequence[str], sources: Sequence[str], option: str, references: Sequence[str] = ()
) -> list[int]:
    """Return the columns of a coefficient, or of all coefficients of a term except the ``references``."""
    columns = [k for k, each in enumerate(names) if each == name]
    columns = columns or [k for k, term in enumerate(sources) if term == name and names[k] not in references]
    if not columns:
        choices = list(dict.fromkeys([*names, *(term for term in sources if term != "1")]))
        raise ConfigError(f"{option}: {name!r} is not a coefficient of this model." + did_you_mean(name, choices))
    return columns
