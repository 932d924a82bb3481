"""The likelihood-ratio test of a restricted model against a larger model that contains it (Wilks, 1938).

Let L be the maximum of each log-likelihood on the same choice sets, and k the number of free parameters of each model:

    2 (L_large - L_small)  ~  chi-squared with k_large - k_small degrees of freedom

The statistic has this distribution if the restrictions hold and are in the interior of the parameter space. A
restriction on the boundary, such as a variance of 0, or a log-sum parameter of 1 if larger values are excluded, makes
the p-value too large (Self & Liang, 1987). If the restricted model has fewer latent classes, some parameters are not
identified, and the distribution of the statistic is unknown.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import suggests_arguments
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome, chi_squared_p, require_significance
from pcmcnet.models import MNL, CrossNestedMNL, NestedMNL
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.latent_classes import Persons
from pcmcnet.models.latent_class_mnl import LatentClassMNL
from pcmcnet.models.logit.column_sketch import outside_span
from pcmcnet.models.logit.logit_model import LogitModel, require_estimated
from pcmcnet.models.logit.parameter_bounds import listed
from pcmcnet.models.logit.standard_errors import WEIGHTS_AS_COUNTS
from pcmcnet.models.mixed_mnl import MixedMNL

# -- Person likelihoods ------------------------------------------------------------------------------------------------
# The joint log-likelihood of all choices of a person, for logits whose classes or coefficients belong to persons.
#
# With choices i_t in the sets S_t of a person, classes c of shares pi_c, or coefficients b_r in R draws of the person,
#
#     latent classes   log sum_c pi_c prod_t P_c(i_t | S_t)
#     mixed logit      log 1/R sum_r prod_t P(i_t | S_t, b_r)
#
# is the function that was maximised. The sum of the log-probabilities of single sets would ignore that these choices
# depend on each other.


def is_panel_model(model: ChoiceModel) -> bool:
    """Return True if the likelihood of a fitted model treats all choices of a person jointly."""
    by_person = isinstance(model, LatentClassMNL | MixedMNL) and model.config.by != "set"
    return by_person and model.schema.person is not None


def person_log_likelihoods(model: ChoiceModel, data: ChoiceData) -> Floats | None:
    """Return the log-likelihood of each person (U,) in the order of ``data.groups()``; None if sets are independent."""
    if not is_panel_model(model) or data.schema.person is None:
        return None
    return _latent_class(model, data) if isinstance(model, LatentClassMNL) else _mixed_logit(model, data)


def _latent_class(model: LatentClassMNL, data: ChoiceData) -> Floats:
    """Return the log-likelihood of each person under a latent class logit."""
    persons = Persons.of(data, "person")
    picked = data.offsets[:-1] + data.require_chosen("a likelihood")
    joint = model._log_membership(data)[persons.first]
    np.add.at(joint, persons.number, model._class_log_p(data)[picked])
    total: Floats = np.logaddexp.reduce(joint, axis=1)
    return total


def _mixed_logit(model: ChoiceModel, data: ChoiceData) -> Floats:
    """Return the simulated log-likelihood of each person under a mixed logit."""
    assert isinstance(model, MixedMNL)
    likelihood = model.simulated_likelihood(data, Persons.of(data, "person"))
    return likelihood.evaluate(model.estimates_.values, "float64", scores=False)[0]


# -- Likelihood ratio --------------------------------------------------------------------------------------------------

_ROUNDING = 1e-6  # relative difference up to which two maxima count as equal
# Options that may differ between nested models.
_MAY_DIFFER = ("formula", "fixed", "bounds", "start", "equal", "shared", "errors", "cluster", "max_iter", "reference")
_LOG_SUM, _ALLOCATION = "logsum", "alpha["  # prefixes of the names of parameters
_ZERO_SHARE = "zero["  # share of people whose coefficient is 0: a part of the names of parameters
_NONLINEAR = {"lambda[": "exponents", "scale[": "scales"}  # parameters that a linear utility does not have


@suggests_arguments(call="likelihood_ratio(small, large), with two fitted logits")
def likelihood_ratio(small: ChoiceModel, large: ChoiceModel, *, significance: float = 0.05) -> Outcome:
    """Test a restricted logit against a larger logit that contains it, with a likelihood-ratio test.

    Parameters
    ----------
    small
        The restricted logit.
    large
        The larger logit, fitted to the same choice sets. The larger logit must have every coefficient of ``small`` and
        estimate additional coefficients. The null hypothesis is that these additional coefficients have the values that
        ``small`` implies or fixes. The columns of the utility of ``small`` must be linear combinations of those of
        ``large``, up to a constant in each choice set. If it cannot be decided whether ``large`` contains ``small``,
        for example because a utility is not linear, nesting is assumed, and a note states this assumption.
    significance
        Significance level: the probability of rejecting the smaller model if its restrictions hold. Default 0.05.

    Returns
    -------
    Outcome
        The statistic, its p-value and the decision.

    Raises
    ------
    InputError
        If the models were fitted to different tables, are not nested, have the same number of parameters, or have
        calibrated constants.

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
        remedy = "swap the two models" if degrees else "there is no restriction to test"
        raise InputError(
            f"expected a second model with more parameters than the first, got {large.num_parameters} and "
            f"{small.num_parameters}: {remedy}."
        )
    notes = [*_nesting(small, large), *_regularity(small, large)]
    low, high = small.estimates_.log_likelihood, large.estimates_.log_likelihood
    if high < low - _ROUNDING * abs(low):
        raise InputError(
            f"the larger model has the lower log-likelihood, {high:.3f} against {low:.3f}: it does not contain the "
            f"smaller model, or its search ended at a local maximum. Fit it again with another seed or start."
        )
    statistic = max(2 * (high - low), 0.0)
    p = chi_squared_p(statistic, degrees)
    smaller, larger = map(_describe, (small, large))
    return Outcome(
        test="Likelihood-ratio test",
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=p,
        hypothesis="the smaller model",
        significance=significance,
        decision=f"the {larger} fits significantly better than the {smaller}"
        if p < significance
        else f"the {larger} does not fit significantly better than the {smaller}",
        details={
            "log_likelihood_small": low,
            "log_likelihood_large": high,
            "restricted": list(restricted_coefficients(small, large)),
        },
        notes=tuple(notes),
    )


