"""The entries of a leaderboard: which models take part, and on which tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models import MNL, MODELS, ChoiceModel, LatentClassMNL
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.formula import Factor, Term
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.logit_model import LogitConfig
from pcmcnet.models.logit.parameter_bounds import dependent_columns

# -- Contestants -------------------------------------------------------------------------------------------------------
# The models of a leaderboard: those of the registry with their defaults, and the logits with all that they can use.
#
# By default a logit does not see the columns of the individual, which the networks do. For a fair comparison there are
# two more models: `mnl+individual`, whose utility has
#
#     a coefficient per alternative for each column of the individual     ". | income + age"             with labels,
#     the products of features and numeric columns of the individual      ". + cost:standardise(income)"   without,
#
# and `lc-mnl+individual`, whose classes have that utility beside the membership that depends on the individual anyway.
# Columns that add nothing to others within every set are left out. A model that cannot be built for a table says why.

Contestant = ChoiceModel | Callable[[ChoiceData], ChoiceModel]
"""A model, or what builds one for a table; it raises an ``InputError`` where there is none for it."""

WITHOUT_DEFAULTS = ("cross-nested-mnl", "nested-mnl", "rank-by")  # its nests, its column: nobody's defaults
MAX_PRODUCTS = 40


TABLE_SPECIFIC_MODELS: dict[str, Callable[[ChoiceData], ChoiceModel]] = {
    "mnl+individual": lambda data: MNL(formula=formula_with_individual(data)),
    "lc-mnl+individual": lambda data: LatentClassMNL(formula=formula_with_individual(data)),
}


def named_contestants(names: Iterable[str]) -> dict[str, Contestant]:
    """Return models by the names of the registry and of those built for each table."""
    found: dict[str, Contestant] = {}
    for name in names:
        if name not in MODELS and name not in TABLE_SPECIFIC_MODELS:
            raise ConfigError(f"unknown model {name!r}." + did_you_mean(str(name), [*MODELS, *TABLE_SPECIFIC_MODELS]))
        if name in found:
            raise ConfigError(f"models: {name!r} is named twice.")
        found[name] = TABLE_SPECIFIC_MODELS[name] if name in TABLE_SPECIFIC_MODELS else _with_defaults(MODELS[name])
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
        return named_contestants(sorted({*MODELS, *TABLE_SPECIFIC_MODELS} - {*WITHOUT_DEFAULTS}))
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


def build_contestants(contestants: Mapping[str, Contestant], data: ChoiceData) -> Entrants:
    """Build the models for a table."""
    found = Entrants({}, {})
    for label, contestant in contestants.items():
        try:
            found.models[label] = contestant if isinstance(contestant, ChoiceModel) else contestant(data)
        except InputError as error:
            found.absent[label] = str(error)
    return found


def formula_with_individual(data: ChoiceData) -> str:
    """Write the utility with all features and the individual's columns that have a coefficient of their own."""
    sets = data.with_positive_weight().without_contents()
    if not sets.individual:
        raise InputError("the table has no columns of the individual.")
    if sets.labels is not None:
        return _identified(". | ", [_factor(name, sets) for name in sets.individual], sets)
    who = [_factor(name, sets) for name, column in sets.individual.items() if isinstance(column, Numeric)]
    terms = [Term((Factor(name), *term.factors)) for name in sets.features for term in who]
    if not terms:
        raise InputError("the table has no labels, nor features and numeric columns of the individual to multiply.")
    if len(terms) > MAX_PRODUCTS:
        what = "products of features and columns of the individual"
        raise InputError(f"{len(terms)} {what} are more than {MAX_PRODUCTS}.")
    return _identified(". + ", terms, sets)


def _factor(name: str, sets: ChoiceData) -> Term:
    return Term((Factor(name, "standardise" if isinstance(sets.individual[name], Numeric) else None),))


def _identified(start: str, terms: list[Term], sets: ChoiceData) -> str:
    """Join the terms, without those that are combinations of others, and of the features, within every set."""
    design = Design.learn(start + " + ".join(map(str, terms)), sets, least=LogitConfig().min_chosen)
    chosen = sets.require_chosen("a leaderboard")
    columns = LogitLikelihood.from_matrix(design.matrix(sets), sets.offsets, chosen).z
    asked, sources = set(map(str, terms)), design.sources(sets)
    order = sorted(range(len(sources)), key=lambda k: sources[k] in asked)  # the later of two is the one to go
    lost = {sources[order[k]] for k, _ in dependent_columns(columns[:, order])}
    kept = [term for term in map(str, terms) if term not in lost]
    if not kept:
        raise InputError("the columns of the individual add nothing to the features within any choice set.")
    return start + " + ".join(kept)


# -- Leaderboard tables ------------------------------------------------------------------------------------------------
# The tables of a leaderboard: public ones from installed packages, simulated ones with a known floor, or given ones.
#
# A table is used for "development", where options and defaults were chosen with a look at it; "judged", where they were
# not; "simulated", where the true probabilities are known; or was "given" by the caller. Large tables are cut to a
# random part of whole persons, or of choice sets where there are no persons: always the same one.

