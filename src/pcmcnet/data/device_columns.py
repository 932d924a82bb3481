"""Columns -> tensors of a GPU, where they are standardised and laid row by row.

The host only copies the K columns of n rows one beneath the other, into page-locked memory: raw numbers and codes of 32
bits go over the bus. The device computes in float64 what
:meth:`~pcmcnet.data.kinds.number.NumericCode.standardise` says, and turns (K, n) to (n, K), in a fraction of the time
that a core takes for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcmcnet.data.kinds.number import NumericCode

_ROWS = 2**17  # of a block: nothing that is made in passing is as large as the result
_END = 64  # bytes, more than those that end a stream of Arrow's


def indices(columns: Sequence[NDArray[np.int32]], length: int, device: torch.device) -> Tensor:
    """(n, K) int64 codes of categories."""
    return sent([[column] for column in columns], length, torch.int32, device).t().long().contiguous()


def standardised(
    codes: Sequence[NumericCode], columns: Sequence[NDArray[np.float32]], length: int, device: torch.device
) -> Tensor:
    """(n, K + indicators) standardised numbers, with 0 for gaps, then a column for each that may have gaps."""
    out = torch.empty((length, len(codes) + sum(code.indicator for code in codes)), device=device)
    for begin in range(0, length, _ROWS):
        some = [[column[begin : begin + _ROWS]] for column in columns]
        rows = min(_ROWS, length - begin)
        out[begin : begin + rows] = standardise(codes, sent(some, rows, torch.float32, device))
    return out


def standardise(codes: Sequence[NumericCode], raw: Tensor) -> Tensor:
    """(K, n) float32 -> (n, K + indicators), as :func:`standardised`."""
    x = raw.double()
    facts = (("mean", 0.0), ("scale", 0.0), ("low", -math.inf), ("high", math.inf))  # limits of pieces
    table = [[np.array([getattr(code, name, free) for code in codes], np.float64)] for name, free in facts]
    mean, scale, low, high = sent(table, len(codes), torch.float64, x.device).unsqueeze(-1)  # (K, 1) each
    holes = [k for k, code in enumerate(codes) if code.indicator]
    gaps = x[holes].isnan()
    for k, code in enumerate(codes):
        if code.bend > 0:
            x[k] = (x[k] / code.bend).asinh()
    x = ((x - mean) / scale).clamp(low, high).masked_fill(scale == 0, 0.0)
    if holes:
        x[holes] = x[holes].masked_fill(gaps, 0.0)
    return torch.cat([x, gaps.double()]).t().float().contiguous()


def sent(columns: Sequence[Sequence[NDArray[Any]]], length: int, kind: torch.dtype, device: torch.device) -> Tensor:
    """(K, n) columns, each in chunks, on a device; the copy may still be under way."""
    there = device.type == "cuda"
    host = torch.empty((len(columns), length), dtype=kind, pin_memory=there)
    for row, chunks in zip(host.numpy(), columns, strict=True):
        np.concatenate(chunks, out=row)
    return host.to(device, non_blocking=there)


def sent_table(table: pa.Table, device: torch.device) -> Tensor:
    """(K, n) the columns of a table, all of one type and without gaps; the copy may still be under way.

    Arrow writes a whole table in one call, during which other threads of Python go on. With a call for each column,
    they wait for each other longer than they copy.
    """
    there, batches = device.type == "cuda", [batch for batch in table.to_batches() if batch.num_rows]
    size = table.schema.serialize().size + sum(map(pa.ipc.get_record_batch_size, batches)) + _END
    host = torch.empty(size, dtype=torch.uint8, pin_memory=there)
    memory = pa.py_buffer(host.numpy())
    with pa.ipc.new_stream(pa.FixedSizeBufferWriter(memory), table.schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    sent, width = host.to(device, non_blocking=there), table.schema.types[0].bit_width // 8
    numbers = sent[: size // width * width].view(torch.float32 if width == 4 else torch.float64)
    parts = []
    for batch in pa.ipc.open_stream(memory):  # shows where each column went
        at = [(column.buffers()[1].address - host.data_ptr()) // width for column in batch.columns]
        rows, steps = batch.num_rows, set(np.diff(at).tolist())
        if len(steps) < 2:
            parts.append(numbers.as_strided((len(at), rows), (*steps, 1) if steps else (rows, 1), at[0]))
        else:  # a part of a longer column may keep some more of its end than others
            parts.append(torch.stack([numbers[k : k + rows] for k in at]))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
