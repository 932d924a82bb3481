"""Stationary distribution of chains whose rates have non-negative rank r, in time linear in the alternatives.

    q_ij = sum_k u_ik v_jk        rate of leaving i for j: i is left through factor k, and j is entered through it

Seen at the moments of its transitions, such a chain moves in two steps: from an alternative to a factor, and from the
factor to the next alternative. With V_k = sum_j v_jk and d_i = sum_k u_ik V_k, the rate of leaving i (for i itself,
too, which changes nothing),

    w_ik = u_ik V_k / d_i         probability of leaving i through factor k
    a_jk = v_jk / V_k             probability that factor k leads to j
    P_lk = sum_i a_il w_ik        probability of moving from factor l to factor k

So the factors are the states of a chain with r states. Its stationary distribution b gives that of the alternatives:

    e_i = sum_k a_ik b_k,         pi_i = (e_i / d_i) / sum_j (e_j / d_j)

where e_i is the share of transitions that enter i, and 1 / d_i the mean stay in i. All numbers are positive and
nothing is subtracted, so every probability has a small relative error. u and v are given as logarithms, and all
quantities that may be very small or very large stay logarithms. The chain of the factors is solved by the elimination
of :mod:`pcmcnet.layers.stationary`. A set of n alternatives takes n r^2 products.

The gradient needs no graph through the elimination. With g_i = dL/dlog pi_i, rho_ik = a_ik b_k / e_i and
G_lk = dL/dP_lk, which follows from dL/dlog b_k = sum_i h_i rho_ik,

    h_i          = g_i - pi_i sum_j g_j                       derivative by log(e_i / d_i)
    dL/dlog a_ik = h_i rho_ik + a_ik sum_m w_im G_km
    dL/dlog w_ik = w_ik sum_l a_il G_lk
    dL/dlog u_ik = dL/dlog w_ik - w_ik (h_i + sum_m dL/dlog w_im)
    dL/dlog V_k  = sum_i (dL/dlog u_ik - dL/dlog a_ik)
    dL/dlog v_ik = dL/dlog a_ik + a_ik dL/dlog V_k.

Shapes: B sets of up to J alternatives, r factors. log_u, log_v (B, J, r), mask (B, J) -> log p (B, J).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd

from pcmcnet.layers.stationary.elimination import copy_as_result, result_type, working_type
from pcmcnet.layers.stationary.gradient import (
    OPERATOR_LIBRARY,
    define_operator,
    factor_width,
    solve_chain,
    stationary,
    stationary_backward,
)
from pcmcnet.layers.tensor_ops import is_transformed, pull_back

Results = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
LOG_PADDING = -1e30  # log v of padding: exp is 0, and unlike -inf it has finite derivatives of any order
ChainSolver = Callable[[Tensor, Tensor], Tensor]  # rates (B, r, r), mask (B, r) -> p (B, r)


def log_factored_distribution(log_u: Tensor, log_v: Tensor, mask: Tensor) -> Tensor:
    """Return the log stationary distribution of valid factors: (B, J, r), (B, J, r), (B, J) -> (B, J).

    For ``torch.compile`` and ``torch.export`` this is one operator, ``pcmcnet::factored``.

    Parameters
    ----------
    log_u
        Logarithms of the rates of leaving each alternative through each factor, (B, J, r).
    log_v
        Logarithms of the weights with which each factor leads to each alternative, (B, J, r).
    mask
        Mask (B, J), True for real alternatives. Every set has at least one. Values at padding are ignored.

    Returns
    -------
    Tensor
        Log-probabilities (B, J), with -inf for padding.
    """
    if is_transformed(log_u, log_v):
        return composed_distribution(log_u, log_v, mask)
    log_p: Tensor = torch.ops.pcmcnet.factored.default(log_u, log_v, mask)[0]
    return log_p


def composed_distribution(log_u: Tensor, log_v: Tensor, mask: Tensor, solve: ChainSolver = solve_chain) -> Tensor:
    """Compute :func:`log_factored_distribution` with differentiable operators.

    Used for derivatives that the operator does not support, and for export, with a ``solve`` that can be exported.
    """
    kind = working_type(log_u.device)
    log_a, w, log_d = _two_steps(log_u.to(kind), log_v.to(kind), mask)
    log_b = _log_positive(solve(_factor_chain(log_a, w), _all_factors(log_u)))
    log_e = _log_entries(log_a, log_b)
    return _normalised(log_e - log_d, mask).to(result_type(log_u.dtype))


def dense_rates(log_u: Tensor, log_v: Tensor, mask: Tensor) -> Tensor:
    """Return the rates of all pairs, scaled so that the largest of a set is 1: (B, J, r), (B, J, r) -> (B, J, J).

    Entries on the diagonal and at padding are 0. This takes J^2 r operations, so it is meant for small sets.
    """
    pairs = mask.unsqueeze(2) & mask.unsqueeze(1) & ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
    logs = (log_u.double().unsqueeze(2) + log_v.double().unsqueeze(1)).logsumexp(3).masked_fill(~pairs, -math.inf)
    top = logs.amax((1, 2), keepdim=True)
    rates: Tensor = (logs - top.masked_fill(top == -math.inf, 0.0)).exp()
    return rates


# -- the steps of the solution --------------------------------------------------------------------------------------


def _two_steps(log_u: Tensor, log_v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log a (B, J, r), w (B, J, r) and log d (B, J), given log u and log v in working precision."""
    real = mask.unsqueeze(2)
    log_v = log_v.masked_fill(~real, LOG_PADDING)
    log_total = log_v.logsumexp(1, keepdim=True)  # log V (B, 1, r)
    log_exits = log_u.masked_fill(~real, 0.0) + log_total
    log_d = log_exits.logsumexp(2)
    return log_v - log_total, (log_exits - log_d.unsqueeze(2)).exp(), log_d


