"""Conversion of choice sets to tensors on a device, with the codes of an encoder.

    encode_sets   choice data, whose columns have been checked
    encode_rows   a chunk of an unchecked table: columns are copied to the device, then checked and encoded there

``encode_sets`` and ``encode_rows`` return the same tensors. :func:`pcmcnet.data.kinds.number.standardise` standardises
numbers in float64, with NumPy on the CPU and with PyTorch on a GPU, which receives float32 numbers from page-locked
memory. On a GPU, which is several times faster than a CPU core, K columns of n rows are standardised as a (K, n)
tensor, which is then transposed.

The checks of ``encode_rows`` are fast but do not locate errors: if one fails, the function returns a
:class:`ChunkProblem`. The caller then reads the whole table with :mod:`pcmcnet.data.read_long`, which either raises an
error with the position of the bad value or finds the table valid.
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

BLOCK_ROWS = 2**17  # rows standardised at a time on a device: intermediate tensors stay smaller than the result
STREAM_END_BYTES = 64  # upper bound on the end marker of an Arrow stream
EXACT_BELOW = 2.0**53  # float64 represents all integers below exactly
NUMBER_TYPES = {getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)}
NUMBER_TYPES |= {pa.float32(), pa.float64()}


@dataclass(frozen=True)
class EncodedChunk:
    """The choice sets of a chunk as tensors, and statistics that are checked once all chunks are encoded."""

    sets: EncodedSets
    unseen: UnseenCounts  # of categories that are not in the training vocabulary
    spans: dict[str, Span] = field(default_factory=dict)  # of the columns wider than float32


def encode_chunk(
    encoder: Encoder, chunk: Chunk | ChunkProblem | ChoiceData, device: torch.device
) -> EncodedChunk | ChunkProblem:
    """Encode a chunk of a table or of choice data on a device. A :class:`ChunkProblem` is returned unchanged."""
    if isinstance(chunk, ChoiceData):
        unseen = UnseenCounts()
        return EncodedChunk(encode_sets(encoder, chunk, unseen, device), unseen)
    return chunk if isinstance(chunk, ChunkProblem) else encode_rows(encoder, chunk, device)


# -- choice data ------------------------------------------------------------------------------------------------------


def encode_sets(
    encoder: Encoder, data: ChoiceData, unseen: UnseenCounts, device: torch.device | None = None
) -> EncodedSets:
    """Encode choice data as tensors, on the CPU if ``device`` is None. Unseen categories are counted in ``unseen``."""
    place = torch.device("cpu") if device is None else device
    n, s = len(data.rows), len(data)
    chosen = data.chosen if data.chosen is not None else np.zeros(s, np.int64)
    features, individual = encoder.feature_columns(data), data.individual
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
        log_expansion=_log_expansion(data, place),
    )


def _log_expansion(data: ChoiceData, device: torch.device) -> Tensor | None:
    """Return the logarithms of the expansion factors (N,), or None if all alternatives are present."""
    if data.expansion is None:
        return None
    return torch.from_numpy(np.log(data.expansion).astype(np.float32)).to(device)


def _numbers(side: SideEncoder, columns: Columns, length: int, device: torch.device) -> Tensor:
    """Return the result of :meth:`SideEncoder.numbers` as a tensor on a device: (length, n_numeric)."""
    if device.type == "cuda":
        return numbers_on_device(side.numeric, side.raw_numbers(columns), length, device)
    return torch.from_numpy(side.numbers(columns, length)).to(device)


def _indices(side: SideEncoder, columns: Columns, length: int, unseen: UnseenCounts, device: torch.device) -> Tensor:
    """Return the result of :meth:`SideEncoder.indices` as a tensor on a device: (length, C)."""
    if device.type == "cuda":
        return indices_on_device(side.codes(columns, unseen), length, device)
    return torch.from_numpy(side.indices(columns, length, unseen)).to(device)


def _coded(side: SideEncoder, columns: Columns, device: torch.device) -> tuple[CodedContents, ...]:
    """Return the prepared content columns as tensors on a device."""
    return tuple(
        CodedContents(*(torch.from_numpy(part).to(device) for part in parts)) for parts in side.prepared(columns)
    )


# -- rows of an unchecked table ---------------------------------------------------------------------------------------


def can_encode_rows(schema: Schema) -> bool:
    """Return True if ``encode_rows`` supports the schema, which must not declare roles that need further checks."""
    roles = (schema.available, schema.outside, schema.rank, schema.counts, schema.weight, schema.chosen)
    return not (schema.contents or schema.wide or any(role is not None for role in roles))


def encode_rows(encoder: Encoder, chunk: Chunk, device: torch.device) -> EncodedChunk | ChunkProblem:
    """Encode the rows of a chunk on a device, or return a ChunkProblem if the whole table must be checked."""
    rows, sizes = chunk
    n, s, starts = int(sizes.sum()), len(sizes), np.cumsum(sizes) - sizes
    features, individual, label = encoder.features, encoder.individual, encoder.schema.alternative
    must_be_constant = encoder.schema.conflict == "error"  # individual columns within a set

    # 1. Read and check categories and labels on the host.
    categories: dict[str, Categorical] = {}
    labels = [] if label is None else [label]
    for name in [*labels, *(code.name for side in (features, individual) for code in side.categorical)]:
        column = categories.get(name) or _categories(rows, name)
        if column is None:
            return ChunkProblem(f"column {name!r} has missing values, or a type that needs further checks")
        categories[name] = column
    if label is not None:
        column = categories[label]
        pairs = np.repeat(np.arange(s), sizes) * len(column.categories) + column.codes
        if len(pa.array(pairs).unique()) < n:
            return ChunkProblem(f"column {label!r}: a label occurs twice in a set")
    for code in individual.categorical:
        column = categories[code.name]
        if must_be_constant and (column.codes != np.repeat(column.codes[starts], sizes)).any():
            return ChunkProblem(f"column {code.name!r} varies within a set")
        categories[code.name] = column.take(starts)

    # 2. Copy the numbers to the device; those of the individual are the values in the first row of each set.
    of_rows, of_sets = (_raw_numbers(rows, side.numeric, n, device) for side in (features, individual))
    if of_rows is None or of_sets is None:
        return ChunkProblem("a numeric column has missing values, or a type that needs further checks")
    first, counts = copy_to_device([[starts], [sizes]], s, torch.int64, device)
    checks: list[Tensor] = []  # conditions that must hold, evaluated on the device
    if must_be_constant:
        begins = torch.zeros(n, dtype=torch.bool, device=device)
        begins[first] = True
        checks.append(((of_sets[:, 1:] == of_sets[:, :-1]) | begins[1:]).all())
    of_sets = of_sets[:, first]

    # 3. Encode both sides and queue the checks, without waiting for the device.
    unseen, spans, tensors = UnseenCounts(), dict[str, Span](), list[Tensor]()
    for side, raw in ((features, of_rows), (individual, of_sets)):
        columns = _column_names(side.numeric)
        if raw.dtype == torch.float64:
            low, high = torch.aminmax(raw, dim=1)
            checks.append((torch.maximum(-low, high) < EXACT_BELOW).all())
            for name, a, b in zip(columns, low.tolist(), high.tolist(), strict=True):
                spans[name] = Span(a, b, raw.shape[1], True, True)
        narrow = raw.float()
        if len(columns) < len(side.numeric):  # the bins of a column are further codes with its name
            narrow = narrow[[columns.index(code.name) for code in side.numeric]]
        numbers = _standardised(side.numeric, narrow)
        checks += [narrow.isfinite().all(), numbers.isfinite().all()]
        tensors += [numbers, indices_on_device(side.codes(categories, unseen), raw.shape[1], device)]

    # 4. Wait once for the results of all checks.
    if not bool(torch.stack(checks).all()):
        return ChunkProblem("numbers are missing, infinite or too large, or vary within a set")
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
    """Read a categorical column, or return None if values are missing or have no text form."""
    column = rows[name]
    try:
        if not isinstance(column, pa.ChunkedArray):
            values = pa.array(column, from_pandas=True) if isinstance(column, np.ndarray) else column.to_arrow()
            column = without_views(pa.table({name: values}))[name]
        codes, values = distinct(column)
        labels = names(values)
    except UNREADABLE:
        return None
    present = tuple(label for label in labels if label is not None)
    return None if len(present) < len(labels) or (codes < 0).any() else Categorical(codes, present)


def _raw_numbers(rows: Rows, codes: Sequence[NumericCode], length: int, device: torch.device) -> Tensor | None:
    """Return the distinct numeric columns as one float32 or float64 tensor: (K, n).

    Returns None if values are missing, or if a type is neither an integer nor a float.
    """
    wanted_columns = _column_names(codes)
    if not wanted_columns:
        return torch.empty((0, length), device=device)
    table = rows
    if not isinstance(table, pa.Table):
        columns = {name: rows[name] for name in wanted_columns}
        try:
            table = pa.table({k: v if isinstance(v, np.ndarray) else v.to_numpy() for k, v in columns.items()})
        except UNREADABLE:
            return None
    table = table.select(wanted_columns)
    types = set(table.schema.types)
    if types - NUMBER_TYPES or any(column.null_count for column in table.columns):
        return None
    if types != {pa.float32()}:
        table = table.cast(pa.schema([(name, pa.float64()) for name in wanted_columns]), safe=False)
    return copy_table_to_device(table, device)


def _column_names(codes: Sequence[NumericCode]) -> list[str]:
    """Return the column names of the given codes, without duplicates."""
    return list(dict.fromkeys(code.name for code in codes))


# -- columns to a device ----------------------------------------------------------------------------------------------


def indices_on_device(columns: Sequence[NDArray[np.int32]], length: int, device: torch.device) -> Tensor:
    """Return category codes as int64: (n, K)."""
    return copy_to_device([[column] for column in columns], length, torch.int32, device).t().long().contiguous()


def numbers_on_device(
    codes: Sequence[NumericCode], columns: Sequence[NDArray[np.float32]], length: int, device: torch.device
) -> Tensor:
    """Return standardised numbers (0 if missing), followed by the missing-value indicators: (n, K + indicators)."""
    out = torch.empty((length, len(codes) + sum(code.indicator for code in codes)), device=device)
    for begin in range(0, length, BLOCK_ROWS):
        block = [[column[begin : begin + BLOCK_ROWS]] for column in columns]
        rows = min(BLOCK_ROWS, length - begin)
        out[begin : begin + rows] = _standardised(codes, copy_to_device(block, rows, torch.float32, device))
    return out


def _standardised(codes: Sequence[NumericCode], raw: Tensor) -> Tensor:
    """Standardise numbers and append the missing-value indicators: (K, n) float32 -> (n, K + indicators) float32."""
    parameters = copy_to_device([[row] for row in code_table(codes)], len(codes), torch.float64, raw.device)
    numbers, indicators = standardise(codes, parameters, raw.double(), torch)
    return torch.cat([numbers, indicators.double()]).t().float().contiguous()


def copy_to_device(
    columns: Sequence[Sequence[NDArray[Any]]], length: int, kind: torch.dtype, device: torch.device
) -> Tensor:
    """Copy columns, each given as several arrays, to a device: (K, n). A copy to a GPU is asynchronous."""
    on_gpu = device.type == "cuda"
    host = torch.empty((len(columns), length), dtype=kind, pin_memory=on_gpu)
    for row, arrays in zip(host.numpy(), columns, strict=True):
        np.concatenate(arrays, out=row)
    return host.to(device, non_blocking=on_gpu)


def copy_table_to_device(table: pa.Table, device: torch.device) -> Tensor:
    """Copy the columns of a table to a device: (K, n). A copy to a GPU is asynchronous.

    All columns must have the same type and no missing values. Arrow writes the whole table in one call that releases
    the GIL. With one call per column, threads would spend more time waiting for the GIL than copying.
    """
    # 1. Write the table as an Arrow stream into page-locked memory, and copy that to the device.
    on_gpu, batches = device.type == "cuda", [batch for batch in table.to_batches() if batch.num_rows]
    size = table.schema.serialize().size + sum(map(pa.ipc.get_record_batch_size, batches)) + STREAM_END_BYTES
    host = torch.empty(size, dtype=torch.uint8, pin_memory=on_gpu)
    memory = pa.py_buffer(host.numpy())
    with pa.ipc.new_stream(pa.FixedSizeBufferWriter(memory), table.schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    copy, width = host.to(device, non_blocking=on_gpu), table.schema.types[0].bit_width // 8
    numbers = copy[: size // width * width].view(torch.float32 if width == 4 else torch.float64)
    # 2. Parse the stream on the host to locate each column. Equally spaced columns become one strided view.
    chunks = []
    for batch in pa.ipc.open_stream(memory):
        at = [(column.buffers()[1].address - host.data_ptr()) // width for column in batch.columns]
        rows, steps = batch.num_rows, set(np.diff(at).tolist())
        if len(steps) < 2:
            chunks.append(numbers.as_strided((len(at), rows), (*steps, 1) if steps else (rows, 1), at[0]))
        else:  # the buffer of a sliced column may be longer than others
            chunks.append(torch.stack([numbers[k : k + rows] for k in at]))
    return chunks[0] if len(chunks) == 1 else torch.cat(chunks, 1)
