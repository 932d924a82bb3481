"""A small table with the columns of the paper's airline files."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

Bookings = Callable[..., pa.Table]


def make_bookings(sets: int, seed: int, first: int = 0) -> pa.Table:
    """Return searches of 4 itineraries by 3 airlines. The cheapest is booked most often."""
    rng = np.random.default_rng(seed)
    n = 4 * sets
    owner = np.repeat(np.arange(sets), 4)
    price = rng.uniform(80, 900, n).round(2)
    score = -0.01 * price + rng.gumbel(size=n)
    choice = score == np.maximum.reduceat(score, np.arange(0, n, 4))[owner]
    codes = np.array(["AF", "BA", "KL"])
    flags = {name: rng.integers(0, 2, sets)[owner] for name in ("staySaturday", "isContinental", "isDomestic")}
    return pa.table(
        {
            "individual": owner + first,
            "alternative": np.tile(np.arange(4), sets),
            "choice": choice.astype(np.int8),
            "OD": np.array(["NCE-PAR", "LON-ROM"])[rng.integers(0, 2, sets)][owner],
            "officeID": np.array(["NCE", "LON"])[rng.integers(0, 2, sets)][owner],
            **flags,
            "depWeekDay": rng.integers(0, 7, sets)[owner],
            "dtd": rng.integers(0, 90, n),  # varies within a search, as in larch's table
            "stayDurationMinutes": rng.integers(200, 9000, n),
            "totalPrice": price,
            "totalTripDurationMinutes": rng.integers(100, 900, n),
            "nAirlines": rng.integers(1, 3, n),
            "nFlights": rng.integers(2, 5, n),
            "outDepTime": rng.integers(0, 84_000, n),
            "outArrTime": rng.integers(0, 84_000, n),
            "airlines": np.char.add(codes[rng.integers(0, 3, n)], np.array(["", "/KL"])[rng.integers(0, 2, n)]),
        }
    )


@pytest.fixture(scope="session")
def bookings() -> Bookings:
    return make_bookings
