"""Fingerprints are equal for equal tables and differ if a model would see a difference."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.subsets import fold_parts, generator, number_groups, set_positions, split_parts
from pcmcnet.errors import InputError, SchemaError


def fingerprint(table: dict[str, Any], roles: dict[str, Any], **changes: Any) -> str:
    return ChoiceData.from_long(table, **{**roles, **changes}).fingerprint()


def test_the_same_table_has_the_same_fingerprint(trips: Any, roles: Any) -> None:
    assert fingerprint(trips, roles) == fingerprint({**trips}, {**roles})


@pytest.mark.parametrize(
    "change",
    [
        {"took": [0, 1, 0, 0, 1]},
        {"time": [10.0, 20.0, 12.0, 9.5, 30.001]},
        {"shade": ["red", "blue", "blue", "red", "blue"]},
        {"shade": ["red", "bleu", "bleu", "red", "red"]},
        {"income": [2.5, 2.5, 1.5, 1.5, 1.5]},
        {"town": ["A", "A", "A", "A", "A"]},
        {"mode": ["car", "bus", "car", "bus", "tram"]},
    ],
    ids=lambda change: ", ".join(change),
)
def test_values_change_the_fingerprint(change: dict[str, Any], trips: Any, roles: Any) -> None:
    assert fingerprint({**trips, **change}, roles) != fingerprint(trips, roles)


def test_set_sizes_change_the_fingerprint() -> None:
    roles = {"choice_set": "id", "chosen": "y", "features": ["x"]}
    table = {"y": [1, 0, 0, 1, 0], "x": [1, 2, 3, 4, 5]}
    assert fingerprint({**table, "id": [1, 1, 1, 2, 2]}, roles) == fingerprint({**table, "id": [3, 3, 3, 4, 4]}, roles)
    shifted = {"id": [1, 1, 2, 2, 2], "y": [1, 0, 0, 1, 0]}
    moved = {"id": [1, 1, 1, 2, 2], "y": [1, 0, 0, 0, 1]}
    assert fingerprint({**table, **shifted}, roles) != fingerprint({**table, **moved}, roles)


def test_roles_and_weights_change_the_fingerprint(trips: Any, roles: Any) -> None:
    weighted = {**trips, "w": [1, 1, 2, 2, 2]}
    fingerprints = {
        fingerprint(trips, roles),
        fingerprint(trips, roles, chosen=None),
        fingerprint(trips, roles, features=["seats", "time", "shade"]),
        fingerprint(trips, roles, categorical=["seats", "town", "shade"]),
        fingerprint(weighted, roles, weight="w"),
        fingerprint({**weighted, "w": [2, 2, 1, 1, 1]}, roles, weight="w"),
    }
    assert len(fingerprints) == 6


def test_declared_persons_change_the_fingerprint(trips: Any, roles: Any) -> None:
    other = {**trips, "person": ["p", "p", "p", "p", "p"]}
    assert fingerprint(other, roles) == fingerprint(trips, roles)
    assert fingerprint(other, roles, person="person") != fingerprint(trips, roles, person="person")


def test_unused_categories_do_not_change_the_fingerprint(trips: Any, roles: Any) -> None:
    data = ChoiceData.from_long(trips, **roles)
    first = {name: values[:2] for name, values in trips.items()}
    assert data.subset([0]).fingerprint() == fingerprint(first, roles)
    assert data.subset([1]).features["shade"].kind == "categorical"
    last = {name: values[2:] for name, values in trips.items()}
    assert data.subset([1]).fingerprint() == fingerprint(last, roles)


def test_category_names_are_separated_in_the_fingerprint(trips: Any, roles: Any) -> None:
    one = {**trips, "shade": ["a', 'b", "c", "c", "c", "c"]}
    two = {**trips, "shade": ["a", "b', 'c", "b', 'c", "b', 'c", "b', 'c"]}
    assert fingerprint(one, roles) != fingerprint(two, roles)


def test_ids_and_unavailable_rows_do_not_change_the_fingerprint(trips: Any, roles: Any) -> None:
    renamed = {**trips, "trip": ["x", "x", "y", "y", "y"]}
    assert fingerprint(renamed, roles) == fingerprint(trips, roles)
    longer = {name: [*values, values[-1]] for name, values in trips.items()} | {"ok": [1, 1, 1, 1, 1, 0]}
    longer["shade"][-1], longer["time"][-1], longer["took"][-1] = "grey", np.nan, 0
    available = {**trips, "ok": [1] * 5}
    assert fingerprint(longer, roles, available="ok") == fingerprint(available, roles, available="ok")


# -- Parts -------------------------------------------------------------------------------------------------------------
# Subsets and joined tables behave like tables that were read from their rows.


def random_table(seed: int) -> dict[str, Any]:
    """Make up to five sets with rows in any order; some rows are unavailable, but never all of a set."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(np.repeat(np.arange(rng.integers(1, 6)), 3))
    first = np.isin(np.arange(len(ids)), [np.flatnonzero(ids == i)[0] for i in np.unique(ids)])
    return {
        "id": ids,
        "y": first.astype(int),
        "ok": (first | (rng.random(len(ids)) < 0.6)).astype(int),
        "x": rng.normal(size=len(ids)),
        "c": rng.choice(["u", "v", "w"], len(ids)),
        "who": ids * 1.5,
        "g": np.array(["even", "odd"])[ids % 2],
    }


