"""Log-probabilities of choice sets piece by piece on a GPU: threads read and encode some while it works on another.

    piece  ->  encoded sets on the device  ->  log p (B, J) of each batch  ->  log p (N,), set after set, on the host

Pieces come in the order of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pcmcnet.data.ahead import ahead
from pcmcnet.data.batches import EncodedSets
from pcmcnet.runtime.device import device_of
from pcmcnet.runtime.device_batches import on_device, to_host
from pcmcnet.runtime.prediction import predict

T = TypeVar("T")
Encode = Callable[[torch.device], tuple[T, EncodedSets]]
THREADS = 2  # that encode: they mostly copy, so few are enough. By choice


def predict_pieces(
    module: nn.Module, pieces: Iterable[Encode[T]], *, pair_budget: int
) -> Iterator[tuple[T, NDArray[np.float64], float]]:
    """Yield what is known of each piece, log p (N,) of its alternatives, and by how much a sum of p misses 1 at most.

    A piece is a function that encodes some sets on the device it is given.
    """
    encoded = encoded_pieces(pieces, device_of(module))
    found = ((known, _flat(module, sets, pair_budget)) for known, sets in encoded)
    for known, log_p in to_host(found):
        yield known, log_p[:-1].numpy(), float(log_p[-1])


def encoded_pieces(pieces: Iterable[Encode[T]], device: torch.device) -> Iterator[tuple[T, EncodedSets]]:
    """Encode pieces in threads, and yield them in their order."""
    encode = _on_own_stream(device) if device.type == "cuda" else lambda piece: piece(device)
    return ahead((partial(encode, piece) for piece in pieces), THREADS)


def _on_own_stream(device: torch.device) -> Callable[[Encode[T]], tuple[T, EncodedSets]]:
    """Encode pieces beside what the device is doing; their memory is kept until this thread is done with it, too."""
    reader = torch.cuda.current_stream(device)

    def encode(piece: Encode[T]) -> tuple[T, EncodedSets]:
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            known, sets = piece(device)
        stream.synchronize()
        sets.record_stream(reader)
        return known, sets

    return encode


@torch.no_grad()
def _flat(module: nn.Module, data: EncodedSets, pair_budget: int) -> Tensor:
    """(N + 1,) log-probabilities of all alternatives, set after set, and by how much a set's sum misses 1 at most.

    On the device; nothing waits for them.
    """
    n = len(data.numeric)
    flat = torch.empty(n + 1, dtype=torch.float64, device=data.device)
    off = []
    for sets, batch, log_p in predict(module, data, pair_budget=pair_budget):
        starts = data.starts[on_device(sets, data.device)]
        places = starts.unsqueeze(1) + torch.arange(log_p.shape[1], device=data.device)
        flat[places.masked_fill(~batch.mask, n)] = log_p.double()  # the last place is for padding
        off.append((log_p.double().exp().masked_fill(~batch.mask, 0.0).sum(1) - 1).abs().amax())
    flat[n] = torch.stack(off).amax()
    return flat
