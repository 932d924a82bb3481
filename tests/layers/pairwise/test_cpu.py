"""Every pair of real alternatives is in one piece, and in one place of it."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.layers.pairwise.cpu import RowSegment, cut_pairs, cut_rows, restrict_to_sets
from pcmcnet.layers.tensor_ops import real_pairs


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 60))
def test_a_cut_has_every_pair_once_within_its_limit(sizes: list[int], limit: int) -> None:
    seen = torch.zeros(len(sizes), 9, 9, dtype=torch.int64)
    for piece in cut_rows(sizes, limit):
        count = 0
        for segment in piece.segments:
            segment.of(seen).add_(1)
            count += segment.of(seen).numel()
            assert all(size == segment.n for size in sizes[segment.first : segment.last])
        assert 0 < count <= max(limit, max(sizes))
    for k, n in enumerate(sizes):
        assert (seen[k, :n, :n] == 1).all()
        assert seen[k].sum() == n**2


def test_sets_of_one_size_go_together_and_a_large_one_in_rows() -> None:
    assert [piece.segments for piece in cut_rows([2, 2, 2, 5, 1], 9)] == [
        [RowSegment(0, 2, 0, 2, 2)],
        [RowSegment(3, 4, 0, 1, 5)],
        [RowSegment(3, 4, 1, 2, 5)],
        [RowSegment(3, 4, 2, 3, 5)],
        [RowSegment(3, 4, 3, 4, 5)],
        [RowSegment(3, 4, 4, 5, 5)],
        [RowSegment(2, 3, 0, 2, 2), RowSegment(4, 5, 0, 1, 1)],
    ]


def test_rows_are_shared_out_evenly() -> None:
    assert [len(piece) for piece in cut_rows([50], 2048)] == [1250, 1250]


def test_blocks_are_the_parts_of_a_table() -> None:
    (piece,) = cut_rows([2, 2, 3], 100)
    table = torch.arange(len(piece) * 2).view(-1, 2)
    (_, small), (_, large) = piece.blocks(table)
    assert small.shape == (2, 2, 2, 2)
    assert large.shape == (1, 3, 3, 2)
    assert torch.equal(torch.cat([small.reshape(-1, 2), large.reshape(-1, 2)]), table)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(1, 30), st.integers(0, 4), st.integers(1, 4))
def test_single_pairs_are_those_that_count(sizes: list[int], pieces: int, skipped: int, taken: int) -> None:
    """Each is in one piece and has its row and column, also among the sets of some pieces alone."""
    real = real_pairs(torch.arange(6) < torch.tensor(sizes).unsqueeze(1))
    where = real.flatten().nonzero().squeeze(1)
    cut = cut_pairs(where, 6, pieces)
    assert len(cut) == min(pieces, len(where))
    assert max(map(len, cut), default=0) - min(map(len, cut), default=0) <= 1
    assert torch.equal(torch.cat([where[:0], *(piece.positions for piece in cut)]), where)
    some = cut[skipped : skipped + taken]
    if some:
        sets, pairs = restrict_to_sets(some, 6)
        names = torch.arange(real.numel() // 6).view(-1, 6)  # of the rows of all sets
        table = (names.unsqueeze(2) * 100 + names.unsqueeze(1)).flatten()
        for piece in pairs:
            own = names[sets].flatten()
            assert torch.equal(table[piece.positions], own[piece.left] * 100 + own[piece.entered])
