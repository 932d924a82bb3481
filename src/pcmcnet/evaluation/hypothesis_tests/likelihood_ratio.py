"""The likelihood-ratio test of a restricted model against a larger one that contains it (Wilks, 1938).

With L the maxima of the two log-likelihoods on the same choice sets and k the numbers of free parameters,

    2 (L_large - L_small)  ~  chi-squared with k_large - k_small degrees of freedom

if the restrictions hold and lie inside the space of the parameters. A restriction at its boundary, such as a variance
of 0 or a log-sum of 1 where larger ones are excluded, makes the p-value too large (Self & Liang, 1987). One class less
leaves parameters of the other without meaning, and the statistic has no known distribution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome, chi_squared_p, require_significance
from pcmcnet.models import MNL
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.latent_classes import Persons
from pcmcnet.models.latent_class_mnl import LatentClassMNL
from pcmcnet.models.logit.draws import hash_ids
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.logit_model import LogitModel, require_estimated
from pcmcnet.models.logit.mixed_likelihood import SimulatedLikelihood
from pcmcnet.models.logit.parameter_bounds import listed
from pcmcnet.models.mixed_mnl import MixedMNL

# -- Person likelihoods ------------------------------------------------------------------------------------------------
# The log-likelihood of all choices of a person, by logits in which something belongs to the person.
#
# With choices i_t in the sets S_t of a person, classes c of shares pi_c, or coefficients b_r in R draws of the person,
#
#     latent classes   log sum_c pi_c prod_t P_c(i_t | S_t)
#     mixed logit      log 1/R sum_r prod_t P(i_t | S_t, b_r)
#
# which is what was maximised. The sum over sets of log-probabilities knows nothing of a person's other choices.


def is_panel_model(model: ChoiceModel) -> bool:
    """Tell whether a fitted model joins the choices of a person, as its options and its table say."""
    joins = isinstance(model, LatentClassMNL | MixedMNL) and model.config.by != "set"
    return joins and model.schema.person is not None


def person_log_likelihoods(model: ChoiceModel, data: ChoiceData) -> Floats | None:
    """(U,) log-likelihood of each person, in the order of ``data.groups()``; None where sets are independent."""
    if not is_panel_model(model) or data.schema.person is None:
        return None
    return _of_classes(model, data) if isinstance(model, LatentClassMNL) else _of_draws(model, data)


def _of_classes(model: LatentClassMNL, data: ChoiceData) -> Floats:
    persons = Persons.of(data, "person")
    picked = data.offsets[:-1] + data.require_chosen("a likelihood")
    joint = model._log_membership(data)[persons.first]
    np.add.at(joint, persons.number, model._class_log_p(data)[picked])
    total: Floats = np.logaddexp.reduce(joint, axis=1)
    return total


def _of_draws(model: ChoiceModel, data: ChoiceData) -> Floats:
    assert isinstance(model, MixedMNL)
    persons, mixing = Persons.of(data, "person"), model.mixing_
    columns = model._columns(data)
    sets = LogitLikelihood.from_matrix(columns, data.offsets, data.require_chosen("a likelihood"))
    draws = model._draws(mixing, model.config.draws, model.table_.seed, torch.device("cpu"))
    keys, who = hash_ids(model._ids(data)[persons.first]), model._covariates(persons.table)
    problem = SimulatedLikelihood(sets.z, sets.offsets, persons.number[sets.sets], keys, who, mixing, draws, 0.0)
    return problem.evaluate(model.estimates_.values, "float64", scores=False)[0]


# -- Likelihood ratio --------------------------------------------------------------------------------------------------

_ROUNDING = 1e-6  # by which maxima of equal height may differ
_MAY_DIFFER = (
    "formula",
    "fixed",
    "bounds",
    "start",
    "errors",
    "cluster",
    "max_iter",
    "reference",
)  # may differ when nested
_LOG_SUM, _DEVIATION, _ALLOCATION = "logsum", "sd[", "alpha["  # how the names of parameters begin


def likelihood_ratio(small: ChoiceModel, large: ChoiceModel, *, significance: float = 0.05) -> Outcome:
    """Test the restrictions that make a smaller logit of a larger one.

    Parameters
    ----------
    small, large
        Logits fitted to the same choice sets. Every coefficient of ``small`` is to be one of ``large``, which estimates
        more of them; a coefficient that ``small`` has fixed, or lacks, is what is tested. Where names cannot decide
        whether one contains the other, that is assumed, and the outcome says so.
    significance
        Probability of rejecting restrictions that hold.

    Raises
    ------
    InputError
        When the models were fitted to different tables, are not nested, have as many parameters, or have constants that
        were moved to known shares.

    Examples
    --------
    >>> from pcmcnet import MNL, ChoiceData
    >>> table = {"trip": [1, 1, 2, 2, 3, 3, 4, 4], "took": [1, 0, 0, 1, 1, 0, 0, 1], "cost": [2, 4, 5, 3, 4, 3, 5, 2]}
    >>> data = ChoiceData.from_long(
    ...     {**table, "time": [5, 1, 3, 4, 2, 2, 6, 5]}, choice_set="trip", chosen="took", features=["cost", "time"]
    ... )
    >>> test = likelihood_ratio(MNL(formula="cost").fit(data), MNL(formula="cost + time").fit(data))
    >>> test.degrees_of_freedom, test.rejected
    (1, False)
    """
    require_significance(significance)
    for model in (small, large):
        _require_maximum(model)
    assert isinstance(small, LogitModel)
    assert isinstance(large, LogitModel)
    _require_same_sets(small, large)
    degrees = large.num_parameters - small.num_parameters
    if degrees < 1:
        order = "give the one with fewer first" if degrees else "there is no restriction to test"
        raise InputError(
            f"expected a second model with more parameters than the first, got {large.num_parameters} and "
            f"{small.num_parameters}: {order}."
        )
    notes = [*_nesting(small, large), *_regularity(small, large)]
    low, high = small.estimates_.log_likelihood, large.estimates_.log_likelihood
    if high < low - _ROUNDING * abs(low):
        raise InputError(
            f"the larger model has the smaller log-likelihood, {high:.3f} against {low:.3f}: it does not contain the "
            f"other, or its search has ended at a lower maximum. Fit it again with another seed or start."
        )
    statistic = max(2 * (high - low), 0.0)
    p = chi_squared_p(statistic, degrees)
    less, more = map(_describe, (small, large))
    return Outcome(
        test="Likelihood-ratio test",
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=p,
        hypothesis="the restrictions of the smaller model hold",
        significance=significance,
        decision=f"the {more} fits better than the {less}"
        if p < significance
        else f"nothing speaks against the {less}, compared with the {more}",
        details={
            "log_likelihood_small": low,
            "log_likelihood_large": high,
            "restricted": list(restricted_coefficients(small, large)),
        },
        notes=tuple(notes),
    )


def restricted_coefficients(small: LogitModel, large: LogitModel) -> tuple[str, ...]:
    """Return the coefficients that the larger model estimates and the smaller one does not, by their names."""
    return tuple(name for name in _free(large) if name not in _free(small))


def has_coefficients_of(large: Any, small: Any) -> bool:
    """Tell whether one logit has, by their names, all coefficients of another of its kind, or of an MNL, and more."""
    if not (isinstance(small, LogitModel) and isinstance(large, LogitModel) and type(small) in (MNL, type(large))):
        return False
    if small.calibrated_constants or large.calibrated_constants or small.num_parameters >= large.num_parameters:
        return False
    known = {*_free(large), *(name.removeprefix("class 1: ") for name in _free(large))}
    held = {name: large.coefficients[name] for name in large.estimates_.fixed}
    return known.issuperset(_free(small)) and all(small.coefficients.get(n, 0.0) == v for n, v in held.items())


def _describe(model: LogitModel) -> str:
    k = model.num_parameters
    return f"{type(model).__name__} with {k} parameter{'s' * (k != 1)}"


def _require_maximum(model: Any) -> None:
    if not isinstance(model, LogitModel):
        raise InputError(
            f"{type(model).__name__} is not estimated by maximum likelihood alone: a likelihood-ratio test takes "
            f"logits. See pcmcnet.vuong, which compares any two models."
        )
    require_estimated(model, "a likelihood-ratio test")


def _require_same_sets(small: LogitModel, large: LogitModel) -> None:
    if small.table_.fingerprint != large.table_.fingerprint:
        sizes = " and ".join(f"{model.table_.choice_sets:,}" for model in (small, large))
        raise InputError(
            f"the two models were fitted to different tables, of {sizes} choice sets: fit both to the same data, and "
            f"choose the columns by the formula."
        )


def _free(model: LogitModel) -> list[str]:
    return [name for name in model.estimates_.names if name not in model.estimates_.fixed]


def _nesting(small: LogitModel, large: LogitModel) -> list[str]:
    """Refuse models that are not nested; say where that is assumed."""
    held = {name: large.coefficients[name] for name in large.estimates_.fixed}
    for name, value in held.items():
        if name in _free(small):
            raise InputError(
                f"the larger model has {name!r} fixed and the smaller one estimates it: they are not nested."
            )
        if small.coefficients.get(name, 0.0) != value:
            raise InputError(
                f"{name!r} is {value:g} in the larger model and {small.coefficients.get(name, 0.0):g} in the smaller "
                f"one: they are not nested."
            )
    strange = [name for name in _free(small) if name not in large.estimates_.names]
    others = _other_options(small) != _other_options(large)
    if strange and not _classes_differ(small, large):
        return [f"that the larger model contains the smaller one is assumed: it has no coefficient {listed(strange)}"]
    if type(small) is type(large) and others and not _classes_differ(small, large):
        return ["that the larger model contains the smaller one is assumed: they differ in more than coefficients"]
    return []


def _other_options(model: LogitModel) -> dict[str, Any]:
    return {name: value for name, value in model.identity["options"].items() if name not in _MAY_DIFFER}


def _classes_differ(small: LogitModel, large: LogitModel) -> bool:
    classes = [model.n_classes_ if isinstance(model, LatentClassMNL) else 1 for model in (small, large)]
    return classes[0] != classes[1]


def _regularity(small: LogitModel, large: LogitModel) -> list[str]:
    """Say where the statistic is not chi-squared."""
    tested = restricted_coefficients(small, large)
    lost = {
        "with fewer classes, parameters of the others": _classes_differ(small, large),
        "without nests, the parts of alternatives in them": any(name.startswith(_ALLOCATION) for name in tested),
    }
    advice = "the statistic is not chi-squared: take this p-value for a rough guide, and compare AIC and BIC"
    notes = [f"{what} mean nothing, and {advice}" for what, so in lost.items() if so]
    edges = (_DEVIATION,) if large.config.bounds is None else (_DEVIATION, _LOG_SUM)  # a free log-sum may be above 1
    edge = [name for name in tested if name.startswith(edges)]
    if edge:
        notes.append(
            f"the restriction of {listed(edge)} lies at the edge of what it may be: the p-value is an upper bound"
            + (
                ", and half of it is exact"
                if len(edge) == 1 and large.num_parameters - small.num_parameters == 1
                else ""
            )
        )
    bound = [name for name in large.estimates_.at_bound if name not in edge]
    if bound:
        notes.append(f"{listed(bound)} of the larger model came to a bound, so that the p-value is approximate")
    if large.schema.person is not None and not is_panel_model(large):
        notes.append(
            "the likelihoods take the choices of a person for independent; where they are not, the p-value is too small"
        )
    return notes
