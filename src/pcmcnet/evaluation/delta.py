"""Functions of the coefficients of a logit, such as ratios and differences, with standard errors.

Let b be the estimates with covariance V, and f a differentiable function with gradient g at b.

    delta           f(b) -+ z sqrt(g' V g)                      assumes that f is nearly linear around b
    krinsky-robb    percentiles of f(b*), b* ~ N(b, V)          Krinsky & Robb (1986); f need not be linear

Both methods assume that the estimates are normally distributed. They agree if f is nearly linear within a few standard
errors of b. A ratio whose denominator may be 0 has no finite variance. The interval of Krinsky and Robb is then wide
and asymmetric, as it should be, whereas the interval of the delta method is too short.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number, require_word, suggests_arguments
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.evaluation.bootstrap import p_values
from pcmcnet.models.logit.logit_model import LogitModel, require_estimated
from pcmcnet.models.logit.standard_errors import Errors, z_test
from pcmcnet.reports.formats import FormatsMixin, ResultContent
from pcmcnet.reports.frames import data_frame

if TYPE_CHECKING:
    from pcmcnet.models.logit.coefficient_expression import CoefficientExpression

DeltaMethod = Literal["delta", "krinsky-robb"]

MIN_DENOMINATOR_Z = 3.0  # standard errors between a denominator and 0; closer denominators get a note


@dataclass(frozen=True, kw_only=True)
class DerivedEstimate:
    """A function of coefficients with its standard error.

    Attributes
    ----------
    name
        Name of the function: the expression, unless a name was passed.
    expression
        The expression over coefficients.
    value
        Value at the estimates.
    std_error
        Standard error. It is inf if the value depends on a coefficient without a finite estimate, and nan if it depends
        only on coefficients that are fixed or at their bounds.
    z, p
        z-statistic and two-sided p-value of the hypothesis that the value is 0.
    lower, upper
        Ends of the confidence interval.
    """

    name: str
    expression: str
    value: float
    std_error: float
    z: float
    p: float
    lower: float
    upper: float

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the confidence interval."""
        return self.lower, self.upper


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DerivedEstimates(FormatsMixin):
    """Result of :func:`delta`: functions of coefficients with standard errors, printed as a table.

    ``result["time / cost"]`` is the row of an expression. With a single expression, ``result.value``, ``std_error``,
    ``interval``, ``z`` and ``p`` are those of its row.

    Attributes
    ----------
    rows
        One row per expression.
    covariance
        Covariance matrix of the values, (M, M).
    method
        "delta" or "krinsky-robb".
    errors
        Kind of the standard errors of the coefficients.
    level
        Level of the confidence intervals.
    draws
        Number of draws of the coefficients, or None for the delta method.
    notes
        Notes on ratios whose denominators are close to 0, and on coefficients that are treated as known.
    """

    rows: tuple[DerivedEstimate, ...]
    covariance: Floats  # (M, M)
    method: DeltaMethod
    errors: Errors
    level: float
    draws: int | None
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> DerivedEstimate:
        """Return the row of an expression."""
        for row in self.rows:
            if row.name == name:
                return row
        raise InputError(f"no expression {name!r}." + did_you_mean(name, [row.name for row in self.rows]))

    def __iter__(self) -> Iterator[DerivedEstimate]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def _single(self) -> DerivedEstimate:
        if len(self.rows) > 1:
            raise InputError(f"the result has {len(self.rows)} rows: select one, as in result[{self.rows[0].name!r}].")
        return self.rows[0]

    @property
    def value(self) -> float:
        """Value of the single expression at the estimates."""
        return self._single().value

    @property
    def std_error(self) -> float:
        """Standard error of the single expression."""
        return self._single().std_error

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the confidence interval of the single expression."""
        return self._single().interval

    @property
    def z(self) -> float:
        """z-statistic of the hypothesis that the single expression is 0."""
        return self._single().z

    @property
    def p(self) -> float:
        """Two-sided p-value of the hypothesis that the single expression is 0."""
        return self._single().p

    def to_frame(self) -> Any:
        """Return a pandas data frame indexed by name: expression, value, std_error, z, p, lower and upper."""
        columns = ("name", "expression", "value", "std_error", "z", "p", "lower", "upper")
        table = pa.table({column: [getattr(row, column) for row in self.rows] for column in columns})
        return data_frame(table, index="name", instead="rows")

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values; numbers that are not finite become None."""
        rows = [
            {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in vars(row).items()}
            for row in self.rows
        ]
        return {
            "method": self.method,
            "errors": self.errors,
            "level": self.level,
            "draws": self.draws,
            "rows": rows,
            "notes": list(self.notes),
        }

    def _content(self) -> ResultContent:
        facts = {"method": "delta method" if self.draws is None else f"Krinsky-Robb, {self.draws:,} draws"}
        facts["standard errors"] = self.errors
        ends = [f"{end:.3g}" for end in ((1 - self.level) / 2, (1 + self.level) / 2)]
        cells = [["expression", "value", "std err", "z", "p", *ends]]
        for row in self.rows:
            tested = [f"{row.std_error:.3g}", f"{row.z:.2f}", f"{row.p:.3f}", f"{row.lower:.4g}", f"{row.upper:.4g}"]
            cells.append([row.name, f"{row.value:.4g}", *(["known", *[""] * 4] if np.isnan(row.std_error) else tested)])
        return ResultContent(title="Functions of coefficients", facts=facts, cells=cells, notes=self.notes)

    def __repr__(self) -> str:
        return str(self)


