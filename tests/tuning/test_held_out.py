from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.tuning.held_out import MAX_BLOCKS, MAX_FOLDS, SMALL_TABLE_SETS, HeldOut, number_of_folds


def pairs(sets: int, **roles: Any) -> ChoiceData:
    """Sets of two; persons have four sets each."""
    trip = np.repeat(np.arange(sets), 2)
    table = {"trip": trip, "took": [1, 0] * sets, "x": np.arange(2.0 * sets), "who": trip // 4, "w": trip % 3}
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["x"], **roles)


def test_few_sets_are_held_out_in_turn_each_once() -> None:
    data = pairs(40)
    found = HeldOut.cut(data, 0.2, None, 5)
    assert found.n_folds == len(found.folds) == MAX_FOLDS == 4
    assert sorted(np.concatenate([fold.held_out[0].set_ids for fold in found.folds])) == list(range(40))
    for fold in found.folds:
        assert set(fold.train.set_ids) | set(fold.held_out[0].set_ids) == set(range(40))
        assert len(fold.train) + len(fold.held_out[0]) == 40
    assert found.whole is data
    expected = [set(valid.set_ids) for _, valid in data.folds(4, seed=5)]
    assert [set(fold.held_out[0].set_ids) for fold in found.folds] == expected


def test_many_sets_have_one_validation_part() -> None:
    data = pairs(SMALL_TABLE_SETS)
    found = HeldOut.cut(data, 0.2, None, 5)
    assert found.n_folds is None
    (fold,) = found.folds
    train, valid = data.split((0.8, 0.2), seed=5)
    assert np.array_equal(fold.train.set_ids, train.set_ids)
    assert np.array_equal(fold.held_out[0].set_ids, valid.set_ids)


def test_a_person_is_never_cut_and_has_one_block() -> None:
    for data, by in ((pairs(40, person="who"), None), (pairs(40, keep=["who"]), "who")):
        for fold in HeldOut.cut(data, 0.2, by, 0).folds:
            held_out = np.asarray(fold.held_out[0].set_ids) // 4
            assert not set(held_out) & set(np.asarray(fold.train.set_ids) // 4)
            assert np.array_equal(fold.groups, held_out)


def test_blocks_add_up_to_the_whole_however_many_sets_there_are() -> None:
    """Weights 0, 1, 2, 0, 1, ... of set 0, 1, 2, ...; block b has the sets b, b + 500, b + 1000, ..."""
    data = pairs(3 * MAX_BLOCKS, weight="w")
    found = HeldOut.cut(data, 0.25, None, 0)
    assert len(found.weights) == MAX_BLOCKS
    assert found.weights.sum() == data.weights.sum()
    assert found.weights[:3].tolist() == [3.0, 3.0, 3.0]
    ones = found.sum_by_block([np.ones(len(fold.groups)) for fold in found.folds])
    assert ones.tolist() == [3.0] * MAX_BLOCKS


@pytest.mark.parametrize(
    ("sets", "groups", "valid", "folds"),
    [
        (100, 100, 0.2, 4),
        (100, 100, 0.34, 3),
        (100, 100, 0.9, 2),
        (100, 3, 0.2, 3),
        (100, 1, 0.2, None),  # which cannot be cut at all
        (SMALL_TABLE_SETS - 1, 500, 0.2, 4),
        (SMALL_TABLE_SETS, 500, 0.2, None),
    ],
)
def test_the_share_says_how_many_folds(sets: int, groups: int, valid: float, folds: int | None) -> None:
    assert number_of_folds(sets, groups, valid) == folds
