"""Hausman and McFadden's test of independence of irrelevant alternatives (Econometrica, 1984).

If the odds of two alternatives do not depend on which others there are, a multinomial logit has the same coefficients
where some alternatives, and the sets in which they were chosen, are left out. With b_r, V_r the estimates and their
covariance from what is left and b_f, V_f those from all,

    (b_r - b_f)' (V_r - V_f)^-1 (b_r - b_f)  ~  chi-squared.

Where the difference of the covariances is not positive definite, which happens in finite samples, the directions in
which it is not are left out of the inverse and of the degrees of freedom. With robust or clustered errors, V_r - V_f is
no covariance. That of b_r - b_f then comes from the scores of both fits, A_r^-1 g_r - A_f^-1 g_f: never negative.

Without the alternatives, a column of the utility may become a combination of others in every set: a constant, when the
reference is left out. b_f is then taken to the columns that are left, by a matrix T: T b_f, T V_f T'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
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
from pcmcnet.models.logit.standard_errors import Errors

_MIN_RELATIVE_VARIANCE = 1e-8  # variance of a direction, relative to the largest, that counts as none


def hausman_mcfadden(
    model: ChoiceModel,
    data: Any,
    without: str | Sequence[str],
    *,
    errors: Errors | None = None,
    significance: float = 0.05,
) -> Outcome:
    """Test independence of irrelevant alternatives, by leaving some of them out.

    Parameters
    ----------
    model
        A fitted multinomial logit.
    data
        The choice sets that it was fitted to.
    without
        Label, or labels, of the alternatives to leave out.
    errors
        Kind of covariances: "classical" for the test as published; "robust" or "clustered" where choices depend on each
        other or the logit is an approximation. Those of the model, if not given.
    significance
        Probability of rejecting the independence where it holds.

    Raises
    ------
    InputError
        When the model is none, the table is another one, or nothing is left to estimate.
    """
    require_significance(significance)
    sets = _require_fitted_to(model, data)
    assert isinstance(model, MNL)
    left_out = [without] if isinstance(without, str) else list(without)
    if not left_out:
        raise InputError("without: expected the label of an alternative to leave out, or several, got none.")
    full = LogitFit.of(model, sets)
    problem, among = _restricted_problem(model, sets, left_out)
    move, kept = _restriction_matrix(problem)
    names = [model.design_.names[k] for k in kept]
    left = LogitFit.maximum(replace(problem, z=problem.z[:, kept]), sets.weights[among], among)
    kind = errors or model.default_errors
    d = left.b - move @ full.b
    if kind == "classical":
        covariance = left.inverse - move @ full.inverse @ move.T
    else:
        covariance = _covariance_of_difference(left, full, move, _clusters(model, sets, kind))
    statistic, degrees = _wald_statistic(d, covariance, left.inverse)
    notes = _notes(d, degrees, kind, sets)
    p = chi_squared_p(statistic, degrees) if degrees else 1.0
    return Outcome(
        test=f"Hausman-McFadden test without {listed(left_out)}",
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=p,
        hypothesis="irrelevant alternatives do not matter",
        significance=significance,
        decision="the coefficients change, so that a multinomial logit does not hold; try nests, classes or a network"
        if p < significance
        else "the coefficients change no more than by chance",
        details={
            "choice_sets": len(among),
            "coefficients": names,
            "restricted": left.b,
            "full": move @ full.b,
            "errors": kind,
        },
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class LogitFit:
    """A logit on R of the S sets of a table, and where it has its maximum."""

    problem: LogitLikelihood
    weights: Floats  # (R,)
    sets: Ints  # (R,) which of the S these are
    b: Floats  # (K,)
    inverse: Floats  # (K, K), of the information

    @classmethod
    def of(cls, model: MNL, data: ChoiceData) -> LogitFit:
        """Take the fitted model, on all sets."""
        problem = LogitLikelihood.from_matrix(model.design_.matrix(data), data.offsets, data.require_chosen("a test"))
        estimates = model.estimates_
        return cls(problem, data.weights, np.arange(len(data)), estimates.values, estimates.covariance("classical"))

    @classmethod
    def maximum(cls, problem: LogitLikelihood, weights: Floats, sets: Ints) -> LogitFit:
        """Estimate the coefficients."""
        b, hessian, _ = problem.maximise(weights)
        return cls(problem, weights, sets, b, np.asarray(np.linalg.inv(-hessian), np.float64))

    def influence(self, n_sets: int) -> Floats:
        """(S, K) what each set has added to the estimates, to the first order; 0 for sets left out."""
        found = np.zeros((n_sets, len(self.b)))
        found[self.sets] = (self.problem.scores(self.b) * self.weights[:, None]) @ self.inverse
        return found


def _require_fitted_to(model: Any, data: Any) -> ChoiceData:
    if not isinstance(model, MNL):
        raise InputError(f"the test is one of the multinomial logit, MNL; got {type(model).__name__}.")
    require_estimated(model, "the test")
    sets = require_training_sets(model, data)
    if not model.design_.form.is_linear:
        raise InputError("the test needs a utility that is linear in its parameters: no boxcox(x), no wtp_space.")
    held = (*model.estimates_.fixed, *model.estimates_.at_bound)
    if held:
        raise InputError(f"the test needs estimates of all coefficients, and {listed(held)} is fixed or at a bound.")
    if model.estimates_.unbounded:
        raise InputError(f"there is no finite estimate for {listed(model.estimates_.unbounded)}: leave it out first.")
    return sets.with_positive_weight()


def _restricted_problem(model: MNL, data: ChoiceData, without: Sequence[str]) -> tuple[LogitLikelihood, Ints]:
    """Return the logit that is left without some alternatives, and which of the sets it has."""
    gone = _left_out(data, without)
    chosen = data.require_chosen("a test")
    picked = data.offsets[:-1] + chosen
    sizes = sum_by_set((~gone).astype(np.float64), data.offsets).astype(np.int64)
    stays = ~gone[picked] & (sizes > 1)
    if not stays.any():
        raise InputError(
            f"without {listed(list(without))}, no choice set with a choice among two alternatives is left."
        )
    rows = ~gone & spread(stays, data.offsets)
    before: Ints = np.cumsum(gone) - gone  # how many rows before each row are left out
    place = chosen - (before[picked] - before[data.offsets[:-1]])
    offsets = np.concatenate([[0], np.cumsum(sizes[stays])])
    problem = LogitLikelihood.from_matrix(model.design_.matrix(data)[rows], offsets, place[stays])
    return problem, np.flatnonzero(stays)


def _left_out(data: ChoiceData, without: Sequence[str]) -> Bools:
    """(N,) whether an alternative is one of those named."""
    if data.labels is None:
        raise InputError("leaving alternatives out needs labels: read the table with alternative=<column>.")
    known = list(data.labels.categories)
    for label in without:
        if label not in known:
            raise InputError(f"no alternative is called {label!r}." + did_you_mean(str(label), known))
    return np.isin(data.labels.codes, [known.index(label) for label in without])


def _restriction_matrix(problem: LogitLikelihood) -> tuple[Floats, list[int]]:
    """Return T (R, K), and which R columns have coefficients of their own in what is left."""
    lost = [k for k, _ in dependent_columns(problem.z)]
    kept = [k for k in range(problem.n_columns) if k not in lost]
    if not kept:
        raise InputError("no coefficient can be estimated from the alternatives that are left.")
    gram = problem.z.T @ problem.z
    scale = 1 / np.sqrt(np.diag(gram)[kept])
    inside = gram[np.ix_(kept, kept)] * np.outer(scale, scale)
    move = np.zeros((len(kept), problem.n_columns))
    move[:, kept] = np.eye(len(kept))
    move[:, lost] = scale[:, None] * np.linalg.solve(inside, scale[:, None] * gram[np.ix_(kept, lost)])
    return move, kept


def _clusters(model: MNL, sets: ChoiceData, kind: Errors) -> Ints:
    """(S,) what depends on each other: persons or clusters, or every set alone."""
    if kind == "robust":
        return np.arange(len(sets))
    model.estimates_.covariance(kind)  # refuses a kind that there is none of
    return sets.groups(model.config.cluster)


def _covariance_of_difference(left: LogitFit, full: LogitFit, move: Floats, clusters: Ints) -> Floats:
    """Return the covariance of b_r - T b_f from the scores of both fits."""
    n_sets = len(full.sets)
    each = left.influence(n_sets) - full.influence(n_sets) @ move.T
    sums = np.column_stack([np.bincount(clusters, weights=column) for column in each.T])
    n = len(np.unique(clusters))
    factor = n / (n - 1) if n < n_sets else 1.0
    return np.asarray(factor * (sums.T @ sums), np.float64)


def _wald_statistic(d: Floats, covariance: Floats, scale_of: Floats) -> tuple[float, int]:
    """Return d' C^- d, where the inverse leaves out what is not positive in C, and how many directions it has."""
    scale = 1 / np.sqrt(np.diag(scale_of))
    values, vectors = np.linalg.eigh(covariance * np.outer(scale, scale))
    solid = values > _MIN_RELATIVE_VARIANCE * max(float(values.max()), 0.0)
    solid &= values > 0
    projected = vectors[:, solid].T @ (d * scale)
    return float((projected**2 / values[solid]).sum()), int(solid.sum())


def _notes(d: Floats, degrees: int, kind: Errors, sets: ChoiceData) -> list[str]:
    notes = []
    if degrees < len(d):
        notes.append(
            f"the difference of the covariances is not positive definite: {len(d) - degrees} of {len(d)} directions "
            f"are left out of its generalised inverse"
        )
    if kind == "classical" and sets.schema.person is not None:
        notes.append("classical errors take the choices of a person for independent: errors='clustered' does not")
    return notes
