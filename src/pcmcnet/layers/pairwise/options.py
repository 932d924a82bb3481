"""How the scores of pairs are computed, whatever implementation runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from pcmcnet.layers import settings
from pcmcnet.layers.activations import ACTIVATIONS, ActivationRule

Layer = tuple[Tensor, Tensor]  # weight (out, in) and bias (out,)


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """How to compute the scores of pairs.

    Parameters
    ----------
    activation, dropout
        Of the hidden layers; the dropout is 0 outside training.
    dtype
        Of the products and of what is between them; the last layer is in the type of its weights.
    kept_bytes
        Bytes kept from the forward to the backward pass, at most; None for what suits the device.
    plain_up_to, chunk_numbers, least_chunk_numbers, single_pairs_from
        On a CPU: numbers up to which the plain formula serves, numbers in a temporary of a chunk at most and at least,
        and units from which chunks hold single pairs and threads share them.
    chunk_pairs
        On a GPU: pairs of a chunk.
    """

    activation: str
    dropout: float = 0.0
    dtype: torch.dtype = torch.float32
    kept_bytes: int | None = None
    plain_up_to: int = settings.PLAIN_SCORES_UP_TO_NUMBERS
    chunk_numbers: int = settings.CPU_CHUNK_NUMBERS
    least_chunk_numbers: int = settings.CPU_CHUNK_LEAST_NUMBERS
    single_pairs_from: int = settings.SINGLE_PAIRS_FROM_UNITS
    chunk_pairs: int = settings.GPU_CHUNK_PAIRS

    @property
    def rule(self) -> ActivationRule:
        """The activation and its derivative, by operators of torch."""
        return ACTIVATIONS[self.activation]

    def budget(self, device: torch.device) -> int:
        """Return how many bytes may be kept from the forward to the backward pass on a device."""
        if self.kept_bytes is not None:
            return self.kept_bytes
        return _gpu_budget(device) if device.type == "cuda" else settings.CPU_KEPT_BYTES


@cache
def _gpu_budget(device: torch.device) -> int:
    total = int(torch.cuda.get_device_properties(device).total_memory)
    return max(total // 24, min(settings.GPU_KEPT_BYTES, total // 4))
