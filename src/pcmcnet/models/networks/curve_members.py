"""Networks among those put together that see numbers by curves, too.

    x  ->  x, e_1(x), ..., e_T(x)        e_t: how far x has come through the t-th of T pieces between quantiles

A network with straight inputs bends slowly: a threshold in a distance or an income costs it many weights, which decay
takes away. Pieces between quantiles (Gorishniy, Rubachev & Babenko, 2022) offer the bends at once, for the network and
for the logit inside it. Put together, networks of both kinds often predict better than those of one: their errors
differ. But where effects are straight, or columns many and sets few, pieces overfit. So held-out sets decide: the best
of the trials that teach the weight decay is repeated with pieces. None of the networks sees pieces, a third, or half of
them: that share with which the mean of the probabilities of both trials predicts best.

Such a network is trained on sets whose pieces are columns of their own. Where it stands beside others, which have no
such columns, its view makes them from the numbers of a batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.arrays import Floats
from pcmcnet.data import Batch, ChoiceData, Encoder
from pcmcnet.data.encoding import SideEncoder
from pcmcnet.data.kinds.number import PieceCode
from pcmcnet.errors import ArtifactError, TrainingError
from pcmcnet.models.networks.decay_search import DIVERGED, Pair
from pcmcnet.models.networks.held_out_trials import Trials
from pcmcnet.models.networks.pcmcnet_config import MOST_MEMBERS

log = logging.getLogger("pcmcnet")

MEMBERS = 6  # networks of a small table
PIECES = (8, 16)  # by which those with curves see numbers, in turn
TURNS = (0, 3, 2)  # every n-th network may see curves: none, a third of them, half
UNTOLD = 3  # where no held-out sets tell


def pieces_of(members: int, every: int) -> tuple[int, ...]:
    """Return by how many pieces, at most, each of some networks sees each number; 0 for numbers as they are.

    Examples
    --------
    >>> pieces_of(6, every=2)
    (0, 8, 0, 16, 0, 8)
    >>> pieces_of(6, every=3)
    (0, 0, 8, 0, 0, 16)
    """
    turns = cycle(PIECES)
    return tuple(next(turns) if every and (k + 1) % every == 0 else 0 for k in range(members))


def pieces_kept(training: Mapping[str, Any]) -> tuple[int, ...]:
    """Return those of a saved model's networks."""
    members = training.get("members", 1)
    if not isinstance(members, int) or not 1 <= members <= MOST_MEMBERS:
        raise ArtifactError(f"the saved model says members={members!r}: save the model again.")
    found = training.get("pieces", [0] * members)
    if not isinstance(found, list) or len(found) != members or not set(found) <= {0, *PIECES} or found[0]:
        raise ArtifactError(f"the saved model says pieces={found!r}: save the model again.")
    return tuple(found)


def turn_of_curves(trials: Trials, decay: float, nll: Callable[[ChoiceData], Floats]) -> int:
    """Return the n of "every n-th network sees curves" with which held-out sets are predicted best; 0 for none.

    ``nll`` (S,) is that of sets by the network that was fitted last.
    """

    def losses(pair: Pair, pieces: int) -> list[float]:
        try:
            trials.fitted(pair, decay, pieces)
        except TrainingError as error:
            log.info("%d pieces of curves: %s", pieces, error)
            return [DIVERGED] * sum(map(len, pair[1]))
        return [float(x) for data in pair[1] for x in nll(data)]

    def tried(pieces: int) -> Floats:
        found = (
            trials.kept.curve(f"{pieces} pieces/{k}", partial(losses, p, pieces)) for k, p in enumerate(trials.pairs)
        )
        return np.concatenate([np.asarray(part) for part in found])

    straight, curved = tried(0), tried(PIECES[0])
    weights = np.concatenate([data.weights for _, held_out in trials.pairs for data in held_out])
    means = {every: float(np.average(mixed(straight, curved, every), weights=weights)) for every in TURNS}
    every = min(means, key=means.__getitem__)
    shown = ", ".join(f"{f'1 of {k}' if k else 'none'} {loss:.4f}" for k, loss in means.items())
    log.info("networks that see curves, held-out NLL: %s", shown)
    return every


def mixed(straight: Floats, curved: Floats, every: int) -> Floats:
    """NLL (H,) of the mean of probabilities, of which every n-th is that of a network with curves."""
    return straight if not every else -np.logaddexp(np.log1p(-1 / every) - straight, -np.log(every) - curved)


class CurveView(nn.Module):
    """Batch -> the same batch with numbers as a network trained with ``own`` codes sees them."""

    def __init__(self, common: Encoder, own: Encoder) -> None:
        super().__init__()
        self.features = _Pieces(common.features, own.features)
        self.individual = _Pieces(common.individual, own.individual)

    def forward(self, batch: Batch) -> Batch:
        """Make the columns of pieces, where the network has some."""
        numeric, individual = self.features(batch.numeric), self.individual(batch.individual_numeric)
        return replace(batch, numeric=numeric, individual_numeric=individual)


class _Pieces(nn.Module):
    """(..., F) -> (..., F + K): K pieces after the numbers, before what marks their gaps, as the codes have them."""

    columns: Tensor
    starts: Tensor
    widths: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, common: SideEncoder, own: SideEncoder) -> None:
        super().__init__()
        self.numbers = len(common.numeric)
        place = {code.name: k for k, code in enumerate(common.numeric)}
        pieces = [code for code in own.numeric if isinstance(code, PieceCode)]
        whole = [common.numeric[place[piece.name]] for piece in pieces]
        self.register_buffer("columns", torch.tensor([place[piece.name] for piece in pieces]).long(), persistent=False)
        for name, values in {
            "starts": [(piece.mean - code.mean) / code.scale for piece, code in zip(pieces, whole, strict=True)],
            "widths": [piece.scale / code.scale for piece, code in zip(pieces, whole, strict=True)],
            "low": [piece.low for piece in pieces],
            "high": [piece.high for piece in pieces],
        }.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32), persistent=False)

    def forward(self, numbers: Tensor) -> Tensor:
        if not len(self.columns):
            return numbers
        through = (numbers[..., self.columns] - self.starts) / self.widths
        pieces = torch.maximum(torch.minimum(through, self.high), self.low)
        return torch.cat([numbers[..., : self.numbers], pieces, numbers[..., self.numbers :]], -1)
