"""Wald test (Wald, 1943) of hypotheses about the coefficients of a logit, from the estimates of this logit alone.

With the hypotheses r(b) = 0 (Q,), the Jacobian R = dr/db at the estimates (Q, K) and the covariance matrix V of the
estimates,

    W = r' (R V R')^-1 r  ~  chi-squared with Q degrees of freedom.

For one linear hypothesis, W is the square of a z-statistic. If a hypothesis is not linear, W depends on how it is
written: b = c and b / c = 1 have different statistics in small samples (Gregory & Veall, 1985).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import suggests_arguments
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome, chi_squared_p, require_significance
from pcmcnet.models.logit.coefficient_expression import CoefficientExpression
from pcmcnet.models.logit.logit_model import LogitModel, require_estimated
from pcmcnet.models.logit.parameter_bounds import dependent_columns, listed
from pcmcnet.models.logit.standard_errors import Errors

_SIDES = re.compile(r"((?:`(?:[^`]|``)*`|\[[^\]]*\]|[^`\[=])*)={1,2}((?:`(?:[^`]|``)*`|\[[^\]]*\]|[^`\[=])*)")
_EXAMPLE = "a hypothesis such as 'time[car] = time[bus]' or 'cost = -1'"
_LINEAR = 1e-6  # relative change of a gradient that is rounding error


@suggests_arguments(call="wald(model, 'time = 0')")
def wald(
    model: LogitModel,
    hypotheses: str | Sequence[str],
    *,
    errors: Errors | None = None,
    significance: float = 0.05,
) -> Outcome:
    """Test one or several hypotheses about the coefficients of a logit jointly, with a Wald test.

    Parameters
    ----------
    model
        A fitted logit.
    hypotheses
        An equation over the names of coefficients, such as "time[car] = time[bus]" or "cost = -1", or several of them,
        which are tested jointly. Names and operators are those of :func:`pcmcnet.delta`: a name that is not a plain
        word is in backticks, unless it is a whole side of the equation, as in "time/100 = cost/100".
    errors
        Kind of standard errors: "classical", "robust" or "clustered". The default is set by the option ``errors`` of
        the model.
    significance
        Significance level: the probability of rejecting the hypotheses if they hold. Default 0.05.

    Returns
    -------
    Outcome
        The statistic, its p-value and the decision.

    Raises
    ------
    InputError
        If the model is not a logit, a hypothesis is not valid or names an unknown coefficient, the hypotheses are not
        independent of each other, or they concern coefficients without a finite standard error.

    Examples
    --------
    >>> from pcmcnet import MNL, ChoiceData
    >>> table = {"trip": [1, 1, 2, 2, 3, 3, 4, 4], "took": [1, 0, 0, 1, 1, 0, 0, 1], "cost": [2, 4, 5, 3, 4, 3, 5, 2]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> test = wald(MNL().fit(data), "cost = 0")
    >>> round(test.statistic, 3), test.degrees_of_freedom, test.rejected
    (1.404, 1, False)
    """
    require_significance(significance)
    if not isinstance(model, LogitModel):
        raise InputError(f"the Wald test needs the coefficients of a logit, but {type(model).__name__} is not a logit.")
    require_estimated(model, "a Wald test")
    written = [hypotheses] if isinstance(hypotheses, str) else list(hypotheses)
    if not written:
        raise InputError(f"expected {_EXAMPLE}, got none.")
    estimates = model.estimates_
    functions = [_difference_of_sides(text, estimates.names) for text in written]
    # 1. The left sides minus the right sides, and their gradients.
    pairs = [function.value_and_gradient(estimates.values) for function in functions]
    r, jacobian = np.array([value for value, _ in pairs]), np.stack([gradient for _, gradient in pairs])
    if not (np.isfinite(r).all() and np.isfinite(jacobian).all()):
        raise InputError("a hypothesis or its derivative is not a finite number at the estimates.")
    kind = errors or model.default_errors
    covariance = jacobian @ model.covariance(errors) @ jacobian.T
    _require_testable(model, written, jacobian, covariance, kind)
    # 2. The statistic.
    statistic = float(r @ np.linalg.solve(covariance, r))
    p = chi_squared_p(statistic, len(written))
    joint = "joint " * (len(written) > 1)
    return Outcome(
        test="Wald test",
        statistic=statistic,
        degrees_of_freedom=len(written),
        p_value=p,
        hypothesis=f"the {joint}hypothesis {listed(written)}",
        significance=significance,
        decision=f"the estimates {'contradict' if p < significance else 'are consistent with'} it",
        details={"values": r.tolist(), "std_errors": np.sqrt(np.diag(covariance)).tolist(), "errors": kind},
        notes=tuple(_notes(model, functions, jacobian)),
    )


def _difference_of_sides(text: str, names: Sequence[str]) -> CoefficientExpression:
    """Return the left side of an equation minus its right side."""
    match = _SIDES.fullmatch(text) if isinstance(text, str) else None
    if match is None or not all(side.strip() for side in match.groups()):
        raise InputError(f"expected {_EXAMPLE}, got {text!r}.")
    # A side that is the name of a coefficient needs no backticks.
    sides = [side.strip() for side in match.groups()]
    left, right = ("`" + side.replace("`", "``") + "`" if side in names else f"({side})" for side in sides)
    return CoefficientExpression.parse(f"{left} - {right}", names)


def _require_testable(
    model: LogitModel, written: Sequence[str], jacobian: Floats, covariance: Floats, kind: Errors
) -> None:
    """Raise InputError if the covariance of the hypotheses is not finite and positive definite."""
    estimates = model.estimates_
    unbounded = [name for name in estimates.unbounded if jacobian[:, estimates.names.index(name)].any()]
    if unbounded:
        raise InputError(f"the hypotheses concern coefficients without a finite estimate: {listed(unbounded)}.")
    if kind == "clustered" and estimates.clusters is not None and estimates.clusters <= len(written):
        raise InputError(
            f"a test of {len(written)} hypotheses with clustered errors needs more than {len(written)} clusters, got "
            f"{estimates.clusters}: use errors='robust'."
        )
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    known = [text for text, deviation in zip(written, deviations, strict=True) if deviation == 0]
    if known:
        raise InputError(
            f"the hypothesis {known[0]!r} concerns only coefficients that are fixed, at a bound or constrained to be "
            f"equal, so it has no standard error."
        )
    # Hypotheses are redundant if their estimates are linear combinations of each other.
    values, vectors = np.linalg.eigh(covariance / np.outer(deviations, deviations))
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    if redundant := dependent_columns(root):
        k, basis = redundant[0]
        raise InputError(
            f"the hypothesis {written[k]!r} follows from the others, or contradicts them "
            f"({listed([written[j] for j in basis])}): leave it out."
        )


def _notes(model: LogitModel, functions: Sequence[CoefficientExpression], jacobian: Floats) -> list[str]:
    """Return notes on hypotheses that are not linear and on hypotheses on the boundary of the parameter space."""
    estimates, notes = model.estimates_, []
    for function, gradient in zip(functions, jacobian, strict=True):
        other = function.value_and_gradient(1.5 * estimates.values + 0.1)[1]
        if np.abs(other - gradient).max() > _LINEAR * np.abs(gradient).max():
            notes.append(
                "a hypothesis is not linear in the coefficients, so the statistic depends on how it is written: a "
                "likelihood-ratio test does not"
            )
            break
    named = {estimates.names[k] for function in functions for k in function.positions.values()}
    spreads = sorted(name for name in named if re.match(r"(sd|spread|component)\[", name))
    if spreads:
        notes.append(
            f"the variance of {listed(spreads)} cannot be negative: if the hypothesis is that it is 0, on the boundary "
            f"of the parameter space, this p-value is an upper bound"
        )
    if estimates.at_bound and named & {*estimates.at_bound}:
        notes.append(f"{listed(sorted(named & {*estimates.at_bound}))} is at a bound and is treated as known")
    return notes