def _factor_chain(log_a: Tensor, w: Tensor) -> Tensor:  # -> (B, r, r)
    """Return P, with a floor that keeps the chain irreducible if two factors hardly ever follow each other."""
    return log_a.exp().mT @ w + torch.finfo(w.dtype).tiny


def _all_factors(log_u: Tensor) -> Tensor:  # (B, J, r) -> (B, r)
    """Return the mask of the chain of the factors, in which all states are real."""
    return log_u.new_ones((log_u.shape[0], log_u.shape[2]), dtype=torch.bool)


def _log_positive(b: Tensor) -> Tensor:
    """Return the logarithm of a distribution whose smallest entries may have become 0."""
    return b.clamp_min(torch.finfo(b.dtype).tiny).log()


def _log_entries(log_a: Tensor, log_b: Tensor) -> Tensor:  # (B, J, r), (B, r) -> (B, J)
    """Return log e."""
    return (log_a + log_b.unsqueeze(1)).logsumexp(2)


def _normalised(logs: Tensor, mask: Tensor) -> Tensor:
    """Return log-probabilities (B, J), with -inf for padding."""
    return logs.masked_fill(~mask, -math.inf).log_softmax(1)


# -- the solution as an operator ------------------------------------------------------------------------------------


def _solve(log_u: Tensor, log_v: Tensor, mask: Tensor) -> Results:
    """Return log p, and what the gradient needs: log a, w, p in working precision, b, the elimination of factors."""
    kind = working_type(log_u.device)
    # 1. The two steps of a transition.
    log_a, w, log_d = _two_steps(log_u.to(kind), log_v.to(kind), mask)
    # 2. The chain of the factors, and its stationary distribution.
    b, *elimination = stationary(_factor_chain(log_a, w), _all_factors(log_u))
    # 3. Entries times stays.
    log_p = _normalised(_log_entries(log_a, _log_positive(b)) - log_d, mask)
    return (copy_as_result(log_p, log_u.dtype), log_a, w, log_p.exp(), b, *elimination)


def _pull_back(
    grad: Tensor,
    mask: Tensor,
    log_a: Tensor,
    w: Tensor,
    p: Tensor,
    b: Tensor,
    factors: Tensor,
    exits: Tensor,
    working_b: Tensor,
    scale: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients w.r.t. log u and log v (B, J, r), given dL/dlog p (B, J) and the results of ``_solve``."""
    all_factors = _all_factors(w)
    # 1. The derivative by log(e / d), and by log b through the shares rho of the factors in e.
    h = torch.where(mask, grad, 0).to(w.dtype)
    h = (h - p * h.sum(1, keepdim=True)).unsqueeze(2)  # (B, J, 1)
    log_b = _log_positive(b)
    by_entry = h * (log_a + log_b.unsqueeze(1)).softmax(2)  # h rho
    # 2. The derivative by the chain of the factors, from the factors of its elimination.
    by_b = by_entry.sum(1) / log_b.exp()
    by_chain = stationary_backward(by_b, all_factors, factors, exits, working_b, scale)  # G (B, r, r)
    # 3. Back through both steps of a transition.
    a = log_a.exp()
    by_a = by_entry + a * (w @ by_chain.mT)
    by_w = w * (a @ by_chain)
    by_u = by_w - w * (h + by_w.sum(2, keepdim=True))
    by_total = (by_u - by_a).sum(1, keepdim=True)
    by_v = by_a + a * by_total
    return copy_as_result(by_u, grad.dtype), copy_as_result(by_v, grad.dtype)


def _solve_shapes(log_u: Tensor, log_v: Tensor, mask: Tensor) -> Results:
    kind = working_type(log_u.device)
    B, J, r = log_u.shape
    chain = log_u.new_empty(B, r, r, dtype=kind)
    sizes = (B * factor_width(chain) ** 2, B * r, B * r, B)
    elimination = [chain.new_empty(size) for size in sizes]
    log_a, w, p, b = (chain.new_empty(shape) for shape in ((B, J, r), (B, J, r), (B, J), (B, r)))
    return (log_u.new_empty(B, J, dtype=result_type(log_u.dtype)), log_a, w, p, b, *elimination)  # type: ignore[return-value]


def _pull_back_shapes(grad: Tensor, mask: Tensor, log_a: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
    return grad.new_empty(log_a.shape), grad.new_empty(log_a.shape)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Results) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs, *output[1:])


def _differentiate(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, Tensor | None, None]:
    if grad is None:
        return None, None, None
    log_u, log_v, mask, *solution = ctx.saved_tensors
    if torch.is_grad_enabled():  # create_graph=True
        real = torch.where(mask, grad, 0)
        by_u, by_v = pull_back(partial(composed_distribution, mask=mask), [log_u, log_v], real)
        return by_u, by_v, None
    by_u, by_v = torch.ops.pcmcnet.factored_backward.default(grad, mask, *solution)
    return by_u.to(log_u.dtype), by_v.to(log_v.dtype), None


_CHAIN = "Tensor b, Tensor factors, Tensor exits, Tensor working_b, Tensor scale"
define_operator(
    "factored(Tensor log_u, Tensor log_v, Tensor mask) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _solve,
    _solve_shapes,
)
define_operator(
    f"factored_backward(Tensor grad, Tensor mask, Tensor log_a, Tensor w, Tensor p, {_CHAIN}) -> (Tensor, Tensor)",
    _pull_back,
    _pull_back_shapes,
)
register_autograd("pcmcnet::factored", _differentiate, setup_context=_save, lib=OPERATOR_LIBRARY)