def read(table: dict[str, Any]) -> ChoiceData:
    roles: Any = {"choice_set": "id", "chosen": "y", "available": "ok", "individual": ["who"], "keep": ["g"]}
    return ChoiceData.from_long(table, features=["x", "c"], **roles)


def assert_same(a: ChoiceData, b: ChoiceData) -> None:
    assert a.fingerprint() == b.fingerprint()
    for name in ("set_ids", "rows", "hidden_rows", "hidden_sets"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.keep["g"].plain().tolist() == b.keep["g"].plain().tolist()


@given(seed=st.integers(0, 2**16), data=st.data())
def test_a_subset_equals_the_table_of_its_rows(seed: int, data: st.DataObject) -> None:
    table = random_table(seed)
    everything = read(table)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(everything), max_size=len(everything))))
    if not mask.any():
        assert len(everything.subset(mask)) == 0
        return
    rows = np.isin(table["id"], everything.set_ids[mask])
    assert_same(everything.subset(mask), read({name: values[rows] for name, values in table.items()}))


@given(seed=st.integers(0, 2**16))
def test_a_subset_of_a_subset_equals_one_subset(seed: int) -> None:
    data = read(random_table(seed))
    order = np.random.default_rng(seed).permutation(len(data))
    half = order[: len(order) // 2 + 1]
    twice, once = data.subset(order).subset(np.arange(len(half))), data.subset(half)
    assert_same(twice, once)


@given(seed=st.integers(0, 2**16))
def test_joined_parts_equal_the_whole(seed: int) -> None:
    data = read(random_table(seed))
    k = len(data) // 2
    joined = data.subset(np.arange(k)).concat(data.subset(np.arange(k, len(data))))
    assert joined.fingerprint() == data.fingerprint()
    assert joined.set_ids.tolist() == data.set_ids.tolist()
    assert sorted([*joined.rows, *joined.hidden_rows]) == list(range(data.n_rows))
    assert sorted(joined.hidden_sets) == sorted(data.hidden_sets)
    for part in (joined.subset([0]), joined.subset([-1])):  # the sets of unavailable rows still agree
        assert part.fingerprint() in (data.subset([0]).fingerprint(), data.subset([-1]).fingerprint())
        assert sorted([*part.rows, *part.hidden_rows]) == list(range(part.n_rows))


def test_rows_of_the_second_table_follow_those_of_the_first(trips: Any, roles: Any) -> None:
    data = ChoiceData.from_long(trips, **roles)
    both = data.concat(data)
    assert both.rows.tolist() == list(range(10))
    assert both.offsets.tolist() == [0, 2, 5, 7, 10]
    assert both.labels is not None
    assert both.labels.plain().tolist() == trips["mode"] * 2


def test_tables_of_different_schemas_are_not_joined(trips: Any, roles: Any) -> None:
    data = ChoiceData.from_long(trips, **roles)
    other = ChoiceData.from_long(trips, **{**roles, "keep": []})
    with pytest.raises(SchemaError, match="only choice data with equal schemas can be joined"):
        data.concat(other)


def test_subsets_accept_negative_positions_and_masks() -> None:
    assert set_positions(np.array([2, -1, 0]), 4).tolist() == [2, 3, 0]
    assert set_positions(np.array([True, False, True]), 3).tolist() == [0, 2]
    assert set_positions(np.array([]), 3).tolist() == []
    assert set_positions(np.array([1], np.uint8), 3).tolist() == [1]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([True], r"expected a mask of 3 choice sets, got shape \(1,\)"),
        ([0.5], r"expected a list of positions or a mask of choice sets, got float64 of shape \(1,\)"),
        (["a"], "expected a list of positions or a mask of choice sets, got <U1"),
        ([[0]], r"expected a list of positions .* of shape \(1, 1\)"),
        (0, r"data\[0\] is not supported, .* Write data\[\[0\]\] for"),
        ([3], "positions must be between -3 and 2, as there are 3 choice sets; got 3 to 3"),
        ([-4, 0], "positions must be between -3 and 2, .* got -4 to 0"),
        ([2**64 - 1], "positions must be between -3 and 2"),
        ([1, 1], "a choice set can be selected only once, but some positions are repeated"),
        ([2, -1], "a choice set can be selected only once, but some positions are repeated"),
    ],
)
def test_invalid_positions_are_refused(index: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        set_positions(np.asarray(index), 3)


# -- Splits ------------------------------------------------------------------------------------------------------------
# Random parts are complete, disjoint, reproducible, have the requested shares and keep groups together.


groups_of_sets = st.lists(st.integers(0, 8), min_size=1, max_size=40).map(lambda g: np.array(g, np.int64))
seeds = st.integers(0, 2**16)


def test_ten_sets_are_split_into_eight_one_and_one() -> None:
    parts = split_parts(np.arange(10), (0.8, 0.1, 0.1), generator(0))
    assert [len(part) for part in parts] == [8, 1, 1]
    assert sorted(np.concatenate(parts)) == list(range(10))


def test_each_part_of_five_sets_has_at_least_one() -> None:
    assert [len(part) for part in split_parts(np.arange(5), (0.8, 0.1, 0.1), generator(0))] == [3, 1, 1]


def test_other_seeds_give_other_parts() -> None:
    parts = {tuple(split_parts(np.arange(30), (0.5, 0.5), generator(seed))[0]) for seed in range(5)}
    assert len(parts) == 5
    folds = {tuple(fold_parts(np.arange(30), 3, generator(seed))[0]) for seed in range(5)}
    assert len(folds) == 5


def test_every_set_may_be_in_every_part() -> None:
    first = [set(split_parts(np.arange(6), (0.5, 0.5), generator(seed))[0].tolist()) for seed in range(60)]
    for k in range(6):
        assert 10 < sum(k in part for part in first) < 50  # 30 expected; the probability of leaving this range is 1e-7


def cut(groups: Any, folds: bool, k: int, seed: int) -> list[Any]:
    if folds:
        return fold_parts(groups, k, generator(seed))
    return split_parts(groups, [1 / k] * k, generator(seed))


@given(groups=groups_of_sets, folds=st.booleans(), k=st.integers(2, 5), seed=seeds)
def test_parts_are_a_reproducible_partition_by_group(groups: Any, folds: bool, k: int, seed: int) -> None:
    if len(np.unique(groups)) < k:
        with pytest.raises(InputError, match=r"too few for|the number of folds must be between 2 and"):
            cut(groups, folds, k, seed)
        return
    parts = cut(groups, folds, k, seed)
    assert len(parts) == k
    assert all(len(part) for part in parts)
    assert sorted(np.concatenate(parts)) == list(range(len(groups)))
    assert all((np.diff(part) > 0).all() for part in parts)
    of_group = [set(groups[part].tolist()) for part in parts]
    assert sum(map(len, of_group)) == len(set(groups.tolist()))
    for part, again in zip(parts, cut(groups, folds, k, seed), strict=True):
        np.testing.assert_array_equal(part, again)


@given(n=st.integers(20, 200), shares=st.lists(st.integers(1, 9), min_size=2, max_size=4), seed=seeds)
def test_parts_have_their_shares_within_one_set(n: int, shares: list[int], seed: int) -> None:
    """Each boundary is within half a set of its share, so each part is within one set."""
    parts = np.array(shares) / sum(shares)
    sizes = [len(part) for part in split_parts(np.arange(n), parts.tolist(), generator(seed))]
    if (parts * n >= 2).all():
        assert np.abs(np.array(sizes) - parts * n).max() <= 1


@given(n_groups=st.integers(2, 30), k=st.integers(2, 6), seed=seeds)
def test_folds_differ_by_at_most_one_group(n_groups: int, k: int, seed: int) -> None:
    if k <= n_groups:
        counts = [len(fold) for fold in fold_parts(np.arange(n_groups), k, generator(seed))]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([5, 3, 5]), [1, 0, 1]),
        (np.array(["b", "a", "b"]), [1, 0, 1]),
        (np.array([np.nan, 1.0, np.nan]), [1, 0, 1]),
        (np.array(["b", None, "b"], object), [0, 1, 0]),
        (np.array([1, "1", 1], object), [0, 1, 0]),
    ],
    ids=str,
)
def test_equal_values_form_a_group(values: Any, expected: list[int]) -> None:
    assert number_groups(values).tolist() == expected


