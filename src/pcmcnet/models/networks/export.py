"""A fitted network as a file for programs without this library: a graph of plain operators, and its encoder.

``model.onnx`` is read by any ONNX runtime (Java, C++, C#, Rust, JavaScript, ...), ``model.pt2`` by
``torch.export.load``. Both map the tensors of padded choice sets to probabilities, for any number of sets and places:

    numeric (B, J, F) float32, categorical (B, J, C) int64          of the alternatives
    individual_numeric (B, F0) float32, individual_categorical (B, C0) int64
    mask (B, J) bool, true for real alternatives        ->          probabilities (B, J) float32

An input of which a model has no column is left out. How columns become these tensors is told by
``model.encoder.json`` beside the graph, and again in the graph's own metadata.
"""

from __future__ import annotations

import io
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
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
from pcmcnet.models.networks.chain_network import AveragedChains, ChainMixture, PCMCNetwork
from pcmcnet.storage import json_bytes, write_bytes
from pcmcnet.training.device import default_torch_settings

ENCODER = "encoder.json"  # its name in the metadata of a graph
OPSET = 18


class ExportedNetwork(nn.Module):
    """Tensors -> probabilities (B, J), in operators that torch and ONNX both know; a copy of a network's weights."""

    def __init__(self, network: PCMCNetwork | AveragedChains) -> None:
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
        """(B, J), (B, J, F), (B, J, C), (B, F0), (B, C0) -> (B, J); what is not given has no columns."""
        B, J = mask.shape
        numbers, indices = mask.new_zeros(B, J, 0, dtype=torch.float32), mask.new_zeros(B, J, 0, dtype=torch.int64)
        batch = Batch(
            numeric=numbers if numeric is None else numeric,
            categorical=indices if categorical is None else categorical,
            individual_numeric=numbers[:, 0] if individual_numeric is None else individual_numeric,
            individual_categorical=indices[:, 0] if individual_categorical is None else individual_categorical,
            mask=mask,
            chosen=mask.new_zeros(B, dtype=torch.int64),
            weight=mask.new_ones(B, dtype=torch.float32),
        )
        network = self.network
        seen = network.chain_inputs(batch) if isinstance(network, AveragedChains) else [(network, batch)]
        # 1. Chains with rates of scores alone are solved one by one: their rates may differ by many magnitudes.
        if seen[0][0].has_log_rates and not isinstance(network, ChainMixture):
            return torch.stack([member.distribution(own, exported_distribution) for member, own in seen]).mean(0)
        # 2. All chains, of members or of classes, are solved at once.
        rates = network.member_chains(batch) if isinstance(network, AveragedChains) else network.chains(batch)
        chains = rates.shape[1]  # (B, K, J, J)
        if chains == 1:
            return exported_distribution(rates.squeeze(1), mask)
        of_chains = mask.unsqueeze(1).expand(-1, chains, -1).flatten(0, 1)
        p = exported_distribution(rates.flatten(0, 1), of_chains).view(-1, chains, J)
        # 3. Members count alike, classes by their shares.
        if not isinstance(network, ChainMixture):
            return p.mean(1)
        mixed: Tensor = (network.log_membership(batch).exp().unsqueeze(-1) * p).sum(1)
        return mixed


def export_network(network: PCMCNetwork | AveragedChains, encoder: Encoder, path: str | Path) -> Path:
    """Write the graph, in the format that the ending of ``path`` names, and the encoder beside it."""
    if not isinstance(path, str | os.PathLike) or Path(path).suffix not in _WRITERS:
        raise InputError(f"expected a file name that ends in {' or '.join(_WRITERS)}, got {path!r}.")
    file = Path(path)
    for column, kind in encoder.schema.contents.items():
        raise ConfigError(
            f"column {column!r} is of kind {kind}: only networks of numbers and categories can be exported. Fit one "
            f"without it, or serve this model by `pcmcnet serve`."
        )
    told = describe_inputs(encoder)
    with default_torch_settings(), _quietly():
        content = _WRITERS[file.suffix](_traced(ExportedNetwork(network), told), told)
    write_bytes(file, content)
    write_bytes(file.with_suffix(f".{ENCODER}"), json_bytes(told))
    return file


# -- the encoder --------------------------------------------------------------------------------------------------


