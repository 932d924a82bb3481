"""Choice sets -> tensors on a device, by the codes of an encoder.

    encode_sets   choice data, whose columns are checked already
    encode_rows   a chunk of a table as it lies: its columns are copied, and checked where they are encoded

Both give the same tensors. Numbers are standardised by :func:`pcmcnet.data.kinds.number.standardise`, in float64: by
NumPy for a CPU, and by PyTorch on another device, to which raw numbers of 32 bits go from page-locked memory. There
K columns of n rows are standardised as (K, n), and turned to (n, K), in a fraction of the time that a core takes.

The checks of ``encode_rows`` are quick, and have no words: they return a :class:`ChunkProblem`, and whoever reads the
whole table with :mod:`pcmcnet.data.long` finds what is wrong, and where, or that all is well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcmcnet.data.batches import CodedContents, EncodedSets
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.chunks import Chunk, ChunkProblem, Rows
from pcmcnet.data.columns.arrays import Categorical, Columns
from pcmcnet.data.columns.distinct import UNREADABLE, distinct, names
from pcmcnet.data.columns.statistics import Span
from pcmcnet.data.encoder import Encoder, SideEncoder
from pcmcnet.data.files.read_files import without_views
from pcmcnet.data.kinds.category import UnseenCounts
from pcmcnet.data.kinds.number import NumericCode, code_table, standardise
from pcmcnet.data.schema import Schema

BLOCK_ROWS = 2**17  # standardised at a time on a device: no intermediate tensor is as large as the result
STREAM_END_BYTES = 64  # more than those that end a stream of Arrow's
EXACT_BELOW = 2.0**53  # float64 has all whole numbers up to here
NUMBER_TYPES = {getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)}
NUMBER_TYPES |= {pa.float32(), pa.float64()}


@dataclass(frozen=True)
class EncodedChunk:
    """The choice sets of a chunk as tensors, and what is judged once all chunks are encoded."""

    sets: EncodedSets
    unseen: UnseenCounts  # counts of categories that training did not have
    spans: dict[str, Span] = field(default_factory=dict)  # of the columns that are wider than float32


def encode_chunk(
    encoder: Encoder, chunk: Chunk | ChunkProblem | ChoiceData, device: torch.device
) -> EncodedChunk | ChunkProblem:
    """Turn a chunk, of a table as it lies or of choice data, into tensors on a device; pass on a problem."""
    if isinstance(chunk, ChoiceData):
        unseen = UnseenCounts()
        return EncodedChunk(encode_sets(encoder, chunk, unseen, device), unseen)
    return chunk if isinstance(chunk, ChunkProblem) else encode_rows(encoder, chunk, device)


# -- choice data ------------------------------------------------------------------------------------------------------


def encode_sets(
    encoder: Encoder, data: ChoiceData, unseen: UnseenCounts, device: torch.device | None = None
) -> EncodedSets:
    """Turn choice data into tensors on a device, or on the CPU; count categories never seen in training."""
    place = torch.device("cpu") if device is None else device
    n, s = len(data.rows), len(data)
    chosen = data.chosen if data.chosen is not None else np.zeros(s, np.int64)
    features, individual = encoder.seen(data), data.individual
    persons = None if data.schema.person is None else data.groups(data.schema.person).astype(np.int64)
    return EncodedSets(
        sizes=data.sizes,
        starts=torch.from_numpy(data.offsets[:-1].copy()).to(place),
        counts=torch.from_numpy(data.sizes).to(place),
        numeric=_numbers(encoder.features, features, n, place),
        categorical=_indices(encoder.features, features, n, unseen, place),
        individual_numeric=_numbers(encoder.individual, individual, s, place),
        individual_categorical=_indices(encoder.individual, individual, s, unseen, place),
        chosen=torch.from_numpy(chosen.copy()).to(place),
        weight=torch.from_numpy(data.weights.astype(np.float32)).to(place),
        contents=_coded(encoder.features, features, place),
        individual_contents=_coded(encoder.individual, individual, place),
        persons=persons,
        person=None if persons is None else torch.from_numpy(persons).to(place),
    )


def _numbers(side: SideEncoder, columns: Columns, length: int, device: torch.device) -> Tensor:
    """(length, n_numeric) :meth:`SideEncoder.numbers` on a device."""
    if device.type == "cuda":
        return numbers_on_device(side.numeric, side.raw_numbers(columns), length, device)
    return torch.from_numpy(side.numbers(columns, length)).to(device)


def _indices(side: SideEncoder, columns: Columns, length: int, unseen: UnseenCounts, device: torch.device) -> Tensor:
    """(length, C) :meth:`SideEncoder.indices` on a device."""
    if device.type == "cuda":
        return indices_on_device(side.codes(columns, unseen), length, device)
    return torch.from_numpy(side.indices(columns, length, unseen)).to(device)


def _coded(side: SideEncoder, columns: Columns, device: torch.device) -> tuple[CodedContents, ...]:
    """Each column of contents, prepared, on a device."""
    return tuple(
        CodedContents(*(torch.from_numpy(part).to(device) for part in parts)) for parts in side.prepared(columns)
    )


# -- rows of a table as they lie --------------------------------------------------------------------------------------


def can_encode_rows(schema: Schema) -> bool:
    """Return whether ``encode_rows`` takes tables of a schema: inputs of the network, and no other role to check."""
    roles = (schema.available, schema.outside, schema.rank, schema.weight, schema.chosen)
    return not (schema.contents or schema.wide or any(role is not None for role in roles))


def encode_rows(encoder: Encoder, chunk: Chunk, device: torch.device) -> EncodedChunk | ChunkProblem:
    """Turn the rows of a chunk into tensors on a device, unless something is to be looked at more closely."""
    rows, sizes = chunk
    n, s, starts = int(sizes.sum()), len(sizes), np.cumsum(sizes) - sizes
    features, individual, label = encoder.features, encoder.individual, encoder.schema.alternative
    one_value = encoder.schema.conflict == "error"  # a column of the individual may not vary within a set

    # 1. Read the categories and the label; check them on the host, where they are.
    categories: dict[str, Categorical] = {}
    labels = [] if label is None else [label]
    for name in [*labels, *(code.name for side in (features, individual) for code in side.categorical)]:
        column = categories.get(name) or _categories(rows, name)
        if column is None:
            return ChunkProblem(f"column {name!r} has gaps, or values that have to be looked at")
        categories[name] = column
    if label is not None:
        column = categories[label]
        pairs = np.repeat(np.arange(s), sizes) * len(column.categories) + column.codes
        if len(pa.array(pairs).unique()) < n:
            return ChunkProblem(f"column {label!r}: a label comes twice in a set")
    for code in individual.categorical:
        column = categories[code.name]
        if one_value and (column.codes != np.repeat(column.codes[starts], sizes)).any():
            return ChunkProblem(f"column {code.name!r} varies within a set")
        categories[code.name] = column.take(starts)

    # 2. Copy the numbers as they are; those of the individual are then taken from the first row of each set.
    of_rows, of_sets = (_raw_numbers(rows, side.numeric, n, device) for side in (features, individual))
    if of_rows is None or of_sets is None:
        return ChunkProblem("a column of numbers has gaps, or values of a rare type")
    first, counts = sent([[starts], [sizes]], s, torch.int64, device)
    clean: list[Tensor] = []  # what has to be true, on the device
    if one_value:
        begins = torch.zeros(n, dtype=torch.bool, device=device)
        begins[first] = True
        clean.append(((of_sets[:, 1:] == of_sets[:, :-1]) | begins[1:]).all())
    of_sets = of_sets[:, first]

    # 3. Encode both sides, and note what is checked on the device, which nothing waits for yet.
    unseen, spans, tensors = UnseenCounts(), dict[str, Span](), list[Tensor]()
    for side, raw in ((features, of_rows), (individual, of_sets)):
        columns = _once(side.numeric)
        if raw.dtype == torch.float64:
            low, high = torch.aminmax(raw, dim=1)
            clean.append((torch.maximum(-low, high) < EXACT_BELOW).all())
            for name, a, b in zip(columns, low.tolist(), high.tolist(), strict=True):
                spans[name] = Span(a, b, raw.shape[1], True, True)
        narrow = raw.float()
        if len(columns) < len(side.numeric):  # bins of a curve are further codes of one column
            narrow = narrow[[columns.index(code.name) for code in side.numeric]]
        numbers = _standardised(side.numeric, narrow)
        clean += [narrow.isfinite().all(), numbers.isfinite().all()]
        tensors += [numbers, indices_on_device(side.codes(categories, unseen), raw.shape[1], device)]

    # 4. Wait for the checks, once.
    if not bool(torch.stack(clean).all()):
        return ChunkProblem("numbers have gaps, are not finite or too large, or vary within a set")
    sets = EncodedSets(
        sizes=sizes,
        starts=first,
        counts=counts,
        numeric=tensors[0],
        categorical=tensors[1],
        individual_numeric=tensors[2],
        individual_categorical=tensors[3],
        chosen=torch.zeros(s, dtype=torch.int64, device=device),
        weight=torch.ones(s, device=device),
    )
    return EncodedChunk(sets, unseen, spans)


def _categories(rows: Rows, name: str) -> Categorical | None:
    """Read a column of categories; None if it has gaps or a type without text."""
    column = rows[name]
    try:
        if not isinstance(column, pa.ChunkedArray):
            values = pa.array(column, from_pandas=True) if isinstance(column, np.ndarray) else column.to_arrow()
            column = without_views(pa.table({name: values}))[name]
        codes, values = distinct(column)
        labels = names(values)
    except UNREADABLE:
        return None
    known = tuple(label for label in labels if label is not None)
    return None if len(known) < len(labels) or (codes < 0).any() else Categorical(codes, known)


def _raw_numbers(rows: Rows, codes: Sequence[NumericCode], length: int, device: torch.device) -> Tensor | None:
    """(K, n) columns of numbers, each once, as float32 or float64; None if one has gaps or a rare type."""
    wanted = _once(codes)
    if not wanted:
        return torch.empty((0, length), device=device)
    table = rows
    if not isinstance(table, pa.Table):
        columns = {name: rows[name] for name in wanted}
        try:
            table = pa.table({k: v if isinstance(v, np.ndarray) else v.to_numpy() for k, v in columns.items()})
        except UNREADABLE:
            return None
    table = table.select(wanted)
    types = set(table.schema.types)
    if types - NUMBER_TYPES or any(column.null_count for column in table.columns):
        return None
    if types != {pa.float32()}:
        table = table.cast(pa.schema([(name, pa.float64()) for name in wanted]), safe=False)
    return sent_table(table, device)


def _once(codes: Sequence[NumericCode]) -> list[str]:
    """Return the names of the columns of some codes, each once."""
    return list(dict.fromkeys(code.name for code in codes))


# -- columns to a device ----------------------------------------------------------------------------------------------


def indices_on_device(columns: Sequence[NDArray[np.int32]], length: int, device: torch.device) -> Tensor:
    """(n, K) int64 codes of categories."""
    return sent([[column] for column in columns], length, torch.int32, device).t().long().contiguous()


def numbers_on_device(
    codes: Sequence[NumericCode], columns: Sequence[NDArray[np.float32]], length: int, device: torch.device
) -> Tensor:
    """(n, K + indicators) standardised numbers, with 0 for gaps, then a column for each that may have gaps."""
    out = torch.empty((length, len(codes) + sum(code.indicator for code in codes)), device=device)
    for begin in range(0, length, BLOCK_ROWS):
        block = [[column[begin : begin + BLOCK_ROWS]] for column in columns]
        rows = min(BLOCK_ROWS, length - begin)
        out[begin : begin + rows] = _standardised(codes, sent(block, rows, torch.float32, device))
    return out


def _standardised(codes: Sequence[NumericCode], raw: Tensor) -> Tensor:
    """(K, n) float32 -> (n, K + indicators) float32."""
    about = sent([[row] for row in code_table(codes)], len(codes), torch.float64, raw.device)
    numbers, gaps = standardise(codes, about, raw.double(), torch)
    return torch.cat([numbers, gaps.double()]).t().float().contiguous()


def sent(columns: Sequence[Sequence[NDArray[Any]]], length: int, kind: torch.dtype, device: torch.device) -> Tensor:
    """(K, n) columns, each of several arrays, on a device; the copy may still be under way."""
    there = device.type == "cuda"
    host = torch.empty((len(columns), length), dtype=kind, pin_memory=there)
    for row, arrays in zip(host.numpy(), columns, strict=True):
        np.concatenate(arrays, out=row)
    return host.to(device, non_blocking=there)


def sent_table(table: pa.Table, device: torch.device) -> Tensor:
    """(K, n) the columns of a table, all of one type and without gaps; the copy may still be under way.

    Arrow writes a whole table in one call, during which other threads of Python go on. With a call for each column,
    they wait for each other longer than they copy.
    """
    # 1. Write the table as a stream into memory that a GPU can read by itself, and send that.
    there, batches = device.type == "cuda", [batch for batch in table.to_batches() if batch.num_rows]
    size = table.schema.serialize().size + sum(map(pa.ipc.get_record_batch_size, batches)) + STREAM_END_BYTES
    host = torch.empty(size, dtype=torch.uint8, pin_memory=there)
    memory = pa.py_buffer(host.numpy())
    with pa.ipc.new_stream(pa.FixedSizeBufferWriter(memory), table.schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    copy, width = host.to(device, non_blocking=there), table.schema.types[0].bit_width // 8
    numbers = copy[: size // width * width].view(torch.float32 if width == 4 else torch.float64)
    # 2. Read the stream where it was written: it shows where each column is. Mostly all are equally far apart.
    parts = []
    for batch in pa.ipc.open_stream(memory):
        at = [(column.buffers()[1].address - host.data_ptr()) // width for column in batch.columns]
        rows, steps = batch.num_rows, set(np.diff(at).tolist())
        if len(steps) < 2:
            parts.append(numbers.as_strided((len(at), rows), (*steps, 1) if steps else (rows, 1), at[0]))
        else:  # a slice of a longer column may have more bytes at its end than others
            parts.append(torch.stack([numbers[k : k + rows] for k in at]))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
