from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.tuning.held_out import BLOCKS, FEW, FOLDS, HeldOut, number_of_folds, sum_by_block


def pairs(sets: int, **roles: Any) -> ChoiceData:
    """Sets of two; persons have four sets each."""
    trip = np.repeat(np.arange(sets), 2)
    table = {"trip": trip, "took": [1, 0] * sets, "x": np.arange(2.0 * sets), "who": trip // 4, "w": trip % 3}
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["x"], **roles)


def test_few_sets_are_held_out_in_turn_each_once() -> None:
    data = pairs(40)
    found = HeldOut.cut(data, 0.2, None, 5)
    assert found.folds == len(found.parts) == FOLDS == 4
    assert sorted(np.concatenate([part.valid.set_ids for part in found.parts])) == list(range(40))
    for part in found.parts:
        assert set(part.train.set_ids) | set(part.valid.set_ids) == set(range(40))
        assert len(part.train) + len(part.valid) == 40
    assert found.whole is data
    expected = [set(valid.set_ids) for _, valid in data.folds(4, seed=5)]
    assert [set(part.valid.set_ids) for part in found.parts] == expected


def test_many_sets_have_one_validation_part() -> None:
    data = pairs(FEW)
    found = HeldOut.cut(data, 0.2, None, 5)
    assert found.folds is None
    (part,) = found.parts
    train, valid = data.split((0.8, 0.2), seed=5)
    assert np.array_equal(part.train.set_ids, train.set_ids)
    assert np.array_equal(part.valid.set_ids, valid.set_ids)


def test_a_person_is_never_cut_and_has_one_block() -> None:
    for data, by in ((pairs(40, person="who"), None), (pairs(40, keep=["who"]), "who")):
        for part in HeldOut.cut(data, 0.2, by, 0).parts:
            held_out = np.asarray(part.valid.set_ids) // 4
            assert not set(held_out) & set(np.asarray(part.train.set_ids) // 4)
            assert np.array_equal(part.blocks, held_out)


def test_blocks_add_up_to_the_whole_however_many_sets_there_are() -> None:
    """Weights 0, 1, 2, 0, 1, ... of set 0, 1, 2, ...; block b has the sets b, b + 500, b + 1000, ..."""
    data = pairs(3 * BLOCKS, weight="w")
    found = HeldOut.cut(data, 0.25, None, 0)
    assert len(found.weights) == BLOCKS
    assert found.weights.sum() == data.weights.sum()
    assert found.weights[:3].tolist() == [3.0, 3.0, 3.0]
    ones = sum_by_block([np.ones(len(part.valid)) for part in found.parts], found.parts)
    assert ones.tolist() == [3.0] * BLOCKS


@pytest.mark.parametrize(
    ("sets", "groups", "valid", "folds"),
    [
        (100, 100, 0.2, 4),
        (100, 100, 0.34, 3),
        (100, 100, 0.9, 2),
        (100, 3, 0.2, 3),
        (100, 1, 0.2, None),  # which cannot be cut at all
        (FEW - 1, 500, 0.2, 4),
        (FEW, 500, 0.2, None),
    ],
)
def test_the_share_says_how_many_folds(sets: int, groups: int, valid: float, folds: int | None) -> None:
    assert number_of_folds(sets, groups, valid) == folds