@suggests_arguments(call="delta(model, 'time / price')")
def delta(
    model: LogitModel,
    expressions: str | Sequence[str] | Mapping[str, str],
    *,
    method: DeltaMethod = "delta",
    errors: Errors | None = None,
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> DerivedEstimates:
    """Compute functions of the coefficients of a logit with standard errors and confidence intervals.

    Parameters
    ----------
    model
        A fitted logit.
    expressions
        An expression over the names of coefficients, such as "time / cost", a list of expressions, or a mapping from
        names to expressions. The names are those of the summary. A name that is not a plain word, possibly with
        brackets as in ``time[car]``, is in backticks, as in "`class 1: tt` / `class 1: tc`". Operators are + - * / and
        **; functions are exp, log, sqrt and abs.
    method
        "delta" (default) for the delta method, or "krinsky-robb" for percentiles over draws from the normal
        distribution of the estimates, which need not be symmetric.
    errors
        Kind of standard errors of the coefficients: "classical", "robust" or "clustered". The default is set by the
        option ``errors`` of the model.
    level
        Level of the confidence intervals. Default 0.95.
    draws
        Number of draws for "krinsky-robb". Default 10,000.
    seed
        Seed of the draws. Default 0.

    Returns
    -------
    DerivedEstimates
        For each expression: value, standard error, z, p and confidence interval. For "krinsky-robb", the standard error
        is the standard deviation over the draws, and p counts the draws on the other side of 0.

    Raises
    ------
    InputError
        If the model is not a logit, an expression is not valid or names an unknown coefficient, or a value is not a
        finite number.
    ConfigError
        If ``method``, ``level``, ``draws`` or ``seed`` is invalid.

    Examples
    --------
    >>> from pcmcnet.data import ChoiceData
    >>> from pcmcnet.models import MNL
    >>> rng = np.random.default_rng(0)
    >>> table = {"trip": np.repeat(np.arange(50), 2), "cost": rng.random(100), "time": rng.random(100)}
    >>> table["took"] = np.tile([1, 0], 50)
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost", "time"])
    >>> model = MNL().fit(data)
    >>> ratio = delta(model, "time / cost")
    >>> bool(np.isclose(ratio.value, model.coefficients["time"] / model.coefficients["cost"]))
    True
    """
    from scipy.special import ndtri

    require_word("method", method, get_args(DeltaMethod))
    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    require_number("draws", draws, whole=True, low=100)
    require_number("seed", seed, whole=True, low=0)
    if not isinstance(model, LogitModel):
        raise InputError(
            f"delta needs the coefficients of a logit, but {type(model).__name__} is not a logit: use pn.bootstrap."
        )
    require_estimated(model, "delta")
    estimates, covariance = model.estimates_, model.covariance(errors)
    named = _named(expressions)
    from pcmcnet.models.logit.coefficient_expression import CoefficientExpression  # needs PyTorch

    functions = [CoefficientExpression.parse(text, estimates.names) for text in named.values()]
    # 1. Values and exact gradients at the estimates.
    pairs = [function.value_and_gradient(estimates.values) for function in functions]
    values, gradients = np.array([value for value, _ in pairs]), np.stack([gradient for _, gradient in pairs])
    for function, value, gradient in zip(functions, values, gradients, strict=True):
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            raise InputError(f"expression {function.text!r} or its derivative is not a finite number at the estimates.")
    # 2. Covariance, interval and p-value by the chosen method.
    if method == "delta":
        value_covariance = gradients @ covariance @ gradients.T
        std_errors = np.sqrt(np.maximum(np.diag(value_covariance), 0.0))
        half = float(ndtri((1 + level) / 2)) * std_errors
        lower, upper = values - half, values + half
        p = [z_test(v, e)[1] for v, e in zip(values, std_errors, strict=True)]
    else:
        samples = _draws_of(functions, estimates.values, covariance, draws, seed)  # (D, M)
        value_covariance = np.atleast_2d(np.cov(samples, rowvar=False))
        std_errors = samples.std(axis=0, ddof=1)
        lower, upper = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=0)
        p = list(p_values(samples))
    # 3. A value that depends on known coefficients alone has no standard error, as these coefficients have none.
    known = [estimates.names.index(name) for name in (*estimates.fixed, *estimates.at_bound)]
    is_known = ~np.delete(gradients, known, axis=1).any(axis=1)
    std_errors, lower, upper = (np.where(is_known, np.nan, figures) for figures in (std_errors, lower, upper))
    p = np.where(is_known, np.nan, p).tolist()
    # 4. A value that depends on a coefficient without a finite estimate has no finite standard error.
    unbounded = [estimates.names.index(name) for name in estimates.unbounded]
    is_unbounded = (gradients[:, unbounded] != 0).any(axis=1)
    std_errors = np.where(is_unbounded, np.inf, std_errors)
    lower, upper = np.where(is_unbounded, -np.inf, lower), np.where(is_unbounded, np.inf, upper)
    p = [1.0 if unbounded_row else float(value) for unbounded_row, value in zip(is_unbounded, p, strict=True)]
    z = [z_test(v, e)[0] for v, e in zip(values, std_errors, strict=True)]
    figures = zip(named, functions, values, std_errors, z, p, lower, upper, strict=True)
    rows = [
        DerivedEstimate(
            name=name,
            expression=f.text,
            value=float(v),
            std_error=float(e),
            z=s,
            p=float(q),
            lower=float(a),
            upper=float(b),
        )
        for name, f, v, e, s, q, a, b in figures
    ]
    return DerivedEstimates(
        rows=tuple(rows),
        covariance=value_covariance,
        method=method,
        errors=errors or model.default_errors,
        level=level,
        draws=None if method == "delta" else draws,
        notes=(*_ratio_notes(model, functions, covariance, method), *_known_notes(model, functions)),
    )


