"""Score test (Rao, 1948), or Lagrange multiplier test, of columns that a multinomial logit leaves out.

Only the smaller logit is fitted. Let b be its estimates, with 0 (or the fixed value) for the Q coefficients that it
does not estimate; g (K,) the score of the larger logit at b, and A the information (K, K). With g_2 the scores of these
coefficients, and those of the others, g_1, equal to 0 at the estimates,

    classical   LM = g_2' (A_22 - A_21 A_11^-1 A_12)^-1 g_2
    robust      LM = g_2' (C B C')^-1 g_2          C = [-A_21 A_11^-1, I]          (White, 1982)

~ chi-squared with Q degrees of freedom, where B is the sum of the outer products of the scores of choice sets or, if
errors are clustered, G / (G - 1) times that of the scores summed within G clusters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_word, suggests_arguments
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome, chi_squared_p, require_significance
from pcmcnet.evaluation.predictions import require_training_sets
from pcmcnet.models import MNL
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.formula import backquoted
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.logit_model import require_estimated
from pcmcnet.models.logit.parameter_bounds import listed, require_identified
from pcmcnet.models.logit.standard_errors import WEIGHTS_AS_COUNTS, Errors, Estimates


@suggests_arguments()
def score_test(
    model: ChoiceModel,
    data: Any,
    formula: str | None = None,
    *,
    errors: Errors | None = None,
    significance: float = 0.05,
) -> Outcome:
    """Test a multinomial logit against a larger one, which need not be fitted, with a score test.

    Parameters
    ----------
    model
        A fitted multinomial logit with a utility that is linear in its parameters.
    data
        The choice sets that the model was fitted to: ``ChoiceData``, or a table that its schema can read.
    formula
        Formula of the larger utility, with all columns of the smaller one. If None (default), the fixed and the equal
        coefficients of the model are tested.
    errors
        "classical" for the published test, or "robust" or "clustered" if choices are dependent or the logit is an
        approximation. The default is set by the option ``errors`` of the model.
    significance
        Significance level: the probability of rejecting the smaller model if it holds. Default 0.05.

    Returns
    -------
    Outcome
        The statistic, its p-value and the decision.

    Raises
    ------
    InputError
        If the model is not a multinomial logit or was fitted to another table, if the larger formula lacks a column of
        the model or adds none, or if a coefficient of the larger logit is not identified.

    Examples
    --------
    >>> from pcmcnet import ChoiceData
    >>> table = {"trip": [1, 1, 2, 2, 3, 3, 4, 4], "took": [1, 0, 0, 1, 1, 0, 0, 1], "cost": [2, 4, 5, 3, 4, 3, 5, 2]}
    >>> data = ChoiceData.from_long(
    ...     {**table, "time": [5, 1, 3, 4, 2, 2, 6, 5]}, choice_set="trip", chosen="took", features=["cost", "time"]
    ... )
    >>> test = score_test(MNL(formula="cost").fit(data), data, "cost + time")
    >>> test.degrees_of_freedom, test.rejected
    (1, False)
    """
    require_significance(significance)
    if not isinstance(model, MNL) or not model.design_.form.is_linear:
        raise InputError(
            f"the score test supports the multinomial logit (MNL) with a utility that is linear in its parameters, got "
            f"{type(model).__name__}: use pcmcnet.likelihood_ratio."
        )
    require_estimated(model, "a score test")
    kind = errors or model.default_errors
    require_word("errors", kind, ("classical", "robust", "clustered"))
    sets = require_training_sets(model, data).with_positive_weight()
    # 1. The columns of the larger utility, with the estimates of the smaller one.
    design = model.design_ if formula is None else _larger_design(model, sets, formula)
    b, estimated, tested = _restricted_values(model, design)
    chosen = sets.require_chosen("a score test")
    problem = LogitLikelihood.from_matrix(design.matrix(sets), sets.offsets, chosen, sets.expansion)
    problem = _in_differences(problem, design, model.estimates_)
    varying = sorted([*estimated, *tested])
    require_identified(problem.z[:, varying], [design.columns[k] for k in varying])
    # 2. Scores and information of the larger logit there.
    scores = problem.scores(b) * sets.weights[:, None]
    _, p, mean = problem.evaluate(b)
    information = -problem.hessian(p, mean, sets.weights[problem.sets])
    g = scores.sum(0)[tested]
    covariance = _covariance_of_scores(model, sets, information, scores, estimated, tested, kind)
    # 3. The statistic.
    names = [design.columns[k] for k in tested]
    statistic = float(g @ np.linalg.solve(covariance, g))
    p_value = chi_squared_p(statistic, len(g))
    notes = []
    if kind == "classical" and (sets.weights != 1).any():
        notes.append(f"the statistic is weighted: its p-value is {WEIGHTS_AS_COUNTS}")
    if kind == "classical" and model.schema.person is not None:
        notes.append("classical errors assume that the choices of a person are independent: use errors='clustered'")
    return Outcome(
        test="Score test",
        statistic=statistic,
        degrees_of_freedom=len(g),
        p_value=p_value,
        hypothesis="the smaller model",
        significance=significance,
        decision=f"a model that estimates {listed(names)} fits significantly better"
        if p_value < significance
        else f"a model that estimates {listed(names)} does not fit significantly better",
        details={"tested": names, "scores": g.tolist(), "errors": kind},
        notes=tuple(notes),
    )


def _larger_design(model: MNL, sets: ChoiceData, formula: str) -> Design:
    """Return the design of the larger utility, with the reference and the other options of the model."""
    config, labels = model.config, model.design_.labels
    return Design.learn(
        formula,
        sets,
        reference=config.reference if labels is None else labels.reference,
        least=config.min_chosen,
        base=config.base,
        offset=config.offset,
    )


def _restricted_values(model: MNL, design: Design) -> tuple[Floats, list[int], list[int]]:
    """Return the coefficients of the larger utility at the estimates of the model, the estimated and the tested ones.

    An offset, and the references of groups of alternatives that are never offered together, are neither.
    """
    lacking = [name for name in model.design_.columns if name not in design.columns]
    if lacking:
        raise InputError(
            f"the larger formula {design.formula!r} lacks the coefficients {listed(lacking)} of the model: it must "
            f"contain all columns of {model.config.formula!r}."
        )
    estimates = model.estimates_
    at_bound = [name for name in estimates.at_bound if name in design.columns]
    if at_bound or estimates.unbounded:
        raise InputError(
            f"the score test needs a maximum inside the bounds, but these coefficients are at a bound or have no "
            f"finite estimate: {listed([*at_bound, *estimates.unbounded])}."
        )
    values = model.coefficients | dict.fromkeys(estimates.equal, 0.0)  # differences of equal coefficients
    b = np.array([values.get(name, 0.0) for name in design.columns])
    offset = None if model.config.offset is None else backquoted(model.config.offset)
    known = {offset, *(row[0] for group in design.groups for row in group.columns)}
    restricted = {*estimates.fixed, *estimates.equal}
    estimated = [k for k, name in enumerate(design.columns) if name in estimates.names and name not in restricted]
    tested = [k for k, name in enumerate(design.columns) if k not in estimated and name not in known]
    if not tested:
        raise InputError(
            "there is no restriction to test: pass the formula of a larger utility, or fix coefficients of the model."
        )
    return b, estimated, tested


def _in_differences(problem: LogitLikelihood, design: Design, estimates: Estimates) -> LogitLikelihood:
    """Return the likelihood with each coefficient that equals an earlier one replaced by its difference from that one.

    The utility b_1 x_1 + b_2 x_2 is b_1 (x_1 + x_2) + (b_2 - b_1) x_2, so the difference is 0 under the restriction.
    """
    z = problem.z.copy() if estimates.equal else problem.z
    for name, first in estimates.equal.items():
        z[:, design.columns.index(first)] += problem.z[:, design.columns.index(name)]
    return replace(problem, z=z)


def _covariance_of_scores(
    model: MNL,
    sets: ChoiceData,
    information: Floats,
    scores: Floats,
    free: list[int],
    tested: list[int],
    kind: Errors,
) -> Floats:  # -> (Q, Q)
    """Return the covariance of the scores of the tested coefficients, given that the other scores are 0."""
    slope = np.linalg.solve(information[np.ix_(free, free)], information[np.ix_(free, tested)]).T  # A_21 A_11^-1
    if kind == "classical":
        return np.asarray(information[np.ix_(tested, tested)] - slope @ information[np.ix_(free, tested)])
    influence = scores[:, tested] - scores[:, free] @ slope.T
    if kind == "clustered":
        clusters = model._clusters(sets)
        if clusters is None:
            raise InputError("errors='clustered' needs clusters: read the table with person=<column>.")
        number = int(clusters.max()) + 1
        if number <= len(tested):
            raise InputError(
                f"a score test of {len(tested)} coefficients with clustered errors needs more than {len(tested)} "
                f"clusters, got {number}: use errors='robust'."
            )
        influence = np.column_stack([np.bincount(clusters, weights=column) for column in influence.T])
        influence *= np.sqrt(number / (number - 1))
    return np.asarray(influence.T @ influence)
