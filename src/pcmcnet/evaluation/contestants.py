"""The models of a leaderboard: those of the registry with their defaults, and the logits with all that they can use.

By default a logit does not see the columns of the individual, which the networks do. For a fair comparison there are
two more models: ``mnl+individual``, whose utility has

    a coefficient per alternative for each column of the individual     ". | income + age"             with labels,
    the products of features and numeric columns of the individual      ". + cost:standardise(income)"   without,

and ``lc-mnl+individual``, whose classes have that utility beside the membership that depends on the individual anyway.
Columns that add nothing to others within every set are left out. A model that cannot be built for a table says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.column_arrays import Numeric
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models import MNL, MODELS, ChoiceModel, LatentClassMNL
from pcmcnet.models.logits.design import Design
from pcmcnet.models.logits.design.formula import Factor, Term
from pcmcnet.models.logits.estimation import LogitSets
from pcmcnet.models.logits.estimation.identification import dependent_columns
from pcmcnet.models.logits.logit_model import LogitConfig

Contestant = ChoiceModel | Callable[[ChoiceData], ChoiceModel]
"""A model, or what builds one for a table; it raises an ``InputError`` where there is none for it."""

NEEDS_A_CHOICE = ("cross-nested-mnl", "nested-mnl", "rank-by")  # its nests, its column: nobody's defaults
MOST_PRODUCTS = 40


def mnl_with_individual(data: ChoiceData) -> MNL:
    """Build the multinomial logit that uses the individual's columns."""
    return MNL(formula=formula_with_individual(data))


def latent_class_with_individual(data: ChoiceData) -> LatentClassMNL:
    """Build the latent class logit whose classes use the individual's columns in their utilities."""
    return LatentClassMNL(formula=formula_with_individual(data))


BUILT: dict[str, Callable[[ChoiceData], ChoiceModel]] = {
    "mnl+individual": mnl_with_individual,
    "lc-mnl+individual": latent_class_with_individual,
}


def default_contestants() -> dict[str, Contestant]:
    """Return every model that needs no choice of a user, by label."""
    plain = [name for name in MODELS if name not in NEEDS_A_CHOICE]
    return named_contestants(sorted([*plain, *BUILT]))


def named_contestants(names: Iterable[str]) -> dict[str, Contestant]:
    """Return models by the names of the registry and of those built for each table."""
    found: dict[str, Contestant] = {}
    for name in names:
        if name not in MODELS and name not in BUILT:
            raise ConfigError(f"unknown model {name!r}." + did_you_mean(str(name), [*MODELS, *BUILT]))
        if name in found:
            raise ConfigError(f"models: {name!r} is named twice.")
        found[name] = BUILT[name] if name in BUILT else _with_defaults(MODELS[name])
    return found


def _with_defaults(kind: type[ChoiceModel]) -> Contestant:
    """Return a model with its defaults; one that has none for an option says so on every table."""
    try:
        return kind()
    except InputError as error:
        reason = str(error)

    def refuse(data: ChoiceData) -> ChoiceModel:
        raise InputError(reason)

    return refuse


def require_contestants(models: Any) -> dict[str, Contestant]:
    """Take names, or labels with models; None for the default ones."""
    if models is None:
        return default_contestants()
    if isinstance(models, str) or not isinstance(models, Sequence | Mapping) or not models:
        raise InputError(f"models: expected names such as ['mnl', 'pcmcnet'], or labels with models; got {models!r}.")
    if not isinstance(models, Mapping):
        return named_contestants(models)
    for label, model in models.items():
        if isinstance(model, type) or not (isinstance(model, ChoiceModel) or callable(model)):
            raise InputError(f"models, {label!r}: expected a model such as MNL(), or a function of a table.")
    return dict(models)


class Entrants(NamedTuple):
    """The models that take part on a table, and why the others do not."""

    models: dict[str, ChoiceModel]
    absent: dict[str, str]


def entrants(contestants: Mapping[str, Contestant], data: ChoiceData) -> Entrants:
    """Build the models for a table."""
    found = Entrants({}, {})
    for label, contestant in contestants.items():
        try:
            found.models[label] = contestant if isinstance(contestant, ChoiceModel) else contestant(data)
        except InputError as error:
            found.absent[label] = str(error)
    return found


def formula_with_individual(data: ChoiceData) -> str:
    """Write the utility with all features and the individual's columns that have a coefficient of their own.

    Raises
    ------
    InputError
        When there are no such columns, or too many products.
    """
    sets = data.counted().without_contents()
    if not sets.individual:
        raise InputError("the table has no columns of the individual.")
    if sets.labels is not None:
        return _identified(". | ", [_factor(name, sets) for name in sets.individual], sets)
    who = [_factor(name, sets) for name, column in sets.individual.items() if isinstance(column, Numeric)]
    terms = [Term((Factor(name), *term.factors)) for name in sets.features for term in who]
    if not terms:
        raise InputError("the table has no labels, nor features and numeric columns of the individual to multiply.")
    if len(terms) > MOST_PRODUCTS:
        raise InputError(
            f"{len(terms)} products of features and columns of the individual are more than {MOST_PRODUCTS}."
        )
    return _identified(". + ", terms, sets)


def _factor(name: str, sets: ChoiceData) -> Term:
    return Term((Factor(name, "standardise" if isinstance(sets.individual[name], Numeric) else None),))


def _identified(start: str, terms: list[Term], sets: ChoiceData) -> str:
    """Join the terms, without those that are combinations of others, and of the features, within every set."""
    design = Design.learn(start + " + ".join(map(str, terms)), sets, least=LogitConfig().min_chosen)
    chosen = sets.require_chosen("a leaderboard")
    columns = LogitSets.from_matrix(design.matrix(sets), sets.offsets, chosen).z
    asked, sources = set(map(str, terms)), design.sources(sets)
    order = sorted(range(len(sources)), key=lambda k: sources[k] in asked)  # the later of two is the one to go
    lost = {sources[order[k]] for k, _ in dependent_columns(columns[:, order])}
    kept = [term for term in map(str, terms) if term not in lost]
    if not kept:
        raise InputError("the columns of the individual add nothing to the features within any choice set.")
    return start + " + ".join(kept)
