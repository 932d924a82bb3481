"""Parse formulas, which specify the terms of a utility.

A formula has up to three parts, separated by ``|``:

    cost + log(time) + cost:income  |  income + 1  |  wait

1. Generic terms have one coefficient for all alternatives. Each generic term has at least one feature.
2. Individual-level terms have one coefficient for each alternative except the reference. The term ``1`` (default) adds
   alternative-specific constants, and ``0`` omits them. The second part needs labels.
3. Alternative-specific terms have one coefficient for each alternative. The third part needs labels.

A first part of ``0`` or ``1`` alone, or a third part of ``0`` alone, is empty, as in formulas of other software.

A ``.`` stands for all features in the first part and for all individual-level columns in the second part, except
columns with a term of their own. A term is a product of factors joined by ``:``. A factor is a column or a
transformation of a column. A factor or the column inside it can be divided by a number to change its unit, as in
``cost/100`` or ``square(cost/100)``. Transformations that users define (``user_terms.py``) may have several columns.
Names that are not plain words are written in backticks, as in `total price`. A backtick inside a name is doubled. A
generic term with labels in brackets, such as ``cost[car, taxi]``, applies only to these alternatives, which share the
coefficient.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical, Column, Columns, Numeric
from pcmcnet.errors import ConfigError, InputError, SchemaError, UndefinedTermError, did_you_mean
from pcmcnet.models.logit.formula_hints import rewritten
from pcmcnet.models.logit.user_terms import is_user_term, user_term

log = logging.getLogger("pcmcnet")

# Transformations, with the minimum and maximum number of their numeric arguments.
FUNCTIONS: dict[str, tuple[int, float]] = {
    "log": (0, 0),
    "sqrt": (0, 0),
    "square": (0, 0),
    "standardise": (0, 0),
    "relative": (0, 0),
    "piecewise": (1, inf),
    "boxcox": (0, 1),  # the exponent, which is estimated if it is left out
}
EXPONENT = "lambda"  # parameter of boxcox(x)
_ARGUMENTS = {
    "piecewise": "increasing knots, as in piecewise(time, 30, 60)",
    "boxcox": "at most one exponent, as in boxcox(time, 0.5)",
}
_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_TOKEN = re.compile(
    rf"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<number>{_NUMBER})|(?P<name>[^\W\d]\w*)|(?P<mark>[+:|/(),.\[\]]))"
)


def plain_number(x: float) -> str:
    """Return a number as text with all digits, and without a decimal point if the number is whole."""
    return repr(x).removesuffix(".0")


def backquoted(name: str) -> str:
    """Return a name as written in a formula: in backticks if it is not a plain word."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) else f"`{name.replace('`', '``')}`"


@dataclass(frozen=True)
class Factor:
    """A column, with an optional transformation and divisor.

    ``unit`` divides the column inside the transformation. ``others`` are the further columns of a transformation that a
    user has defined.
    """

    column: str
    function: str | None = None
    numbers: tuple[float, ...] = ()
    divisor: float = 1.0
    unit: float = 1.0
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = backquoted(self.column)
        name = name if self.unit == 1 else f"{name}/{plain_number(self.unit)}"
        inside = ", ".join([name, *map(backquoted, self.others), *map(plain_number, self.numbers)])
        text = name if self.function is None else f"{self.function}({inside})"
        return text if self.divisor == 1 else f"{text}/{plain_number(self.divisor)}"

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of the factor."""
        return (self.column, *self.others)

    @property
    def is_user_term(self) -> bool:
        """Whether a user has defined the transformation."""
        return self.function is not None and self.function not in FUNCTIONS

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters of the transformation to estimate, such as the exponent, with their starting values."""
        if self.function == "boxcox" and not self.numbers:
            return {EXPONENT: 1.0}
        return dict(user_term(self.function).parameters) if self.function and self.is_user_term else {}


