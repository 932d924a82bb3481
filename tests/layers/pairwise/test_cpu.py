"""Every pair of real alternatives is in exactly one chunk, at one position."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.layers.pairwise.cpu import RowSegment, cut_pairs, cut_rows, restrict_to_sets
from pcmcnet.layers.tensor_ops import real_pairs


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 60))
def test_chunks_contain_every_pair_once_within_the_limit(sizes: list[int], limit: int) -> None:
    counts = torch.zeros(len(sizes), 9, 9, dtype=torch.int64)
    for chunk in cut_rows(sizes, limit):
        count = 0
        for segment in chunk.segments:
            segment.of(counts).add_(1)
            count += segment.of(counts).numel()
            assert all(size == segment.n for size in sizes[segment.first : segment.last])
        assert 0 < count <= max(limit, max(sizes))
    for k, n in enumerate(sizes):
        assert (counts[k, :n, :n] == 1).all()
        assert counts[k].sum() == n**2


def test_equal_sizes_share_a_chunk_and_large_sets_are_split() -> None:
    assert [chunk.segments for chunk in cut_rows([2, 2, 2, 5, 1], 9)] == [
        [RowSegment(0, 2, 0, 2, 2)],
        [RowSegment(3, 4, 0, 1, 5)],
        [RowSegment(3, 4, 1, 2, 5)],
        [RowSegment(3, 4, 2, 3, 5)],
        [RowSegment(3, 4, 3, 4, 5)],
        [RowSegment(3, 4, 4, 5, 5)],
        [RowSegment(2, 3, 0, 2, 2), RowSegment(4, 5, 0, 1, 1)],
    ]


def test_rows_are_divided_evenly() -> None:
    assert [len(chunk) for chunk in cut_rows([50], 2048)] == [1250, 1250]


def test_blocks_are_views_of_a_table() -> None:
    (chunk,) = cut_rows([2, 2, 3], 100)
    table = torch.arange(len(chunk) * 2).view(-1, 2)
    (_, small), (_, large) = chunk.blocks(table)
    assert small.shape == (2, 2, 2, 2)
    assert large.shape == (1, 3, 3, 2)
    assert torch.equal(torch.cat([small.reshape(-1, 2), large.reshape(-1, 2)]), table)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(1, 30), st.integers(0, 4), st.integers(1, 4))
def test_pair_chunks_contain_the_real_pairs(sizes: list[int], chunk_count: int, skipped: int, taken: int) -> None:
    """Each pair is in one chunk with its row and column, also if only some chunks are used."""
    real = real_pairs(torch.arange(6) < torch.tensor(sizes).unsqueeze(1))
    where = real.flatten().nonzero().squeeze(1)
    cut = cut_pairs(where, 6, chunk_count)
    assert len(cut) == min(chunk_count, len(where))
    assert max(map(len, cut), default=0) - min(map(len, cut), default=0) <= 1
    assert torch.equal(torch.cat([where[:0], *(chunk.positions for chunk in cut)]), where)
    some = cut[skipped : skipped + taken]
    if some:
        sets, pairs = restrict_to_sets(some, 6)
        names = torch.arange(real.numel() // 6).view(-1, 6)  # numbers the rows of all sets
        table = (names.unsqueeze(2) * 100 + names.unsqueeze(1)).flatten()
        for chunk in pairs:
            row_names = names[sets].flatten()
            assert torch.equal(table[chunk.positions], row_names[chunk.left] * 100 + row_names[chunk.entered])
