"""Airline itinerary choices with known probabilities: a table of the paper's size, columns and ranges.

``airline_table`` draws individuals and the itineraries that their searches return; ``airline_process`` says how they
choose: two segments, business and leisure, in shares that depend on the individual, with preferences for price,
duration, connections, time of day and airline, and with context effects (attraction and similarity)::

    table = airline.simulate(5_000, seed=0)
    data = ChoiceData.from_long(table, **airline.ROLES)

Shapes: columns (N,) of all alternatives, set after set -> probabilities (N,).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data.ragged import spread
from pcmcnet.data.tabular import read_table
from pcmcnet.datasets import airline_process
from pcmcnet.datasets.airline_process import SEGMENTS, Segment
from pcmcnet.datasets.airline_table import AIRLINES, OFFICES, PAIRS, RANGES, ROLES, Searches, draw_searches
from pcmcnet.datasets.truth import BestNLL, best_nll, contiguous_offsets, require_seed, require_sets, sample
from pcmcnet.errors import InputError

__all__ = [
    "RANGES",
    "ROLES",
    "SEGMENTS",
    "SIZE",
    "Segment",
    "best_possible_nll",
    "business_share",
    "probabilities",
    "simulate",
]


SIZE = 33_951
"""Choice sets of the paper's table."""

WORDS = {"airlines": AIRLINES, "officeID": OFFICES}
INDIVIDUAL = ("officeID", "staySaturday", "isContinental", "isDomestic", "depWeekDay", "dtd")
ITINERARY = ("airlines", "totalPrice", "totalTripDurationMinutes", "nFlights", "nAirlines", "outDepTime")


def probabilities(table: Any) -> Floats:
    """Compute the choice probabilities of the process.

    Parameters
    ----------
    table
        A path, a mapping of columns or a data frame, one row per itinerary, the rows of a search together. It has the
        columns individual, officeID, staySaturday, isContinental, isDomestic, depWeekDay, dtd, airlines, totalPrice,
        totalTripDurationMinutes, nFlights, nAirlines and outDepTime; others play no part.

    Returns
    -------
    Array of shape (rows,); the probabilities of a search add up to 1.

    Raises
    ------
    InputError
        A column is missing, holds what is no finite number, or none above 0 where a logarithm is taken; an airline or
        office is unknown; or the rows of a search do not stand together.
    """
    columns = _read(table, ("individual", *INDIVIDUAL, *ITINERARY))
    offsets = contiguous_offsets(columns["individual"], column="individual")
    who = {name: columns[name][offsets[:-1]] for name in INDIVIDUAL}
    return airline_process.mixture(who, columns, offsets)


def business_share(table: Any) -> Floats:
    """Compute the probability that each individual belongs to the business segment.

    Parameters
    ----------
    table
        As in ``probabilities``, but one row per individual, with columns officeID, staySaturday, isContinental,
        isDomestic, depWeekDay and dtd.

    Returns
    -------
    Array of shape (rows,).

    Raises
    ------
    InputError
        A column is missing or holds what is no finite number, or an office is unknown.

    Examples
    --------
    >>> search = {"officeID": ["OF01"] * 2, "isContinental": [1, 1], "isDomestic": [0, 0], "depWeekDay": [0, 5]}
    >>> business_share({**search, "staySaturday": [0, 1], "dtd": [3, 60]}).round(3)
    array([0.989, 0.072])
    """
    return airline_process.business_share(_read(table, INDIVIDUAL))


