"""Persons in blocks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.models.logits.simulation.blocks import Block, _sums, blocks

CPU = torch.device("cpu")


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    most=st.integers(1, 30),
    data=st.data(),
)
def test_every_row_stands_in_one_block_with_its_set_and_its_person(
    sizes: list[int], most: int, data: st.DataObject
) -> None:
    person = np.array(data.draw(st.lists(st.integers(0, 4), min_size=len(sizes), max_size=len(sizes))))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    z = np.arange(1.0, offsets[-1] + 1)[:, None]  # no row of zeros
    sums = np.add.reduceat(z[:, 0], offsets[:-1])
    seen: list[int] = []
    for block in blocks(z, offsets, person, most, CPU):
        N, m, _ = block.z.shape
        assert N == 1 or N * m <= most
        seen += block.rows.tolist()
        flat = block.z.view(N * m, 1)
        assert (flat[block.empty_rows] == 0).all()
        assert len(block.empty_rows) == N * m - len(block.rows)
        by_set = block.sum_rows(flat)
        mine = [s for n in block.persons for s in np.flatnonzero(person == n)]
        np.testing.assert_array_equal(by_set[:, 0].numpy(), sums[mine])
        by_person = [sums[person == n].sum() for n in block.persons]
        np.testing.assert_array_equal(block.sum_sets(by_set)[:, 0].numpy(), by_person)
        largest = [z[offsets[s] : offsets[s + 1]].max() for s in mine]
        np.testing.assert_array_equal(block.largest(flat)[:, 0].numpy(), largest)
    assert sorted(seen) == list(range(len(z)))


def test_what_a_gpu_sums_by_is_what_a_cpu_sums_by() -> None:
    values = torch.rand(3, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    owner, counts = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([2, 1, 3])
    flat = values.movedim(-2, 0).contiguous()
    there = torch.segment_reduce(flat, "sum", lengths=counts, axis=0).movedim(0, -2)
    torch.testing.assert_close(_sums(values, owner, counts), there)


def test_persons_of_like_numbers_of_rows_go_together() -> None:
    """1, 1, 4 and 4 rows in blocks of 8: no row of zeros is needed."""
    offsets = np.array([0, 4, 5, 9, 10])
    found: list[Block] = list(blocks(np.ones((10, 2)), offsets, np.array([0, 1, 2, 3]), 8, CPU))
    assert [block.persons.tolist() for block in found] == [[1, 3], [0, 2]]
    assert not sum(len(block.empty_rows) for block in found)


@pytest.mark.gpu
def test_sums_on_a_gpu_are_those_of_a_cpu() -> None:
    values = torch.rand(3, 6, 4, dtype=torch.float64)
    owner, counts = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([2, 1, 3])
    there = _sums(values.cuda(), owner.cuda(), counts.cuda())
    torch.testing.assert_close(there.cpu(), _sums(values, owner, counts))