def restricted_coefficients(small: LogitModel, large: LogitModel) -> tuple[str, ...]:
    """Return the names of the coefficients that the larger model estimates but the smaller model does not."""
    return tuple(name for name in _free(large) if name not in _free(small))


def has_coefficients_of(large: Any, small: Any) -> bool:
    """Return True if the names of the coefficients show that ``large`` contains ``small`` and has more parameters.

    ``small`` must be an MNL or have the same class as ``large``.
    """
    if not (isinstance(small, LogitModel) and isinstance(large, LogitModel) and type(small) in (MNL, type(large))):
        return False
    if small.calibrated_constants or large.calibrated_constants or small.num_parameters >= large.num_parameters:
        return False
    names = {*_free(large), *(name.removeprefix("class 1: ") for name in _free(large))}
    fixed = {name: large.coefficients[name] for name in large.estimates_.fixed}
    return names.issuperset(_free(small)) and all(_value_in(small, large, n) == v for n, v in fixed.items())


def _value_in(small: LogitModel, large: LogitModel, name: str) -> float:
    """Return the value of a coefficient of ``large`` in ``small``, which is the null value if ``small`` lacks it.

    The null value is 1 for a log-sum and for a Box-Cox exponent, and otherwise 0.
    """
    null: float = large.estimates_.null[large.estimates_.position(name)]
    return small.coefficients.get(name, null)


def _describe(model: LogitModel) -> str:
    """Return the class name of a model and its number of parameters."""
    k = model.num_parameters
    return f"{type(model).__name__} with {k} parameter{'s' * (k != 1)}"


def _require_maximum(model: Any) -> None:
    """Raise InputError unless the model is a logit estimated by maximum likelihood."""
    if not isinstance(model, LogitModel):
        raise InputError(
            f"the likelihood-ratio test supports logits only, and {type(model).__name__} is not a logit: "
            f"use pcmcnet.vuong, which compares any two models."
        )
    require_estimated(model, "a likelihood-ratio test")


