"""Find the tasks of a choice experiment with the most precise estimates: :func:`design`.

The steps are those of every efficient design (Huber & Zwerina, 1996; Kessels, Goos & Vandebroek, 2006): code the
attributes, represent the prior by draws, improve random designs by exchanges, keep the best one, and split its tasks
into versions.
"""

from __future__ import annotations

import inspect
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word, suggests_arguments
from pcmcnet.designs.attributes import (
    Attributes,
    Coding,
    ProfileSpace,
    Prohibition,
    level_directions,
    profile_space,
)
from pcmcnet.designs.choice_design import ChoiceDesign
from pcmcnet.designs.context_terms import DOMINANCE, ContextScores, ContextTerms, context_terms
from pcmcnet.designs.exchange import Dominated, ExchangeProblem, improve, random_designs, split_into_versions
from pcmcnet.designs.information import (
    Criterion,
    DeterminantCriterion,
    LogitScores,
    RatioCriterion,
    ScoreFunction,
    ratio_gradients,
)
from pcmcnet.designs.model_scores import ModelScores
from pcmcnet.designs.prior import CoefficientPrior, coefficient_prior
from pcmcnet.errors import ConfigError, InputError, did_you_mean

CriterionName = Literal["D", "Db", "C", "context"]
# Weight of the D-error of the other parameters in a design for context effects. From 0.1 to 1, it changes the number of
# respondents that attraction needs by less than a fifth; without it, a coefficient may not be identified.
NUISANCE_WEIGHT = 0.5
SEARCH_DRAWS = 16  # draws of the prior for all starts; the best ones are then improved with all draws
POLISHED_STARTS = 2  # starts that are improved with all draws
SAME_OPTIMUM = 1e-3  # relative difference of errors that counts as the same optimum
MAX_UTILITY = 30.0  # largest utility of a column at the prior; with larger ones, all choices are certain
MAX_SINGULAR = 1e8  # errors above this multiple of the scale mean that a coefficient is not identified


