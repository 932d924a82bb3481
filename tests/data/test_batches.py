"""Batches hold every set once, within both limits, and padding has no effect."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.batches import Batch, CodedContents, DistributedSets, EncodedSets, plan_batches, plan_person_batches
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.encoder import Encoder
from pcmcnet.errors import ConfigError

sizes_of_sets = st.lists(st.integers(1, 12), max_size=40).map(lambda s: np.array(s, np.int64))
limits = {"batch_size": st.integers(1, 10), "pair_budget": st.integers(1, 400)}
generators = st.one_of(st.none(), st.integers(0, 2**16))


def encoded(sizes: list[int]) -> EncodedSets:
    """Feature x is the row number, category c its parity, individual w the set number."""
    ids = np.repeat(np.arange(len(sizes)), sizes)
    n = len(ids)
    first = np.append(True, ids[1:] != ids[:-1])
    table = {"id": ids, "y": first, "x": np.arange(n), "c": np.array(["even", "odd"])[np.arange(n) % 2], "w": ids + 1.0}
    data = ChoiceData.from_long(
        table, choice_set="id", chosen="y", features=["x", "c"], individual=["w"], weight=None, categorical=["c"]
    )
    return Encoder.learn(data).encode(data)


def rng(seed: int | None) -> np.random.Generator | None:
    return None if seed is None else np.random.default_rng(seed)


# -- by hand ---------------------------------------------------------------------------------------------


def test_sets_of_similar_size_share_a_batch_within_the_budget() -> None:
    """Sorted sizes: 1, 1, 2, 3.

    The two sets of one have 2 pairs. With the set of two they would have 12 > 8; sets of 2 and 3 would have 18.
    """
    plan = plan_batches(np.array([3, 1, 2, 1]), batch_size=3, pair_budget=8)
    assert [batch.tolist() for batch in plan] == [[1, 3], [2], [0]]


def test_a_batch_is_padded_to_its_own_largest_set() -> None:
    """Sets 2 and 0 of sizes 1 and 3 are at rows 5 and 0 to 2."""
    sets = encoded([3, 2, 1])
    batch = sets.batch(np.array([2, 0]))
    assert batch.mask.tolist() == [[True, False, False], [True, True, True]]
    assert batch.numeric.shape == (2, 3, 1)
    torch.testing.assert_close(batch.numeric[1], sets.numeric[:3], rtol=0, atol=0)
    torch.testing.assert_close(batch.numeric[0, 0], sets.numeric[5], rtol=0, atol=0)
    assert batch.categorical[1, :, 0].tolist() == sets.categorical[:3, 0].tolist()
    assert batch.individual_numeric[:, 0].tolist() == sets.individual_numeric[[2, 0], 0].tolist()
    assert batch.chosen.tolist() == [0, 0]
    assert batch.weight.tolist() == [1, 1]


# -- for every table -------------------------------------------------------------------------------------


@given(sizes=sizes_of_sets, seed=generators, **limits)
def test_every_set_is_in_one_batch_within_both_limits(
    sizes: np.ndarray, batch_size: int, pair_budget: int, seed: int | None
) -> None:
    plan = plan_batches(sizes, batch_size=batch_size, pair_budget=pair_budget, rng=rng(seed))
    assert sorted(np.concatenate([*plan, []])) == list(range(len(sizes)))
    for batch in plan:
        assert 1 <= len(batch) <= batch_size
        assert len(batch) == 1 or len(batch) * sizes[batch].max() ** 2 <= pair_budget


@given(sizes=sizes_of_sets, seed=st.integers(0, 2**16), **limits)
def test_the_same_generator_gives_the_same_batches(
    sizes: np.ndarray, batch_size: int, pair_budget: int, seed: int
) -> None:
    one, two = (plan_batches(sizes, batch_size=batch_size, pair_budget=pair_budget, rng=rng(seed)) for _ in range(2))
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in two]


def test_every_epoch_has_its_own_batches() -> None:
    sizes, generator = np.full(200, 3), np.random.default_rng(0)
    plans = [plan_batches(sizes, batch_size=8, pair_budget=10**6, rng=generator) for _ in range(2)]
    assert [batch.tolist() for batch in plans[0]] != [batch.tolist() for batch in plans[1]]
    assert {tuple(sorted(batch)) for batch in plans[0]} != {tuple(sorted(batch)) for batch in plans[1]}


def test_large_sets_may_come_before_small_ones() -> None:
    sizes = np.arange(1, 101)
    largest = [
        sizes[b].max() for b in plan_batches(sizes, batch_size=10, pair_budget=10**9, rng=np.random.default_rng(0))
    ]
    assert largest != sorted(largest)
    assert sorted(largest) == list(range(10, 101, 10))


def test_sorting_by_size_wastes_little_on_padding() -> None:
    """Sizes 1 to 50 in any order, batches of 16: shuffling alone would pad to about 48 and waste half of the rows."""
    sizes = np.random.default_rng(0).integers(1, 51, 4096)
    plan = plan_batches(sizes, batch_size=16, pair_budget=10**9, rng=np.random.default_rng(1))
    padded = sum(len(batch) * int(sizes[batch].max()) for batch in plan)
    assert padded < 1.1 * sizes.sum()


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=12), seed=generators, **limits)
def test_batches_hold_exactly_the_rows_of_their_sets(
    sizes: list[int], batch_size: int, pair_budget: int, seed: int | None
) -> None:
    sets = encoded(sizes)
    rows_so_far = 0
    for index in plan_batches(sets.sizes, batch_size=batch_size, pair_budget=pair_budget, rng=rng(seed)):
        batch = sets.batch(index)
        assert batch.mask.sum(1).tolist() == sets.sizes[index].tolist()
        assert batch.mask.shape[1] == sets.sizes[index].max()
        rows = torch.cat([torch.arange(sets.starts[s], sets.starts[s] + sets.counts[s]) for s in index.tolist()])
        torch.testing.assert_close(batch.numeric[batch.mask], sets.numeric[rows], rtol=0, atol=0)
        assert batch.categorical[batch.mask].tolist() == sets.categorical[rows].tolist()
        rows_so_far += len(rows)
    assert rows_so_far == sum(sizes)


@given(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=6))
def test_padding_repeats_values_of_its_set(sizes: list[int]) -> None:
    """What a layer computes from padding stays finite, and no other set leaks into it."""
    sets = encoded(sizes)
    batch: Batch = sets.batch(np.arange(len(sizes)))
    first = batch.numeric[:, :1].expand_as(batch.numeric)
    torch.testing.assert_close(batch.numeric[~batch.mask], first[~batch.mask], rtol=0, atol=0)


def test_a_copy_on_another_device_holds_the_same_sets() -> None:
    sets = encoded([2, 3])
    moved = sets.to(torch.device("meta"))
    assert moved.numeric.device.type == moved.starts.device.type == "meta"
    assert moved.numeric.shape == sets.numeric.shape
    assert moved.sizes is sets.sizes
    assert len(moved) == 2


@pytest.mark.parametrize(("batch_size", "pair_budget"), [(0, 10), (-1, 10), (4, 0)])
def test_a_limit_below_one_is_refused(batch_size: int, pair_budget: int) -> None:
    with pytest.raises(ConfigError, match=f"at least 1, got batch_size={batch_size} and pair_budget={pair_budget}"):
        plan_batches(np.array([1]), batch_size=batch_size, pair_budget=pair_budget)


def cut_without_a_window(sizes: list[int], batch_size: int, pair_budget: int, *, tight: bool) -> list[list[int]]:
    """Fill batches one by one; a tight batch of a quarter of the budget takes no set that adds over 5 % padding."""
    plan: list[list[int]] = []
    for k in sorted(range(len(sizes)), key=lambda k: sizes[k]):
        together = [*plan[-1], k] if plan else [k]
        padded, real = len(together) * sizes[k] ** 2, sum(sizes[i] ** 2 for i in together)
        wasteful = tight and padded > 1.05 * real and padded > pair_budget / 4
        if plan and len(together) <= batch_size and padded <= pair_budget and not wasteful:
            plan[-1].append(k)
        else:
            plan.append([k])
    return plan


@given(sizes=sizes_of_sets, tight=st.booleans(), **limits)
def test_the_plan_matches_a_simple_loop_over_sets(
    sizes: np.ndarray, batch_size: int, pair_budget: int, tight: bool
) -> None:
    plan = plan_batches(sizes, batch_size=batch_size, pair_budget=pair_budget, tight=tight)
    expected = cut_without_a_window(sizes.tolist(), batch_size, pair_budget, tight=tight)
    assert [batch.tolist() for batch in plan] == expected


# -- parts of a table ------------------------------------------------------------------------------------------------

OPTIONAL = ("person", "log_expansion")
TENSORS = [name for name in Batch.__slots__ if not name.endswith("contents") and name not in OPTIONAL]


def test_joined_chunks_have_their_sets_in_the_given_order(trips: Any, roles: Any) -> None:
    data = ChoiceData.from_long(trips, **roles)
    encoder = Encoder.learn(data)
    chunks = [encoder.encode(data.subset([k])) for k in (1, 0)]
    joined, whole = EncodedSets.join(chunks, np.array([1, 0])), encoder.encode(data)
    assert joined.sizes.tolist() == whole.sizes.tolist()
    for name in TENSORS:
        ours, theirs = (getattr(sets.batch(np.arange(2)), name) for sets in (joined, whole))
        assert torch.equal(ours, theirs)
    assert list(whole.parts()) == [whole]
    assert (whole.device, whole.mean_pairs) == (torch.device("cpu"), (4 + 9) / 2)


def test_a_feature_that_varies_only_in_the_last_row_is_found() -> None:
    """Only the last pair of 20,000 differs, and only in c: far behind the rows that are compared first."""
    sets = encoded([2] * 20_000)
    alike = replace(sets, numeric=sets.numeric[::2].repeat_interleave(2, 0), categorical=torch.ones(40_000, 1))
    assert not alike.varies_within_sets()
    alike.categorical[-1] = 2
    assert alike.varies_within_sets()


def test_encoded_sets_are_replaced_in_place_if_they_fit(trips: Any, roles: Any) -> None:
    data = ChoiceData.from_long(trips, **roles)
    encoder = Encoder.learn(data)
    whole, second = encoder.encode(data), encoder.encode(data.subset([1]))
    place = whole.numeric.data_ptr()
    held = whole.copy_(second)
    assert held is not None
    assert held.numeric.data_ptr() == place
    assert len(held) == 1
    for name in TENSORS:
        assert torch.equal(getattr(held.batch(np.array([0])), name), getattr(second.batch(np.array([0])), name))
    assert second.copy_(encoder.encode(data)) is None


def test_a_process_takes_all_sets_that_it_holds() -> None:
    portion = DistributedSets(sizes=np.array([2, 3, 1, 2]), local=None, place=np.array([-1, 0, 1, -1]))
    assert portion.share(np.array([3, 2, 1, 0])).tolist() == [1, 0]
    assert portion.share(np.array([0, 3])).tolist() == []


def test_pixels_become_numbers_from_0_to_1() -> None:
    codes, index = torch.tensor([1, 0, 1]), torch.tensor([[0, 2], [1, 1]])
    pixels = CodedContents(codes, torch.tensor([[0, 51], [255, 102]], dtype=torch.uint8)).at(index)
    torch.testing.assert_close(pixels.values, torch.tensor([[0.0, 0.2], [1.0, 0.4]]))
    assert pixels.place.tolist() == [[1, 1], [0, 0]]
    numbers = CodedContents(codes, torch.tensor([[0.0, 51.0], [255.0, 102.0]])).at(torch.tensor([0]))
    assert numbers.values.tolist() == [[255.0, 102.0]]


@given(persons=st.lists(st.integers(0, 8), min_size=1, max_size=40), seed=st.integers(0, 99), **limits)
def test_batches_by_person_keep_the_sets_of_a_person_together(
    persons: list[int], seed: int, batch_size: int, pair_budget: int
) -> None:
    person_of_set, rng = np.array(persons), np.random.default_rng(seed)
    sizes = rng.integers(1, 6, len(person_of_set))
    plan = plan_person_batches(person_of_set, sizes, batch_size=batch_size, pair_budget=pair_budget, rng=rng)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(person_of_set)))
    for sets in plan:
        together = [int(k) for k in person_of_set[sets]]
        changes = sum(a != b for a, b in pairwise(together))
        assert changes == len(set(together)) - 1  # the sets of a person are adjacent
        assert all((person_of_set == k).sum() == together.count(k) for k in together)
        last = (person_of_set == together[-1]).sum()
        assert len(set(together)) == 1 or len(sets) - last < batch_size
        assert len(set(together)) == 1 or len(sets) * sizes[sets].max() ** 2 <= pair_budget