def simulate(sets: int = SIZE, *, seed: int) -> pa.Table:
    """Simulate airline searches, one choice each, and the true probabilities.

    Parameters
    ----------
    sets
        How many choice sets, at least 1; the paper's table has 33,951.
    seed
        Seed of all randomness, at least 0: the same seed gives the same table.

    Returns
    -------
    Long table with the columns of the paper's airline data and true_prob. ``ROLES`` says what each column is.

    Raises
    ------
    ConfigError
        ``sets`` or ``seed`` is not a whole number in its range.
    """
    n_sets, rng = require_sets(sets), np.random.default_rng(require_seed(seed))
    searches = draw_searches(n_sets, rng)
    p = airline_process.mixture(searches.individuals, searches.itineraries, searches.offsets)
    choice = np.zeros(len(p), dtype=np.int8)
    choice[sample(p, searches.offsets, rng)] = 1
    return _table(searches, choice, p)


def best_possible_nll(table: pa.Table) -> BestNLL:
    """Compute the NLL of the true probabilities of a simulated table: no model does better on average.

    Parameters
    ----------
    table
        As ``simulate`` returns it.

    Returns
    -------
    The expected value (mean entropy of the true law) and the value on the choices drawn.
    """
    return best_nll(table, choice_set="individual", chosen="choice")


def _table(searches: Searches, choice: NDArray[np.int8], p: Floats) -> pa.Table:
    """Lay out the columns in the order of the paper's files."""
    offsets, who, what = searches.offsets, searches.individuals, searches.itineraries
    sets = np.arange(len(offsets) - 1)

    def individual(name: str) -> NDArray[np.int32]:
        return spread(who[name].astype(np.int32), offsets)

    def word(codes: NDArray[Any], words: tuple[str, ...]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), list(words)).cast(pa.string())

    numbers = ("stayDurationMinutes", "totalPrice", "totalTripDurationMinutes", "nAirlines", "nFlights")
    return pa.table(
        {
            "individual": spread(sets.astype(np.int32), offsets),
            "alternative": (np.arange(len(p)) - spread(offsets[:-1], offsets)).astype(np.int32),
            "choice": choice,
            "OD": word(individual("OD"), PAIRS),
            "officeID": word(individual("officeID"), OFFICES),
            **{name: individual(name) for name in ("staySaturday", "isContinental", "isDomestic", "depWeekDay", "dtd")},
            **{
                name: what[name] if name == "totalPrice" else what[name].astype(np.int32)
                for name in (*numbers, "outDepTime", "outArrTime")
            },
            "airlines": word(what["airlines"], AIRLINES),
            "true_prob": p,
        }
    )


def _read(table: Any, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the columns as arrays, words as codes; refuse what the formulas cannot take."""
    arrow = read_table(table, names)
    columns = {}
    for name in names:
        values = arrow[name].combine_chunks()
        if name == "individual":
            columns[name] = values.to_numpy(zero_copy_only=False)
        else:
            columns[name] = _codes(values, name) if name in WORDS else _numbers(values, name)
    return columns


def _codes(values: pa.Array, name: str) -> NDArray[Any]:
    """Number the words from 0, in the order in which the process knows them."""
    known = WORDS[name]
    codes = pc.index_in(values.cast(pa.string()), value_set=pa.array(known))
    if codes.null_count:
        row = int(np.flatnonzero(codes.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(
            f"column {name!r}, row {row}: expected one of {known[0]} to {known[-1]}, got {values[row].as_py()!r}; "
            f"{codes.null_count} such rows. The process knows no other."
        )
    return np.asarray(codes.to_numpy(), dtype=np.int64)


def _numbers(values: pa.Array, name: str) -> Floats:
    """Return finite float64 numbers, above 0 for the columns whose logarithm is taken."""
    positive = name in ("totalPrice", "totalTripDurationMinutes")
    wanted = "a finite number" + (" above 0" if positive else "")
    try:
        numbers: Floats = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"column {name!r}: expected numbers, got {values.type}. Convert or drop it.") from error
    bad = np.flatnonzero(~np.isfinite(numbers) | (positive & (numbers <= 0)))
    if bad.size:
        raise InputError(
            f"column {name!r}, row {bad[0]}: expected {wanted}, got {numbers[bad[0]]}; {bad.size} such rows. "
            "Drop these searches."
        )
    return numbers
