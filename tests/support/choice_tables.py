"""Small choice tables for the tests, as dictionaries of columns with one row per alternative.

Use ``trips`` for any plausible choices, with a column for every role; ``logit_choices`` if the true
coefficients matter; ``panel`` if persons differ in their coefficients; ``item_choices`` for labels alone;
``read_column`` for one column of contents; ``encoded_sets`` for a network. A table that a test works out by hand, or
that shows one special case, stays in the file of that test; ``largest`` marks its chosen rows.
"""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pcmcnet.data import ChoiceData, EncodedSets, Encoder

Table = dict[str, Any]

# The role of every column of ``trips``.
ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "alternative": "mode",
    "individual": ["income", "purpose"],
    "features": ["price", "minutes", "comfort"],
    "available": "open",
    "weight": "weight",
}

# Three trips with the columns of London Passenger Mode Choice, one in each survey year.
LONDON_TRIPS: dict[str, Any] = {
    "trip_id": [0, 1, 2],
    "household_id": [7, 7, 8],
    "travel_mode": ["drive", "pt", "walk"],
    "survey_year": [1, 2, 3],
    "purpose": ["HBO", "HBW", "HBO"],
    "fueltype": ["Petrol_Car", "Diesel_Car", "Petrol_Car"],
    "faretype": ["full", "free", "full"],
    **{name: [1, 0, 1] for name in ("bus_scale", "female", "driving_license", "car_ownership")},
    **{name: [4, 5, 6] for name in ("travel_month", "day_of_week", "start_time_linear", "age", "distance")},
    **{name: [0.25, 0.5, 1.0] for name in ("dur_walking", "dur_cycling", "dur_pt_total", "dur_driving")},
    **{name: [0.1, 0.2, 0.3] for name in ("dur_pt_access", "dur_pt_rail", "dur_pt_bus", "dur_pt_int_waiting")},
    **{name: [2, 1, 0] for name in ("pt_n_interchanges", "cost_driving_con_charge")},
    **{name: [1.5, 2.5, 3.5] for name in ("cost_transit", "cost_driving_fuel", "driving_traffic_percent")},
}


def read(table: Any, **roles: Any) -> ChoiceData:
    """Read a table whose choice sets are in the column ``trip`` and whose choices are in ``took``."""
    return ChoiceData.from_long(table, **{"choice_set": "trip", "chosen": "took", **roles})


def london_trips(persons: int) -> Table:
    """Repeat the three trips of ``LONDON_TRIPS``, with other households, and other modes of every second household."""
    rows = np.repeat(np.arange(persons), 3)
    table = {name: np.tile(np.asarray(values), persons) for name, values in LONDON_TRIPS.items()}
    table["travel_mode"] = np.where(rows % 2, np.roll(table["travel_mode"], 1), table["travel_mode"])
    return {**table, "trip_id": np.arange(3 * persons), "household_id": 10 * rows + table["household_id"]}


