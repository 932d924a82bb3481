"""Networks among those put together that see numbers by curves, too.

    x  ->  x, e_1(x), ..., e_T(x)        e_t: how far x has come through the t-th of T pieces between quantiles

A network with straight inputs bends slowly: a threshold in a distance or an income costs it many weights, which decay
takes away. Pieces between quantiles (Gorishniy, Rubachev & Babenko, 2022) offer the bends at once, for the network and
for the logit inside it; alone they overfit small tables. Put together, networks of both kinds predict better than those
of one: their errors differ. Of seven, five see numbers as they are, one by 8 pieces and one by 16.

Such a network is trained on sets whose pieces are columns of their own. Where it stands beside others, which have no
such columns, its view makes them from the numbers of a batch.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from pcmcnet.data import Batch, Encoder
from pcmcnet.data.encoding import SideEncoder
from pcmcnet.data.kinds.number import PieceCode

PIECES = (0, 0, 0, 0, 0, 8, 16)  # of each of seven networks: 0 for none
MEMBERS = len(PIECES)  # networks of a small table


def pieces_of(number: int) -> int:
    """Return by how many pieces, at most, a network sees each number; 0 for numbers as they are."""
    return PIECES[number % MEMBERS]


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