def _require_same_sets(small: LogitModel, large: LogitModel) -> None:
    """Raise InputError if the models were fitted to different tables."""
    if small.table_.fingerprint != large.table_.fingerprint:
        sizes = " and ".join(f"{model.table_.choice_sets:,}" for model in (small, large))
        raise InputError(
            f"the two models were fitted to different tables, with {sizes} choice sets: fit both to the same data, and "
            f"select the columns by the formula."
        )


def _free(model: LogitModel) -> list[str]:
    """Return the names of the estimated coefficients, with the first of each group of equal coefficients."""
    estimates = model.estimates_
    return [name for name in estimates.names if name not in estimates.fixed and name not in estimates.equal]


def _nesting(small: LogitModel, large: LogitModel) -> list[str]:
    """Raise InputError if the models are not nested. Return a note if nesting is assumed."""
    fixed = {name: large.coefficients[name] for name in large.estimates_.fixed}
    for name, value in fixed.items():
        if name in _free(small):
            raise InputError(
                f"the models are not nested: {name!r} is fixed in the larger model but estimated in the smaller."
            )
        if _value_in(small, large, name) != value:
            raise InputError(
                f"the models are not nested: {name!r} is {value:g} in the larger model and "
                f"{_value_in(small, large, name):g} in the smaller."
            )
    _require_nested_structure(small, large)
    outside = _columns_outside(small, large)
    if outside:
        raise InputError(
            f"the models are not nested: in the smaller model, {listed(outside)} is not a linear combination of the "
            f"columns of the larger model. Use pcmcnet.vuong, which compares models that are not nested."
        )
    if _classes_differ(small, large) or (outside is not None and _is_mnl(small)):
        return []
    decided = small.design_.columns if outside is not None else ()
    not_in_large = [name for name in _free(small) if name not in (*large.estimates_.names, *decided)]
    if not_in_large:
        names = listed(not_in_large)
        return [f"nesting is assumed, although the larger model has no coefficient {names}"]
    may_differ = (*_MAY_DIFFER, *(["scale", "base"] if small.design_.scale is None else []))
    options = [
        {name: value for name, value in model.identity["options"].items() if name not in may_differ}
        for model in (small, large)
    ]
    if type(small) is type(large) and options[0] != options[1]:
        return ["nesting is assumed, although the options of the two models differ"]
    return []


def _is_mnl(model: LogitModel) -> bool:
    """Return True for a multinomial logit, which may be a latent class logit with a single class."""
    return isinstance(model, MNL) or (isinstance(model, LatentClassMNL) and model.n_classes_ == 1)


def _require_nested_structure(small: LogitModel, large: LogitModel) -> None:
    """Raise InputError if the class of the larger model does not contain that of the smaller.

    Every logit contains the multinomial logit, a cross-nested logit contains the nested logit, and a mixed logit with
    latent classes contains the latent class logit.
    """
    is_contained = _is_mnl(small) or isinstance(large, type(small))
    is_contained = is_contained or (isinstance(small, NestedMNL) and isinstance(large, CrossNestedMNL))
    # A mixed logit with at least as many latent classes becomes the latent class logit if all spreads are 0.
    is_contained = is_contained or (
        isinstance(small, LatentClassMNL) and isinstance(large, MixedMNL) and large.n_classes_ >= small.n_classes_
    )
    beyond_mnl = [name for name in _free(small) if name not in small.design_.columns]
    if beyond_mnl and not is_contained:
        first, second = type(small).__name__, type(large).__name__
        raise InputError(
            f"the models are not nested: {second} has no special case with the parameters {listed(beyond_mnl)} of this "
            f"{first}. Use pcmcnet.vuong, which compares models that are not nested."
        )
    for prefix, kind in _NONLINEAR.items():
        nonlinear = [name for name in _free(small) if name.startswith(prefix)]
        if nonlinear and not any(name.startswith(prefix) for name in large.estimates_.names):
            raise InputError(
                f"the models are not nested: the smaller model estimates {listed(nonlinear)}, and the larger model has "
                f"no {kind}. Use pcmcnet.vuong, which compares models that are not nested."
            )
    random = _random_columns_outside(small, large)
    if random:
        raise InputError(
            f"the models are not nested: the coefficient of {listed(random)} varies between persons in the smaller "
            f"model, but not in the larger model. Use pcmcnet.vuong, which compares models that are not nested."
        )