Use = Literal["development", "judged", "simulated", "given"]

MAX_SETS = 5_000  # that a table is cut to: with these, all tables and models take about an hour on two cores
ALTERNATIVES_PER_SET = 8  # per choice set allowed, over all of a table: large sets cost by the square of their size
SEED = 0  # of the parts taken, and of the simulators


class Sample(NamedTuple):
    """What is measured of a table."""

    data: ChoiceData
    whole: int  # choice sets of the table
    floor: float | None = None  # NLL of the true probabilities on these choices


@dataclass(frozen=True, kw_only=True)
class LeaderboardTable:
    """A table and how it is measured."""

    name: str
    use: Use
    read: Callable[[int], Sample]  # at most so many choice sets of it
    by_set: bool = False  # whether folds are cut, and resampled, by choice set even where persons are known
    ranked: bool = True  # whether it counts in ranks; one that is there twice does once


class Simulator(NamedTuple):
    """How a table is simulated, how many choice sets of it, and the roles of its columns."""

    simulate: Callable[..., pa.Table]
    sets: int
    roles: dict[str, Any]


def simulators() -> dict[str, Simulator]:
    """Return the simulators by name."""
    from pcmcnet.datasets import airline, markov, mlba  # here: loading them takes half a second that few need

    sets = {"choice_set": "choice_set", "chosen": "chosen"}
    items = {**sets, "alternative": "alternative", "features": ["alternative"]}
    return {
        "mlba": Simulator(mlba.simulate, 4_000, {**sets, "features": ["attr1", "attr2"]}),
        "airline": Simulator(airline.simulate, 1_000, airline.ROLES),
        "rock-paper-scissors": Simulator(markov.simulate_rock_paper_scissors, 2_000, items),
    }


def public_tables() -> dict[str, LeaderboardTable]:
    """Return the tables of packages and the simulated ones, by name."""
    from pcmcnet.datasets import packaged

    found = []
    for name, table in packaged.TABLES.items():
        found.append(LeaderboardTable(name=name, use=table.use, read=partial(_packaged, name)))
        if name == "swissmetro":  # the split of much published work: it also rewards whoever recognises a person
            read = partial(_packaged, name, persons=False)  # models are not to know them either
            found.append(LeaderboardTable(name=f"{name}-random", use=table.use, read=read, by_set=True, ranked=False))
    found += [
        LeaderboardTable(name=name, use="simulated", read=partial(_simulated, process))
        for name, process in simulators().items()
    ]
    return {table.name: table for table in found}


def require_tables(tables: Any, use: str | None) -> list[LeaderboardTable]:
    """Take names, or names with choice data; None for all public tables. ``use`` keeps those of one use."""
    if use is not None and use not in get_args(Use):
        raise ConfigError(f"use must be one of {', '.join(map(repr, get_args(Use)))}, got {use!r}.")
    known = public_tables()
    if isinstance(tables, Mapping):
        known = {name: _table_of_caller(name, data) for name, data in tables.items()}
    elif tables is not None and (isinstance(tables, str) or not isinstance(tables, Sequence)):
        raise InputError(f"tables: expected names, or names with choice data, got {tables!r}.")
    names = list(dict.fromkeys(known if tables is None else tables))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"unknown table {unknown[0]!r}." + did_you_mean(str(unknown[0]), known))
    found = [known[name] for name in names if use in (None, known[name].use)]
    if not found:
        raise InputError(f"no table to measure: expected some{'' if use is None else f' of use {use!r}'}, got none.")
    return found


def _table_of_caller(name: Any, data: Any) -> LeaderboardTable:
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or set(name) & set('/\\:*?"<>|'):
        raise InputError(f"tables: expected names that can name a folder, got {name!r}.")
    if not isinstance(data, ChoiceData):
        raise InputError(f"tables, {name!r}: expected ChoiceData, got {type(data).__name__}.")
    return LeaderboardTable(name=name, use="given", read=partial(sample_table, data))


def sample_table(data: ChoiceData, most: int) -> Sample:
    """Take at most so many choice sets, and eight times as many alternatives, of whole persons."""
    share = min(most / len(data), ALTERNATIVES_PER_SET * most / data.n_alternatives) if len(data) else 1.0
    part = data.split((share, 1 - share), seed=SEED)[0] if share < 1 else data
    return Sample(part, len(data))


def _packaged(name: str, most: int, *, persons: bool = True) -> Sample:
    from pcmcnet.datasets import packaged

    rows, schema = packaged.long_form(name)
    return sample_table(ChoiceData.from_schema(rows, schema if persons else replace(schema, person=None)), most)


def _simulated(process: Simulator, most: int) -> Sample:
    from pcmcnet.datasets.truth import best_nll

    n_sets = min(process.sets, most)
    table = process.simulate(n_sets, seed=SEED)
    floor = best_nll(table, choice_set=process.roles["choice_set"], chosen=process.roles["chosen"]).realised
    return Sample(ChoiceData.from_long(table, **process.roles), n_sets, floor)
