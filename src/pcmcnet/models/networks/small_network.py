"""PCMC-Net as the compiled steps know it: which networks they can train, and where their weights are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from pcmcnet.layers import settings
from pcmcnet.layers.activations import SLOPES
from pcmcnet.layers.monotone_weights import SignedLinear
from pcmcnet.layers.pairwise.rate_forms import FLOOR
from pcmcnet.training.compiled_steps import MAX_PARTS, CompiledForm

if TYPE_CHECKING:
    from pcmcnet.models.networks.chain_network import PCMCNetwork


def compiled_form_of(network: PCMCNetwork) -> CompiledForm | None:
    """Return the weights of a network for the C training steps, or None if these compute another formula."""
    # 1. What the C code computes: its activations, rates and sizes, embeddings and numbers alone, no dropout or signs.
    rates, utility, sides = network.rates, network.utility, (network.alternative, network.individual)
    within = (
        rates.activation in SLOPES
        and rates.dropout.p == 0
        and (rates.rate == "exp" or (rates.rate == "relu" and utility is None))
        and rates.precision != "bfloat16"
        and max(rates.hidden, default=0) <= settings.COMPILED_UP_TO_UNITS
        and max(len(rates.hidden), *(len(side.embeddings) for side in sides)) < MAX_PARTS
        and not any(len(side.encoders) or len(side.curves) for side in sides)
        and not isinstance(rates.leave, SignedLinear)
    )
    if not within or any(p.dtype != torch.float32 or not p.is_contiguous() for p in network.parameters()):
        return None
    # 2. The weights by their part in the formula.
    tables = [[weight for embedding in side.embeddings for weight in embedding.parameters()] for side in sides]
    embedded = [sum(table.shape[1] for table in of_side) for of_side in tables]
    layers = [(layer.weight, layer.bias) for layer in rates.layers if isinstance(layer, nn.Linear)]
    who = None if rates.who is None else rates.who.weight
    return CompiledForm(
        embeddings=tables[0],
        individual_embeddings=tables[1],
        numbers=network.alternative.width - embedded[0],
        individual_numbers=network.individual.width - embedded[1],
        first=(who, rates.leave.weight, rates.enter.weight, rates.enter.bias),
        layers=layers,
        utility=None if utility is None else (list(utility.constants), utility.slopes, utility.worth, utility.taste),
        items=network.items,
        slope=SLOPES[rates.activation],
        exponential=rates.rate == "exp",
        epsilon=rates.epsilon,
        floor=FLOOR,
    )
