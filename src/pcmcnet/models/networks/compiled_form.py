"""The weights of a network of PCMC-Net in the form of the compiled training steps, which score pairs or factors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pcmcnet.layers import settings
from pcmcnet.layers.pairwise.rate_forms import RATE_FLOOR
from pcmcnet.layers.perceptron import NEGATIVE_SLOPES
from pcmcnet.models.networks.chain_network import ChainNetwork
from pcmcnet.training.compiled_steps import MAX_LAYERS_OR_COLUMNS, CompiledForm


def compiled_form(
    network: ChainNetwork,
    leave: Tensor | None,
    enter: nn.Linear,
    *,
    exponential: bool = True,
    epsilon: float = 0.0,
    items: Tensor | None = None,
    rank: int = 0,
) -> CompiledForm | None:
    """Return the weights in the form of the C training steps, or None if the C code does not support the network.

    Parameters
    ----------
    network
        The network.
    leave
        Weights of the alternative that is left in the first layer, or None if factors are scored.
    enter
        Weights of the alternative that is entered in the first layer, or of the only alternative.
    exponential, epsilon
        Form of the rates: exp(f), or max(0, f) + epsilon.
    items
        Scores that are added to pairs of labels.
    rank
        Number of factors, or 0 if pairs are scored.
    """
    # 1. Check that the C code supports the activation, sizes and inputs; it has no dropout or encoders.
    rates, utility, sides = network.rates, network.utility, (network.alternative, network.individual)
    is_supported = (
        rates.activation in NEGATIVE_SLOPES
        and rates.dropout.p == 0
        and rates.precision != "bfloat16"
        and max(rates.hidden, default=0) <= settings.COMPILED_UP_TO_UNITS
        and max(len(rates.hidden), *(len(side.embeddings) for side in sides)) < MAX_LAYERS_OR_COLUMNS
        and not any(len(side.encoders) or len(side.curves) for side in sides)
    )
    if not is_supported or any(p.dtype != torch.float32 or not p.is_contiguous() for p in network.parameters()):
        return None
    # 2. Collect the weights by their role.
    tables = [[weight for embedding in side.embeddings for weight in embedding.parameters()] for side in sides]
    embedded = [sum(table.shape[1] for table in of_side) for of_side in tables]
    return CompiledForm(
        embeddings=tables[0],
        individual_embeddings=tables[1],
        numbers=network.alternative.width - embedded[0],
        individual_numbers=network.individual.width - embedded[1],
        first=(None if rates.who is None else rates.who.weight, leave, enter.weight, enter.bias),
        layers=[(layer.weight, layer.bias) for layer in rates.layers if isinstance(layer, nn.Linear)],
        utility=None if utility is None else (list(utility.constants), utility.slopes, utility.worth, utility.taste),
        items=items,
        slope=NEGATIVE_SLOPES[rates.activation],
        exponential=exponential,
        epsilon=epsilon,
        floor=RATE_FLOOR,
        bounds=[entry for part in network.sign_constrained for entry in part.bounded_weights],
        rank=rank,
    )
