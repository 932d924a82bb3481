"""The airline table: columns, choices and errors."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pcmcnet as pn
from pcmcnet.data.columns.ragged import sum_by_set
from pcmcnet.datasets import airline
from pcmcnet.datasets.airline import SEGMENTS, Segment
from pcmcnet.datasets.truth import contiguous_offsets
from pcmcnet.errors import ConfigError, InputError, SchemaError

COLUMNS = (
    "individual alternative choice OD officeID staySaturday isContinental isDomestic depWeekDay dtd "
    "stayDurationMinutes totalPrice totalTripDurationMinutes nAirlines nFlights outDepTime outArrTime "
    "airlines true_prob"
)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return airline.simulate(3_000, seed=7)


def test_columns_are_those_of_the_paper_and_the_probability(table: pa.Table) -> None:
    assert table.column_names == COLUMNS.split()
    assert not any(column.null_count for column in table.columns)
    data = pn.ChoiceData.from_long(table, **airline.ROLES)
    assert len(data) == 3_000
    assert sorted(data.schema.categorical) == ["OD", "airlines", "officeID"]


def test_probabilities_sum_to_one_and_one_row_is_chosen(table: pa.Table) -> None:
    offsets = contiguous_offsets(table["individual"].to_numpy(), column="individual")
    p, choice = table["true_prob"].to_numpy(), table["choice"].to_numpy()
    np.testing.assert_allclose(sum_by_set(p, offsets), 1, rtol=0, atol=1e-13)
    assert (p > 0).all()
    assert (sum_by_set(choice, offsets) == 1).all()


def test_choices_follow_the_true_probabilities_in_every_group(table: pa.Table) -> None:
    """The number of choices in a group of alternatives is within four standard deviations of its expectation."""
    p, choice = table["true_prob"].to_numpy(), table["choice"].to_numpy()
    tenth = np.digitize(p, np.quantile(p, np.arange(1, 10) / 10))
    hour, stay = table["outDepTime"].to_numpy() // 7200, table["staySaturday"].to_numpy()
    columns = (table[name].to_numpy() for name in ("alternative", "nAirlines", "nFlights", "airlines"))
    for groups in (tenth, hour, 100 * stay + hour, *columns):
        for group in np.unique(groups):
            mine = groups == group
            spread = math.sqrt(
                (p[mine] * (1 - p[mine])).sum()
            )  # an upper bound: choices within a set exclude each other
            assert abs(choice[mine].sum() - p[mine].sum()) < 4 * spread + 1


def test_the_best_loss_is_far_below_the_uniform_one(table: pa.Table) -> None:
    best = airline.best_possible_nll(table)
    p, choice = table["true_prob"].to_numpy(), table["choice"].to_numpy()
    assert best.expected == pytest.approx(-(p * np.log(p)).sum() / 3_000, abs=1e-12)
    assert best.realised == pytest.approx(-np.log(p[choice == 1]).mean(), abs=1e-12)
    assert 1.9 < best.expected < 2.15
    uniform = np.log(np.bincount(table["individual"].to_numpy())).mean()
    assert uniform - best.expected > 1


def test_the_same_seed_gives_the_same_table() -> None:
    table = airline.simulate(60, seed=1)
    assert table.equals(airline.simulate(60, seed=1))
    assert not table.equals(airline.simulate(60, seed=2))


def test_one_set_is_enough() -> None:
    assert set(airline.simulate(1, seed=0)["individual"].to_pylist()) == {0}


@pytest.mark.parametrize(
    ("sets", "seed", "name"), [(0, 0, "sets"), (2.5, 0, "sets"), (1, -1, "seed"), (1, None, "seed")]
)
def test_invalid_numbers_are_refused(sets: Any, seed: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: expected a whole number"):
        airline.simulate(sets, seed=seed)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("airlines", "AL64", r"column 'airlines', row 3: expected one of AL01 to AL63, got 'AL64'; 1 such row"),
        ("officeID", None, r"column 'officeID', row 3: expected one of OF01 to OF11, got None; 1 such row"),
        ("totalPrice", 0.0, r"column 'totalPrice', row 3: expected a finite number above 0, got 0\.0; 1 such row"),
        ("totalPrice", math.inf, r"column 'totalPrice', row 3: .* got inf"),
        ("dtd", math.nan, r"column 'dtd', row 3: expected a finite number, got nan"),
        ("dtd", None, r"column 'dtd', row 3: expected a finite number, got nan"),
    ],
)
def test_invalid_values_are_refused_with_their_row(column: str, value: Any, message: str) -> None:
    columns = airline.simulate(5, seed=0).to_pydict()
    columns[column][3] = value
    with pytest.raises(InputError, match=message):
        airline.probabilities(pa.table(columns))


def test_invalid_columns_and_scattered_sets_are_refused() -> None:
    table = airline.simulate(5, seed=0)
    words = pa.array(["soon"] * table.num_rows)
    with pytest.raises(InputError, match=r"column 'dtd': expected numbers, got string"):
        airline.probabilities(table.set_column(table.column_names.index("dtd"), "dtd", words))
    with pytest.raises(SchemaError, match="totalPrice"):
        airline.probabilities(table.drop_columns("totalPrice"))
    backwards = table.take(np.random.default_rng(0).permutation(table.num_rows))
    with pytest.raises(InputError, match=r"column 'individual': expected adjacent rows for each choice set"):
        airline.probabilities(backwards)


# -- Airline process ---------------------------------------------------------------------------------------------------
# How customers choose: the formulas, context effects on hand-made sets, and segments.


BUSINESS: dict[str, Any] = {"officeID": "OF01", "isContinental": 1, "isDomestic": 0, "depWeekDay": 0}
WHO = {**BUSINESS, "staySaturday": 0, "dtd": 20}
SLOW = {"airlines": "AL05", "totalPrice": 200.0, "totalTripDurationMinutes": 500, "outDepTime": 36_000}
FAST = {**SLOW, "totalPrice": 420.0, "totalTripDurationMinutes": 240}
DECOY = {**SLOW, "totalPrice": 250.0, "totalTripDurationMinutes": 625}  # a quarter worse than SLOW in both


def probabilities_of(*itineraries: dict[str, Any], **who: Any) -> np.ndarray:
    """Return the probabilities of one hand-made set."""
    rows = [{"individual": 0, "nFlights": 2, "nAirlines": 1, **WHO, **who, **row} for row in itineraries]
    return airline.probabilities({name: [row[name] for row in rows] for name in rows[0]})


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def by_hand(rows: list[dict[str, Any]]) -> list[float]:
    """Compute the module's formulas for one alternative and one pair at a time."""

    def gaps(i: dict[str, Any], j: dict[str, Any]) -> tuple[float, float, float]:
        dx = math.log(j["totalPrice"] / i["totalPrice"])
        dy = math.log(j["totalTripDurationMinutes"] / i["totalTripDurationMinutes"])
        return dx, dy, (j["outDepTime"] - i["outDepTime"]) / 3600

    def dominates(i: dict[str, Any], j: dict[str, Any]) -> float:
        dx, dy, dz = gaps(i, j)
        near = math.exp(-((dx**2 + dy**2) / 0.7**2 + dz**2 / 36) / 2)
        return logistic(dx / 0.12) * logistic(dy / 0.12) * near

    def alike(i: dict[str, Any], j: dict[str, Any]) -> float:
        dx, dy, dz = gaps(i, j)
        return math.exp(-((dx**2 + dy**2) / 0.35**2 + dz**2 / 16) / 2)

    def utility(c: Segment, k: int) -> float:
        i, rivals = rows[k], rows[:k] + rows[k + 1 :]
        quality = 3 * (0.618034 * int(i["airlines"][2:]) % 1) - 1.5
        return (
            -c.price * math.log(i["totalPrice"])
            - c.duration * math.log(i["totalTripDurationMinutes"])
            - c.connection * (i["nFlights"] - 2)
            - c.airline_change * (i["nAirlines"] - 1)
            + c.time * math.cos(2 * math.pi * (i["outDepTime"] / 3600 - c.hour) / 24)
            + c.quality * quality
            + c.attraction * math.log(1 + sum(dominates(i, j) for j in rivals))
            - c.dominance * math.log(1 + sum(dominates(j, i) for j in rivals))
            - c.similarity * math.log(sum(alike(i, j) for j in rows))
        )

    I = rows[0]  # the individual, as in the formulas
    share = logistic(
        1.2
        - 3 * I["staySaturday"]
        - 1.2 * (math.log(1 + I["dtd"]) - 2.5)
        + 0.8 * (I["depWeekDay"] in (0, 1, 2, 3))
        + 0.5 * I["isDomestic"]
        + 0.5 * I["isContinental"]
        + 0.8 * math.sin(int(I["officeID"][2:]))
    )
    weights = {name: [math.exp(utility(c, k)) for k in range(len(rows))] for name, c in SEGMENTS.items()}
    business, leisure = ([w / sum(all_) for w in all_] for all_ in (weights["business"], weights["leisure"]))
    return [share * b + (1 - share) * e for b, e in zip(business, leisure, strict=True)]


