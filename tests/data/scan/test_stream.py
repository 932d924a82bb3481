"""Encoded chunks from disk equal those in memory, in an order that depends on seed and epoch."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from pcmcnet.data import ChoiceData, EncodedSets, EncodedStream, Encoder, ScannedData
from pcmcnet.data.scan.stream import results_in_order

CPU = torch.device("cpu")


@pytest.fixture
def scanned(write: Callable[..., Path], make_table: Callable[..., pa.Table], roles: dict[str, Any]) -> ScannedData:
    """A table with so little memory that a buffer holds one shard."""
    return replace(ChoiceData.scan(write(make_table()), memory="1 MiB", **roles), memory=2**16)


def tensors(sets: EncodedSets, index: Any) -> list[Any]:
    batch = sets.batch(np.asarray(index))
    values = [getattr(batch, name) for name in batch.__slots__]
    return [value.tolist() for value in values if isinstance(value, torch.Tensor)]


@pytest.mark.parametrize("n", [2, 3, 50])
def test_each_process_reads_its_own_shards(
    write: Callable[..., Path], make_table: Callable[..., pa.Table], roles: dict[str, Any], n: int
) -> None:
    """Two buffers of several shards: 50 processes are more than there are shards."""
    path = write(make_table())
    whole = ChoiceData.scan(path, memory="1 MiB", **roles)
    room = sum(shard.bytes for shard in whole.manifest.shards) * 3

    def stream(**which: int) -> EncodedStream:
        scanned = replace(ChoiceData.scan(path, memory="1 MiB", **roles), memory=room)  # no shard is open yet
        return EncodedStream(scanned.split((0.9, 0.1))[0].with_positive_weight(), encoder, CPU, **which)

    encoder = Encoder.learn(whole)
    alone = list(stream().parts((0, 1)))
    assert len(alone) == 2
    several = [stream(rank=rank, size=n) for rank in range(n)]
    for part, *portions in zip(alone, *(each.parts((0, 1)) for each in several), strict=True):
        holders = np.stack([portion.place >= 0 for portion in portions]).sum(0)
        assert holders.tolist() == [1] * len(part)
        for portion in portions:
            assert portion.sizes.tolist() == part.sizes.tolist()
            here = np.flatnonzero(portion.place >= 0)
            assert (portion.local is None) == (len(here) == 0)
            if portion.local is not None:
                assert tensors(portion.local, portion.share(here)) == tensors(part, here)
    opened = [set(each.data.verified.seen) for each in several]
    assert sum(map(len, opened)) == len(set.union(*opened)) == len(whole.manifest.shards)


def test_finished_and_empty_buffers_are_skipped(scanned: ScannedData) -> None:
    few = scanned.split((0.01, 0.99), seed=2)[0]
    encoder = Encoder.learn(scanned)
    for data in (scanned, few):
        stream = EncodedStream(data, encoder, CPU)
        sizes = [part.sizes.tolist() for part in stream.parts((0, 1))]
        assert 1 < len(sizes) <= len(data.buffers())
        for skip in range(len(sizes) + 1):
            assert [part.sizes.tolist() for part in stream.parts((0, 1), skip)] == sizes[skip:]
    assert len(sizes) < len(few.buffers())  # some buffers have no sets


def test_chunks_are_the_same_in_all_processes(scanned: ScannedData) -> None:
    encoder = Encoder.learn(scanned)
    first, second = (next(EncodedStream(scanned, encoder, CPU, rank, 2).chunks()) for rank in (0, 1))
    assert tensors(first, np.arange(len(first))) == tensors(second, np.arange(len(second)))
    assert sum(map(len, EncodedStream(scanned, encoder, CPU).chunks())) == len(scanned)


def test_an_encoder_learnt_from_disk_equals_that_of_memory(scanned: ScannedData) -> None:
    ours, theirs = Encoder.learn(scanned, bend=True), Encoder.learn(scanned.read(), bend=True)
    assert ours.features.categorical == theirs.features.categorical
    assert [code.bend for code in ours.features.numeric] == [code.bend for code in theirs.features.numeric]
    for a, b in zip(ours.features.numeric, theirs.features.numeric, strict=True):
        assert (a.mean, a.scale) == (pytest.approx(b.mean, rel=1e-12), pytest.approx(b.scale, rel=1e-12))


def test_chunks_hold_every_set_once_as_in_memory(scanned: ScannedData) -> None:
    whole = scanned.read()
    encoder = Encoder.learn(whole)
    encoded, at = encoder.encode(whole), 0
    stream = EncodedStream(scanned, encoder, CPU)
    parts = list(stream.parts((0, 1)))
    assert len(parts) == len(scanned.buffers()) > 1
    assert len(stream) == sum(map(len, parts)) == len(whole)
    assert stream.mean_pairs == encoded.mean_pairs
    place = {row: k for k, row in enumerate(_first_rows(whole))}
    for part, group in zip(parts, scanned.buffers(_order((0, 1), scanned)), strict=True):
        rows = np.sort(np.concatenate([shard.first for shard in scanned.shards(group)]))
        index = [place[row] for row in rows.tolist()]
        assert tensors(part, np.arange(len(part))) == tensors(encoded, index)
        at += len(part)
    assert at == len(whole)


def _first_rows(data: ChoiceData) -> list[int]:
    first = data.rows[data.offsets[:-1]].copy()
    np.minimum.at(first, data.hidden_sets, data.hidden_rows)
    return first.tolist()


def _order(numbers: tuple[int, ...], scanned: ScannedData) -> list[int]:
    n = len(scanned.manifest.shards)
    return np.random.default_rng([*numbers, n]).permutation(n).tolist()


def test_each_epoch_has_its_own_reproducible_order(scanned: ScannedData) -> None:
    stream = EncodedStream(scanned, Encoder.learn(scanned), CPU)

    def sizes(*order: int) -> list[list[int]]:
        return [part.sizes.tolist() for part in stream.parts(order or None)]

    assert sizes(0, 1) == sizes(0, 1)
    assert sizes(0, 1) != sizes(0, 2)
    assert sizes(0, 1) != sizes(1, 1)
    assert sizes() == sizes()


def test_a_part_of_a_split_is_streamed_alone(scanned: ScannedData) -> None:
    train, valid = scanned.split((0.9, 0.1))
    encoder = Encoder.learn(train)
    for part in (train.with_positive_weight(), valid.with_positive_weight()):
        chunks = list(EncodedStream(part, encoder, CPU).parts())
        assert sum(map(len, chunks)) == len(part)
        assert all((chunk.weight > 0).all() for chunk in chunks)


def test_only_the_next_task_runs_while_a_result_is_used() -> None:
    begun: list[int] = []
    second = threading.Event()

    def task(k: int) -> Callable[[], int]:
        def do() -> int:
            begun.append(k)
            if k == 1:
                second.set()
            return k

        return do

    results = results_in_order(task(k) for k in range(4))
    assert next(results) == 0
    assert second.wait(10)
    assert begun == [0, 1]
    assert list(results) == [1, 2, 3]


def test_an_error_in_the_thread_is_raised() -> None:
    def fail() -> int:
        raise OSError("gone")

    results = results_in_order([lambda: 1, fail])
    assert next(results) == 1
    with pytest.raises(OSError, match="gone"):
        next(results)
