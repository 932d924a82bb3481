"""Vuong's test (Vuong, 1989) of two models that are not nested, which may be networks.

Let m_u = log p_a - log p_b for the choices of unit u, which is a choice set or, if persons are declared, all sets of a
person. Then

    z = sum_u m_u / (sqrt(n) sd(m))  ~  N(0, 1)        if both models are equally close to the truth.

If one model contains the other and the smaller one is true, n sd(m)^2 does not grow with n and z is not normal. Nested
models are recognised by the names of their coefficients, and a note warns about them. If sqrt(n) sd(m) is close to 0,
the test raises InputError, because a correction would be divided by almost 0.

A correction for the numbers of parameters, k_a and k_b, subtracts k_a - k_b ("aic") or (k_a - k_b) log(n) / 2 ("bic")
from the sum of the m_u. Each log p is multiplied by the weight of its set. If the likelihood of a model treats all
choices of a person jointly, log p is the joint log-probability of these choices. Out of sample, no correction is
needed, and the test compares predictive accuracy (Diebold & Mariano, 1995).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_word, suggests_arguments
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests.likelihood_ratio import has_coefficients_of, person_log_likelihoods
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome, require_significance
from pcmcnet.evaluation.predictions import gives_of, predicted_log_p, require_data, training_overlap
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.standard_errors import WEIGHTS_AS_COUNTS

Correction = Literal["none", "aic", "bic"]

_MIN_DIFFERENCE = 1e-9  # smaller differences of log-probabilities are rounding errors
_MIN_DEVIATION = 0.1  # smallest standard deviation of the summed differences for which the test is meaningful


@suggests_arguments()
def vuong(
    a: ChoiceModel, b: ChoiceModel, data: Any, *, correction: Correction = "none", significance: float = 0.05
) -> Outcome:
    """Test whether two models that are not nested fit equally well.

    Parameters
    ----------
    a
        A fitted model of any class that gives probabilities.
    b
        Another fitted model that gives probabilities.
    data
        Choice sets with observed choices, on which both models are compared. The units of the test are persons if
        declared, otherwise choice sets.
    correction
        Correction for the difference in the numbers of parameters: "none" (default), "aic" or "bic".
    significance
        Significance level: the probability of rejecting the hypothesis of equal fit if it is true. Default 0.05.

    Returns
    -------
    Outcome
        The statistic, its p-value and the decision. A positive statistic favours ``a``.

    Raises
    ------
    InputError
        If a model gives no probabilities or gives probability 0 to a choice, or if the models are too similar to test.
    """
    require_significance(significance)
    require_word("correction", correction, ("none", "aic", "bic"))
    table = require_data(a, data)
    # With one alternative, both models give probability 1.
    is_informative = (table.weights > 0) & (table.sizes > 1)
    sets = table if is_informative.all() else table.subset(is_informative)
    unit = "choice sets" if sets.schema.person is None else "persons"
    m = _log_likelihoods(a, sets) - _log_likelihoods(b, sets)  # (U,)
    if len(m) < 2:
        raise InputError(f"expected at least 2 {unit} with a choice between alternatives, got {len(m)}.")
    if np.abs(m).max() < _MIN_DIFFERENCE:
        raise InputError("the two models give the same probabilities: there is nothing to compare.")
    n, deviation = len(m), float(np.sqrt(len(m)) * m.std())
    if deviation < _MIN_DEVIATION:
        raise InputError(
            f"the two models are too similar to test: their log-likelihoods differ by {m.sum():.3g}, with a standard "
            f"deviation of {deviation:.3g}. If one contains the other, use likelihood_ratio."
        )
    k = a.num_parameters - b.num_parameters
    penalty = {"none": 0.0, "aic": float(k), "bic": k * float(np.log(n)) / 2}[correction]
    z = float((m.sum() - penalty) / deviation)
    p = normal_p_value(z)
    first, second = _names(a, b)
    better, worse = (first, second) if z > 0 else (second, first)
    return Outcome(
        test="Vuong's test" + ("" if correction == "none" else f", {correction.upper()} correction"),
        statistic=z,
        p_value=p,
        hypothesis=f"equal fit of {first} and {second}",
        significance=significance,
        decision=f"{better} fits significantly better than {worse}"
        if p < significance
        else "the difference is not significant",
        details={"units": n, "unit": unit, "difference": float(m.sum()), "penalty": penalty},
        notes=tuple(_notes(a, b, table, correction)),
    )


def normal_p_value(z: float) -> float:
    """Return the two-sided p-value of a standard normal statistic."""
    from scipy.special import ndtr

    return float(2 * ndtr(-abs(z)))


def _log_likelihoods(model: ChoiceModel, sets: ChoiceData) -> Floats:
    """Return the weighted log-likelihood of each person or choice set (U,)."""
    if gives_of(model) != "probabilities":
        raise InputError(f"{type(model).__name__} gives no probabilities and therefore has no likelihood to compare.")
    groups = sets.groups()
    joint = person_log_likelihoods(model, sets)
    if joint is not None:  # a person's sets all have the same weight
        return joint * sets.weights[np.unique(groups, return_index=True)[1]]
    of_choices = predicted_log_p(model, sets)[sets.offsets[:-1] + sets.require_chosen("a test")]
    if np.isneginf(of_choices).any():
        impossible = int(np.isneginf(of_choices).sum())
        name = type(model).__name__
        raise InputError(f"{name} gives probability 0 to {impossible} of the choices, so its log-likelihood is -inf.")
    return np.asarray(np.bincount(groups, weights=sets.weights * of_choices), np.float64)


def _names(a: ChoiceModel, b: ChoiceModel) -> tuple[str, str]:
    """Return two distinct names for the models."""
    names = type(a).__name__, type(b).__name__
    return names if names[0] != names[1] else (f"{names[0]} (first)", f"{names[1]} (second)")


def _notes(a: ChoiceModel, b: ChoiceModel, sets: ChoiceData, correction: Correction) -> list[str]:
    """Return notes on nested models and on models that are tested in sample."""
    in_sample = [
        isinstance(model, ChoiceModel) and training_overlap(model, sets) in ("all", "most") for model in (a, b)
    ]
    notes = []
    if any(in_sample) and (has_coefficients_of(a, b) or has_coefficients_of(b, a)):
        notes.append(
            "the names of the coefficients show that the models are nested, so the statistic is not normal if the "
            "smaller model is true: use likelihood_ratio"
        )
    if (sets.weights[sets.weights > 0] != 1).any():
        note = (
            "the log-likelihoods are weighted, so the models are compared in the population that the weights represent"
        )
        if correction != "none":
            note = f"the log-likelihoods are weighted, and the {correction.upper()} correction is {WEIGHTS_AS_COUNTS}"
        notes.append(note)
    if not any(in_sample) or correction != "none" or a.num_parameters == b.num_parameters:
        return notes
    models = "both models were" if all(in_sample) else "one of the models was"
    note = (
        f"{models} fitted to these choices, which favours the model with more parameters ({a.num_parameters:,} and "
        f"{b.num_parameters:,}): test out of sample, or set correction"
    )
    return [*notes, note]
