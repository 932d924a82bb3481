"""Search results have the paper's columns, ranges and cardinalities, and the structure of real flight lists."""

import numpy as np
import pyarrow as pa
import pytest

from pcmcnet.datasets import airline
from pcmcnet.datasets.airline import RANGES, ROLES


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return airline.simulate(2_000, seed=11)


def values(table: pa.Table, name: str) -> np.ndarray:
    return table[name].to_numpy()


def test_values_are_within_the_ranges_of_the_paper(table: pa.Table) -> None:
    for name, (low, high) in RANGES.items():
        column = values(table, name)
        assert low <= column.min(), name
        assert column.max() <= high, name
        assert column.min() < column.max(), name


def test_only_individual_columns_are_constant_within_sets(table: pa.Table) -> None:
    same_set = values(table, "individual")[1:] == values(table, "individual")[:-1]
    for name in ROLES["individual"]:
        column = values(table, name)
        assert (column[1:] == column[:-1])[same_set].all(), name
    for name in ROLES["features"]:
        column = values(table, name)
        assert not (column[1:] == column[:-1])[same_set].all(), name


def test_set_sizes_match_a_real_table(table: pa.Table) -> None:
    """Mean 32.6 and mean log 3.24; four standard errors of 2,000 sets are 1.5 and 0.07."""
    sizes = np.bincount(values(table, "individual"))
    assert sizes.max() == 50
    assert (sizes == 1).sum() > 5
    assert abs((sizes == 50).mean() - 0.3) < 0.04
    assert abs(sizes.mean() - 32.6) < 1.5
    assert abs(np.log(sizes).mean() - 3.24) < 0.07


def test_every_pair_office_and_airline_occurs() -> None:
    world = airline.world()
    assert set(world.airline.ravel()) == set(range(63))
    assert (np.sort(world.airline, axis=1)[:, 1:] != np.sort(world.airline, axis=1)[:, :-1]).all()
    assert world.popularity.min() > 0.003
    assert not (world.domestic & world.continental).any()
    assert (len(airline.PAIRS), len(airline.OFFICES), len(airline.AIRLINES)) == (97, 11, 63)


@pytest.mark.slow  # a table of the paper's size: about 15 s
def test_a_table_of_the_papers_size_matches_its_statistics() -> None:
    table = airline.simulate(seed=0)
    assert [len(table[name].unique()) for name in ("individual", "OD", "officeID", "airlines")] == [33_951, 97, 11, 63]
    test_values_are_within_the_ranges_of_the_paper(table)
    sizes = np.bincount(values(table, "individual"))
    assert abs(np.log(sizes).mean() - 3.24) < 0.02  # four standard errors
    best = airline.best_possible_nll(table)
    assert 1.9 < best.expected < 2.1
    assert abs(best.realised - best.expected) < 0.03  # four standard errors


def test_a_search_lists_different_itineraries_cheapest_first(table: pa.Table) -> None:
    names = ["individual", *ROLES["features"]]
    rows = list(zip(*(table[name].to_pylist() for name in names), strict=True))
    assert len(set(rows)) > 0.99 * len(rows)  # two offers of a search may coincide
    same_set = values(table, "individual")[1:] == values(table, "individual")[:-1]
    assert (np.diff(values(table, "totalPrice"))[same_set] >= 0).all()
    assert (np.diff(values(table, "alternative"))[same_set] == 1).all()


def test_lists_contain_equal_prices_and_dominated_itineraries(table: pa.Table) -> None:
    same_set = values(table, "individual")[1:] == values(table, "individual")[:-1]
    equal = (np.diff(values(table, "totalPrice")) == 0)[same_set]
    slower = (np.diff(values(table, "totalTripDurationMinutes")) > 0)[same_set]  # the next row costs at least as much
    assert 0.1 < equal.mean() < 0.6
    assert slower.mean() > 0.2


def test_prices_depend_on_distance_and_days_and_have_a_long_tail(table: pa.Table) -> None:
    price = np.log(values(table, "totalPrice"))
    near = (values(table, "isDomestic") == 1) | (values(table, "isContinental") == 1)
    assert price[~near].mean() > price[near].mean() + 0.7
    late = values(table, "dtd") < 3
    assert price[near & late].mean() > price[near & (values(table, "dtd") > 30)].mean() + 0.3
    skewness = ((price - price.mean()) ** 3).mean() / price.std() ** 3
    assert skewness > 0.1  # even the logarithm is skewed to the right
    assert values(table, "totalPrice").max() > 20 * np.median(values(table, "totalPrice"))


def test_connections_take_longer_and_weeks_include_a_saturday(table: pa.Table) -> None:
    flights, minutes = values(table, "nFlights"), values(table, "totalTripDurationMinutes")
    near = values(table, "isDomestic") == 1
    means = [minutes[near & (flights == n)].mean() for n in (2, 3, 4)]
    assert means[0] + 100 < means[1] < means[2] - 50
    long = values(table, "stayDurationMinutes") > 9 * 1440  # nine days always include a Saturday night
    assert (values(table, "staySaturday")[long] == 1).all()
    assert 0.3 < values(table, "staySaturday").mean() < 0.7
    assert (values(table, "nAirlines") <= flights).all()


def test_arrivals_follow_departures_on_flights_without_a_time_shift(table: pa.Table) -> None:
    direct = (values(table, "nFlights") == 2) & (values(table, "isDomestic") == 1)
    flown = (values(table, "outArrTime") - values(table, "outDepTime"))[direct] % 86_400 / 60
    assert ((flown >= 50) & (flown <= 140)).all()