def _named(expressions: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Return the expressions by name."""
    if isinstance(expressions, str):
        return {expressions: expressions}
    if isinstance(expressions, Mapping):
        named = {str(name): text for name, text in expressions.items()}
    elif isinstance(expressions, Sequence):
        named = {text: text for text in expressions}
    else:
        named = {}
    if not named:
        raise InputError(f"expected an expression such as 'time / cost', or several of them, got {expressions!r}.")
    return named


def _draws_of(
    functions: Sequence[CoefficientExpression], values: Floats, covariance: Floats, draws: int, seed: int
) -> Floats:  # -> (draws, M)
    """Return the expressions at draws from the normal distribution of the estimates."""
    # The covariance may be singular, because coefficients may be fixed.
    variances, axes = np.linalg.eigh(covariance)
    root = axes * np.sqrt(np.maximum(variances, 0.0))
    coefficients = values + np.random.default_rng(seed).standard_normal((draws, len(values))) @ root.T
    samples = np.column_stack([function.at(coefficients) for function in functions])
    for function, column in zip(functions, samples.T, strict=True):
        if not np.isfinite(column).all():
            raise InputError(
                f"expression {function.text!r} is not a finite number for {int((~np.isfinite(column)).sum()):,} of "
                f"{draws:,} draws: use method='delta'."
            )
    return samples


def _ratio_notes(
    model: LogitModel, functions: Sequence[CoefficientExpression], covariance: Floats, method: DeltaMethod
) -> list[str]:
    """Return a note for each ratio whose denominator is close to 0."""
    notes = []
    for function in functions:
        for denominator in function.denominators():
            value, gradient = denominator.value_and_gradient(model.estimates_.values)
            error = math.sqrt(max(float(gradient @ covariance @ gradient), 0.0))
            if abs(value) < MIN_DENOMINATOR_Z * error:
                remedy = (
                    "the interval of the delta method may be far too short: use method='krinsky-robb'"
                    if method == "delta"
                    else "the standard error is not meaningful: use the interval"
                )
                notes.append(
                    f"{function.text}: the denominator is only {abs(value) / error:.1f} standard errors away from 0, "
                    f"so the ratio has no finite variance; {remedy}."
                )
    return list(dict.fromkeys(notes))


def _known_notes(model: LogitModel, functions: Sequence[CoefficientExpression]) -> list[str]:
    """Return a note on coefficients without a standard error, which are treated as known."""
    estimates = model.estimates_
    used = {estimates.names[k] for function in functions for k in function.positions.values()}
    known_names = [name for name in (*estimates.fixed, *estimates.at_bound) if name in used]
    return [f"{name!r} is fixed or at its bound, and is treated as known." for name in known_names]
