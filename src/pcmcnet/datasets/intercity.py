"""Simulated trips between cities by train, car, bus or plane, with known choice probabilities.

The table is part of the package: 1,000 trips of 405 travellers. ``read`` returns it as choice sets, ``PATH`` is the CSV
file, and ``ROLES`` are the roles, names, units and expected signs of its columns::

    data = intercity.read()
    data = ChoiceData.from_long(pandas.read_csv(intercity.PATH), **intercity.ROLES)

``simulate(1_000, seed=SEED)`` generates the table, and ``probabilities`` computes the true probabilities. No traveller
is real.

The probability of mode i is proportional to exp(U_i), where U_i is utility and context:

    U_i = constant(i) - price_i / euro - hours_i * value / euro - 0.3 changes_i + 0.35 comfort_i
          + 2 log(1 + sum_{j != i} D_ij) - log(1 + sum_{j != i} D_ji),
    D_ij = logistic(log(price_j / price_i) / 0.12) logistic(log(time_j / time_i) / 0.12).

The purpose of the trip decides the price sensitivity and the value of time: utility falls by one unit per ``euro`` EUR,
with euro = 40 s on business trips, euro = 16 s on other trips and s = sqrt(income / 40,000), and an hour is worth
``value`` EUR: 45 on business trips and 14 on other trips. D_ij is close to 1 if i is both cheaper and faster than j.
So a mode gains if it dominates another mode (attraction), and a dominated mode loses. A logit cannot express this
context effect.

Shapes: columns (N,) of all alternatives, sorted by trip -> probabilities (N,).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.ragged import log_softmax_by_set, spread
from pcmcnet.data.files.tabular import read_table
from pcmcnet.datasets.truth import BestNLL, contiguous_offsets, require_seed, require_sets, sample
from pcmcnet.errors import InputError

__all__ = ["CONSTANTS", "PATH", "ROLES", "SEED", "VALUE_OF_TIME", "best_possible_nll", "probabilities", "read"]
__all__ += ["simulate"]

PATH = Path(__file__).with_name("intercity.csv")
"""CSV file of the table."""

ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "chosen",
    "alternative": "mode",
    "person": "traveller",
    "individual": ["purpose", "income", "party", "distance"],
    "features": ["price", "time", "changes", "comfort"],
    "available": "available",
    "signs": {"price": "-", "time": "-", "changes": "-", "comfort": "+"},
    "columns": {
        "price": {"name": "Price", "unit": "EUR"},
        "time": {"name": "Travel time", "unit": "min"},
        "changes": {"name": "Changes"},
        "comfort": {"name": "Comfort", "unit": "stars"},
        "purpose": {"name": "Purpose"},
        "income": {"name": "Income", "unit": "EUR/year"},
        "party": {"name": "Group size"},
        "distance": {"name": "Distance", "unit": "km"},
    },
}
"""Keyword arguments of ``ChoiceData.from_long`` for the table."""

SEED = 2026
"""Seed of the table in the package."""

# -- Choice probabilities ----------------------------------------------------------------------------------------------

MODES = ("train", "car", "bus", "plane")
PURPOSES = ("business", "holiday", "visit")

CONSTANTS = {"train": 0.5, "car": 0.5, "bus": 0.3, "plane": -0.4}
"""Constants of the modes in the true utility."""
VALUE_OF_TIME = {"business": 45.0, "holiday": 14.0, "visit": 14.0}
"""True value of time by purpose, in EUR per hour."""
EURO = {"business": 40.0, "holiday": 16.0, "visit": 16.0}  # EUR per unit of utility, at MIDDLE_INCOME
MIDDLE_INCOME = 40_000.0  # EUR per year
CHANGES, COMFORT = -0.3, 0.35
ATTRACTION, DOMINANCE = 2.0, -1.0
CLEAR = 0.12  # difference in logarithms at which one mode is clearly cheaper or faster than another

_INDIVIDUAL = ("purpose", "income")
_FEATURES = ("price", "time", "changes", "comfort")
_WORDS = {"mode": MODES, "purpose": PURPOSES}
_POSITIVE = ("income", "price", "time")


def probabilities(table: Any) -> Floats:
    """Compute the true choice probabilities for a table of trips.

    Parameters
    ----------
    table : path, mapping of arrays, or data frame
        One row per alternative; the rows of a trip must be adjacent. The table has the columns trip, mode, purpose,
        income, price, time, changes and comfort, and optionally available. Other columns are ignored.

    Returns
    -------
    array of float, (rows,)
        Choice probabilities, which sum to 1 within each trip. The probability of an unavailable alternative is 0.

    Raises
    ------
    InputError
        If a column is missing, if a mode or a purpose is unknown, if numbers are not finite, if an income, a price or a
        time is not positive, if the rows of a trip are not adjacent, or if a trip has no available alternative.

    Examples
    --------
    A plane that is dearer and slower than the train attracts travellers to the train:

    >>> trip = {"trip": [1] * 3, "mode": ["train", "bus", "plane"], "purpose": ["visit"] * 3, "income": [40_000] * 3}
    >>> trip |= {"price": [60, 25, 80], "time": [180, 330, 150], "changes": [0, 0, 0], "comfort": [4, 2, 3]}
    >>> probabilities(trip).round(2)
    array([0.7 , 0.23, 0.07])
    >>> probabilities({**trip, "time": [180, 330, 200]}).round(2)
    array([0.85, 0.14, 0.01])
    """
    names = ("trip", "mode", *_INDIVIDUAL, *_FEATURES)
    rows = read_table(table, None)
    missing = [name for name in names if name not in rows.column_names]
    if missing:
        raise InputError(f"expected a column {missing[0]!r}, got {rows.column_names}.")
    offered = np.ones(rows.num_rows, bool)
    if "available" in rows.column_names:
        offered = rows["available"].cast(pa.int64()).to_numpy() == 1
    columns = {name: _column(rows, name) for name in names[1:]}
    offsets = contiguous_offsets(rows["trip"].to_numpy(), column="trip")
    p = np.zeros(rows.num_rows)
    inner = np.concatenate([[0], offered.cumsum()])[offsets]  # offsets of the available alternatives
    if (np.diff(inner) == 0).any():
        raise InputError("column 'available': expected an available alternative in every trip, got a trip without.")
    p[offered] = _true_probabilities({name: column[offered] for name, column in columns.items()}, inner)
    return p


def _true_probabilities(columns: dict[str, NDArray[Any]], offsets: Ints) -> Floats:
    """Return the choice probabilities (N,) of available alternatives; modes and purposes are codes."""
    purpose = columns["purpose"]
    euro = np.array([EURO[name] for name in PURPOSES])[purpose] * np.sqrt(columns["income"] / MIDDLE_INCOME)
    value = np.array([VALUE_OF_TIME[name] for name in PURPOSES])[purpose]
    utility = (
        np.array([CONSTANTS[name] for name in MODES])[columns["mode"]]
        - (columns["price"] + columns["time"] / 60 * value) / euro
        + CHANGES * columns["changes"]
        + COMFORT * columns["comfort"]
    )
    attracts, dominated = _dominance(np.log(columns["price"]), np.log(columns["time"]), offsets)
    context = ATTRACTION * np.log1p(attracts) + DOMINANCE * np.log1p(dominated)
    p: Floats = np.exp(log_softmax_by_set(utility + context, offsets))
    return p


def _dominance(price: Floats, time: Floats, offsets: Ints) -> tuple[Floats, Floats]:
    """Return sum_j D_ij and sum_j D_ji over the other alternatives j of the trip, given logarithms: (N,) each."""
    # A set has few alternatives: compare each row with the row that lies k places later in its set.
    sizes = spread(np.diff(offsets), offsets)
    place = np.arange(len(price)) - spread(offsets[:-1], offsets)
    attracts, dominated = np.zeros(len(price)), np.zeros(len(price))
    for k in range(1, int(sizes.max(initial=1))):
        i = np.flatnonzero(sizes > k)
        j = i + np.where(place[i] + k < sizes[i], k, k - sizes[i])
        better = _logistic((price[j] - price[i]) / CLEAR) * _logistic((time[j] - time[i]) / CLEAR)
        attracts[i] += better
        dominated[j] += better
    return attracts, dominated


def _logistic(x: Floats) -> Floats:
    y: Floats = 0.5 * (1 + np.tanh(x / 2))  # exp does not overflow
    return y


def _column(rows: pa.Table, name: str) -> NDArray[Any]:
    """Return a column as float64, or as codes if it holds words. Invalid values raise InputError."""
    values = rows[name].combine_chunks()
    if words := _WORDS.get(name):
        codes = pc.index_in(values.cast(pa.string()), value_set=pa.array(words))
        if codes.null_count:
            row = int(np.flatnonzero(codes.is_null().to_numpy(zero_copy_only=False))[0])
            raise InputError(
                f"column {name!r}, row {row}: expected one of {', '.join(words)}, got {values[row].as_py()!r}."
            )
        return np.asarray(codes.to_numpy(), dtype=np.int64)
    try:
        numbers: Floats = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"column {name!r}: expected numbers, got {values.type}.") from error
    bad = np.flatnonzero(~np.isfinite(numbers) | ((name in _POSITIVE) & (numbers <= 0)))
    if bad.size:
        expected = "a finite number above 0" if name in _POSITIVE else "a finite number"
        raise InputError(f"column {name!r}, row {bad[0]}: expected {expected}, got {numbers[bad[0]]}.")
    return numbers


# -- The table ---------------------------------------------------------------------------------------------------------


def read() -> ChoiceData:
    """Read the table of the package: 1,000 trips of 405 travellers, each among 2 to 4 modes.

    Returns
    -------
    ChoiceData
        Choice sets with four features (price, time, changes, comfort) and four individual-level columns (purpose,
        income, party, distance). Names, units and expected signs are declared.

    Examples
    --------
    >>> data = read()
    >>> len(data), data.n_rows, data.schema.names.label("price")
    (1000, 3636, 'Price (EUR)')
    """
    return ChoiceData.from_long(PATH, **ROLES)


def best_possible_nll(table: Any = PATH) -> BestNLL:
    """Compute the NLL of the true probabilities, a bound that no model can beat on average.

    Parameters
    ----------
    table : path, mapping of arrays, or data frame
        Trips with their choices, as in ``probabilities``. Default: the table of the package.

    Returns
    -------
    BestNLL
        The expected NLL (the mean entropy of the true probabilities), and the NLL of the choices in the table.

    Raises
    ------
    InputError
        If the table has no column chosen, or as in ``probabilities``.
    """
    p, rows = probabilities(table), read_table(table, None)
    if "chosen" not in rows.column_names:
        raise InputError(f"expected a column 'chosen', got {rows.column_names}.")
    log_p = np.log(np.where(p > 0, p, 1))  # p log p -> 0
    sets = pc.count_distinct(rows["trip"]).as_py()
    chosen = rows["chosen"].to_numpy().astype(bool)
    return BestNLL(-float((p * log_p).sum()) / sets, -float(log_p[chosen].sum()) / sets)


def simulate(sets: int, *, seed: int) -> pa.Table:
    """Simulate trips with one choice each.

    Parameters
    ----------
    sets : int
        Number of trips, at least 1.
    seed : int
        Seed of the random number generator, at least 0. The same seed gives the same table.

    Returns
    -------
    pyarrow.Table
        Long table with the columns of the table in the package. ``ROLES`` lists their roles.

    Raises
    ------
    ConfigError
        If ``sets`` or ``seed`` is not an integer in the valid range.
    """
    n, rng = require_sets(sets), np.random.default_rng(require_seed(seed))
    # 1. Draw travellers with 1 to 4 trips each. Three quarters of them have a car.
    trips = rng.integers(1, 5, n)
    traveller = np.repeat(np.arange(n), trips)[:n]
    income = (1000 * np.clip(np.exp(3.6 + 0.45 * rng.standard_normal(n)), 14, 150).round())[traveller]
    has_car = (rng.random(n) < 0.75)[traveller]
    # 2. Draw the trips. People with a high income travel on business more often; families travel together.
    business = rng.random(n) < np.clip(0.1 + income / 160_000, 0, 0.6)
    purpose = np.where(business, 0, 1 + (rng.random(n) < 0.5))
    party = np.where(business, 1, rng.choice([1, 2, 3, 4], n, p=[0.5, 0.3, 0.1, 0.1]))
    distance = np.exp(rng.uniform(np.log(120), np.log(900), n)).round()
    # 3. Draw the alternatives (n, 4). Business trips are booked late, when trains and planes are dear.
    noise = rng.standard_normal((2, n, 4))
    km, late = distance[:, None], np.where(business, 1.3, 1.0)[:, None]
    ones = np.ones((n, 1))
    cost = np.hstack(
        [late * (10 + 0.12 * km), (4 + 0.17 * km) / party[:, None], 5 + 0.05 * km, late * (35 + 0.08 * km)]
    )
    price = (cost * np.exp(noise[0] * [0.35, 0.08, 0.25, 0.45])).round(2)
    minutes = np.hstack([40 + km / 2.5, 5 + km / 1.6, 35 + km / 1.25, 150 + km / 11.5])
    time = (minutes * np.exp(noise[1] * [0.18, 0.10, 0.10, 0.10])).round()
    changes = np.hstack([rng.choice(3, (n, 1), p=[0.5, 0.35, 0.15]), 0 * ones, rng.integers(0, 2, (n, 1)), 0 * ones])
    comfort = rng.integers([2, 3, 1, 2], [5, 5, 4, 5], (n, 4))
    # 4. Keep flights of at least 250 km, and draw the choices among the available alternatives.
    kept = np.hstack([np.ones((n, 3), bool), km >= 250])
    available = np.hstack([ones, has_car[:, None], ones, ones])[kept].astype(np.int8)
    sizes = kept.sum(axis=1)
    offsets = np.concatenate([[0], sizes.cumsum()])
    columns = {
        "trip": spread(np.arange(1, n + 1), offsets),
        "traveller": spread(traveller + 1, offsets),
        "purpose": np.array(PURPOSES)[spread(purpose, offsets)],
        "income": spread(income.astype(np.int64), offsets),
        "party": spread(party, offsets),
        "distance": spread(distance.astype(np.int64), offsets),
        "mode": np.broadcast_to(np.array(MODES), (n, 4))[kept],
        "available": available,
        "price": price[kept],
        "time": time[kept].astype(np.int64),
        "changes": changes[kept].astype(np.int64),
        "comfort": comfort[kept].astype(np.int64),
    }
    p = probabilities(columns)
    chosen = np.zeros(len(p), np.int8)
    chosen[sample(p, offsets, rng)] = 1
    return pa.table({**columns, "chosen": chosen})
