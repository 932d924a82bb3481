"""From a table to log-probabilities on a GPU: pieces of it are read and encoded in threads while the network runs.

What is wrong with a piece is left to those who read the table whole: they say where, and how many rows of all are so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData, EncodedSets
from pcmcnet.data.clean_rows import CleanRows
from pcmcnet.data.float32_resolution import Span
from pcmcnet.data.kinds.category import Unseen
from pcmcnet.data.parquet_pieces import ParquetPieces
from pcmcnet.data.parts import sets_between
from pcmcnet.data.pieces import ROWS, Piece, Pieces, set_starts
from pcmcnet.errors import InputError, SchemaError
from pcmcnet.models.interface.probability_check import ROUNDING
from pcmcnet.training.piecewise import Encode, predict_pieces

if TYPE_CHECKING:
    from pcmcnet.models.networks.neural_model import NeuralModel

Seen = tuple[Unseen, dict[str, Span]]  # what is told, or judged, of all pieces


def predict_sets(model: NeuralModel, data: ChoiceData) -> Floats:
    """(N,) log-probabilities of the alternatives, set after set."""
    cuts = sorted({*np.searchsorted(data.offsets, range(0, len(data.rows), ROWS)).tolist(), len(data)})
    pieces = (partial(encode_sets, model, data, begin, end) for begin, end in pairwise(cuts))
    return np.concatenate([log_p for log_p, _ in _predicted(model, pieces)])


def predict_table(model: NeuralModel, pieces: Pieces | ParquetPieces) -> Floats:
    """(n_rows,) log-probabilities of the rows of a table, in their order.

    Raises
    ------
    PcmcNetError
        When a piece, or all of them together, cannot be read here.
    """
    out, done = np.empty(pieces.n_rows), 0
    for log_p in _summing_to_one(model, (partial(encode_rows, model, piece) for piece in pieces)):
        out[done : done + len(log_p)] = log_p
        done += len(log_p)
    return out


def predict_rows(model: NeuralModel, pieces: Iterable[Callable[[], pa.Table]]) -> Iterator[Floats]:
    """Yield log-probabilities of the rows of one piece of a table after the other; errors as of :func:`predict_table`.

    A piece is a function that reads whole sets.
    """
    return _summing_to_one(model, (partial(_encode_read, model, read) for read in pieces))


def _encode_read(model: NeuralModel, read: Callable[[], pa.Table], device: torch.device) -> tuple[Seen, EncodedSets]:
    """Read whole sets, see where each begins, and encode them on a device."""
    rows = read()
    starts = set_starts(rows[model.schema.choice_set])
    if starts is None:
        raise SchemaError("rows of a set are apart.")
    return encode_rows(model, Piece(np.diff(starts, append=rows.num_rows), lambda: rows), device)


def _summing_to_one(model: NeuralModel, pieces: Iterable[Encode[Seen]]) -> Iterator[Floats]:
    for log_p, off in _predicted(model, pieces):
        if not off < ROUNDING:  # nor is what is no number
            raise InputError("some probabilities do not sum to 1.")
        yield log_p


def encode_rows(model: NeuralModel, piece: Piece, device: torch.device) -> tuple[Seen, EncodedSets]:
    """Read a piece of a table and encode it on a device."""
    rows = CleanRows(piece.rows(), piece.sizes, model.encoder_, device)
    encoded = rows.encode()
    return (rows.unseen, rows.spans), encoded


def encode_sets(
    model: NeuralModel, data: ChoiceData, begin: int, end: int, device: torch.device
) -> tuple[Seen, EncodedSets]:
    """Encode some of the sets on a device."""
    unseen = Unseen()
    return (unseen, {}), model.encoder_.encode_part(replace(data, **sets_between(data, begin, end)), unseen, device)


def _predicted(model: NeuralModel, pieces: Iterable[Encode[Seen]]) -> Iterator[tuple[Floats, float]]:
    """Yield log p (N,) of one piece after the other, and by how much a sum of p misses 1; then judge what was seen."""
    unseen, spans = Unseen(), dict[str, Span]()
    for (more, wider), log_p, off in predict_pieces(model.network_, pieces, pair_budget=model.config.pair_budget):
        unseen.add(more)
        spans |= {name: spans[name] + span if name in spans else span for name, span in wider.items()}
        yield log_p, off
    for name, span in spans.items():
        span.require_steps(name)
    unseen.report()
