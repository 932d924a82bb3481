"""Derivatives of a network's log-probabilities with respect to a numeric column, by automatic differentiation.

The network receives a value x_j as the input z_j, which is standardised and may be transformed by asinh. By the chain
rule,

    d log p_i / d x_j = (d log p_i / d z_j) (d z_j / d x_j).

The first factor is a Jacobian (B, J, J) of a batch: row i is computed by a backward pass from the i-th alternative of
every set. In general, the Jacobian takes J backward passes through the network (:func:`jacobian_by_output`). In
PCMC-Net a score f_kl depends only on z_k and z_l, so one pass gives both derivatives of all scores. Only the stationary
distribution of the J x J scores, which is cheap compared with the network, needs J backward passes
(:func:`jacobian_by_pairs`):

    d log p_i / d z_m = sum_l (d log p_i / d f_ml) (d f_ml / d z_m) + sum_k (d log p_i / d f_km) (d f_km / d z_m).

A linear utility u_m of z_m adds (d log p_i / d u_m) (d u_m / d z_m).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.arrays import Floats
from pcmcnet.data import Batch, ChoiceData
from pcmcnet.data.batches import plan_batches
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.data.columns.ragged import consecutive_indices, ordered_pairs, spread
from pcmcnet.layers import log_probabilities, solve_chain
from pcmcnet.layers.inner_logit import LinearUtility
from pcmcnet.layers.tensor_ops import real_pairs
from pcmcnet.layers.threads import one_thread_per_operation
from pcmcnet.training.device import batches_on, device_of, encode_on

if TYPE_CHECKING:
    from pcmcnet.models.networks.neural_model import NeuralModel
    from pcmcnet.models.networks.pairwise_network import PCMCNetwork


MAX_CHUNK_FLOATS = 2**22  # of a temporary array over pairs: 16 MiB


class NumericInput(NamedTuple):
    """One numeric input of a network."""

    individual: bool  # whether it belongs to the individual, or to each alternative
    k: int  # its position among the numeric inputs

    def with_gradient(self, batch: Batch) -> tuple[Batch, Tensor]:
        """Return a copy of the batch whose numeric inputs require a gradient, and these inputs."""
        name = "individual_numeric" if self.individual else "numeric"
        leaf = getattr(batch, name).detach().clone().requires_grad_()
        changed: dict[str, Any] = {name: leaf}
        return replace(batch, **changed), leaf


def network_slopes(model: NeuralModel, data: ChoiceData, column: str) -> Floats:
    """Return derivatives with respect to a feature, (sum n^2,), or to an individual-level column, (N,)."""
    individual = column not in data.features
    columns = data.individual if individual else data.features
    side = model.encoder_.individual if individual else model.encoder_.features
    lengths = data.sizes if individual else data.sizes**2
    out = np.zeros(int(lengths.sum()))
    codes = {code.name: (k, code) for k, code in enumerate(side.numeric)}
    if column not in codes or not len(data):
        return out  # the column is not an input of the network
    k, code = codes[column]
    values = columns[column]
    assert isinstance(values, Numeric)
    scale = code.slope(values.values.astype(np.float64))  # (N,), or (S,)
    starts, device = np.cumsum(lengths) - lengths, device_of(model.network_)
    encoded = encode_on(device, model.encoder_, data)
    plan = plan_batches(data.sizes, batch_size=len(data), pair_budget=model.config.pair_budget)
    model.network_.eval()
    for sets, batch in zip(plan, batches_on(device, encoded, plan), strict=True):
        with one_thread_per_operation(batch.mask.numel() * batch.mask.shape[1] * model.num_parameters):
            jacobian = model._jacobian(batch, NumericInput(individual, k))
        real = batch.mask if individual else batch.mask.unsqueeze(2) & batch.mask.unsqueeze(1)
        out[consecutive_indices(starts[sets], lengths[sets])] = jacobian[real].double().cpu().numpy()
    slopes: Floats = out * (spread(scale, data.offsets) if individual else scale[ordered_pairs(data.offsets)[1]])
    return slopes


def jacobian_by_output(network: nn.Module, batch: Batch, at: NumericInput) -> Tensor:
    """Return derivatives of any network's log-probabilities: (B, J, J), or (B, J) for an individual-level input."""
    with (
        torch.enable_grad(),
        torch.backends.cudnn.flags(enabled=False),
    ):  # cuDNN's LSTM has no gradient outside training
        inputs, leaf = at.with_gradient(batch)
        log_p = network(inputs)
        rows = [_pull_back(log_p, batch.mask, i, leaf)[0][..., at.k] for i in range(batch.mask.shape[1])]
    return torch.stack(rows, 1)


