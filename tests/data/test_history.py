"""Features of a person's earlier choices: by hand, without leaks from the future or other persons, and errors."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcmcnet as pn
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError, SchemaError

ALL = ("last_choice", "loyalty", "time_since", "times_chosen", "first_choice")
ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "alternative": "brand",
    "person": "who",
    "features": ["price"],
    "keep": ["week"],
}


def panel(choices: list[tuple[str, Any, str]], brands: str = "ab", **roles: Any) -> ChoiceData:
    """Read choices (person, week, brand) among all brands."""
    rows = [
        {"trip": s, "who": who, "week": week, "brand": brand, "took": int(brand == chosen), "price": 1.0 + s}
        for s, (who, week, chosen) in enumerate(choices)
        for brand in brands
    ]
    table = {name: [row[name] for row in rows] for name in rows[0]}
    return ChoiceData.from_long(table, **{**ROLES, **roles})


def columns(data: ChoiceData) -> dict[str, list[float]]:
    """Return the history features as lists."""
    return {name: data.features[name].plain().tolist() for name in data.features if name != "price"}


def test_the_features_of_one_person_by_hand() -> None:
    """Choices a (week 1), b (week 3), a (week 4), and a fourth set in week 9, with decay 0.5.

    Loyalty to a starts at 1/2. After a: 0.5 * 0.5 + 0.5 = 0.75; after b: 0.375; after a: 0.1875 + 0.5 = 0.6875. In week
    9, a was last chosen 5 weeks ago, and b 6 weeks ago.
    """
    data = panel([("x", 1, "a"), ("x", 3, "b"), ("x", 4, "a"), ("x", 9, "b")])
    features = columns(pn.history(data, order="week", columns=ALL, decay=0.5))
    assert features == {
        "last_choice": [0, 0, 1, 0, 0, 1, 1, 0],
        "loyalty": [0.5, 0.5, 0.75, 0.25, 0.375, 0.625, 0.6875, 0.3125],
        "time_since": [0, 0, 2, 0, 3, 1, 5, 6],
        "never_chosen": [1, 1, 0, 1, 0, 0, 0, 0],
        "times_chosen": [0, 0, 1, 0, 1, 1, 2, 1],
        "first_choice": [0, 0, 1, 0, 1, 0, 1, 0],
    }


def test_without_an_order_column_the_sets_are_in_order() -> None:
    """Time is counted in choices of the person: a is one choice ago, although another person chose in between."""
    data = panel([("x", 0, "a"), ("y", 0, "b"), ("x", 0, "b"), ("x", 0, "b")])
    features = columns(pn.history(data, columns=["time_since", "last_choice"]))
    assert features["time_since"] == [0, 0, 0, 0, 1, 0, 2, 1]
    assert features["last_choice"] == [0, 0, 0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("weeks", [["2024-01-01", "2024-01-31"], ["1", "31"], [1.0, 31.0]])
@pytest.mark.parametrize("role", ["keep", "individual"])
def test_orders_are_numbers_or_dates(weeks: list[Any], role: str) -> None:
    roles = {"keep": [], role: ["week"]}
    data = panel([("x", weeks[1], "b"), ("x", weeks[0], "a")], **roles)
    assert columns(pn.history(data, order="week"))["time_since"] == [30, 0, 0, 0]


def test_timestamps_are_ordered_in_days() -> None:
    data = panel(
        [("x", datetime(2024, 1, 2, 12), "b"), ("x", datetime(2024, 1, 1), "a")],
        individual=["week"],
        keep=[],
        kinds={"week": "datetime"},
    )
    assert columns(pn.history(data, order="week"))["time_since"] == [1.5, 0, 0, 0]


def test_loyalties_sum_to_one_if_all_brands_are_always_on_offer() -> None:
    rng = np.random.default_rng(0)
    data = panel([("xyz"[k % 3], k, "abc"[rng.integers(3)]) for k in range(30)], brands="abc")
    loyalty = pn.history(data, order="week", decay=0.8).features["loyalty"].plain()
    np.testing.assert_allclose(loyalty.reshape(-1, 3).sum(axis=1), 1, rtol=1e-6)


histories = st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("abc")), min_size=2, max_size=12)


def naive(data: ChoiceData, decay: float) -> dict[str, list[float]]:
    """Compute the features choice by choice, as in their definitions."""
    assert data.labels is not None
    assert data.chosen is not None
    labels, who, weeks = data.labels.plain(), data.keep["who"].plain(), data.keep["week"].plain().astype(float)
    taken = labels[data.offsets[:-1] + data.chosen]
    out: dict[str, list[float]] = {name: [] for name in (*ALL, "never_chosen")}
    for s in range(len(data)):
        earlier = sorted((weeks[t], taken[t]) for t in range(len(data)) if who[t] == who[s] and weeks[t] < weeks[s])
        for row in range(data.offsets[s], data.offsets[s + 1]):
            brand = labels[row]
            loyalty = 1 / data.sizes[s]
            for _, choice in earlier:
                loyalty = decay * loyalty + (1 - decay) * (choice == brand)
            times = [week for week, choice in earlier if choice == brand]
            out["last_choice"].append(float(bool(earlier) and earlier[-1][1] == brand))
            out["first_choice"].append(float(bool(earlier) and earlier[0][1] == brand))
            out["loyalty"].append(loyalty)
            out["time_since"].append(weeks[s] - max(times) if times else 0)
            out["never_chosen"].append(float(not times))
            out["times_chosen"].append(len(times))
    return out


@given(histories, st.randoms(use_true_random=False), st.sampled_from([0.0, 0.5, 0.9]))
def test_features_match_their_definitions(choices: list[tuple[str, str]], random: Any, decay: float) -> None:
    weeks = random.sample(range(100), len(choices))
    data = panel([(who, week, brand) for (who, brand), week in zip(choices, weeks, strict=True)], brands="abc")
    features = columns(pn.history(data, order="week", columns=ALL, decay=decay))
    for name, values in naive(data, decay).items():
        np.testing.assert_allclose(features[name], values, rtol=1e-6, err_msg=name)


@given(histories, st.integers(0, 11), st.randoms(use_true_random=False))
def test_no_feature_depends_on_the_future(choices: list[tuple[str, str]], cut: int, random: Any) -> None:
    """Shuffle the choices, the persons and the prices from a week on: features up to that week stay the same."""
    cut = min(cut, len(choices) - 1)
    future = choices[cut:]
    random.shuffle(future)
    before, after = (
        pn.history(panel([(who, k, brand) for k, (who, brand) in enumerate(rows)], brands="abc"), order="week")
        for rows in (choices, [*choices[:cut], (choices[cut][0], future[0][1]), *future[1:]])
    )
    rows = 3 * (cut + 1)  # those of the set in week `cut` as well: its own choice is not part of its history
    for name, values in columns(before).items():
        assert values[:rows] == columns(after)[name][:rows], name


def many(seed: int = 0) -> ChoiceData:
    rng = np.random.default_rng(seed)
    return panel([(f"p{k % 12}", k, "abc"[rng.integers(3)]) for k in range(72)], brands="abc")


def test_folds_by_person_have_the_features_of_the_whole_table() -> None:
    data = many()
    whole = pn.history(data, order="week", columns=ALL)
    for (_, fold), (_, expected) in zip(data.folds(3), whole.folds(3), strict=True):
        assert columns(pn.history(fold, order="week", columns=ALL)) == columns(expected)


def test_folds_by_time_continue_the_history_of_the_past() -> None:
    """Later choices with ``past`` have the same features as in the whole table, also if their choices are unknown."""
    data = many()
    week = data.keep["week"].plain().astype(int)
    whole = pn.history(data, order="week", columns=ALL)
    train, test = data.subset(week < 48), data.subset(week >= 48)
    assert columns(pn.history(train, order="week", columns=ALL)) == columns(whole.subset(week < 48))
    later = pn.history(test, order="week", columns=ALL, past=train)
    assert columns(later) == columns(whole.subset(week >= 48))
    first = test.subset(test.keep["week"].plain().astype(int) < 60)
    unknown = replace(first, chosen=None)
    expected = whole.subset((week >= 48) & (week < 60))
    assert columns(pn.history(unknown, order="week", columns=ALL, past=[train])) == columns(expected)


def test_the_first_choices_only_start_the_history() -> None:
    data = many()
    whole = pn.history(data, order="week")
    rest = pn.history(data, order="week", burn_in=2)
    assert columns(rest) == columns(whole.subset(data.keep["week"].plain().astype(int) >= 24))


def test_a_table_with_a_history_is_read_back() -> None:
    data = pn.history(many(), order="week")
    again = ChoiceData.from_schema(data.to_frame(), data.schema)
    assert again.fingerprint() == data.fingerprint()


def test_outside_options_have_no_history() -> None:
    table = {"trip": [1, 1, 2, 2], "took": [0, 0, 1, 0], "brand": ["a", "b"] * 2, "who": ["x"] * 4}
    data = ChoiceData.from_long(
        table, choice_set="trip", chosen="took", alternative="brand", person="who", outside="none"
    )
    features = pn.history(data, columns=["times_chosen"]).features["times_chosen"].plain()
    assert np.isnan(features[[2, 5]]).all()
    assert features[[0, 1, 3, 4]].tolist() == [0, 0, 0, 0]


# -- prediction of sequences -------------------------------------------------------------------------------------------


class Habit:
    """Chooses the last choice again with probability 0.8, and a with probability 0.6 without a history."""

    def predict_log_proba(self, data: ChoiceData, /) -> Any:
        last = data.features["last_choice"].plain().reshape(-1, 2).astype(float)
        start = np.tile([0.6, 0.4], (len(data), 1))
        p = np.where(last.sum(axis=1, keepdims=True) > 0, 0.2 + 0.6 * last, start)
        return np.log(data.to_rows(p.ravel(), fill=1.0))


HABIT = pn.ChoiceHistory(order="week", columns=["last_choice"])


def test_predictions_of_a_sequence_follow_the_chain_of_choices() -> None:
    """P(a) is 0.6, then 0.2 + 0.6 * 0.6 = 0.56, then 0.2 + 0.6 * 0.56 = 0.536. Choices in the table are not used."""
    data = panel([("x", 1, "b"), ("x", 2, "b"), ("x", 3, "b")])
    p = pn.predict_sequence(Habit(), data, HABIT, paths=2_000)
    # 2,000 paths: four standard errors of a mean of values that are 0.3 apart
    np.testing.assert_allclose(p.reshape(-1, 2)[:, 0], [0.6, 0.56, 0.536], atol=4 * 0.3 / np.sqrt(2_000))
    np.testing.assert_allclose(p.reshape(-1, 2).sum(axis=1), 1)


def test_the_first_prediction_is_exact_and_uses_the_past() -> None:
    past, data = panel([("x", 1, "b"), ("y", 1, "a")]), panel([("y", 2, "b"), ("x", 2, "a"), ("z", 2, "a")])
    p = pn.predict_sequence(Habit(), replace(data, chosen=None), HABIT, past=past, paths=1)
    np.testing.assert_allclose(p.reshape(-1, 2)[:, 0], [0.8, 0.2, 0.6])


def test_predictions_of_a_sequence_depend_on_the_seed_alone() -> None:
    data = panel([("x", week, "a") for week in range(4)])
    first, again, other = (pn.predict_sequence(Habit(), data, HABIT, paths=3, seed=s) for s in (0, 0, 1))
    assert first.tolist() == again.tolist() != other.tolist()


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"person": None}, "needs persons.*read it with person=<column>"),
        ({"alternative": None}, "needs labels.*read it with alternative=<column>"),
        ({"keep": []}, r"column 'week' is neither .* read the table with keep=\['week'\]"),
    ],
)
def test_a_table_without_a_role_is_refused(roles: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        pn.history(panel([("x", 1, "a"), ("x", 2, "a")], **roles), order="week")


def test_an_order_with_ties_is_refused() -> None:
    """Two persons may choose in the same week; one person may not."""
    pn.history(panel([("x", 1, "a"), ("y", 1, "a")]), order="week")
    with pytest.raises(
        SchemaError, match=r"person 'y' has two choices at the same time \(1\); 1 such pairs in all.*order=None"
    ):
        pn.history(panel([("x", 1, "a"), ("y", 1, "a"), ("y", 1, "b")]), order="week")
    past, data = panel([("y", 4, "a")]), panel([("x", 4, "a"), ("y", 4, "b")])
    with pytest.raises(SchemaError, match="person 'y' has two"):
        pn.history(data, order="week", past=past)


def test_an_order_that_is_neither_a_number_nor_a_date_is_refused() -> None:
    with pytest.raises(SchemaError, match="choice set 1: expected a number or a date such as 2024-03-01, got 'spring'"):
        pn.history(panel([("x", "2024-01-01", "a"), ("x", "spring", "b")]), order="week")


def test_a_history_is_not_added_twice() -> None:
    data = pn.history(many(), order="week")
    with pytest.raises(SchemaError, match="already has a column 'last_choice'"):
        pn.history(data, order="week")


def test_a_burn_in_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="no person has them: lower it"):
        pn.history(many(), order="week", burn_in=6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["loyality"]}, "Did you mean 'loyalty'"),
        ({"columns": []}, "expected a list of names"),
        ({"decay": 1.0}, "decay"),
        ({"burn_in": -1}, "burn_in"),
        ({"order": 3}, "order: expected the name of a column"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pn.ChoiceHistory(**options)


def test_other_inputs_are_refused() -> None:
    data = many()
    with pytest.raises(InputError, match="data: expected ChoiceData, got dict"):
        pn.history({})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="past: a history needs the choices"):
        pn.history(data, past=replace(data, chosen=None))
    with pytest.raises(InputError, match="history: expected a ChoiceHistory, got dict"):
        pn.predict_sequence(Habit(), data, {})  # type: ignore[arg-type]
    ranked = ChoiceData.from_long(
        {"trip": [1, 1], "place": [1, 2], "brand": ["a", "b"], "who": [1, 1]},
        choice_set="trip",
        rank="place",
        alternative="brand",
        person="who",
    )
    with pytest.raises(SchemaError, match="has rankings"):
        pn.history(ranked)
