"""Random parts: complete, disjoint, reproducible, of the shares asked for, with groups whole."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.splits import fold_parts, generator, number_groups, split_parts
from pcmcnet.errors import InputError

groups_of_sets = st.lists(st.integers(0, 8), min_size=1, max_size=40).map(lambda g: np.array(g, np.int64))
seeds = st.integers(0, 2**16)


def test_ten_sets_are_cut_into_eight_one_and_one() -> None:
    parts = split_parts(np.arange(10), (0.8, 0.1, 0.1), generator(0))
    assert [len(part) for part in parts] == [8, 1, 1]
    assert sorted(np.concatenate(parts)) == list(range(10))


def test_five_sets_leave_one_for_each_small_part() -> None:
    assert [len(part) for part in split_parts(np.arange(5), (0.8, 0.1, 0.1), generator(0))] == [3, 1, 1]


def test_other_seeds_give_other_parts() -> None:
    parts = {tuple(split_parts(np.arange(30), (0.5, 0.5), generator(seed))[0]) for seed in range(5)}
    assert len(parts) == 5
    folds = {tuple(fold_parts(np.arange(30), 3, generator(seed))[0]) for seed in range(5)}
    assert len(folds) == 5


def test_every_set_may_fall_into_every_part() -> None:
    first = [set(split_parts(np.arange(6), (0.5, 0.5), generator(seed))[0].tolist()) for seed in range(60)]
    for k in range(6):
        assert 10 < sum(k in part for part in first) < 50  # 30 expected; the odds of leaving this range are 1e-7


def cut(groups: Any, folds: bool, k: int, seed: int) -> list[Any]:
    if folds:
        return fold_parts(groups, k, generator(seed))
    return split_parts(groups, [1 / k] * k, generator(seed))


@given(groups=groups_of_sets, folds=st.booleans(), k=st.integers(2, 5), seed=seeds)
def test_parts_are_complete_disjoint_sorted_reproducible_and_keep_groups_whole(
    groups: Any, folds: bool, k: int, seed: int
) -> None:
    if len(np.unique(groups)) < k:
        with pytest.raises(InputError, match=r"too few for|the number of folds must lie between 2 and"):
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
def test_shares_are_met_to_the_set(n: int, shares: list[int], seed: int) -> None:
    """Each cut lies within half a set of its share, so each part within one; room for all is 5% a part at least."""
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
def test_equal_values_make_a_group(values: Any, expected: list[int]) -> None:
    assert number_groups(values).tolist() == expected


@pytest.mark.parametrize(
    "parts", [(0.5, 0.6), (0.5,), (), (1.5, -0.5), (1.0, 0.0), 0.8, "ab", (0.5, float("nan")), None]
)
def test_shares_that_are_no_shares_are_refused(parts: Any) -> None:
    with pytest.raises(InputError, match="the parts must be positive shares that add up to 1, got"):
        split_parts(np.arange(10), parts, generator(0))


def test_more_parts_than_groups_are_refused() -> None:
    with pytest.raises(InputError, match="2 groups of choice sets are too few for 3 parts: one would be empty"):
        split_parts(np.array([0, 0, 1, 1]), (0.5, 0.25, 0.25), generator(0))


@pytest.mark.parametrize("k", [1, 0, -1, 4, 2.0, "2", True, None])
def test_a_number_of_folds_that_cannot_be_is_refused(k: Any) -> None:
    with pytest.raises(InputError, match=r"number of folds must lie between 2 and 3, the number of groups .*; got"):
        fold_parts(np.array([0, 1, 2, 2]), k, generator(0))


@pytest.mark.parametrize("seed", [-1, 0.5, "0", None, True])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(InputError, match="the seed must be a whole number of at least 0, got"):
        generator(seed)


def test_groups_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(InputError, match="by: expected one number or text per choice set"):
        number_groups(np.array([[1], {}], object))
