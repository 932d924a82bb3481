"""Every pair of real alternatives is in one piece, and in one place of it."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.layers.pieces import Segment, blocks, count, cut


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 60))
def test_a_cut_has_every_pair_once_within_its_limit(sizes: list[int], limit: int) -> None:
    seen = torch.zeros(len(sizes), 9, 9, dtype=torch.int64)
    for piece in cut(sizes, limit):
        count = 0
        for segment in piece:
            segment.of(seen).add_(1)
            count += segment.of(seen).numel()
            assert all(size == segment.n for size in sizes[segment.first : segment.last])
        assert 0 < count <= max(limit, max(sizes))
    for k, n in enumerate(sizes):
        assert (seen[k, :n, :n] == 1).all()
        assert seen[k].sum() == n**2


def test_sets_of_one_size_go_together_and_a_large_one_in_rows() -> None:
    assert list(cut([2, 2, 2, 5, 1], 9)) == [
        [Segment(0, 2, 0, 2, 2)],
        [Segment(3, 4, 0, 1, 5)],
        [Segment(3, 4, 1, 2, 5)],
        [Segment(3, 4, 2, 3, 5)],
        [Segment(3, 4, 3, 4, 5)],
        [Segment(3, 4, 4, 5, 5)],
        [Segment(2, 3, 0, 2, 2), Segment(4, 5, 0, 1, 1)],
    ]


def test_rows_are_shared_out_evenly() -> None:
    assert [count(piece) for piece in cut([50], 2048)] == [1250, 1250]


def test_blocks_are_the_parts_of_a_table() -> None:
    (piece,) = cut([2, 2, 3], 100)
    table = torch.arange(count(piece) * 2).view(-1, 2)
    (_, small), (_, large) = blocks(piece, table)
    assert small.shape == (2, 2, 2, 2)
    assert large.shape == (1, 3, 3, 2)
    assert torch.equal(torch.cat([small.reshape(-1, 2), large.reshape(-1, 2)]), table)
