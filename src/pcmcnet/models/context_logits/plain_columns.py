"""Columns -> vectors without weights: a 0 or 1 for each category, numbers as they are.

A utility that is linear in its coefficients is then linear in all weights, and each entry has the name of a column.
Categories of a column with more than ``MANY`` of them keep an embedding, and contents such as texts their encoder:
these have weights, and entries that only have a number.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.data.encoding import SideEncoder
from pcmcnet.layers.representation import Representation, representation_of, width_of
from pcmcnet.models.interface.own_encoders import Encoders

MANY = 50


class Indicators(nn.Module):
    """A category's number -> 1 in its place; 0 everywhere for one never seen."""

    table: Tensor

    def __init__(self, categories: int) -> None:
        super().__init__()
        table = torch.cat([torch.zeros(1, categories), torch.eye(categories)])
        self.register_buffer("table", table, persistent=False)

    def forward(self, index: Tensor) -> Tensor:
        """(...) -> (..., categories)."""
        return F.embedding(index, self.table)


def plain_columns(side: SideEncoder, own: Encoders | None = None) -> Representation:
    """Return the representation of one side's columns, with indicators in the place of embeddings."""
    found = representation_of(side, own=own)
    for k, (categories, width) in enumerate(side.embeddings):
        if categories <= MANY:
            found.embeddings[k] = Indicators(categories)
            found.width += categories - width
    return found


def entry_names(side: SideEncoder, representation: Representation) -> list[str]:
    """Name the entries of a representation: ``price``, ``mode=car``, or ``title[3]`` where an entry has no name."""
    names: list[str] = []
    for code, (categories, width) in zip(side.categorical, side.embeddings, strict=True):
        if categories <= MANY:
            names += [f"{code.name}={category}" for category in code.categories]
        else:
            names += _numbered(code.name, width)
    numbers = [code.name for code in side.numeric]
    numbers += [f"{code.name} missing" for code in side.numeric if code.indicator]
    curved = [name for k, width in representation.curved.items() for name in _numbered(side.numeric[k].name, width)]
    for content, encoder in zip(side.contents, representation.encoders, strict=True):
        names += _numbered(content.name, width_of(encoder, content))
    return [*names, *curved, *numbers]


def _numbered(name: str, width: int) -> list[str]:
    return [f"{name}[{k + 1}]" for k in range(width)]