def test_probabilities_match_the_formulas() -> None:
    table = airline.simulate(12, seed=5)
    rows = table.to_pylist()
    expected = []
    for k in range(12):
        expected += by_hand([row for row in rows if row["individual"] == k])
    np.testing.assert_allclose(airline.probabilities(table), expected, rtol=1e-11)
    np.testing.assert_array_equal(airline.probabilities(table), table["true_prob"].to_numpy())


@pytest.mark.parametrize(("one", "other"), [("business", "leisure"), ("leisure", "business")])
def test_a_decoy_attracts_choices_to_the_alternative_above_it(
    one: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attraction: in both segments the odds of the alternative with a decoy rise by a fifth; in a logit they stay."""
    monkeypatch.setitem(SEGMENTS, other, SEGMENTS[one])
    slow, fast = probabilities_of(SLOW, FAST)
    with_decoy = probabilities_of(SLOW, FAST, DECOY)
    assert with_decoy[0] / with_decoy[1] > 1.2 * slow / fast
    assert with_decoy[2] < 0.2 * with_decoy[0]
    mirrored = probabilities_of(SLOW, FAST, {**FAST, "totalPrice": 525.0, "totalTripDurationMinutes": 300})
    assert mirrored[0] / mirrored[1] < slow / fast / 1.2


def test_attraction_violates_regularity() -> None:
    """Regularity is violated: SLOW is chosen more often from the larger set."""
    assert (
        probabilities_of(SLOW, FAST, DECOY, dtd=90, staySaturday=0)[0]
        > probabilities_of(SLOW, FAST, dtd=90, staySaturday=0)[0]
    )


def test_a_near_duplicate_takes_most_from_its_twin() -> None:
    """Similarity effect: without it, SLOW and FAST would lose in proportion."""
    twin = {**SLOW, "totalPrice": 202.0, "outDepTime": 37_800}
    alone, together = probabilities_of(SLOW, FAST), probabilities_of(SLOW, FAST, twin)
    assert together[0] / alone[0] < 0.75 * together[1] / alone[1]


@pytest.mark.parametrize(("one", "other"), [("business", "leisure"), ("leisure", "business")])
def test_two_copies_have_less_than_twice_the_odds_of_one(one: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two copies have D = 1/4 over each other and N = 1: their odds are 2^.7 1.25^-.2 times those of one."""
    monkeypatch.setitem(SEGMENTS, other, SEGMENTS[one])
    far = {**SLOW, "totalPrice": 2000.0, "totalTripDurationMinutes": 60}  # changes the sums by less than 1e-4
    alone, copies = probabilities_of(SLOW, far), probabilities_of(SLOW, far, SLOW)
    assert copies[0] == copies[2]
    odds = (copies[0] + copies[2]) / copies[1] / (alone[0] / alone[1])
    assert odds == pytest.approx(2**0.7 / 1.25**0.2, rel=1e-3)


def test_only_relative_prices_and_durations_matter() -> None:
    scaled = [{**row, "totalPrice": 2 * row["totalPrice"]} for row in (SLOW, FAST, DECOY)]  # type: ignore[operator]
    np.testing.assert_allclose(probabilities_of(*scaled), probabilities_of(SLOW, FAST, DECOY), rtol=1e-12)


def test_probabilities_follow_the_order_of_the_alternatives() -> None:
    p = probabilities_of(SLOW, FAST, DECOY)
    np.testing.assert_allclose(probabilities_of(DECOY, SLOW, FAST), p[[2, 0, 1]], rtol=1e-13)


def test_a_set_has_the_same_probabilities_alone_and_in_a_table() -> None:
    table = airline.simulate(300, seed=3)
    ids = table["individual"].to_numpy()
    for k in (0, 17, 299):
        part = table.filter(ids == k)
        np.testing.assert_array_equal(airline.probabilities(part), part["true_prob"].to_numpy())


@pytest.mark.parametrize(
    ("change", "factor"),
    [
        ({"staySaturday": 1}, math.exp(-3)),
        ({"dtd": 41}, 2**-1.2),
        ({"depWeekDay": 4}, math.exp(-0.8)),
        ({"isContinental": 0}, math.exp(-0.5)),
        ({"isDomestic": 1}, math.exp(0.5)),
        ({"officeID": "OF03"}, math.exp(0.8 * (math.sin(3) - math.sin(1)))),
    ],
)
def test_the_odds_of_business_depend_on_the_individual(change: dict[str, Any], factor: float) -> None:
    base, other = (airline.business_share({k: [v] for k, v in {**WHO, **c}.items()})[0] for c in ({}, change))
    assert other / (1 - other) == pytest.approx(factor * base / (1 - base), rel=1e-12)


def test_business_pays_for_speed_and_leisure_does_not() -> None:
    hurried, patient = probabilities_of(SLOW, FAST, dtd=0), probabilities_of(SLOW, FAST, dtd=200, staySaturday=1)
    assert hurried[1] > 0.5 > patient[1]


def test_extreme_ratios_give_probabilities_not_nan() -> None:
    p = probabilities_of(SLOW, {**SLOW, "totalPrice": 1e300}, {**SLOW, "totalTripDurationMinutes": 1e-300})
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert np.isfinite(p).all()


def test_every_segment_has_context() -> None:
    for c in airline.SEGMENTS.values():
        assert min(c.attraction, c.dominance, c.similarity) > 0