@suggests_arguments(call="design({'price': [10, 20, 30], 'brand': ['A', 'B']})")
def design(
    attributes: Attributes,
    *,
    alternatives: int = 3,
    tasks: int = 12,
    versions: int = 1,
    prior: Any = None,
    criterion: CriterionName = "D",
    none: bool = False,
    cost: str | None = None,
    effects: Sequence[str] | Mapping[str, float] | None = None,
    categorical: Sequence[str] = (),
    coding: Coding = "dummy",
    signs: Mapping[str, str] | None = None,
    prohibited: Iterable[Prohibition] = (),
    dominated: Dominated = "allow",
    balance: bool = True,
    draws: int = 64,
    starts: int = 10,
    seed: int = 0,
) -> ChoiceDesign:
    """Design a choice experiment: choose the alternatives of each task so that estimates are as precise as possible.

    Parameters
    ----------
    attributes
        Levels of each attribute, as in ``{"price": [10, 15, 20], "brand": ["A", "B"]}``. Numeric attributes have one
        coefficient, and attributes of text have one for each level but the first.
    alternatives
        Number of alternatives of a task, without the alternative "none". Default 3.
    tasks
        Number of tasks that a respondent answers. Default 12.
    versions
        Number of versions (blocks) of the survey. Each respondent answers the tasks of one version. Default 1.
    prior
        What is known about the coefficients: values such as ``{"price": -0.5, "brand[B]": 0.3}``, means with standard
        deviations such as ``{"price": (-0.5, 0.2)}``, or a fitted model. Of a fitted MNL, the estimates and their
        covariance are used; of any other model, its predicted probabilities of each task, and their derivatives in the
        effects of the numeric attributes. Default: all coefficients are 0, and all alternatives of a task are equally
        probable.
    criterion
        What is minimised: "D" (default), the D-error at the mean of the prior; "Db", the mean D-error over draws of the
        prior; "C", the variances of the ratios of all other coefficients to that of ``cost``, such as the willingness
        to pay; or "context", the error of the context effects of a small Markov chain around the logit.
    none
        Whether each task has an alternative "none", with a constant. Default False.
    cost
        Numeric attribute in whose units the ratios of criterion "C" are measured. Default: none.
    effects
        Context effects to estimate with criterion "context", with their expected sizes, as in ``{"dominance": 1.0}``:
        "dominance", a dominated alternative sends its choices to the alternative that dominates it, as in the
        attraction effect; "gain[price]", large advantages in an attribute count more than proportionally; or "gain" for
        all attributes with a direction and three or more levels. A list of names stands for small effects. Default: a
        dominance of 1.
    categorical
        Numeric attributes that have one coefficient for each level but the first (none by default).
    coding
        Coding of categorical attributes: "dummy" (default) as in the logits of this library, or "effects".
    signs
        Expected signs, as in ``{"price": "-", "comfort": "+"}``, which define dominated alternatives. Categorical
        levels with the sign "+" are listed from worst to best. Default: the signs of the prior.
    prohibited
        Combinations of levels that no alternative may have, as in ``[{"brand": "A", "price": [10, 15]}]`` (none by
        default).
    dominated
        What to do about alternatives that are no better than another one of the task in any attribute, and worse in
        one: "allow" (default), "avoid" them, or "place" a decoy in every task, which is dominated by some but not by
        all of the others.
    balance
        Whether the levels of each attribute must occur equally often, up to one (default True).
    draws
        Number of draws of the prior for criteria "Db" and "C". Default 64.
    starts
        Number of random starts of the search. Default 10.
    seed
        Seed of the random number generator. Default 0.

    Returns
    -------
    ChoiceDesign
        The tasks. Print it for a report; ``to_frame()`` and ``save(path)`` give the table for the survey.

    Raises
    ------
    InputError
        If the attributes, the prior or the rules are not valid, if there are fewer choices than coefficients, or if no
        design that follows the rules is found.

    Examples
    --------
    >>> import pcmcnet as pn
    >>> plan = pn.design({"price": [1, 2, 3], "brand": ["A", "B", "C"]}, tasks=6, prior={"price": -0.5}, starts=2)
    >>> plan.to_arrow().column_names
    ['version', 'task', 'alternative', 'price', 'brand']
    >>> plan.level_counts()["brand"]
    {'A': 6, 'B': 6, 'C': 6}
    """
    # 1. Check the options, and read the attributes and the prior.
    require_number("alternatives", alternatives, whole=True, low=2)
    for name, number in {"tasks": tasks, "versions": versions, "draws": draws, "starts": starts}.items():
        require_number(name, number, whole=True, low=1)
    require_number("seed", seed, whole=True, low=0)
    for name, switch in {"none": none, "balance": balance}.items():
        if not isinstance(switch, bool | np.bool_):
            raise ConfigError(f"{name} must be True or False, got {switch!r}.")
    if isinstance(effects, str):
        raise ConfigError(f"effects: expected a list or a mapping, got {effects!r}: write [{effects!r}].")
    require_word("criterion", criterion, get_args(CriterionName))
    require_word("dominated", dominated, get_args(Dominated))
    space = profile_space(attributes, none=none, categorical=categorical, coding=coding, prohibited=prohibited)
    knowledge = coefficient_prior(space, prior)
    directions = level_directions(space, signs or {}, knowledge.mean)
    if dominated != "allow" and not directions.positions:
        raise ConfigError(
            f"dominated={dominated!r} needs the direction of an attribute: pass signs, as in signs={{'price': '-'}}, "
            "or a prior."
        )
    if criterion == "context" and alternatives + int(none) < 3:
        raise ConfigError("criterion='context' needs at least three alternatives in each task: raise alternatives.")
    if dominated == "place" and alternatives < 3:
        raise ConfigError("dominated='place' needs at least three alternatives: a decoy, and two others.")
    # 2. The information of the tasks, and the criterion.
    points = knowledge.mean[None] if criterion == "D" else knowledge.draws(draws, seed)
    terms = context_terms(space, directions, effects or {DOMINANCE: 1.0}) if criterion == "context" else None
    scores = _score_function(space, knowledge, points, terms, alternatives)
    rule = _criterion(criterion, knowledge, points, scores, cost)
    problem = ExchangeProblem(
        space=space,
        tasks=tasks * versions,
        alternatives=alternatives,
        scores=scores,
        criterion=rule,
        balance=balance,
        dominated=dominated,
        directions=directions,
    )
    n_effects = 0 if terms is None else len(terms.names)
    _require_enough_choices(space, tasks * versions, alternatives, n_effects)
    if alternatives > (n_profiles := math.prod(int(size) for size in space.sizes)):
        raise InputError(
            f"the attributes have only {n_profiles} different profiles, so a task cannot have {alternatives} different "
            "alternatives: use fewer alternatives, or more levels."
        )
    # 3. Improve random designs with a few draws of the prior, and the best ones with all draws.
    rng = np.random.default_rng(seed)
    few = points[:SEARCH_DRAWS]
    is_rough = len(few) < len(points)
    rough = _score_function(space, knowledge, few, terms, alternatives) if is_rough else scores
    search = replace(problem, scores=rough, criterion=_criterion(criterion, knowledge, few, rough, cost))
    levels, values, broken = improve(search, random_designs(problem, starts, rng), rng)
    _require_rules_kept(broken, problem)
    values = np.where(broken > 0, np.inf, values)
    best_starts = int((values < values.min() + SAME_OPTIMUM).sum())
    best = int(values.argmin())
    if is_rough:
        levels, values, broken = improve(problem, levels[np.argsort(values)[:POLISHED_STARTS]], rng)
        best = int(np.where(broken > 0, np.inf, values).argmin())
    parameters = (*space.names, *(() if terms is None else terms.names))
    _require_identified(problem, levels[best], parameters, knowledge.mean)
    # 4. Split its tasks into versions.
    version = split_into_versions(space, levels[best], versions, rng)
    order = np.argsort(version, kind="stable")
    final = levels[best][order]
    information = _information(scores, final) / versions
    error = replace(rule, nuisance_weight=0.0) if isinstance(rule, DeterminantCriterion) else rule
    value = float(error.value(information / np.outer(scores.scales, scores.scales)))
    return ChoiceDesign(
        space=space,
        levels=final,
        version=version[order] + 1,
        criterion=criterion,
        error=math.exp(value) * (1.0 if criterion in ("C", "context") else _unit(scores.scales)),
        information=information,
        scores=scores,
        effects=() if terms is None else terms.names,
        directions=directions,
        prior_mean=knowledge.mean,
        starts=starts,
        best_starts=best_starts,
    )


