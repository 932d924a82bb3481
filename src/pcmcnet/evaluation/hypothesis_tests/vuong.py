"""Vuong's test of two models of which neither contains the other (Vuong, 1989), networks included.

With m_u = log p_a - log p_b of the choices of unit u, a choice set or, where persons are declared, a person's sets,

    z = sum_u m_u / (sqrt(n) sd(m))  ~  N(0, 1)        if both are equally far from the truth.

Where one model contains the other and the smaller holds, n sd(m)^2 has the law of the likelihood ratio rather than
growing with n, and z is not normal. Such models are noted by the names of their coefficients; any two for which
sqrt(n) sd(m) is near 0 are refused, as a correction would then be divided by almost nothing.

A correction for the numbers of parameters k takes k_a - k_b ("aic") or (k_a - k_b) log(n) / 2 ("bic") from the sum.
Weights of sets multiply their m. Where a model joins a person's choices, as person-level classes do, log p is that of
all of them together. On sets that neither model has seen, no correction is due, and the test is one of
predictions (Diebold & Mariano, 1995).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_word
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests.likelihood_ratio import has_coefficients_of, person_log_likelihoods
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome, require_significance
from pcmcnet.evaluation.predictions import gives_of, predicted_log_p, require_data, training_overlap
from pcmcnet.models.interface.choice_model import ChoiceModel

Correction = Literal["none", "aic", "bic"]

_MIN_DIFFERENCE = 1e-9  # differences of log-probabilities below which two models say the same
_MIN_DEVIATION = 0.1  # standard deviation of the sum of the differences below which nothing tells two models apart


def vuong(
    a: ChoiceModel, b: ChoiceModel, data: Any, *, correction: Correction = "none", significance: float = 0.05
) -> Outcome:
    """Test whether one of two models that do not contain each other is nearer to the truth.

    Parameters
    ----------
    a, b
        Fitted models that give probabilities, of any kind.
    data
        Choice sets with choices, the same for both. Where persons are declared, they are the units.
    correction
        "none", "aic" or "bic": what is taken off for the difference in the numbers of parameters.
    significance
        Probability of rejecting models that are equally near.

    Returns
    -------
    Outcome
        A positive statistic speaks for ``a``.
    """
    require_significance(significance)
    require_word("correction", correction, ("none", "aic", "bic"))
    sets = require_data(a, data).with_positive_weight()
    unit = "choice sets" if sets.schema.person is None else "persons"
    m = _log_likelihoods(a, sets) - _log_likelihoods(b, sets)  # (U,)
    if len(m) < 2:
        raise InputError(f"expected at least 2 {unit}, got {len(m)}.")
    if np.abs(m).max() < _MIN_DIFFERENCE:
        raise InputError("the two models give the same probabilities: there is nothing to compare.")
    n, spread = len(m), float(np.sqrt(len(m)) * m.std())
    if spread < _MIN_DEVIATION:
        raise InputError(
            f"the two models are as good as the same: their log-likelihoods differ by {m.sum():.3g} with a standard "
            f"deviation of {spread:.3g}, too small to test by. Where one contains the other, use likelihood_ratio."
        )
    gap = a.num_parameters - b.num_parameters
    penalty = {"none": 0.0, "aic": float(gap), "bic": gap * float(np.log(n)) / 2}[correction]
    z = float((m.sum() - penalty) / spread)
    p = normal_p_value(z)
    first, second = _names(a, b)
    better, worse = (first, second) if z > 0 else (second, first)
    return Outcome(
        test="Vuong's test" + ("" if correction == "none" else f", {correction.upper()} correction"),
        statistic=z,
        p_value=p,
        hypothesis=f"{first} and {second} are equally near to the truth",
        significance=significance,
        decision=f"{better} is nearer than {worse}" if p < significance else "the choices do not tell them apart",
        details={"units": n, "unit": unit, "difference": float(m.sum()), "penalty": penalty},
        notes=tuple(_notes(a, b, sets, correction)),
    )


def normal_p_value(z: float) -> float:
    """Return the two-sided p-value of a normal statistic."""
    from scipy.special import ndtr

    return float(2 * ndtr(-abs(z)))


def _log_likelihoods(model: ChoiceModel, sets: ChoiceData) -> Floats:
    """(U,) weighted log-likelihood of each unit."""
    if gives_of(model) != "probabilities":
        raise InputError(f"{type(model).__name__} gives no probabilities, and so has no likelihood to compare.")
    groups = sets.groups()
    joint = person_log_likelihoods(model, sets)
    if joint is not None:  # a person's sets all have the same weight
        return joint * sets.weights[np.unique(groups, return_index=True)[1]]
    of_choices = predicted_log_p(model, sets)[sets.offsets[:-1] + sets.require_chosen("a test")]
    if np.isneginf(of_choices).any():
        lost = int(np.isneginf(of_choices).sum())
        raise InputError(f"{type(model).__name__} gives probability 0 to {lost} of the choices: they refute it.")
    return np.asarray(np.bincount(groups, weights=sets.weights * of_choices), np.float64)


def _names(a: ChoiceModel, b: ChoiceModel) -> tuple[str, str]:
    names = type(a).__name__, type(b).__name__
    return names if names[0] != names[1] else (f"{names[0]} (first)", f"{names[1]} (second)")


def _notes(a: ChoiceModel, b: ChoiceModel, sets: ChoiceData, correction: Correction) -> list[str]:
    seen = [isinstance(model, ChoiceModel) and training_overlap(model, sets) in ("all", "most") for model in (a, b)]
    notes = []
    if any(seen) and (has_coefficients_of(a, b) or has_coefficients_of(b, a)):
        notes.append(
            "by the names of their coefficients, one contains the other, and the statistic is not normal where the "
            "smaller one holds: use likelihood_ratio"
        )
    if not any(seen) or correction != "none" or a.num_parameters == b.num_parameters:
        return notes
    who = "both models were" if all(seen) else "one of the models was"
    note = (
        f"the choices are those that {who} fitted to, which favours the one with more parameters "
        f"({a.num_parameters:,} and {b.num_parameters:,}): test on choices that neither has seen, or give correction"
    )
    return [*notes, note]
