"""The tables of a leaderboard: public ones from installed packages, simulated ones with a known floor, or given ones.

A table is used for "development", where options and defaults were chosen with a look at it; "judged", where they were
not; "simulated", where the true probabilities are known; or was "given" by the caller. Large tables are cut to a random
part of whole persons, or of choice sets where there are no persons: always the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.errors import ConfigError, InputError, did_you_mean

Use = Literal["development", "judged", "simulated", "given"]

SETS = 5_000  # that a table is cut to: with these, all tables and models take about an hour on two cores
ALTERNATIVES = 8  # per choice set allowed, over all of a table: large sets cost by the square of their size
SEED = 0  # of the parts taken, and of the simulators


class Sample(NamedTuple):
    """What is measured of a table."""

    data: ChoiceData
    whole: int  # choice sets of the table
    floor: float | None = None  # NLL of the true probabilities on these choices


@dataclass(frozen=True, kw_only=True, slots=True)
class BoardTable:
    """A table and how it is measured.

    Parameters
    ----------
    name, use
        Its name, and what it is used for.
    read
        At most so many choice sets of it.
    by_set
        Whether folds are cut, and resampled, by choice set even where persons are known.
    ranked
        Whether it counts in ranks; one that is there twice does once.
    """

    name: str
    use: Use
    read: Callable[[int], Sample]
    by_set: bool = False
    ranked: bool = True


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


def public_tables() -> dict[str, BoardTable]:
    """Return the tables of packages and the simulated ones, by name."""
    from pcmcnet.datasets import packaged

    found = []
    for name, table in packaged.TABLES.items():
        found.append(BoardTable(name=name, use=table.use, read=partial(_packaged, name)))
        if name == "swissmetro":  # the split of much published work: it also rewards whoever recognises a person
            read = partial(_packaged, name, persons=False)  # models are not to know them either
            found.append(BoardTable(name=f"{name}-random", use=table.use, read=read, by_set=True, ranked=False))
    found += [
        BoardTable(name=name, use="simulated", read=partial(_simulated, process))
        for name, process in simulators().items()
    ]
    return {table.name: table for table in found}


def require_tables(tables: Any, use: str | None) -> list[BoardTable]:
    """Take names, or names with choice data; None for all public tables. ``use`` keeps those of one use."""
    if use is not None and use not in get_args(Use):
        raise ConfigError(f"use must be one of {', '.join(map(repr, get_args(Use)))}, got {use!r}.")
    known = public_tables()
    if isinstance(tables, Mapping):
        known = {name: _given(name, data) for name, data in tables.items()}
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


def _given(name: Any, data: Any) -> BoardTable:
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or set(name) & set('/\\:*?"<>|'):
        raise InputError(f"tables: expected names that can name a folder, got {name!r}.")
    if not isinstance(data, ChoiceData):
        raise InputError(f"tables, {name!r}: expected ChoiceData, got {type(data).__name__}.")
    return BoardTable(name=name, use="given", read=partial(part_of, data))


def part_of(data: ChoiceData, most: int) -> Sample:
    """Take at most so many choice sets, and eight times as many alternatives, of whole persons."""
    share = min(most / len(data), ALTERNATIVES * most / data.n_alternatives) if len(data) else 1.0
    part = data.split((share, 1 - share), seed=SEED)[0] if share < 1 else data
    return Sample(part, len(data))


def _packaged(name: str, most: int, *, persons: bool = True) -> Sample:
    from pcmcnet.datasets import packaged

    rows, schema = packaged.long_form(name)
    return part_of(ChoiceData.from_schema(rows, schema if persons else replace(schema, person=None)), most)


def _simulated(process: Simulator, most: int) -> Sample:
    from pcmcnet.datasets.truth import best_nll

    n_sets = min(process.sets, most)
    table = process.simulate(n_sets, seed=SEED)
    floor = best_nll(table, choice_set=process.roles["choice_set"], chosen=process.roles["chosen"]).realised
    return Sample(ChoiceData.from_long(table, **process.roles), n_sets, floor)