def read_options(path: str | Path) -> dict[str, Any]:
    """Read the attributes and other options of :func:`design` from a TOML file.

    Parameters
    ----------
    path
        The file. Its tables are ``attributes``, and optionally ``prior``, ``signs`` and ``prohibited``.

    Returns
    -------
    dict
        Arguments of :func:`design`.

    Raises
    ------
    InputError
        If the file cannot be read, has no attributes, or names an unknown option.
    """
    try:
        options = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a TOML file: {error}.") from error
    if not isinstance(options.get("attributes"), dict):
        raise InputError(
            f"{path}: expected a table [attributes] with the levels of each attribute, as in price = [10, 15, 20]."
        )
    known = set(inspect.signature(design).parameters)
    if unknown := [name for name in options if name not in known]:
        raise InputError(f"{path}: unknown option {unknown[0]!r}." + did_you_mean(unknown[0], known))
    return options


def _score_function(
    space: ProfileSpace, knowledge: CoefficientPrior, points: Floats, terms: ContextTerms | None, alternatives: int
) -> ScoreFunction:
    """Return the model of choices that gives the scores of tasks."""
    if terms is not None:
        if knowledge.model is not None:
            raise InputError(
                f"criterion='context' needs coefficients of a logit, which {type(knowledge.model).__name__} does not "
                "have: pass values, or a fitted MNL."
            )
        return ContextScores(terms, points, space.scales())
    if knowledge.model is not None:
        return ModelScores.of(space, knowledge.model, alternatives)
    return LogitScores(space, points, space.scales())


