"""The weights of a network, read from a safetensors file for the network that saved options describe.

Options may describe a network of any size. So its tensors are compared with those of the file first, on torch's device
"meta", where they have shapes and take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from pcmcnet.errors import ArtifactError
from pcmcnet.training.device import building

Network = TypeVar("Network", bound=nn.Module)


def read_network(content: bytes, build: Callable[[], Network]) -> Network:
    """Build a network and give it the weights of a file; refuses weights that do not fit, or are not finite."""
    try:
        weights = load_tensors(content)
    except SafetensorError as error:
        raise ArtifactError(f"the saved weights cannot be read ({error}): save the model again.") from error
    with building(0):
        with torch.device("meta"):
            _require_fit(weights, build().state_dict())
        network = build()
    network.load_state_dict(weights)
    if not all(bool(torch.isfinite(p).all()) for p in network.parameters()):
        raise ArtifactError("the saved weights are not all finite numbers: fit the model again.")
    return network


def _require_fit(weights: Mapping[str, Tensor], network: Mapping[str, Tensor]) -> None:
    """Refuse tensors of other names, shapes or types than the network has."""
    found, expected = ({k: (tuple(v.shape), v.dtype) for k, v in part.items()} for part in (weights, network))
    if found != expected:
        name = min(k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k))
        told = [f"{part[name][0]} of {part[name][1]}" if name in part else "absent" for part in (found, expected)]
        raise ArtifactError(
            f"the saved weights do not fit the saved options: {name} is {told[0]}, expected {told[1]}. Save the model "
            f"again."
        )
