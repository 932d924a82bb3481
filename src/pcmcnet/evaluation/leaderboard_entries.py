"""Leaderboard entries: the models to compare, and the tables on which to compare them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.chunked_data import read_chunked
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models import MNL, MODELS, ChoiceModel, LatentClassMNL
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.formula import Factor, Term
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.logit_model import LogitConfig
from pcmcnet.models.logit.parameter_bounds import dependent_columns

# -- Contestants -------------------------------------------------------------------------------------------------------
# The models of a leaderboard: the registered models with their defaults, and logits that use all columns.
#
# By default a logit does not use the columns of the individual, but the networks do. For a fair comparison there are
# two additional models: `mnl+individual`, whose utility has
#
#     a coefficient per alternative for each column of the individual     ". | income + age"             with labels,
#     the products of features and numeric columns of the individual      ". + cost:standardise(income)"   without,
#
# and `lc-mnl+individual`, whose classes have that utility. (Class membership depends on the individual in both cases.)
# Columns that are collinear within every choice set are left out.

Contestant = ChoiceModel | Callable[[ChoiceData], ChoiceModel]
"""A model, or a function that builds a model for a table and raises ``InputError`` for an unsuitable table."""

WITHOUT_DEFAULTS = ("cross-nested-mnl", "nested-mnl", "rank-by")  # nests and ranking columns have no defaults
MAX_PRODUCTS = 40  # of features and columns of the individual


TABLE_SPECIFIC_MODELS: dict[str, Callable[[ChoiceData], ChoiceModel]] = {
    "mnl+individual": lambda data: MNL(formula=formula_with_individual(data)),
    "lc-mnl+individual": lambda data: LatentClassMNL(formula=formula_with_individual(data)),
}


def named_contestants(names: Iterable[str]) -> dict[str, Contestant]:
    """Return models by name, from the registry or from TABLE_SPECIFIC_MODELS."""
    contestants: dict[str, Contestant] = {}
    for name in names:
        if name not in MODELS and name not in TABLE_SPECIFIC_MODELS:
            raise ConfigError(f"unknown model {name!r}." + did_you_mean(str(name), [*MODELS, *TABLE_SPECIFIC_MODELS]))
        if name in contestants:
            raise ConfigError(f"models: {name!r} is listed twice.")
        specific = name in TABLE_SPECIFIC_MODELS
        contestants[name] = TABLE_SPECIFIC_MODELS[name] if specific else _with_defaults(MODELS[name])
    return contestants


def _with_defaults(kind: type[ChoiceModel]) -> Contestant:
    """Return a model with default options, or a function that raises InputError if an option has no default."""
    try:
        return kind()
    except InputError as error:
        reason = str(error)

    def raise_error(data: ChoiceData) -> ChoiceModel:
        raise InputError(reason)

    return raise_error


def require_contestants(models: Any) -> dict[str, Contestant]:
    """Return a mapping from labels to models, given such a mapping, a list of model names, or None for the defaults."""
    if models is None:
        return named_contestants(sorted({*MODELS, *TABLE_SPECIFIC_MODELS} - {*WITHOUT_DEFAULTS}))
    if isinstance(models, str) or not isinstance(models, Sequence | Mapping) or not models:
        raise InputError(f"models: expected names such as ['mnl'], or a mapping from labels to models, got {models!r}.")
    if not isinstance(models, Mapping):
        return named_contestants(models)
    for label, model in models.items():
        if isinstance(model, type) or not (isinstance(model, ChoiceModel) or callable(model)):
            raise InputError(f"models, {label!r}: expected a model such as MNL(), or a function that builds a model.")
    return dict(models)


class Entrants(NamedTuple):
    """The models that can be applied to a table, and for each other model the reason why it cannot."""

    models: dict[str, ChoiceModel]
    absent: dict[str, str]


def build_contestants(contestants: Mapping[str, Contestant], data: ChoiceData) -> Entrants:
    """Build the models for a table."""
    entrants = Entrants({}, {})
    for label, contestant in contestants.items():
        try:
            entrants.models[label] = contestant if isinstance(contestant, ChoiceModel) else contestant(data)
        except InputError as error:
            entrants.absent[label] = str(error)
    return entrants


def formula_with_individual(data: ChoiceData) -> str:
    """Return a utility formula with all features and all identified individual-level columns."""
    sets = data.with_positive_weight().without_contents()
    if not sets.individual:
        raise InputError("the table has no individual-level columns.")
    if sets.labels is not None:
        return _identified(". | ", [_factor(name, sets) for name in sets.individual], sets)
    individual = [_factor(name, sets) for name, column in sets.individual.items() if isinstance(column, Numeric)]
    terms = [Term((Factor(name), *term.factors)) for name in sets.features for term in individual]
    if not terms:
        raise InputError("expected labels, or features and numeric individual-level columns, got a table with neither.")
    if len(terms) > MAX_PRODUCTS:
        raise InputError(
            f"expected at most {MAX_PRODUCTS} products of features and individual-level columns, got {len(terms)}."
        )
    return _identified(". + ", terms, sets)


def _factor(name: str, sets: ChoiceData) -> Term:
    """Return the formula term for an individual-level column, standardised if the column is numeric."""
    return Term((Factor(name, "standardise" if isinstance(sets.individual[name], Numeric) else None),))


def _identified(start: str, terms: list[Term], sets: ChoiceData) -> str:
    """Join the terms into a formula, without those that are collinear with other terms or features within every set."""
    design = Design.learn(start + " + ".join(map(str, terms)), sets, least=LogitConfig().min_chosen)
    chosen = sets.require_chosen("a leaderboard")
    columns = LogitLikelihood.from_matrix(design.matrix(sets), sets.offsets, chosen).z
    names, sources = list(map(str, terms)), design.sources(sets)
    references = {row[0] for group in design.groups for row in group.columns}  # fixed at 0, so not collinear
    order = [k for k, column in enumerate(design.columns) if column not in references]
    order.sort(key=lambda k: sources[k] in names)  # of two collinear columns, the later goes
    collinear = {sources[order[k]] for k, _ in dependent_columns(columns[:, order])}
    identified = [name for name in names if name not in collinear]
    if not identified:
        raise InputError("all individual-level terms are collinear with the features within every choice set.")
    return start + " + ".join(identified)


# -- Leaderboard tables ------------------------------------------------------------------------------------------------
# The tables of a leaderboard: public ones from installed packages, simulated ones with known probabilities, or tables
# given by the caller.
#
# The use of a table is "development" if options and defaults were chosen on it, "judged" if they were not, "simulated"
# if the true probabilities are known, or "given" for a table from the caller. Large tables are sampled by person, or by
# choice set if there are no persons; the sample is always the same.

Use = Literal["development", "judged", "simulated", "given"]

MAX_SETS = 5_000  # choice sets per table; all tables and models then take several hours on two cores
ALTERNATIVES_PER_SET = 8  # largest mean over a table: the cost of a set grows with the square of its size
SEED = 0  # of the samples and of the simulators


class Sample(NamedTuple):
    """The choice sets of a table on which models are compared."""

    data: ChoiceData
    whole: int  # number of choice sets of the whole table
    floor: float | None = None  # NLL of the true probabilities on these choices
    test: ChoiceData | None = None  # the test part of a published split; all of it is used


@dataclass(frozen=True, kw_only=True)
class LeaderboardTable:
    """A table on which a leaderboard compares models."""

    name: str
    use: Use
    read: Callable[[int], Sample]  # maximum number of choice sets -> sample
    by_set: bool = False  # whether choice sets, not persons, are divided into folds and resampled
    ranked: bool = True  # whether the table counts in ranks; False for a second version of a table


class Simulator(NamedTuple):
    """A function that simulates a table, its default number of choice sets, and the roles of the columns."""

    simulate: Callable[..., pa.Table]
    sets: int
    roles: dict[str, Any]


def simulators() -> dict[str, Simulator]:
    """Return a mapping from names to simulators."""
    from pcmcnet.datasets import airline, markov, mlba  # importing them takes half a second

    sets = {"choice_set": "choice_set", "chosen": "chosen"}
    items = {**sets, "alternative": "alternative", "features": ["alternative"]}
    return {
        "mlba": Simulator(mlba.simulate, 4_000, {**sets, "features": ["attr1", "attr2"]}),
        "airline": Simulator(airline.simulate, 1_000, airline.ROLES),
        "rock-paper-scissors": Simulator(markov.simulate_rock_paper_scissors, 2_000, items),
    }


def public_tables() -> dict[str, LeaderboardTable]:
    """Return a mapping from names to public and simulated tables."""
    from pcmcnet.datasets import packaged

    tables = []
    for name, table in packaged.TABLES.items():
        if table.use == "example":
            continue
        tables.append(LeaderboardTable(name=name, use=table.use, read=partial(_packaged, name)))
        if name == "swissmetro":  # much published work splits it by choice set, which rewards recognising a person
            read = partial(_packaged, name, persons=False)
            tables.append(LeaderboardTable(name=f"{name}-random", use=table.use, read=read, by_set=True, ranked=False))
    tables += [
        LeaderboardTable(name=name, use="simulated", read=partial(_simulated, process))
        for name, process in simulators().items()
    ]
    return {table.name: table for table in tables}


LPMC = "lpmc"  # name of the table of London Passenger Mode Choice


def require_tables(tables: Any, use: str | None, lpmc: str | os.PathLike[str] | None = None) -> list[LeaderboardTable]:
    """Return leaderboard tables, given names, a mapping from names to choice data, or None for all public tables.

    If ``use`` is given, only tables with this use are returned. The file ``lpmc`` adds a table.
    """
    if use is not None and use not in get_args(Use):
        raise ConfigError(f"use must be one of {', '.join(map(repr, get_args(Use)))}, got {use!r}.")
    available = public_tables()
    if isinstance(tables, Mapping):
        available = {name: _table_of_caller(name, data) for name, data in tables.items()}
    elif tables is not None and (isinstance(tables, str) or not isinstance(tables, Sequence)):
        raise InputError(f"tables: expected names, or a mapping from names to choice data, got {tables!r}.")
    names = list(dict.fromkeys(available if tables is None else tables))
    if lpmc is not None:
        if isinstance(tables, Mapping) and LPMC in tables:
            raise InputError(f"tables: {LPMC!r} is the table in the file given as lpmc: use another name.")
        available[LPMC] = london_table(lpmc)
        names = list(dict.fromkeys([*names, LPMC]))
    unknown = [name for name in names if name not in available]
    if unknown and unknown[0] == LPMC:
        raise ConfigError(f"table {LPMC!r} is not part of a package: give its file as lpmc, such as 'ltds.csv.gz'.")
    if unknown:
        raise ConfigError(f"unknown table {unknown[0]!r}." + did_you_mean(str(unknown[0]), available))
    selected = [available[name] for name in names if use in (None, available[name].use)]
    if not selected:
        raise InputError(f"tables: expected at least one table{'' if use is None else f' with use {use!r}'}, got none.")
    return selected


def _table_of_caller(name: Any, data: Any) -> LeaderboardTable:
    """Return a leaderboard table for the caller's choice data."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or set(name) & set('/\\:*?"<>|'):
        raise InputError(f"tables: expected names that are valid folder names, got {name!r}.")
    if not isinstance(data := read_chunked(data), ChoiceData):
        raise InputError(f"tables, {name!r}: expected ChoiceData, got {type(data).__name__}.")
    return LeaderboardTable(name=name, use="given", read=partial(sample_table, data))


