"""The table of trips between cities: its file, its true probabilities, and errors."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tools.intercity import csv_file

import pcmcnet as pn
from pcmcnet.data.files.tabular import read_table
from pcmcnet.datasets import intercity, truth
from pcmcnet.errors import ConfigError, InputError

TRIP: dict[str, list[Any]] = {
    "trip": [7, 7],
    "mode": ["train", "bus"],
    "purpose": ["business", "business"],
    "income": [90_000, 90_000],
    "price": [50.0, 100.0],
    "time": [120, 60],
    "changes": [2, 0],
    "comfort": [4, 1],
}


def test_the_file_is_the_output_of_the_simulator() -> None:
    assert intercity.PATH.read_bytes() == csv_file()


def test_the_table_has_names_units_signs_and_persons() -> None:
    data = intercity.read()
    assert (len(data), data.n_rows, data.sizes.sum()) == (1_000, 3_636, 3_412)
    labels = [data.schema.names.label(name) for name in data.schema.features]
    assert labels == ["Price (EUR)", "Travel time (min)", "Changes", "Comfort (stars)"]
    assert data.schema.signs == {"price": "-", "time": "-", "changes": "-", "comfort": "+"}
    rows = read_table(intercity.PATH, None).to_pandas()
    assert (rows.groupby("trip")[["traveller", *data.schema.individual]].nunique() == 1).all(axis=None)
    assert (rows.groupby("traveller")["income"].nunique() == 1).all()
    assert rows["traveller"].nunique() == 405
    assert rows.loc[rows["mode"] == "plane", "distance"].min() >= 250
    assert set(rows.loc[rows["available"] == 0, "mode"]) == {"car"}


def test_the_probability_of_two_modes_is_worked_out_by_hand() -> None:
    """Income 90,000 gives s = 1.5, so a unit of utility is worth 60 EUR, and an hour costs 45 / 60 = 0.75 units.

    train: 0.5 - 50/60 - 1.5 - 0.6 + 1.4 = -1.0333; bus: 0.3 - 100/60 - 0.75 + 0.35 = -1.7667. The train is cheaper
    and slower by a factor of 2. With x = 1 / (1 + 2^(1/0.12)), D = x (1 - x) = 0.003082 in both directions, and its
    effect is log(1.003082) for both modes. So the odds are exp(-1.0333 + 1.7667) = exp(0.7333).
    """
    p = intercity.probabilities(TRIP)
    assert p[0] / p[1] == pytest.approx(math.exp(0.5 - 50 / 60 - 1.5 - 0.6 + 1.4 - (0.3 - 100 / 60 - 0.75 + 0.35)))
    assert p.sum() == pytest.approx(1, abs=1e-12)


def test_a_dominating_mode_gains_by_three_logarithms() -> None:
    """The train is cheaper and faster by a factor of 2: D = (1 - x)^2 for the train, and x^2 for the bus."""
    x = 1 / (1 + 2 ** (1 / 0.12))
    p = intercity.probabilities({**TRIP, "time": [60, 120]})
    utility = 0.5 - 50 / 60 - 0.75 - 0.6 + 1.4 - (0.3 - 100 / 60 - 1.5 + 0.35)
    context = 3 * math.log(1 + (1 - x) ** 2) - 3 * math.log(1 + x**2)
    assert math.log(p[0] / p[1]) == pytest.approx(utility + context)


def test_an_unavailable_mode_has_probability_zero_and_no_effect() -> None:
    with_plane = {name: [*values, values[0]] for name, values in TRIP.items()} | {"mode": ["train", "bus", "plane"]}
    with_plane["price"] = [50.0, 100.0, 300.0]
    p = intercity.probabilities({**with_plane, "available": [1, 1, 0]})
    assert p[2] == 0
    np.testing.assert_allclose(p[:2], intercity.probabilities(TRIP), rtol=0, atol=1e-12)
    assert abs(intercity.probabilities(with_plane)[0] - p[0]) > 0.01


def test_choices_follow_the_true_probabilities() -> None:
    """The share of each mode is within four standard deviations of its expectation."""
    table = intercity.simulate(4_000, seed=3)
    p, chosen = intercity.probabilities(table), table["chosen"].to_numpy()
    for mode in intercity.MODES:
        rows = np.asarray(table["mode"].to_pylist()) == mode
        spread = math.sqrt((p[rows] * (1 - p[rows])).sum())
        assert abs(chosen[rows].sum() - p[rows].sum()) < 4 * spread


def test_the_best_possible_nll_is_that_of_the_true_probabilities() -> None:
    table = intercity.simulate(200, seed=1)
    with_truth = table.append_column("true_prob", pa.array(intercity.probabilities(table)))
    assert intercity.best_possible_nll(table) == pytest.approx(truth.best_nll(with_truth, choice_set="trip"))
    with pytest.raises(InputError, match="expected a column 'chosen'"):
        intercity.best_possible_nll(table.drop_columns(["chosen"]))


def test_the_same_seed_gives_the_same_table() -> None:
    assert intercity.simulate(30, seed=4).equals(intercity.simulate(30, seed=4))
    assert not intercity.simulate(30, seed=4).equals(intercity.simulate(30, seed=5))
    with pytest.raises(ConfigError, match="sets: expected a whole number"):
        intercity.simulate(0, seed=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": ["train", "ship"]}, "column 'mode', row 1: expected one of train, car, bus, plane, got 'ship'"),
        ({"purpose": ["fun", "fun"]}, "column 'purpose', row 0: expected one of business"),
        ({"price": [5.0, 0.0]}, "column 'price', row 1: expected a finite number above 0, got 0.0"),
        ({"comfort": [1.0, math.nan]}, "column 'comfort', row 1: expected a finite number, got nan"),
        ({"time": ["a", "b"]}, "column 'time': expected numbers, got string"),
        ({"available": [0, 0]}, "column 'available': expected an available alternative in every trip"),
    ],
)
def test_invalid_tables_raise_an_error(changes: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        intercity.probabilities({**TRIP, **changes})


def test_a_missing_column_raises_an_error() -> None:
    with pytest.raises(InputError, match="expected a column 'comfort'"):
        intercity.probabilities({name: values for name, values in TRIP.items() if name != "comfort"})


@pytest.mark.slow  # two fits: about 6 s
def test_pcmcnet_learns_the_context_effect_and_a_logit_does_not() -> None:
    """On fresh trips, PCMC-Net is at most 0.06 above the best possible NLL, and the logit more than 0.09 above it."""
    table = intercity.simulate(4_000, seed=9)
    best = intercity.best_possible_nll(table).realised
    data, fresh = intercity.read(), pn.ChoiceData.from_long(table, **intercity.ROLES)
    assert -pn.PCMCNet().fit(data, seed=0, progress=False).score(fresh) < best + 0.06
    assert -pn.MNL().fit(data).score(fresh) > best + 0.09
