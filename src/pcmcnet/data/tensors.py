"""Choice data -> tensors on a device, by the codes of an encoder."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pcmcnet.data.batches import Coded, EncodedSets
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.column_arrays import Columns
from pcmcnet.data.device_columns import indices, standardised
from pcmcnet.data.encoding import Encoder, SideEncoder
from pcmcnet.data.kinds.category import Unseen


def encoded(encoder: Encoder, data: ChoiceData, unseen: Unseen, device: torch.device | None = None) -> EncodedSets:
    """Turn choice data into tensors on a device, or on the CPU; count categories never seen in training."""
    place = torch.device("cpu") if device is None else device
    n, s = len(data.rows), len(data)
    chosen = data.chosen if data.chosen is not None else np.zeros(s, np.int64)
    features, who = encoder.seen(data), data.individual
    persons = None if data.schema.person is None else data.groups(data.schema.person).astype(np.int64)
    return EncodedSets(
        sizes=data.sizes,
        starts=torch.from_numpy(data.offsets[:-1].copy()).to(place),
        counts=torch.from_numpy(data.sizes).to(place),
        numeric=_numbers(encoder.features, features, n, place),
        categorical=_indices(encoder.features, features, n, unseen, place),
        individual_numeric=_numbers(encoder.individual, who, s, place),
        individual_categorical=_indices(encoder.individual, who, s, unseen, place),
        chosen=torch.from_numpy(chosen.copy()).to(place),
        weight=torch.from_numpy(data.weights.astype(np.float32)).to(place),
        contents=_coded(encoder.features, features, place),
        individual_contents=_coded(encoder.individual, who, place),
        persons=persons,
        person=None if persons is None else torch.from_numpy(persons).to(place),
    )


def _numbers(side: SideEncoder, columns: Columns, length: int, device: torch.device) -> Tensor:
    """(length, n_numeric) :meth:`SideEncoder.numbers` on a device."""
    if device.type == "cuda":
        return standardised(side.numeric, side.raw_numbers(columns), length, device)
    return torch.from_numpy(side.numbers(columns, length)).to(device)


def _indices(side: SideEncoder, columns: Columns, length: int, unseen: Unseen, device: torch.device) -> Tensor:
    """(length, C) :meth:`SideEncoder.indices` on a device."""
    if device.type == "cuda":
        return indices(side.codes(columns, unseen), length, device)
    return torch.from_numpy(side.indices(columns, length, unseen)).to(device)


def _coded(side: SideEncoder, columns: Columns, device: torch.device) -> tuple[Coded, ...]:
    """Each column of contents, prepared, on a device."""
    return tuple(Coded(*(torch.from_numpy(part).to(device) for part in parts)) for parts in side.prepared(columns))