def _columns_outside(small: LogitModel, large: LogitModel) -> list[str] | None:
    """Return the columns of the smaller utility that the larger utility does not contain; None if unknown.

    Utilities are compared up to a constant in each choice set.
    """
    restricted, general = _linear_utility(small), _linear_utility(large)
    if restricted is None or general is None:
        return None
    columns = np.column_stack([restricted.free, restricted.known - general.known])
    names = [*restricted.names, "sum of the fixed terms"]
    outside = outside_span(columns, general.free)
    return [name for name, is_outside in zip(names, outside, strict=True) if is_outside]


def _random_columns_outside(small: LogitModel, large: LogitModel) -> list[str]:
    """Return the columns with an estimated spread in ``small`` that no random utility of ``large`` can produce.

    These are the columns that are not linear combinations of the columns with random coefficients in ``large``.
    """
    if not (isinstance(small, MixedMNL) and isinstance(large, MixedMNL)):
        return []
    is_free = set(_free(small))
    spread = {column for name, column in _columns_of_spreads(small).items() if name in is_free}
    columns, basis = _sketch_of(small, spread), _sketch_of(large, _random_columns(large))
    if columns is None or basis is None:
        return []
    return [name for name, is_outside in zip(sorted(spread), outside_span(columns, basis), strict=True) if is_outside]


def _sketch_of(model: LogitModel, columns: set[str]) -> Floats | None:  # -> (B, C)
    """Return the sketch of some columns in alphabetical order, or None if the utility has no sketch."""
    sketch = model.estimates_.sketch
    return None if sketch is None else sketch[:, [model.design_.columns.index(name) for name in sorted(columns)]]


class SketchedUtility(NamedTuple):
    """Sketches of the columns (B, F) with a free coefficient, with their names, and of the known utility (B,)."""

    names: tuple[str, ...]
    free: Floats
    known: Floats


def _linear_utility(model: LogitModel) -> SketchedUtility | None:
    """Return the linear utility of a model, or None if it is not linear or the classes fix different coefficients."""
    columns, estimates, random = model.design_.columns, model.estimates_, _random_columns(model)
    if estimates.sketch is None or (isinstance(model, MixedMNL) and model.mean_designs_):
        return None
    # 1. The fixed value of each column, or None for a free coefficient; a latent class logit has one for each class.
    values: dict[str, set[float | None]] = {name: set() for name in columns}
    for name, value in zip(estimates.names, estimates.values.tolist(), strict=True):
        if (column := _column_name(name)) in values:
            values[column].add(value if name in estimates.fixed else None)
    # 2. Each column needs one such value. A random coefficient still varies if its location is fixed.
    if any(len(v) != 1 or (v != {None} and name in random) for name, v in values.items()):
        return None
    fixed = [next(iter(v)) for v in values.values()]
    is_free = np.array([value is None for value in fixed])
    known = np.array([0.0 if value is None else value for value in fixed])
    # 3. The columns of equal coefficients are one column: their sum. A class may not have equalities of its own.
    free = estimates.sketch.copy()
    for name, first in estimates.equal.items():
        a, b = _column_name(first), _column_name(name)
        if a == b or not {a, b} <= {*columns}:
            continue
        if _number_of_classes(model) > 1 and not {(a, b), (b, a)} & _equal_in_all_classes(model):
            return None
        if name.startswith("class ") and not name.startswith("class 1: "):
            continue  # the same equality as in class 1
        free[:, columns.index(a)] += estimates.sketch[:, columns.index(b)]
        is_free[columns.index(b)] = False
    names = tuple(name for name, is_first in zip(columns, is_free, strict=True) if is_first)
    return SketchedUtility(names, free[:, is_free], estimates.sketch @ known)


