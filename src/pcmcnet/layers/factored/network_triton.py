"""The network of the factors on a CUDA device, in bfloat16: matrix products, with one kernel between two of them.

Bias, activation and dropout take one kernel per hidden layer and pass, where PyTorch takes about six. Dropout masks are
not stored but computed again. The packed first layer and the kernels are those of the pairwise network. As there, the
output layer sums in float32. Shapes: individual I (B, D0), alternatives S (B, J, D) -> log u, log v (B, J, r).
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from pcmcnet.errors import PcmcNetError
from pcmcnet.layers.generators import kernel_seeds
from pcmcnet.layers.kernel_launch import launch, multiprocessor_count
from pcmcnet.layers.pairwise.triton import hidden_layers
from pcmcnet.layers.pairwise.triton.hidden_layers import FirstLayer, packed_inputs, packed_weights

PROGRAMS_PER_PROCESSOR = 8  # that share the rows of a backward pass. Not tuned


class Options(NamedTuple):
    """Activation of the hidden layers, and their current dropout probability."""

    activation: str
    dropout: float

    @property
    def limit(self) -> int:
        """The dropout probability as 32 bits, written as a signed number."""
        limit = round(self.dropout * 2**32)
        return limit - 2**32 if limit >= 2**31 else limit

    @property
    def scale(self) -> float:
        """Factor of the remaining units, which is part of the weights of the next layer."""
        return 1 / (1 - self.dropout)


def log_factors(
    individual: Tensor,
    alternatives: Tensor,
    first: tuple[Tensor, Tensor, Tensor],
    layers: Sequence[tuple[Tensor, Tensor]],
    options: Options,
) -> tuple[Tensor, Tensor]:
    """Return log u and log v (B, J, r).

    ``first`` contains the weights of the individual (H, D0) and of the alternative (H, D), and the bias (H,).
    ``layers`` contains the weights and biases of the later layers, at least one.
    """
    seeds = kernel_seeds(alternatives.device, len(layers))
    flat = [tensor for layer in layers for tensor in layer]
    log_u, log_v = _LogFactors.apply(options, seeds, individual, alternatives, *first, *flat)
    return log_u, log_v


class _LogFactors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: Options, seeds: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        individual, alternatives, who, what, bias, *flat = inputs
        (B, J, _), rows = alternatives.shape, alternatives.shape[0] * alternatives.shape[1]
        # 1. The first layer, without its bias.
        first = FirstLayer(individual, alternatives, who, what, what, bias)
        packed = packed_inputs(first)
        z = torch.mm(packed, packed_weights(first, len(bias)).t())
        # 2. Activation and dropout of each hidden layer, and the product after it.
        weights = [(weight * options.scale).to(torch.bfloat16) for weight in flat[::2]]
        biases, results, hidden = [bias, *flat[1::2]], [z], []
        bounds = torch.arange(0, 2 * rows, max(rows, 1), device=z.device)[:2]  # all rows are real
        for k, weight in enumerate(weights):
            h = torch.empty_like(z)
            _over_rows(hidden_layers.later_hidden, z, biases[k], h, bounds, seeds, k, options)
            hidden.append(h)
            if k + 1 < len(weights):
                z = torch.mm(h, weight.t())
                results.append(z)
        out = torch.mm(hidden[-1], weights[-1].t(), out_dtype=torch.float32).add_(biases[-1]).view(B, J, -1)
        ctx.options, ctx.counts = options, (len(inputs), len(weights))
        ctx.save_for_backward(*inputs, packed, bounds, seeds, *weights, *results, *hidden)
        log_u, log_v = out.chunk(2, -1)
        return log_u, log_v

    @staticmethod
    def backward(ctx: Any, by_u: Tensor, by_v: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            raise PcmcNetError(
                "second derivatives are not supported by the GPU kernels for factored rates: use torch.func (hessian, "
                "or grad of grad), which does not use these kernels, or a CPU."
            )
        (count, layers), options, saved = ctx.counts, ctx.options, ctx.saved_tensors
        individual, alternatives, who, what, bias, *flat = saved[:count]
        packed, bounds, seeds, *rest = saved[count:]
        weights, results, hidden = (rest[k * layers : (k + 1) * layers] for k in range(3))
        biases = [bias, *flat[1::2]]
        programs = PROGRAMS_PER_PROCESSOR * multiprocessor_count(packed.device)
        # 1. The output layer.
        d = torch.cat([by_u, by_v], -1).flatten(0, 1)
        d_bias = d.sum(0)
        d = d.to(torch.bfloat16)
        # 2. The layers, from the last to the first.
        gradients: list[Tensor] = []
        for k in range(layers - 1, -1, -1):
            gradients = [torch.mm(d.t(), hidden[k], out_dtype=torch.float32).mul_(options.scale), d_bias, *gradients]
            d = torch.mm(d, weights[k])
            parts = d.new_empty(programs, d.shape[1], dtype=torch.float32)
            kernel = hidden_layers.later_hidden_backward
            _over_rows(kernel, results[k], biases[k], d, bounds, seeds, k, options, parts)
            d_bias = parts.sum(0)
        # 3. The first layer: the columns of a number and of its remainder have the same weight.
        sums, D0 = torch.mm(d.t(), packed, out_dtype=torch.float32), individual.shape[1]
        of_who, of_what = sums[:, : 2 * D0], sums[:, 2 * D0 : 2 * (D0 + what.shape[1])]
        d_who, d_what = (torch.add(*x.chunk(2, 1)) for x in (of_who, of_what))
        # 4. The inputs, if they depend on trainable weights.
        d_individual = d_alternatives = None
        if ctx.needs_input_grad[2]:
            d_individual = d.view(*alternatives.shape[:2], -1).sum(1, dtype=torch.float32) @ who
        if ctx.needs_input_grad[3]:
            d_alternatives = torch.mm(d, what.to(d.dtype), out_dtype=torch.float32).view_as(alternatives)
        return None, None, d_individual, d_alternatives, d_who, d_what, d_bias, *gradients


def _over_rows(
    kernel: Any,
    z: Tensor,
    bias: Tensor,
    target: Tensor,
    bounds: Tensor,
    seeds: Tensor,
    layer: int,
    options: Options,
    parts: Tensor | None = None,
) -> None:
    """Launch a kernel on a tensor (rows, H). Programs process one block of rows or, with parts of sums, many blocks."""
    rows, width = z.shape
    columns = triton.next_power_of_2(width)
    numbers, warps = (4096, 4) if parts is None else (512, 2)
    block = max(numbers // columns, 1)
    grid = (triton.cdiv(rows, block) if parts is None else len(parts),)
    tensors = (z, bias, target) if parts is None else (z, bias, target, parts)
    kind = {"ACT": options.activation, "DROP": options.dropout > 0, "C": columns, "R": block, "num_warps": warps}
    launch(kernel, grid, *tensors, bounds, seeds, layer, rows, width, options.limit, **kind)