def describe_inputs(encoder: Encoder) -> dict[str, Any]:
    """Return what a program needs to turn choice sets into the inputs of a graph, as plain values that explain."""
    gaps = encoder.schema.can_have_missing_values
    inputs: list[dict[str, Any]] = []
    for name, side, axes in (("", encoder.features, ["sets", "places"]), ("individual_", encoder.individual, ["sets"])):
        kinds = ("numeric", "float32", _numbers(side)), ("categorical", "int64", _categories(side, gaps))
        for kind, dtype, columns in kinds:
            if columns:
                about = {"name": name + kind, "dtype": dtype, "shape": [*axes, len(columns)]}
                inputs.append({**about, "entries": columns})
    mask = {"name": "mask", "dtype": "bool", "shape": ["sets", "places"]}
    output = {"name": "probabilities", "dtype": "float32", "shape": ["sets", "places"]}
    return {"format": "pcmcnet encoder", "version": 1, "about": _ABOUT, "inputs": [*inputs, mask], "output": output}


_ABOUT = {
    "inputs": (
        "Entry k of 'entries' says how the last axis of an input is filled at place k. Inputs whose name begins with "
        "individual_ have one row per choice set, the others one per alternative. mask is true for alternatives and "
        "false for padding, which may hold anything."
    ),
    "number": (
        "Round the value to float32. A missing one becomes 'missing', or is refused where that is null. Otherwise the "
        "entry is 0 where scale is 0, and (x - mean) / scale elsewhere; x is asinh(value / bend) where bend is above "
        "0, and else the value. Compute in float64, then round to float32."
    ),
    "missing": "1 where the value of the column is missing, 0 elsewhere.",
    "category": (
        "The position of the text in 'categories', counted from 1; 0 for a text that is not there. A missing one "
        "becomes 'missing', or is refused where that is null."
    ),
}


def _numbers(side: SideEncoder) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = []
    for code in side.numeric:
        form = {"bend": code.bend, "mean": code.mean, "scale": code.scale}
        values.append({"column": code.name, "entry": "number", **form, "missing": 0.0 if code.indicator else None})
    return values + [{"column": code.name, "entry": "missing"} for code in side.numeric if code.indicator]


def _categories(side: SideEncoder, gaps: bool) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for code in side.categorical:
        known, missing = list(code.categories), None
        if gaps:
            missing = known.index(MISSING_CATEGORY) + 1 if MISSING_CATEGORY in known else UNSEEN_INDEX
        entries.append({"column": code.name, "entry": "category", "missing": missing, "categories": known})
    return entries


# -- the graph ----------------------------------------------------------------------------------------------------


def _traced(network: ExportedNetwork, told: dict[str, Any]) -> Any:
    """Return the program of a network for any number of sets and places."""
    size = {"sets": 3, "places": 4}  # of the example; neither 0 nor 1, which are special to torch, nor the same
    example = {}
    for given in told["inputs"]:
        shape = [size.get(n, n) for n in given["shape"]]
        example[given["name"]] = torch.ones(shape, dtype=getattr(torch, given["dtype"]))
    dims = {axis: torch.export.Dim(axis) for axis in size}
    program = torch.export.export(network, (), example, dynamic_shapes=_axes(told, dims))
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.meta.pop("stack_trace", None)  # names files of this machine
    return program


def _axes(told: dict[str, Any], names: Mapping[str, Any]) -> dict[str, dict[int, Any]]:
    """Name the axes of each input that may have any size."""
    return {
        given["name"]: {k: names[axis] for k, axis in enumerate(given["shape"]) if axis in names}
        for given in told["inputs"]
    }


def _onnx(program: Any, told: dict[str, Any]) -> bytes:
    try:
        import onnx
        import onnx_ir
        import onnxscript  # noqa: F401 - which torch needs
    except ImportError as error:
        raise ConfigError(f"an ONNX file needs {error.name}: pip install 'pcmcnet[export]'.") from error
    axes = _axes(told, {"sets": "sets", "places": "places"})
    made = torch.onnx.export(
        program, dynamo=True, opset_version=OPSET, dynamic_shapes=axes, output_names=["probabilities"], verbose=False
    )
    assert made is not None
    onnx_ir.passes.common.ClearMetadataAndDocStringPass()(made.model)  # names files of this machine
    made.model.metadata_props[ENCODER] = json_bytes(told).decode()
    content: bytes = made.model_proto.SerializeToString()
    onnx.checker.check_model(content)
    return content


def _pt2(program: Any, told: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={ENCODER: json_bytes(told).decode()})
    return file.getvalue()


_WRITERS = {".onnx": _onnx, ".pt2": _pt2}


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep what torch says of its own parts to itself."""
    talkative = ("torch.onnx", "torch._export", "torch.export", "onnxscript", "onnx_ir")
    loggers = [logging.getLogger(name) for name in talkative]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
