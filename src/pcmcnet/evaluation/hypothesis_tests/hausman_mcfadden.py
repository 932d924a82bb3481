"""Hausman and McFadden's test of the independence of irrelevant alternatives, IIA (Econometrica, 1984).

Under IIA, a multinomial logit has the same coefficients if some alternatives, and the choice sets in which they were
chosen, are left out. Let b_r and V_r be the estimates and their covariance from the restricted sets, and b_f and V_f
those from the full sets. Under IIA,

    (b_r - b_f)' (V_r - V_f)^-1 (b_r - b_f)  ~  chi-squared.

In finite samples the difference between the covariances may not be positive definite. In that case, directions without
a positive variance are left out of the inverse and of the degrees of freedom. With robust or clustered errors, V_r -
V_f is not the covariance of b_r - b_f. In that case, the covariance of b_r - b_f is computed from the scores of both
fits, A_r^-1 g_r - A_f^-1 g_f, and is never negative.

After the restriction, a column of the design matrix may become a linear combination of the others within every set, for
example an alternative-specific constant when the reference alternative is left out. In that case, a matrix T maps b_f
to the coefficients of the remaining columns, T b_f, with covariance T V_f T'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import suggests_arguments
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import spread, sum_by_set
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome, chi_squared_p, require_significance
from pcmcnet.evaluation.predictions import require_training_sets
from pcmcnet.models import MNL
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.logit_model import require_estimated
from pcmcnet.models.logit.parameter_bounds import dependent_columns, listed
from pcmcnet.models.logit.standard_errors import WEIGHTS_AS_COUNTS, Errors

_MIN_RELATIVE_VARIANCE = 1e-8  # smaller variances of a direction, relative to the largest, count as 0


@suggests_arguments(call="hausman_mcfadden(model, data, without='car')")
def hausman_mcfadden(
    model: ChoiceModel,
    data: Any,
    without: str | Sequence[str],
    *,
    errors: Errors | None = None,
    significance: float = 0.05,
) -> Outcome:
    """Test the independence of irrelevant alternatives (IIA) in a multinomial logit by leaving alternatives out.

    Parameters
    ----------
    model
        A fitted multinomial logit.
    data
        The choice sets that the model was fitted to: ``ChoiceData``, or a table that its schema can read.
    without
        One or more labels of alternatives to leave out.
    errors
        Kind of standard errors: "classical" for the published test, or "robust" or "clustered" if choices are dependent
        or the logit is an approximation. Default None: the kind of standard errors in the model's options.
    significance
        Significance level: the probability of rejecting IIA if it holds. Default 0.05.

    Returns
    -------
    Outcome
        The statistic, its p-value and the decision.

    Raises
    ------
    InputError
        If the model is not a multinomial logit or was fitted to another table, if no coefficient remains to estimate,
        or if errors are clustered and there are not more clusters than coefficients.
    """
    require_significance(significance)
    sets = _require_fitted_to(model, data)
    assert isinstance(model, MNL)
    left_out = [without] if isinstance(without, str) else list(without)
    if not left_out:
        raise InputError("without: expected one or more labels of alternatives to leave out, got none.")
    # 1. Fit the logit to the sets without these alternatives, on the columns that remain identified.
    full = LogitFit.of(model, sets)
    problem, remaining = _restricted_problem(model, sets, left_out)
    T, columns = _restriction_matrix(problem)
    names = [model.design_.names[k] for k in columns]
    restricted = LogitFit.maximum(replace(problem, z=problem.z[:, columns]), sets.weights[remaining], remaining)
    # 2. Compute the difference between the coefficients and its covariance.
    kind = errors or model.default_errors
    d = restricted.b - T @ full.b
    if kind == "classical":
        covariance = restricted.inverse - T @ full.inverse @ T.T
    else:
        clusters = _clusters(model, sets, kind)
        if kind == "clustered":
            _require_more_clusters_than(len(d), clusters)
        covariance = _covariance_of_difference(restricted, full, T, clusters)
    # 3. Compute the statistic and its p-value.
    statistic, degrees = _quadratic_form(d, covariance, restricted.inverse)
    notes = _notes(d, degrees, kind, sets)
    p = chi_squared_p(statistic, degrees) if degrees else 1.0
    return Outcome(
        test=f"Hausman-McFadden test without {listed(left_out)}",
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=p,
        hypothesis="IIA",
        significance=significance,
        decision="the coefficients change significantly, so a multinomial logit is not adequate; try a nested logit, "
        "latent classes or a network"
        if p < significance
        else "the coefficients do not change significantly",
        details={
            "choice_sets": len(remaining),
            "coefficients": names,
            "restricted": restricted.b,
            "full": T @ full.b,
            "errors": kind,
        },
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class LogitFit:
    """Maximum likelihood estimates of a logit from R of the S choice sets of a table."""

    problem: LogitLikelihood
    weights: Floats  # (R,)
    sets: Ints  # (R,) indices of the sets in the table
    b: Floats  # (K,)
    inverse: Floats  # (K, K) inverse of the information matrix

    @classmethod
    def of(cls, model: MNL, data: ChoiceData) -> LogitFit:
        """Return the maximum likelihood fit of a model to all its choice sets."""
        problem = LogitLikelihood.from_matrix(model.design_.matrix(data), data.offsets, data.require_chosen("a test"))
        estimates = model.estimates_
        return cls(problem, data.weights, np.arange(len(data)), estimates.values, estimates.covariance("classical"))

    @classmethod
    def maximum(cls, problem: LogitLikelihood, weights: Floats, sets: Ints) -> LogitFit:
        """Estimate the logit coefficients by maximum likelihood."""
        b, hessian, _ = problem.maximise(weights)
        return cls(problem, weights, sets, b, np.asarray(np.linalg.inv(-hessian), np.float64))

    def influence(self, n_sets: int) -> Floats:
        """Return the first-order influence of each set on the estimates, (S, K); excluded sets have influence 0."""
        influence = np.zeros((n_sets, len(self.b)))
        influence[self.sets] = (self.problem.scores(self.b) * self.weights[:, None]) @ self.inverse
        return influence


def _require_fitted_to(model: Any, data: Any) -> ChoiceData:
    """Return the training sets of a multinomial logit, or raise InputError if the test is not applicable."""
    if not isinstance(model, MNL):
        raise InputError(f"the test supports the multinomial logit (MNL) only, got {type(model).__name__}.")
    require_estimated(model, "the test")
    sets = require_training_sets(model, data)
    if not model.design_.form.is_linear:
        raise InputError(
            "the test needs a utility that is linear in its parameters: remove boxcox(x), wtp_space and scale."
        )
    constrained = (*model.estimates_.fixed, *model.estimates_.at_bound, *model.estimates_.equal)
    if constrained:
        raise InputError(
            f"the test needs estimates of all coefficients, but these are fixed, at a bound or equal to others: "
            f"{listed(constrained)}."
        )
    if model.estimates_.unbounded:
        raise InputError(f"leave out the coefficients without a finite estimate: {listed(model.estimates_.unbounded)}.")
    return sets.with_positive_weight()


def _restricted_problem(model: MNL, data: ChoiceData, without: Sequence[str]) -> tuple[LogitLikelihood, Ints]:
    """Return the logit likelihood without the excluded alternatives, and the indices of the remaining choice sets."""
    # 1. Keep the sets whose choice and at least one other alternative remain.
    removed = _left_out(data, without)
    chosen = data.require_chosen("a test")
    picked = data.offsets[:-1] + chosen
    sizes = sum_by_set((~removed).astype(np.float64), data.offsets).astype(np.int64)
    remains = ~removed[picked] & (sizes > 1)
    if not remains.any():
        raise InputError(
            f"without {listed(list(without))}, no choice set contains both its chosen alternative and another one."
        )
    # 2. Renumber the rows and the chosen alternatives.
    rows = ~removed & spread(remains, data.offsets)
    removed_before: Ints = np.cumsum(removed) - removed
    new_chosen = chosen - (removed_before[picked] - removed_before[data.offsets[:-1]])
    offsets = np.concatenate([[0], np.cumsum(sizes[remains])])
    problem = LogitLikelihood.from_matrix(model.design_.matrix(data)[rows], offsets, new_chosen[remains])
    return problem, np.flatnonzero(remains)


def _left_out(data: ChoiceData, without: Sequence[str]) -> Bools:
    """Return a mask (N,) of the alternatives to leave out: those with one of the given labels."""
    if data.labels is None:
        raise InputError("labels are needed to leave alternatives out: read the table with alternative=<column>.")
    labels = list(data.labels.categories)
    for label in without:
        if label not in labels:
            raise InputError(f"no alternative has the label {label!r}." + did_you_mean(str(label), labels))
    return np.isin(data.labels.codes, [labels.index(label) for label in without])


def _restriction_matrix(problem: LogitLikelihood) -> tuple[Floats, list[int]]:
    """Return the matrix T (R, K) and the R design-matrix columns that are identified in the restricted choice sets."""
    dependent = [k for k, _ in dependent_columns(problem.z)]
    columns = [k for k in range(problem.n_columns) if k not in dependent]
    if not columns:
        raise InputError("no coefficient can be estimated from the remaining alternatives.")
    # Express each dependent column as a linear combination of the others, by least squares.
    gram = problem.z.T @ problem.z
    scale = 1 / np.sqrt(np.diag(gram)[columns])
    scaled = gram[np.ix_(columns, columns)] * np.outer(scale, scale)
    T = np.zeros((len(columns), problem.n_columns))
    T[:, columns] = np.eye(len(columns))
    T[:, dependent] = scale[:, None] * np.linalg.solve(scaled, scale[:, None] * gram[np.ix_(columns, dependent)])
    return T, columns


def _clusters(model: MNL, sets: ChoiceData, kind: Errors) -> Ints:
    """Return the cluster of each choice set (S,): a person, a group or, for robust errors, the set itself."""
    if kind == "robust":
        return np.arange(len(sets))
    model.estimates_.covariance(kind)  # raises InputError if the model has no errors of this kind
    return sets.groups(model.config.cluster)


def _require_more_clusters_than(n_coefficients: int, clusters: Ints) -> None:
    """Raise InputError if the covariance of the difference is singular because there are too few clusters."""
    n_clusters = len(np.unique(clusters))
    if n_clusters <= n_coefficients:
        raise InputError(
            f"a test of {n_coefficients} coefficients needs more than {n_coefficients} clusters, got {n_clusters}: use "
            f"errors='robust', or a model with another cluster=<column>."
        )


def _covariance_of_difference(restricted: LogitFit, full: LogitFit, T: Floats, clusters: Ints) -> Floats:
    """Return the covariance of b_r - T b_f from the scores of both fits."""
    n_sets = len(full.sets)
    influence = restricted.influence(n_sets) - full.influence(n_sets) @ T.T
    sums = np.column_stack([np.bincount(clusters, weights=column) for column in influence.T])
    n = len(np.unique(clusters))
    factor = n / (n - 1) if n < n_sets else 1.0
    return np.asarray(factor * (sums.T @ sums), np.float64)


def _quadratic_form(d: Floats, covariance: Floats, scale_of: Floats) -> tuple[float, int]:
    """Return d' C^- d and the rank of C^-, the generalised inverse of C in the directions of positive variance."""
    scale = 1 / np.sqrt(np.diag(scale_of))
    values, vectors = np.linalg.eigh(covariance * np.outer(scale, scale))
    is_positive = values > _MIN_RELATIVE_VARIANCE * max(float(values.max()), 0.0)
    is_positive &= values > 0
    projected = vectors[:, is_positive].T @ (d * scale)
    return float((projected**2 / values[is_positive]).sum()), int(is_positive.sum())


def _notes(d: Floats, degrees: int, kind: Errors, sets: ChoiceData) -> list[str]:
    """Return notes on the limitations of the test for these data."""
    notes = []
    if degrees < len(d):
        notes.append(
            f"the difference of the covariances is not positive definite: {len(d) - degrees} of {len(d)} directions "
            f"are left out of its generalised inverse"
        )
    if kind == "classical" and sets.schema.person is not None:
        notes.append("classical errors assume that the choices of a person are independent: use errors='clustered'")
    if kind == "classical" and (sets.weights != 1).any():
        notes.append(f"classical errors are {WEIGHTS_AS_COUNTS}: use errors='robust'")
    return notes
