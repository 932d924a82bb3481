"""From a table to log-probabilities on a GPU: pieces of it are read and encoded in threads while the network runs.

What is wrong with a piece is left to those who read the table whole: they say how many rows of all are so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData, EncodedSets
from pcmcnet.data.kinds.category import Unseen
from pcmcnet.data.parts import sets_between
from pcmcnet.data.pieces import ROWS, Pieces
from pcmcnet.models.interface.probability_check import require_probabilities
from pcmcnet.runtime.piecewise import predict_pieces

if TYPE_CHECKING:
    from pcmcnet.models.networks.neural_model import NeuralModel


def predict_sets(model: NeuralModel, data: ChoiceData) -> Floats:
    """(N,) log-probabilities of the alternatives, set after set."""
    cuts = sorted({*np.searchsorted(data.offsets, range(0, len(data.rows), ROWS)).tolist(), len(data)})
    some = (partial(_some_sets, data, begin, end) for begin, end in pairwise(cuts))
    found = [np.empty(0), *(log_p for _, log_p in _predicted(model, some))]
    return np.concatenate(found)


def predict_table(model: NeuralModel, pieces: Pieces) -> Floats:
    """(n_rows,) log-probabilities of the rows of a table, in their order; -inf for unavailable ones.

    Raises
    ------
    PcmcNetError
        When anything is wrong with a piece, or with all of them together.
    """
    out = np.empty(pieces.cuts[-1])
    read = (piece.read for piece in pieces)
    for (begin, end), (data, log_p) in zip(pairwise(pieces.cuts), _predicted(model, read), strict=True):
        require_probabilities(log_p, data)
        out[begin:end] = data.to_rows(log_p, fill=-np.inf)
    pieces.judge()
    return out


def _predicted(model: NeuralModel, some: Iterable[Callable[[], ChoiceData]]) -> Iterator[tuple[ChoiceData, Floats]]:
    """Yield some sets after the others, and log p (N,) of their alternatives; then tell of categories never seen."""
    unseen = Unseen()
    encode = (partial(encoded_part, model, read) for read in some)
    for (data, found), log_p in predict_pieces(model.network_, encode, pair_budget=model.config.pair_budget):
        unseen.add(found)
        yield data, log_p
    unseen.report()


def encoded_part(
    model: NeuralModel, read: Callable[[], ChoiceData], device: torch.device
) -> tuple[tuple[ChoiceData, Unseen], EncodedSets]:
    """Read some sets and encode them on a device; also count categories never seen."""
    data, unseen = read(), Unseen()
    return (data, unseen), model.encoder_.encode_part(data, unseen, device)


def _some_sets(data: ChoiceData, begin: int, end: int) -> ChoiceData:
    return replace(data, **sets_between(data, begin, end))
