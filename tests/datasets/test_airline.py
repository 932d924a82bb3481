"""The airline table as a whole: columns, choices, refusals."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pcmcnet as pn
from pcmcnet.data.ragged import sum_by_set
from pcmcnet.datasets import airline
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


def test_the_columns_are_those_of_the_papers_files_and_the_truth(table: pa.Table) -> None:
    assert table.column_names == COLUMNS.split()
    assert not any(column.null_count for column in table.columns)
    data = pn.ChoiceData.from_long(table, **airline.ROLES)
    assert len(data) == 3_000
    assert sorted(data.schema.categorical) == ["OD", "airlines", "officeID"]


def test_true_probabilities_add_up_to_one_and_one_is_chosen(table: pa.Table) -> None:
    offsets = contiguous_offsets(table["individual"].to_numpy(), column="individual")
    p, choice = table["true_prob"].to_numpy(), table["choice"].to_numpy()
    np.testing.assert_allclose(sum_by_set(p, offsets), 1, rtol=0, atol=1e-13)
    assert (p > 0).all()
    assert (sum_by_set(choice, offsets) == 1).all()


def test_choices_follow_the_true_probabilities_in_every_group(table: pa.Table) -> None:
    """The choices that fall into a group of alternatives: within four standard deviations of what is expected."""
    p, choice = table["true_prob"].to_numpy(), table["choice"].to_numpy()
    tenth = np.digitize(p, np.quantile(p, np.arange(1, 10) / 10))
    hour, stay = table["outDepTime"].to_numpy() // 7200, table["staySaturday"].to_numpy()
    columns = (table[name].to_numpy() for name in ("alternative", "nAirlines", "nFlights", "airlines"))
    for groups in (tenth, hour, 100 * stay + hour, *columns):
        for group in np.unique(groups):
            mine = groups == group
            spread = math.sqrt((p[mine] * (1 - p[mine])).sum())  # at least the true one: choices of a set exclude
            assert abs(choice[mine].sum() - p[mine].sum()) < 4 * spread + 1


def test_the_best_loss_is_far_below_that_of_equal_probabilities(table: pa.Table) -> None:
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
def test_impossible_numbers_are_refused(sets: Any, seed: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: expected a whole number"):
        airline.simulate(sets, seed=seed)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("airlines", "AL64", r"column 'airlines', row 3: expected one of AL01 to AL63, got 'AL64'; 1 such rows"),
        ("officeID", None, r"column 'officeID', row 3: expected one of OF01 to OF11, got None; 1 such rows"),
        ("totalPrice", 0.0, r"column 'totalPrice', row 3: expected a finite number above 0, got 0\.0; 1 such rows"),
        ("totalPrice", math.inf, r"column 'totalPrice', row 3: .* got inf"),
        ("dtd", math.nan, r"column 'dtd', row 3: expected a finite number, got nan"),
        ("dtd", None, r"column 'dtd', row 3: expected a finite number, got nan"),
    ],
)
def test_what_the_formulas_cannot_take_is_refused_with_its_place(column: str, value: Any, message: str) -> None:
    columns = airline.simulate(5, seed=0).to_pydict()
    columns[column][3] = value
    with pytest.raises(InputError, match=message):
        airline.probabilities(pa.table(columns))


def test_other_kinds_missing_columns_and_scattered_sets_are_refused() -> None:
    table = airline.simulate(5, seed=0)
    words = pa.array(["soon"] * table.num_rows)
    with pytest.raises(InputError, match=r"column 'dtd': expected numbers, got string"):
        airline.probabilities(table.set_column(table.column_names.index("dtd"), "dtd", words))
    with pytest.raises(SchemaError, match="totalPrice"):
        airline.probabilities(table.drop_columns("totalPrice"))
    backwards = table.take(np.random.default_rng(0).permutation(table.num_rows))
    with pytest.raises(
        InputError, match=r"column 'individual': expected the rows of each choice set to stand together"
    ):
        airline.probabilities(backwards)