def london_table(path: str | os.PathLike[str]) -> LeaderboardTable:
    """Return the table of London Passenger Mode Choice with its published split. The file is read now."""
    from pcmcnet.datasets import lpmc

    train, test = lpmc.published_split(path)
    sample = Sample(train, len(test), test=test)
    return LeaderboardTable(name=LPMC, use="judged", read=lambda most: sample)


def sample_table(data: ChoiceData, most: int) -> Sample:
    """Sample about ``most`` choice sets of whole persons, with at most eight times as many alternatives."""
    share = min(most / len(data), ALTERNATIVES_PER_SET * most / data.n_alternatives) if len(data) else 1.0
    part = data.split((share, 1 - share), seed=SEED)[0] if share < 1 else data
    return Sample(part, len(data))


def _packaged(name: str, most: int, *, persons: bool = True) -> Sample:
    """Read a table from an installed package, with or without its person column, and sample its choice sets."""
    from pcmcnet.datasets import packaged

    rows, schema = packaged.long_form(name)
    return sample_table(ChoiceData.from_schema(rows, schema if persons else replace(schema, person=None)), most)


def _simulated(process: Simulator, most: int) -> Sample:
    """Simulate a table, and compute the NLL of its true probabilities."""
    from pcmcnet.datasets.truth import best_nll

    n_sets = min(process.sets, most)
    table = process.simulate(n_sets, seed=SEED)
    floor = best_nll(table, choice_set=process.roles["choice_set"], chosen=process.roles["chosen"]).realised
    return Sample(ChoiceData.from_long(table, **process.roles), n_sets, floor)