def _equal_in_all_classes(model: LogitModel) -> set[tuple[str, str]]:
    """Return the pairs of coefficients that are equal within each latent class."""
    groups = [names for names in model.config.equalities if {*names} <= {*model.design_.names}]
    return {(a, b) for names in groups for a in names for b in names}


def _column_name(parameter: str) -> str:
    """Return the column of a coefficient, which is called "x", "class 2: x" or, in WTP space, "wtp[x]"."""
    name = re.sub(r"^class \d+: ", "", parameter)
    return name[4:-1] if name.startswith("wtp[") else name


def _classes_differ(small: LogitModel, large: LogitModel) -> bool:
    """Return True if the models have different numbers of latent classes."""
    return _number_of_classes(small) != _number_of_classes(large)


def _number_of_classes(model: LogitModel) -> int:
    return model.n_classes_ if isinstance(model, LatentClassMNL | MixedMNL) else 1


def _columns_of_spreads(model: MixedMNL) -> dict[str, str]:
    """Return the column of each spread, and of each entry of a Cholesky factor, in every latent class."""
    mixing, columns = model.mixing_, dict[str, str]()
    for member in model.mixing_classes_.members:
        names = [model.estimates_.names[k] for k in member.parameters]
        columns |= {names[p]: mixing.columns[mixing.column[p]] for p in mixing.spreads}
    return columns


_BOX_COX = re.compile(r"boxcox\(([^(),]*)\)")


def _linear_name(column: str) -> str:
    """Return the name of the column that a Box-Cox column becomes if its exponent is 1."""
    return _BOX_COX.sub(r"\1", column)


def _random_columns(model: LogitModel) -> set[str]:
    """Return the columns with a random coefficient, with error components."""
    mixing = model.mixing_ if isinstance(model, MixedMNL) else None
    return set() if mixing is None else {mixing.columns[r.column] for r in mixing.random}


def _spreads_at_zero(small: LogitModel, large: LogitModel) -> list[str]:
    """Return the estimated spreads, and entries of the Cholesky factor, of coefficients that are random only in large.

    The smaller model sets the variance of these coefficients to 0, its smallest value. A random coefficient of x is a
    special case of one of boxcox(x).
    """
    if not isinstance(large, MixedMNL):
        return []
    restricted = _random_columns(small)
    new = {column for column in _random_columns(large) if not {column, _linear_name(column)} & restricted}
    return [name for name, column in _columns_of_spreads(large).items() if column in new and name in _free(large)]


def _regularity(small: LogitModel, large: LogitModel) -> list[str]:
    """Return notes that explain why the statistic may not be chi-squared."""
    tested = restricted_coefficients(small, large)
    not_identified = {
        "with fewer classes, the parameters of the other classes": _classes_differ(small, large),
        "without nests, the allocations of alternatives to nests": any(n.startswith(_ALLOCATION) for n in tested),
    }
    advice = "the statistic is not chi-squared: treat this p-value as a rough guide, and compare AIC and BIC"
    notes = [f"{names} are not identified, so {advice}" for names, applies in not_identified.items() if applies]
    on_boundary = _spreads_at_zero(small, large)
    on_boundary += [name for name in tested if _ZERO_SHARE in name]
    if large.config.bounds is not None:  # a log-sum without bounds may exceed 1
        on_boundary += [name for name in tested if name.startswith(_LOG_SUM)]
    if on_boundary:
        is_single = len(on_boundary) == 1 and large.num_parameters - small.num_parameters == 1
        conclusion = "the correct p-value is half of this one" if is_single else "this p-value is an upper bound"
        notes.append(
            f"the restriction on {listed(on_boundary)} is on the boundary of the parameter space: {conclusion}"
        )
    at_bound = [name for name in large.estimates_.at_bound if name not in on_boundary]
    if at_bound:
        notes.append(f"{listed(at_bound)} of the larger model is at a bound, so the p-value is approximate")
    if large.estimates_.weighted:
        notes.append(
            f"the likelihoods are weighted, so this is a pseudo-likelihood ratio: its p-value is {WEIGHTS_AS_COUNTS}"
        )
    if large.schema.person is not None and not is_panel_model(large):
        notes.append(
            "the likelihoods assume that the choices of a person are independent; if not, the p-value is too small"
        )
    return notes
