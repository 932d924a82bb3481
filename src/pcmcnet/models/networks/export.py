"""Export a fitted network to ONNX or ``torch.export``, with a description of its inputs.

Any ONNX runtime (Java, C++, C#, Rust, JavaScript, ...) reads ``model.onnx``, and ``torch.export.load`` reads
``model.pt2``. Both graphs map the tensors of B padded choice sets to probabilities, for any B and J:

    numeric (B, J, F) float32, categorical (B, J, C) int64          of the alternatives
    individual_numeric (B, F0) float32, individual_categorical (B, C0) int64
    mask (B, J) bool, true for real alternatives        ->          probabilities (B, J) float32

An input is omitted if the table has no columns for it. ``model.encoder.json`` next to the graph describes how columns
are converted to these tensors; the metadata of the graph contains the same description.
"""

from __future__ import annotations

import io
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from pcmcnet.data import Batch, Encoder
from pcmcnet.data.column_reader import MISSING_CATEGORY
from pcmcnet.data.encoder import SideEncoder
from pcmcnet.data.kinds.category import UNSEEN_INDEX
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.layers.stationary.elimination import exported_distribution
from pcmcnet.models.networks.chain_network import AveragedChains, ChainNetwork, MixtureOfChains
from pcmcnet.models.networks.factored_network import FactoredMixture, FactoredNetwork
from pcmcnet.models.networks.pairwise_network import PCMCNetwork
from pcmcnet.storage import json_bytes, write_bytes
from pcmcnet.training.torch_settings import default_torch_settings

ENCODER = "encoder.json"  # name of the description in the metadata of a graph
OPSET = 18


class ExportedNetwork(nn.Module):
    """Copy of a network that returns probabilities (B, J) and uses only operators supported by ONNX."""

    def __init__(self, network: ChainNetwork | AveragedChains) -> None:
        super().__init__()
        self.network = deepcopy(network).cpu().float().eval().requires_grad_(False)
        for part in self.network.modules():
            if isinstance(part, PCMCNetwork):
                part.rates.precision = "float32"

    def forward(
        self,
        mask: Tensor,
        numeric: Tensor | None = None,
        categorical: Tensor | None = None,
        individual_numeric: Tensor | None = None,
        individual_categorical: Tensor | None = None,
    ) -> Tensor:
        """Return the probabilities: (B, J), (B, J, F), (B, J, C), (B, F0), (B, C0) -> (B, J).

        An argument is None if the table has no columns for it.
        """
        B, J = mask.shape
        no_numbers, no_codes = mask.new_zeros(B, J, 0, dtype=torch.float32), mask.new_zeros(B, J, 0, dtype=torch.int64)
        batch = Batch(
            numeric=no_numbers if numeric is None else numeric,
            categorical=no_codes if categorical is None else categorical,
            individual_numeric=no_numbers[:, 0] if individual_numeric is None else individual_numeric,
            individual_categorical=no_codes[:, 0] if individual_categorical is None else individual_categorical,
            mask=mask,
            chosen=mask.new_zeros(B, dtype=torch.int64),
            weight=mask.new_ones(B, dtype=torch.float32),
        )
        network = self.network
        members = network.chain_inputs(batch) if isinstance(network, AveragedChains) else [(network, batch)]
        # 1. Solve chains one by one if their rates are factored, or if their log-rates are scores, which may differ by
        #    many orders of magnitude.
        if isinstance(network, FactoredMixture):
            shares, p = network.classwise(batch, exported_distribution)
            mean: Tensor = (shares.softmax(-1).unsqueeze(-1) * p).sum(1)
            return mean
        if isinstance(members[0][0], FactoredNetwork) or _has_log_rates(network, members):
            return torch.stack([_solved(member, x) for member, x in members]).mean(0)
        # 2. Solve the chains of all members or classes in one call.
        rates = network.member_chains(batch) if isinstance(network, AveragedChains) else network.chains(batch)
        chains = rates.shape[1]  # (B, K, J, J)
        if chains == 1:
            return exported_distribution(rates.squeeze(1), mask)
        of_chains = mask.unsqueeze(1).expand(-1, chains, -1).flatten(0, 1)
        p = exported_distribution(rates.flatten(0, 1), of_chains).view(-1, chains, J)
        # 3. Average members with equal weights, and classes with their shares.
        if not isinstance(network, MixtureOfChains):
            return p.mean(1)
        mixed: Tensor = (network.log_membership(batch).exp().unsqueeze(-1) * p).sum(1)
        return mixed


def _has_log_rates(network: nn.Module, members: Sequence[tuple[ChainNetwork, Batch]]) -> bool:
    """Return True if the scores of pairs are log-rates, in a network without latent classes."""
    first = members[0][0]
    return isinstance(first, PCMCNetwork) and first.has_log_rates and not isinstance(network, MixtureOfChains)


def _solved(member: ChainNetwork, batch: Batch) -> Tensor:
    """Return the stationary distribution (B, J) of a member's chain."""
    assert isinstance(member, PCMCNetwork | FactoredNetwork)
    return member.distribution(batch, exported_distribution)


def export_network(network: ChainNetwork | AveragedChains, encoder: Encoder, path: str | Path) -> Path:
    """Write the graph in the format given by the file extension, and a description of its inputs next to it."""
    if not isinstance(path, str | os.PathLike) or Path(path).suffix not in _WRITERS:
        raise InputError(f"expected a file name that ends in {' or '.join(_WRITERS)}, got {path!r}.")
    file = Path(path)
    for column, kind in encoder.schema.contents.items():
        raise ConfigError(
            f"column {column!r} has kind {kind}, but export supports only numbers and categories: fit a model without "
            f"this column, or use `pcmcnet serve`."
        )
    description = describe_inputs(encoder)
    with default_torch_settings(), _without_warnings():
        content = _WRITERS[file.suffix](_traced(ExportedNetwork(network), description), description)
    write_bytes(file, content)
    write_bytes(file.with_suffix(f".{ENCODER}"), json_bytes(description))
    return file