@pytest.mark.parametrize(
    "parts", [(0.5, 0.6), (0.5,), (), (1.5, -0.5), (1.0, 0.0), 0.8, "ab", (0.5, float("nan")), None]
)
def test_invalid_shares_are_refused(parts: Any) -> None:
    with pytest.raises(InputError, match="the parts must be positive shares that add up to 1, got"):
        split_parts(np.arange(10), parts, generator(0))


def test_more_parts_than_groups_are_refused() -> None:
    with pytest.raises(InputError, match="2 groups of choice sets are too few for 3 parts: one would be empty"):
        split_parts(np.array([0, 0, 1, 1]), (0.5, 0.25, 0.25), generator(0))


@pytest.mark.parametrize("k", [1, 0, -1, 4, 2.0, "2", True, None])
def test_an_invalid_number_of_folds_is_refused(k: Any) -> None:
    with pytest.raises(InputError, match=r"number of folds must be between 2 and 3, the number of groups .*; got"):
        fold_parts(np.array([0, 1, 2, 2]), k, generator(0))


@pytest.mark.parametrize("seed", [-1, 0.5, "0", None, True])
def test_a_seed_must_be_a_nonnegative_integer(seed: Any) -> None:
    with pytest.raises(InputError, match="the seed must be a whole number of at least 0, got"):
        generator(seed)


def test_groups_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(InputError, match="by: expected one number or string per choice set"):
        number_groups(np.array([[1], {}], object))