@dataclass(frozen=True)
class Term:
    """A product of factors, which may be restricted to some labels. Equality ignores the order of the factors."""

    factors: tuple[Factor, ...]
    labels: tuple[str, ...] = ()
    key: frozenset[Factor | frozenset[str]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", frozenset([*self.factors, *([frozenset(self.labels)] if self.labels else [])]))

    def __str__(self) -> str:
        group = f"[{','.join(map(backquoted, self.labels))}]" if self.labels else ""
        return ":".join(map(str, self.factors)) + group


@dataclass(frozen=True)
class Formula:
    """The terms of the three parts of a formula, and whether the first and second parts contain a ``.``."""

    generic: tuple[Term, ...]
    generic_dot: bool
    individual: tuple[Term, ...] = ()
    individual_dot: bool = False
    constants: bool | None = None  # None: if alternatives have labels
    specific: tuple[Term, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of all parts."""
        return (*self.generic, *self.individual, *self.specific)

    def __str__(self) -> str:
        """Return the terms as a formula, without dots."""
        parts = [" + ".join(map(str, terms)) for terms in (self.generic, self.individual, self.specific)]
        parts[1] = " + ".join([*([parts[1]] if parts[1] else []), "1" if self.constants else "0"])
        return " | ".join(parts)


def parse_formula(text: str) -> Formula:
    """Parse a formula, or raise ConfigError with the unexpected text if the syntax is wrong.

    Examples
    --------
    >>> formula = parse_formula("log(cost) + time:income | 0 | wait")
    >>> [str(term) for term in formula.generic], formula.constants, [str(term) for term in formula.specific]
    (['log(cost)', 'time:income'], False, ['wait'])
    """
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(
            f"formula must be a string such as 'cost + log(time)', or '.' for all features, got {text!r}."
        )
    parts = _parse_parts(text)
    for number, part in enumerate(parts):
        is_empty = len(parts) > 1 and not (part.terms or part.dot) and (number == 0 or not part.constants)
        if part.constants is not None and number != 1 and not is_empty:
            raise ConfigError(f"formula {text!r}: 0 and 1 belong in the second part, as in 'cost | 0'.")
        if number and any(term.labels for term in part.terms):
            raise ConfigError(
                f"formula {text!r}: terms after '|' have a coefficient for each alternative: use labels in "
                f"brackets only in the first part."
            )
        if part.dot and number == 2:
            raise ConfigError(f"formula {text!r}: '.' is not supported in the third part: name its columns.")
    generic, individual, specific = (*parts, *[_FormulaPart()] * (3 - len(parts)))
    terms = [tuple(part.terms) for part in (generic, individual, specific)]
    return Formula(terms[0], generic.dot, terms[1], individual.dot, individual.constants, terms[2])


def _parse_parts(text: str) -> list[_FormulaPart]:
    """Parse the parts of a formula. If the syntax is that of another package, the error shows the formula to write."""
    try:
        return _Parser(text).parts()
    except ConfigError as error:
        found = rewritten(text, lambda changed: _Parser(changed).parts())
        if found is None:
            raise
        formula, reason = found
        raise ConfigError(f"formula {text!r}: {reason}. Write {formula!r}.") from error


def _unquoted(word: str) -> str:
    return word[1:-1].replace("``", "`") if word.startswith("`") else word


def _remedy(rest: str) -> str:
    """Return the remedy for a part of a formula that cannot be parsed."""
    if rest.startswith("-"):
        return "Terms are joined by '+': leave out the terms that are not in the utility."
    return "Terms are joined by '+' and factors by ':'. Put names with spaces or symbols in backticks."


@dataclass
class _FormulaPart:
    """One of the parts of a formula, which are separated by ``|``."""

    terms: list[Term] = field(default_factory=list)
    dot: bool = False
    constants: bool | None = None


class _Parser:
    """Recursive-descent parser for one formula."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._tokens())
        self.at = 0

    def _tokens(self) -> Iterator[tuple[str, str]]:
        place = 0
        text = self.text.rstrip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                rest = text[place:].strip()
                raise ConfigError(f"formula {self.text!r}: unexpected {rest[:12]!r}. {_remedy(rest)}")
            kind = str(match.lastgroup)
            yield kind, match[kind]
            place = match.end()

    def parts(self) -> list[_FormulaPart]:
        """Parse up to three parts of a formula."""
        parts = [self._part()]
        while self._take("|"):
            parts.append(self._part())
        if len(parts) > 3:
            raise ConfigError(
                f"formula {self.text!r}: expected at most three parts separated by '|', got {len(parts)}."
            )
        if self.at < len(self.tokens):
            raise self._syntax_error("at most three parts of terms joined by '+'")
        return parts

    def _part(self) -> _FormulaPart:
        part, keys = _FormulaPart(), set[frozenset[Factor | frozenset[str]]]()
        if self._peek()[1] in ("", "|"):
            return part
        while True:
            if self._take("."):
                part.dot = True
            elif self._peek()[1] in ("0", "1"):
                if part.constants is not None:
                    raise ConfigError(f"formula {self.text!r}: specify 0 (no constants) or 1 (constants) only once.")
                part.constants = self._next()[1] == "1"
            else:
                term = self._term()
                if term.key in keys:
                    raise ConfigError(f"formula {self.text!r}: the term {term} occurs twice.")
                keys.add(term.key)
                part.terms.append(term)
            if not self._take("+"):
                return part

    def _term(self) -> Term:
        factors = [self._factor()]
        while self._take(":"):
            factors.append(self._factor())
        term = Term(tuple(factors), self._labels() if self._take("[") else ())
        if len(set(factors)) < len(factors):
            raise ConfigError(
                f"formula {self.text!r}: {term} contains a factor twice: use square(COLUMN) to square a number."
            )
        return term

    def _labels(self) -> tuple[str, ...]:
        """Parse labels up to the closing bracket."""
        labels: list[str] = []
        while not labels or self._take(","):
            kind, word = self._next()
            if kind not in ("name", "quoted", "number"):
                raise self._syntax_error("the label of an alternative", got=word)
            labels.append(_unquoted(word))
        if not self._take("]"):
            raise self._syntax_error("']'")
        if len(set(labels)) < len(labels):
            raise ConfigError(f"formula {self.text!r}: a label occurs twice in [{','.join(labels)}].")
        return tuple(labels)

    def _factor(self) -> Factor:
        kind, word = self._next()
        if kind not in ("name", "quoted"):
            raise self._syntax_error("the name of a column", got=word)
        if kind == "name" and self._take("("):
            factor = self._transformation(word)
            return replace(factor, divisor=self._divisor(factor.column))
        return Factor(_unquoted(word), divisor=self._divisor(_unquoted(word)))

    def _divisor(self, column: str) -> float:
        """Parse the number after a slash, or return 1."""
        divisor = self._number() if self._take("/") else 1.0
        if divisor == 0:
            raise ConfigError(f"formula {self.text!r}: {column} is divided by 0.")
        return divisor

    def _transformation(self, function: str) -> Factor:
        """Parse the columns and the numeric arguments of a transformation, up to its closing bracket."""
        if function not in FUNCTIONS and not is_user_term(function):
            hint = did_you_mean(function, FUNCTIONS)
            raise UndefinedTermError(
                f"formula {self.text!r}: unknown transformation {function!r}.{hint} A transformation of your own must "
                f"be defined first, with pcmcnet.term({function!r}, function)."
            )
        column = self._column_in(function)
        unit, others, numbers = self._divisor(column), list[str](), list[float]()
        while self._take(","):
            if function in FUNCTIONS:
                numbers.append(self._number())
            else:
                others.append(self._column_in(function))
        if not self._take(")"):
            raise self._syntax_error("')'")
        if function not in FUNCTIONS:
            expected = user_term(function).n_columns
            if 1 + len(others) != expected or len({column, *others}) < expected:
                raise ConfigError(
                    f"formula {self.text!r}: {function} takes {expected} different column{'s' * (expected > 1)}."
                )
            return Factor(column, function, unit=unit, others=tuple(others))
        least, most = FUNCTIONS[function]
        if not least <= len(numbers) <= most or sorted(set(numbers)) != numbers:
            raise ConfigError(f"formula {self.text!r}: {function} takes {_ARGUMENTS.get(function, 'only a column')}.")
        return Factor(column, function, tuple(numbers), unit=unit)

    def _column_in(self, function: str) -> str:
        """Parse the name of a column in the brackets of a transformation."""
        kind, column = self._next()
        if kind not in ("name", "quoted"):
            raise self._syntax_error(f"a column in {function}(...)", got=column)
        return _unquoted(column)

    def _number(self) -> float:
        kind, word = self._next()
        if kind != "number":
            hint = " For a ratio of columns, add a column to the table." if kind == "name" else ""
            raise self._syntax_error("a number", got=word, hint=hint)
        if not isfinite(number := float(word)):
            raise ConfigError(f"formula {self.text!r}: {word} is too large.")
        return number

    def _peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self.at += 1
        return token

    def _take(self, mark: str) -> bool:
        if self._peek() == ("mark", mark):
            self.at += 1
            return True
        return False

    def _syntax_error(self, expected: str, got: str | None = None, hint: str = "") -> ConfigError:
        word = self._peek()[1] if got is None else got
        end = f", got {word!r}." if word else ", but the formula ends there."
        return ConfigError(f"formula {self.text!r}: expected {expected}{end}{hint}")


# -- Resolution --------------------------------------------------------------------------------------------------------
# Match a formula with a table: replace every `.` by columns, and check that each term is in the right part.


def resolve(formula: Formula, data: ChoiceData, leave_out: frozenset[str]) -> Formula:
    """Replace every '.' by the columns of the table, and check that each term is in the right part."""
    # 1. Replace a dot by all columns that no term names.
    generic, individual = list(formula.generic), list(formula.individual)
    constants = data.labels is not None if formula.constants is None else formula.constants
    if formula.generic_dot:
        terms = _unnamed(data.features, (*generic, *formula.specific), leave_out)
        generic += _without_labels(terms, data) if constants else terms
    if formula.individual_dot:
        individual += _unnamed(data.individual, tuple(individual), frozenset())
    resolved = Formula(tuple(generic), False, tuple(individual), False, constants, formula.specific)
    # 2. Only numeric columns can be transformed.
    for term in resolved.terms:
        for factor in term.factors:
            for name in factor.columns:
                column, changed = find_column(name, data), factor.function is not None or factor.divisor != 1
                if changed and not isinstance(column, Numeric):
                    raise SchemaError(f"{factor}: expected a numeric column, but {name!r} is categorical.")
    # 3. A term of the first or third part varies within a choice set; a term of the second part does not.
    for term in (*resolved.generic, *resolved.specific):
        if term.labels:
            _require_present(term, data)
        elif not any(name in data.features for f in term.factors for name in f.columns):
            raise SchemaError(
                f"the term {term} is the same for all alternatives of a choice set, so it has no effect: interact it "
                f"with a feature ({term}:FEATURE), or move it after '|' for a coefficient per alternative."
            )
    for term in resolved.individual:
        for factor in term.factors:
            if any(name in data.features for name in factor.columns):
                raise SchemaError(
                    f"the term {term} after the first '|' contains a feature: move it after a second '|'."
                )
    return resolved


def require_levels(base: Mapping[str, str], data: ChoiceData) -> Mapping[str, str]:
    """Return ``base``, or raise ConfigError if the table lacks one of its columns or levels."""
    columns = {**data.features, **data.individual}
    levels = {name: column for name, column in columns.items() if isinstance(column, Categorical)}
    for name, level in base.items():
        if name not in levels:
            raise ConfigError(f"base: {name!r} is not a categorical column of the table." + did_you_mean(name, levels))
        present = [levels[name].categories[k] for k in np.unique(levels[name].codes)]
        if level not in present:
            raise ConfigError(f"base level {level!r} of {name!r} is not in the table." + did_you_mean(level, present))
    return base


def with_offset(formula: Formula, column: str, data: ChoiceData, named: tuple[Term, ...]) -> Formula:
    """Add a term for the offset, unless '.' has already added it.

    Raise ConfigError if the offset is one of the ``named`` terms, whose coefficients are estimated.
    """
    if column not in data.features:
        raise SchemaError(f"offset {column!r} is not a feature of the table." + did_you_mean(column, data.features))
    values = data.features[column]
    if not isinstance(values, Numeric):
        raise SchemaError(f"offset: expected a numeric column, but {column!r} is {values.kind}.")
    missing = np.isnan(values.values)
    if missing.any():
        row = data.rows[int(missing.argmax())]
        raise SchemaError(
            f"offset: column {column!r} has {int(missing.sum())} missing values, the first in table row {row}: every "
            f"alternative needs a value."
        )
    term = Term((Factor(column),))
    if term in named:
        raise ConfigError(
            f"{column!r} is in the formula and is also the offset, whose coefficient is 1: remove it from the formula, "
            f"or remove offset={column!r}."
        )
    if term not in formula.generic:
        return replace(formula, generic=(*formula.generic, term))
    log.info("formula: '.' does not include %r, which is the offset: its coefficient is 1", column)
    return formula


def _require_present(term: Term, data: ChoiceData) -> None:
    """Raise ConfigError if a term contains a label that the table does not have."""
    labels = require_labels(data)
    present = [labels.categories[k] for k in np.unique(labels.codes)]
    for label in term.labels:
        if label not in present:
            raise ConfigError(
                f"the term {term} contains {label!r}, which is not an alternative of the table."
                + did_you_mean(label, present)
            )


def _unnamed(columns: Columns, named: tuple[Term, ...], leave_out: frozenset[str]) -> list[Term]:
    """Return a term for each column that has no term of its own."""
    used = {t.factors[0].column for t in named if len(t.factors) == 1 and not t.factors[0].others} | leave_out
    return [Term((Factor(name),)) for name in columns if name not in used]


def _without_labels(terms: list[Term], data: ChoiceData) -> list[Term]:
    """Drop features that are equivalent to the label, since together with constants they make the design singular."""
    remaining = []
    for term in terms:
        name = term.factors[0].column
        if data.labels is not None and _same_partition(data.features[name], data.labels):
            log.info(
                "formula: '.' does not include %r, which is equivalent to the label: the constants capture it", name
            )
        else:
            remaining.append(term)
    return remaining


def _same_partition(column: Column, labels: Categorical) -> bool:
    """Return True if categories and labels correspond one to one."""
    if not isinstance(column, Categorical):
        return False
    pairs = len(np.unique(column.codes.astype(np.int64) * len(labels.categories) + labels.codes))
    return pairs == len(np.unique(column.codes)) == len(np.unique(labels.codes))


def require_labels(data: ChoiceData) -> Categorical:
    """Return the labels, or raise InputError if the table has no labels."""
    if data.labels is None:
        raise InputError(
            "alternative-specific coefficients need labels: read the table with alternative=<column>, or use a "
            "formula without '|'."
        )
    return data.labels


def find_column(name: str, data: ChoiceData) -> Column:
    """Return a column of the table: a feature (N,) or an individual-level column (S,)."""
    columns = {**data.features, **data.individual}
    if name not in columns:
        raise SchemaError(
            f"the utility needs column {name!r}, which is not in the table." + did_you_mean(name, columns)
        )
    return columns[name]


def row_name(data: ChoiceData, row: int) -> str:
    """Return the table row and the choice set of an alternative, for error messages."""
    return f"table row {data.rows[row]} (choice set {data.set_ids[data.set_of_alternative[row]]!s})"