# -- the encoder --------------------------------------------------------------------------------------------------


def describe_inputs(encoder: Encoder) -> dict[str, Any]:
    """Return a JSON-compatible description from which a program can compute the inputs of the graph."""
    has_missing = encoder.schema.can_have_missing_values
    inputs: list[dict[str, Any]] = []
    for name, side, axes in (("", encoder.features, ["sets", "places"]), ("individual_", encoder.individual, ["sets"])):
        kinds = ("numeric", "float32", _numbers(side)), ("categorical", "int64", _categories(side, has_missing))
        for kind, dtype, columns in kinds:
            if columns:
                about = {"name": name + kind, "dtype": dtype, "shape": [*axes, len(columns)]}
                inputs.append({**about, "entries": columns})
    mask = {"name": "mask", "dtype": "bool", "shape": ["sets", "places"]}
    output = {"name": "probabilities", "dtype": "float32", "shape": ["sets", "places"]}
    return {"format": "pcmcnet encoder", "version": 1, "about": _ABOUT, "inputs": [*inputs, mask], "output": output}


_ABOUT = {
    "inputs": (
        "Entry k of 'entries' describes position k on the last axis of an input. Inputs whose name begins with "
        "individual_ have one row per choice set, and the other inputs one row per alternative. mask is true for "
        "alternatives and false for padding. Padding may have any value in the other inputs."
    ),
    "number": (
        "Round the value to float32. Replace a missing value by 'missing'; if 'missing' is null, missing values are "
        "not allowed. For other values, the entry is 0 if scale is 0, and (x - mean) / scale otherwise, where x is "
        "asinh(value / bend) if bend is positive, and the value itself otherwise. Compute in float64, then round to "
        "float32."
    ),
    "missing": "1 if the value of the column is missing, else 0.",
    "category": (
        "The position of the text in 'categories', counted from 1, or 0 if the text is not in the list. Replace a "
        "missing value by 'missing'; if 'missing' is null, missing values are not allowed."
    ),
}


def _numbers(side: SideEncoder) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = []
    for code in side.numeric:
        form = {"bend": code.bend, "mean": code.mean, "scale": code.scale}
        values.append({"column": code.name, "entry": "number", **form, "missing": 0.0 if code.indicator else None})
    return values + [{"column": code.name, "entry": "missing"} for code in side.numeric if code.indicator]


def _categories(side: SideEncoder, has_missing: bool) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for code in side.categorical:
        categories, missing = list(code.categories), None
        if has_missing:
            missing = categories.index(MISSING_CATEGORY) + 1 if MISSING_CATEGORY in categories else UNSEEN_INDEX
        entries.append({"column": code.name, "entry": "category", "missing": missing, "categories": categories})
    return entries


# -- the graph ----------------------------------------------------------------------------------------------------


def _traced(network: ExportedNetwork, description: dict[str, Any]) -> Any:
    """Return the exported program of a network, for any number of sets and alternatives."""
    size = {"sets": 3, "places": 4}  # of the example: different, and neither 0 nor 1, which torch treats as constants
    example = {}
    for tensor in description["inputs"]:
        shape = [size.get(n, n) for n in tensor["shape"]]
        example[tensor["name"]] = torch.ones(shape, dtype=getattr(torch, tensor["dtype"]))
    dims = {axis: torch.export.Dim(axis) for axis in size}
    # The compiler keeps loops of earlier exports. If their number of states was fixed, as in factored rates, it would
    # exclude this number from the sizes of the new graph.
    torch.compiler.reset()
    program = torch.export.export(network, (), example, dynamic_shapes=_dynamic_axes(description, dims))
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.meta.pop("stack_trace", None)  # it contains file names of this machine
    return program


def _dynamic_axes(description: dict[str, Any], names: Mapping[str, Any]) -> dict[str, dict[int, Any]]:
    """Return, for each input, the names of the axes that may have any size."""
    return {
        tensor["name"]: {k: names[axis] for k, axis in enumerate(tensor["shape"]) if axis in names}
        for tensor in description["inputs"]
    }


def _onnx(program: Any, description: dict[str, Any]) -> bytes:
    try:
        import onnx
        import onnx_ir
        import onnxscript  # noqa: F401 - torch.onnx imports it
    except ImportError as error:
        raise ConfigError(f"ONNX export needs {error.name}: pip install 'pcmcnet[export]'.") from error
    axes = _dynamic_axes(description, {"sets": "sets", "places": "places"})
    exported = torch.onnx.export(
        program, dynamo=True, opset_version=OPSET, dynamic_shapes=axes, output_names=["probabilities"], verbose=False
    )
    assert exported is not None
    onnx_ir.passes.common.ClearMetadataAndDocStringPass()(exported.model)  # it contains file names of this machine
    exported.model.metadata_props[ENCODER] = json_bytes(description).decode()
    content: bytes = exported.model_proto.SerializeToString()
    onnx.checker.check_model(content)
    return content


def _pt2(program: Any, description: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={ENCODER: json_bytes(description).decode()})
    return file.getvalue()


_WRITERS = {".onnx": _onnx, ".pt2": _pt2}


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress warnings from torch and ONNX about their internals."""
    names = ("torch.onnx", "torch._export", "torch.export", "onnxscript", "onnx_ir")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