def largest(values: NDArray[Any], sets: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the row with the largest value of each choice set; the rows of a set are adjacent."""
    last = np.append(np.flatnonzero(sets[1:] != sets[:-1]), len(sets) - 1)
    return np.isin(np.arange(len(sets)), np.lexsort((values, sets))[last])


def trips(
    sets: int = 30,
    seed: int = 0,
    *,
    sizes: tuple[int, int] = (2, 5),
    single: bool = False,
    slope: float | None = None,
    mixed: bool = False,
) -> Table:
    """Make trips by up to six modes; every fifth mode is unavailable unless it is chosen.

    Parameters
    ----------
    sets
        Number of choice sets.
    seed
        Seed of all columns.
    sizes
        Smallest and largest number of alternatives in a set.
    single
        Whether the first set has one alternative only.
    slope
        None: the cheapest mode is chosen. A number: choices follow a logit with this price coefficient.
    mixed
        Whether the rows of all sets are shuffled.
    """
    rng = np.random.default_rng(seed)
    first = [1] if single else []
    counts = np.array([*first, *rng.integers(sizes[0], sizes[1] + 1, sets - len(first))])
    trip = np.repeat(np.arange(sets), counts)
    n = len(trip)
    place = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    price = rng.gamma(2.0, 5.0, n)
    took = largest(-price if slope is None else slope * price + rng.gumbel(size=n), trip)
    table = {
        "trip": trip,
        "mode": np.array(["car", "bus", "bike", "train", "walk", "tram"])[place],
        "took": took.astype(np.int8),
        "price": price,
        "minutes": rng.integers(5, 90, n),
        "comfort": np.array(["low", "middle", "high"])[rng.integers(3, size=n)],
        "income": rng.normal(30, 5, sets)[trip],
        "purpose": np.array(["work", "leisure"])[rng.integers(2, size=sets)][trip],
        "open": ((np.arange(n) % 5 != 4) | took).astype(np.int8),
        "weight": rng.integers(1, 4, sets)[trip],
    }
    order = rng.permutation(n) if mixed else slice(None)
    return {name: column[order] for name, column in table.items()}


def logit_choices(
    sets: int,
    coefficients: Mapping[str, float],
    seed: int = 0,
    *,
    sizes: tuple[int, int] = (2, 4),
    constants: Sequence[float] | None = None,
) -> Table:
    """Draw choices from a multinomial logit with these coefficients of standard normal columns.

    The modes A, B, C, ... have the given constants, if any, and appear at random. Each ``person`` has four trips in a
    row, and ``probability`` is the true probability.
    """
    rng = np.random.default_rng(seed)
    counts = rng.integers(sizes[0], sizes[1] + 1, sets)
    trip = np.repeat(np.arange(sets), counts)
    constants = [0.0] * sizes[1] if constants is None else constants
    mode = np.concatenate([rng.permutation(len(constants))[:size] for size in counts])
    columns = {name: rng.normal(size=len(trip)).astype(np.float32).astype(float) for name in coefficients}
    utility = np.array(constants)[mode] + sum(b * columns[name] for name, b in coefficients.items())
    took = largest(utility + rng.gumbel(size=len(trip)), trip).astype(np.int8)
    total = np.bincount(trip, np.exp(utility))[trip]
    known_columns = {"person": trip // 4, "probability": np.exp(utility) / total}
    return {"trip": trip, "mode": np.array(list("ABCDEFGH"))[mode], "took": took, **columns, **known_columns}


PANEL: dict[str, Any] = {"features": ["x", "y"], "person": "person"}  # roles of the columns of ``panel``
Tastes = Callable[[np.random.Generator, int], NDArray[Any]]


def normal_tastes(rng: np.random.Generator, persons: int) -> NDArray[Any]:
    """Draw coefficients of x with mean 1 and deviation 0.8, and of y with -0.5 and 0.5: (persons, 2)."""
    return np.column_stack([1 + 0.8 * rng.standard_normal(persons), -0.5 + 0.5 * rng.standard_normal(persons)])


def panel(persons: int, tastes: Tastes, seed: int = 0, *, sets: int = 8, sizes: tuple[int, int] = (3, 4)) -> Table:
    """Draw choices of persons with ``tastes`` for the standard normal columns x and y, in several sets each."""
    rng = np.random.default_rng(seed)
    b = tastes(rng, persons)
    counts = rng.integers(sizes[0], sizes[1] + 1, persons * sets)
    trip = np.repeat(np.arange(len(counts)), counts)
    x, y = rng.standard_normal((2, len(trip))).astype(np.float32).astype(float)
    utility = x * b[trip // sets, 0] + y * b[trip // sets, 1]
    took = largest(utility + rng.gumbel(size=len(trip)), trip).astype(np.int8)
    return {"trip": trip, "took": took, "x": x, "y": y, "person": trip // sets}


def item_choices(
    sets: Iterable[tuple[str, str]] | Mapping[tuple[str, str], float], weights: Sequence[float] | None = None
) -> ChoiceData:
    """Read sets written as text: ``("abc", "a")`` is the set {a, b, c} with choice a; a mapping has weights."""
    weights = list(sets.values()) if isinstance(sets, Mapping) else weights
    rows = [(s, item, int(item == chosen)) for s, (items, chosen) in enumerate(sets) for item in items]
    table: Table = dict(zip(("trip", "item", "took"), map(list, zip(*rows, strict=True)), strict=True))
    if weights is None:
        return read(table, alternative="item")
    return read(table | {"weight": [weights[s] for s in table["trip"]]}, alternative="item", weight="weight")


def read_column(name: str, kind: str, values: Any, **options: Any) -> Any:
    """Read one choice set with one column of contents, and return that column."""
    table = {"set": ["A"] * len(values), name: values}
    return ChoiceData.from_long(table, choice_set="set", features=[name], kinds={name: kind}, **options).features[name]


def encoded_sets(
    n: int = 24, *, seed: int = 0, chosen: str = "largest", weight: list[float] | None = None
) -> EncodedSets:
    """Encode choice sets of 2 to 5 alternatives with two features; the largest first feature is chosen."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 6, n)
    sets = np.repeat(np.arange(n), sizes)
    x = rng.normal(size=(len(sets), 2))
    order = np.lexsort((x[:, 0], sets))
    picked = np.cumsum(sizes) - 1 if chosen == "largest" else np.cumsum(sizes) - sizes
    table = {"set": sets, "x": x[:, 0], "y": x[:, 1], "chosen": np.isin(np.arange(len(sets)), order[picked])}
    if weight is not None:
        table["weight"] = np.repeat(np.array(weight), sizes)
    data = ChoiceData.from_long(
        table,
        choice_set="set",
        chosen="chosen",
        features=["x", "y"],
        weight=None if weight is None else "weight",
    )
    return Encoder.learn(data).encode(data)


def objects(*values: Any) -> NDArray[np.object_]:
    """Return a column of arbitrary objects, including lists and tuples."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


def picture(light: int, size: tuple[int, int] = (6, 4), mode: str = "L", kind: str = "PNG") -> bytes:
    """Return the bytes of a picture of one grey or one red."""
    file = io.BytesIO()
    Image.new(mode, size, light if mode == "L" else (light, 0, 0)).save(file, kind)
    return file.getvalue()