def jacobian_by_pairs(network: PCMCNetwork, batch: Batch, at: NumericInput) -> Tensor:
    """Return the result of :func:`jacobian_by_output` for a PCMC-Net, with one pass through its network."""
    mask = batch.mask
    # 1. Compute the scores of all pairs and the utilities, and their derivatives in the input.
    with torch.no_grad():
        inputs = network.represent(batch)
        leave, enter = network.rates.halves(*inputs)  # (B, J, H)
        scores = network.rates.scores_of_halves(leave, enter, mask)
        utility = scores.new_zeros(mask.shape) if network.utility is None else network.utility(batch, *inputs)
    score_slopes = _score_slopes(network, batch, at, leave, enter)
    utility_slopes = None if network.utility is None else _utility_slopes(network.utility, batch, at, *inputs)  # (B, J)
    # 2. Differentiate each log-probability in the scores and utilities, and apply the chain rule.
    with torch.enable_grad():
        scores, utility = scores.detach().requires_grad_(), utility.detach().requires_grad_()
        log_p = log_probabilities(solve_chain(network.rates_of_scores(scores, utility, mask), mask), mask)
        rows = []
        for i in range(mask.shape[1]):
            by_score, by_utility = _pull_back(log_p, mask, i, scores, utility)  # (B, J, J), (B, J)
            parts = [by_score * slope for slope in score_slopes]
            row = parts[0].sum((1, 2)) if at.individual else parts[0].sum(2) + parts[1].sum(1)
            if utility_slopes is not None:
                added = by_utility * utility_slopes
                row = row + (added.sum(1) if at.individual else added)
            rows.append(row)
    return torch.stack(rows, 1)


def _score_slopes(network: PCMCNetwork, batch: Batch, at: NumericInput, leave: Tensor, enter: Tensor) -> list[Tensor]:
    """Return derivatives of each score f_kl with respect to the inputs of k and l, or to the individual's input.

    The result consists of two tensors (B, J, J), or of one for an individual-level input. The score f_kl is a function
    of leave_k + enter_l, and both terms are linear in the input.
    """
    pairs = real_pairs(batch.mask)
    s, k, m = pairs.nonzero(as_tuple=True)  # (P,)
    rates = network.rates
    layers = [rates.who] if at.individual else [rates.leave, rates.enter]
    # Numeric inputs come last in a representation.
    position = at.k - (batch.individual_numeric if at.individual else batch.numeric).shape[-1]
    columns = [layer.weight.detach()[:, position] for layer in layers if layer is not None]
    direction = torch.stack(columns, 1)  # (H, 1 or 2)
    out = leave.new_zeros(len(s), direction.shape[1])
    for begin in range(0, len(s), max(MAX_CHUNK_FLOATS // leave.shape[-1], 1)):
        chunk = slice(begin, begin + max(MAX_CHUNK_FLOATS // leave.shape[-1], 1))
        # Each pair is a separate set, so that gradients of different pairs are not summed.
        left, entered = leave[s[chunk], k[chunk]].unsqueeze(1), enter[s[chunk], m[chunk]].unsqueeze(1)  # (p, 1, H)
        with torch.enable_grad():
            left = left.requires_grad_()
            (gradient,) = torch.autograd.grad(rates.scores_of_halves(left, entered).sum(), left)
        out[chunk] = gradient.squeeze(1) @ direction
    grid = leave.new_zeros(pairs.shape)
    return [grid.index_put((s, k, m), slope) for slope in out.unbind(1)]


@torch.no_grad()
def _utility_slopes(
    utility: LinearUtility, batch: Batch, at: NumericInput, individual: Tensor, alternatives: Tensor
) -> Tensor:
    """Return derivatives (B, J) of each utility with respect to the alternative's or the individual's input."""
    # Numeric inputs come last in a representation.
    position = at.k - (batch.individual_numeric if at.individual else batch.numeric).shape[-1]
    if at.individual:
        assert utility.taste is not None
        return alternatives @ utility.taste[:, position]
    slope = utility.slopes[at.k] + utility.weights(individual)[:, position]
    return slope.unsqueeze(1).expand(alternatives.shape[:2])


def _pull_back(log_p: Tensor, mask: Tensor, i: int, *leaves: Tensor) -> tuple[Tensor, ...]:
    """Return gradients of the log-probability of each set's i-th alternative, which are 0 for smaller sets."""
    real = log_p[:, i].where(mask[:, i] & log_p[:, i].isfinite(), log_p.new_zeros(()))  # -inf would give NaN
    return torch.autograd.grad(real.sum(), leaves, retain_graph=True, materialize_grads=True)