def _criterion(
    name: str, knowledge: CoefficientPrior, points: Floats, scores: ScoreFunction, cost: str | None
) -> Criterion:
    """Return the criterion, or raise InputError if the prior does not define it."""
    if name == "D":
        return DeterminantCriterion()
    if name == "context":
        assert isinstance(scores, ContextScores)
        return DeterminantCriterion(len(knowledge.names) + scores.terms.n_nuisance, NUISANCE_WEIGHT)
    if name == "Db":
        if knowledge.is_certain:
            raise ConfigError(
                "criterion='Db' needs a prior with standard deviations, as in prior={'price': (-0.5, 0.2)}, or a "
                "fitted MNL. For a prior of values, use criterion='D'."
            )
        return DeterminantCriterion()
    if cost is None or cost not in knowledge.names:
        hint = "" if cost is None else did_you_mean(cost, knowledge.names)
        raise ConfigError(
            f"criterion='C' needs cost, the numeric attribute in whose units the ratios are measured; "
            f"got {cost!r}.{hint}"
        )
    k = knowledge.names.index(cost)
    if knowledge.model is not None or not (np.sign(points[:, k]) == np.sign(knowledge.mean[k])).all():
        raise InputError(
            f"criterion='C': the ratios are not defined where the coefficient of {cost!r} is 0 or changes its sign. "
            f"Pass a prior of {cost!r} whose mean is several standard deviations away from 0, as in "
            f"prior={{{cost!r}: (-0.5, 0.1)}}."
        )
    if knowledge.mean[k] == 0:
        raise InputError(f"criterion='C' needs a prior of {cost!r} other than 0, as in prior={{{cost!r}: -0.5}}.")
    others = [other for other in range(len(knowledge.names)) if other != k]
    return RatioCriterion(ratio_gradients(points, scores.scales, k, others))


def _unit(scales: Floats) -> float:
    """Return the factor from the D-error in units of the scales to that of the coefficients themselves."""
    return math.exp(-2 * float(np.log(scales).mean()))


def _information(scores: ScoreFunction, levels: Ints) -> Floats:  # (T, J, K) -> (R, P, P)
    """Return the information of tasks about the coefficients in their own units."""
    z = scores(levels)
    scaled = (z.swapaxes(-1, -2) @ z).sum(axis=0)
    information: Floats = scaled * np.outer(scores.scales, scores.scales)
    return information


# -- Designs that cannot be estimated, or do not exist -----------------------------------------------------------------


def _require_enough_choices(space: ProfileSpace, tasks: int, alternatives: int, n_effects: int) -> None:
    """Raise InputError if the tasks have fewer degrees of freedom than there are coefficients and context effects."""
    freedom = tasks * (alternatives - 1 + int(space.none))
    if freedom < len(space.names) + n_effects:
        sizes = {attribute.name: len(attribute.names) for attribute in space.attributes}
        largest = max(sizes, key=lambda name: sizes[name])
        raise InputError(
            f"{tasks} task{'s' * (tasks > 1)} of {alternatives} alternatives identify at most {freedom} coefficients, "
            f"but the attributes and context effects have {len(space.names) + n_effects} ({sizes[largest]} of them of "
            f"{largest!r}): use more tasks, versions or alternatives, or fewer levels of {largest!r}."
        )


def _require_rules_kept(broken: Floats, problem: ExchangeProblem) -> None:
    """Raise InputError if every design breaks a rule."""
    if (broken == 0).any():
        return
    rules = [
        *(["prohibited combinations"] if problem.space.prohibitions else []),
        *(["balance=True"] if problem.balance else []),
        *([f"dominated={problem.dominated!r}"] if problem.dominated != "allow" else []),
        "different alternatives in each task",
    ]
    raise InputError(
        f"no design of {problem.tasks} tasks follows all rules ({', '.join(rules)}); the best of {len(broken)} starts "
        f"breaks {broken.min():g} of them. Set balance=False, remove prohibitions, use fewer alternatives or more "
        "levels, or raise starts."
    )


def _require_identified(
    problem: ExchangeProblem, levels: Ints, parameters: Sequence[str], coefficients: Floats
) -> None:
    """Raise InputError, with the name of a coefficient, if the best design does not identify all coefficients."""
    z = problem.scores(levels)
    information = (z.swapaxes(-1, -2) @ z).sum(axis=0).mean(axis=0)
    values, vectors = np.linalg.eigh(information)
    if values[0] * MAX_SINGULAR < values[-1]:
        worst = np.abs(vectors[:, 0])
        names = [parameters[k] for k in np.flatnonzero(worst > 0.1 * worst.max()).tolist()]
        utilities = dict(zip(problem.space.names, np.abs(coefficients) * problem.space.scales(), strict=True))
        largest = max(utilities, key=lambda name: utilities[name])
        if utilities[largest] > MAX_UTILITY:
            raise InputError(
                f"the prior makes the choices certain: {largest} changes the utility by up to "
                f"{utilities[largest]:.3g}, so the answers say nothing about {', '.join(names)}. Use a smaller prior "
                f"of {largest}."
            )
        raise InputError(
            f"the best design does not identify the coefficients {', '.join(names)} separately. "
            "Remove one of their levels or a prohibition, or use more tasks."
        )
