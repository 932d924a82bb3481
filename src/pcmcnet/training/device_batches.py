"""How batches get to the device: from tensors that are there, or, where these do not fit, over the bus as needed.

In the second case the tensors stay in page-locked memory of the host. Each batch is put together there, and copied on a
stream of its own while the device works on the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.arrays import Ints
from pcmcnet.data.batches import Batch, Distinct, EncodedSets
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.encoding import Encoder
from pcmcnet.layers.gpu import has_triton
from pcmcnet.training.device import device_of, undisturbed

T = TypeVar("T")
WORTH = 2**13  # rows from which on the device standardises them; fewer are not worth its calls. By choice
SHARE = 0.5  # of the device's free memory that choice sets may take


def encode_on(device: torch.device, encoder: Encoder, data: ChoiceData, *, tell: bool = True) -> EncodedSets:
    """Encode choice sets on the device if they fit beside what else it needs, and else in page-locked memory."""
    if device.type != "cuda":
        return encoder.encode(data, tell=tell).to(device)
    room = SHARE * torch.cuda.mem_get_info(device)[0]
    if len(data.rows) >= WORTH and not data.schema.contents and encoder.nbytes(data) <= room:
        return encoder.encode(data, tell=tell, device=device)
    encoded = encoder.encode(data, tell=tell)
    return encoded.to(device) if encoded.nbytes <= room else encoded.pinned()


def batches_on(device: torch.device, data: EncodedSets, plan: Iterable[Ints]) -> Iterator[Batch]:
    """Yield the batches of a plan on the device."""
    if data.starts.device.type == device.type:
        yield from _gathered(data, list(plan))
        return
    stream, here = torch.cuda.Stream(device), torch.cuda.current_stream(device)  # type: ignore[no-untyped-call]
    previous: Batch | None = None
    for batch in map(data.batch, plan):
        with torch.cuda.stream(stream):
            following = _copied(batch, device, here)
        if previous is not None:
            yield previous
        here.wait_stream(stream)
        previous = following
    if previous is not None:
        yield previous


def _gathered(data: EncodedSets, plan: Sequence[Ints]) -> Iterator[Batch]:
    """Gather batches where the data are; positions are sent there once, so that no batch waits for its own."""
    order = on_device(np.concatenate([np.zeros(0, np.int64), *plan]), data.device)
    for index, sets in zip(torch.split(order, [len(sets) for sets in plan]), plan, strict=True):
        yield gathered(data, index, int(data.sizes[sets].max()))


def gathered(data: EncodedSets, index: Tensor, places: int) -> Batch:
    """Gather sets by positions (B,) on the device, padded to so many places: in one kernel, where there is one."""
    more = bool(data.contents or data.individual_contents) or data.person is not None
    if more or index.device.type != "cuda" or not has_triton() or not data.is_contiguous:
        return data.gather(index, places)
    from pcmcnet.training import batches_triton

    return batches_triton.gather(data, index, places)


def on_device(positions: Ints, device: torch.device) -> Tensor:
    """Send positions to a device; neither it nor the host waits."""
    there = device.type == "cuda"
    here = torch.from_numpy(positions)
    return (here.pin_memory() if there else here).to(device, non_blocking=there)


def in_turns(module: nn.Module, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Tensor]]:
    """Yield batches and what a module makes of them, on two streams in turn: one begins while the one before ends."""
    device = device_of(module)
    here, streams = torch.cuda.current_stream(device), _streams(device)
    previous: tuple[Batch, Tensor, torch.cuda.Stream] | None = None
    try:
        for k, batch in enumerate(batches):
            stream = streams[k % 2]
            stream.wait_stream(here)
            with undisturbed(), torch.cuda.stream(stream):
                result = module(batch)
            result.record_stream(here)
            if previous is not None:
                here.wait_stream(previous[2])
                yield previous[:2]
            previous = batch, result, stream
        if previous is not None:
            here.wait_stream(previous[2])
            yield previous[:2]
    finally:  # what is still under way reads memory that is free from now on
        for stream in streams:
            here.wait_stream(stream)


@cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    return torch.cuda.Stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def to_host(results: Iterable[tuple[T, Tensor]]) -> Iterator[tuple[T, Tensor]]:
    """Bring results of some sets to the host, each while the device works on the next."""
    previous: tuple[T, Tensor, torch.cuda.Event] | None = None
    for sets, result in results:
        if result.device.type != "cuda":
            yield sets, result
            continue
        copy, done = result.to("cpu", non_blocking=True), torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(torch.cuda.current_stream(result.device))
        if previous is not None:
            previous[2].synchronize()
            yield previous[:2]
        previous = sets, copy, done
    if previous is not None:
        previous[2].synchronize()
        yield previous[:2]


def _copied(batch: Batch, device: torch.device, reader: torch.cuda.Stream) -> Batch:
    """Copy a batch without waiting for it; its memory is kept until the reader's stream is done with it."""

    def copied(tensor: Tensor) -> Tensor:
        there = tensor.pin_memory().to(device, non_blocking=True)
        there.record_stream(reader)
        return there

    found = {f.name: getattr(batch, f.name) for f in fields(batch)}
    moved: dict[str, Any] = {k: copied(v) for k, v in found.items() if isinstance(v, Tensor)}
    for side in ("contents", "individual_contents"):
        moved[side] = tuple(Distinct(*map(copied, column)) for column in found[side])
    return replace(batch, **moved)
