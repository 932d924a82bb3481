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

from pcmcnet.layers import settings
from pcmcnet.layers.stationary.elimination import copy_as_result, result_type, working_type
from pcmcnet.layers.stationary.gradient import (
    OPERATOR_LIBRARY,
    define_operator,
    factor_width,
    solve_chain,
    stationary,
    stationary_backward,
)
from pcmcnet.layers.tensor_ops import has_triton, is_transformed, pull_back

Results = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
Block = tuple[slice, slice]  # sets, alternatives
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
    kind, dtype = working_type(log_u.device), result_type(log_u.dtype)
    log_u, log_v = log_u.to(kind), log_v.to(kind)
    log_total = _without_padding(log_v, mask).logsumexp(1, keepdim=True)
    log_a, w, log_d = _two_steps(log_u, log_v, mask, log_total)
    log_b = _log_positive(solve(_irreducible(log_a.exp().mT @ w), _all_factors(log_u)))
    return _normalised(_log_entries(log_a, log_b) - log_d, mask).to(dtype)


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


def _without_padding(log_v: Tensor, mask: Tensor) -> Tensor:
    """Return log v with a value at padding that is far below all others: unlike -inf, it has finite derivatives."""
    return log_v.masked_fill(~mask.unsqueeze(2), torch.finfo(log_v.dtype).min / 8)


def _log_leads(log_v: Tensor, mask: Tensor, log_total: Tensor) -> Tensor:
    """Return log a (B, J, r), given log v (B, J, r) and log V (B, 1, r)."""
    return _without_padding(log_v, mask) - log_total


def _two_steps(log_u: Tensor, log_v: Tensor, mask: Tensor, log_total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log a (B, J, r), w (B, J, r) and log d (B, J), given log u, log v and log V in working precision."""
    log_exits = log_u.masked_fill(~mask.unsqueeze(2), 0.0) + log_total
    log_d = log_exits.logsumexp(2)
    return _log_leads(log_v, mask, log_total), (log_exits - log_d.unsqueeze(2)).exp(), log_d


def _smallest(dtype: torch.dtype) -> float:
    """Return a number close to 0 whose reciprocal, and small multiples of it, are finite."""
    limits = torch.finfo(dtype)
    return limits.tiny / limits.eps


def _irreducible(chain: Tensor) -> Tensor:  # (B, r, r)
    """Return P with a floor, for factors that hardly ever follow each other."""
    return chain + _smallest(chain.dtype)


def _all_factors(log_u: Tensor) -> Tensor:  # (B, J, r) -> (B, r)
    """Return the mask of the chain of the factors, in which all states are real."""
    return log_u.new_ones((log_u.shape[0], log_u.shape[2]), dtype=torch.bool)


def _log_positive(b: Tensor) -> Tensor:
    """Return the logarithm of a distribution whose smallest entries may have become 0."""
    return b.clamp_min(_smallest(b.dtype)).log()


def _log_entries(log_a: Tensor, log_b: Tensor) -> Tensor:  # (B, J, r), (B, r) -> (B, J)
    """Return log e."""
    return (log_a + log_b.unsqueeze(1)).logsumexp(2)


def _normalised(logs: Tensor, mask: Tensor) -> Tensor:
    """Return log-probabilities (B, J), with -inf for padding, also if a set has nothing else."""
    filled = logs.masked_fill(~mask, torch.finfo(logs.dtype).min / 8)
    return filled.log_softmax(1).masked_fill(~mask, -math.inf)


# -- the solution as an operator ------------------------------------------------------------------------------------
# A set of 100,000 alternatives has millions of factors, and a temporary of that size leaves the caches. So the operator
# works on blocks of alternatives, and its backward pass computes a and w again instead of reading them from memory.


def _blocks(log_u: Tensor) -> list[Block]:
    """Return blocks of sets and alternatives: whole sets or, if these are large, a part of the alternatives of one."""
    B, J, r = log_u.shape
    most = settings.FACTORED_CHUNK_NUMBERS if log_u.device.type == "cpu" else settings.FACTORED_GPU_CHUNK_NUMBERS
    sets, places = max(1, most // (J * r)), max(1, most // r)
    return [(slice(b, b + sets), slice(j, j + places)) for b in range(0, B, sets) for j in range(0, J, places)]


def kernel_width(log_u: Tensor) -> int | None:  # (B, J, r)
    """Return the number of factors for which the kernel of a CUDA device is compiled, or None if it does not apply."""
    _, J, r = log_u.shape
    applies = log_u.device.type == "cuda" and has_triton() and J <= settings.FACTORED_KERNEL_UP_TO_ALTERNATIVES
    return next((w for w in settings.FACTORED_KERNEL_WIDTHS if r <= w), None) if applies else None


def _solve(log_u: Tensor, log_v: Tensor, mask: Tensor) -> Results:
    """Return log p, and what the gradient needs: log V, p in working precision, b, the elimination of the factors."""
    if kernel_width(log_u) is not None and len(log_u):
        from pcmcnet.layers.factored import solution_triton

        return solution_triton.solve(log_u, log_v, mask)
    kind, blocks = working_type(log_u.device), _blocks(log_u)
    B, J, r = log_u.shape
    # 1. V_k, the sum over the alternatives.
    log_total = log_u.new_full((B, 1, r), -math.inf, dtype=kind)
    for block in blocks:
        part = _without_padding(log_v[block].to(kind), mask[block]).logsumexp(1, keepdim=True)
        log_total[block[0]] = torch.logaddexp(log_total[block[0]], part)
    # 2. The two steps of a transition give the chain of the factors, and its stationary distribution.
    chain, log_d = log_total.new_zeros(B, r, r), log_total.new_empty(B, J)
    for block in blocks:
        steps = log_u[block].to(kind), log_v[block].to(kind), mask[block]
        log_a, w, log_d[block] = _two_steps(*steps, log_total[block[0]])
        chain[block[0]] += log_a.exp_().mT @ w
    b, *elimination = stationary(_irreducible(chain), _all_factors(log_u))
    # 3. Entries times stays.
    log_b, logs = _log_positive(b), log_d.neg_()
    for block in blocks:
        log_a = _log_leads(log_v[block].to(kind), mask[block], log_total[block[0]])
        logs[block] += _log_entries(log_a, log_b[block[0]])
    log_p = _normalised(logs, mask)
    return (copy_as_result(log_p, log_u.dtype), log_total, log_p.exp(), b, *elimination)


def _pull_back(
    grad: Tensor,
    log_u: Tensor,
    log_v: Tensor,
    mask: Tensor,
    log_total: Tensor,
    p: Tensor,
    b: Tensor,
    factors: Tensor,
    exits: Tensor,
    working_b: Tensor,
    scale: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients w.r.t. log u and log v (B, J, r), given dL/dlog p (B, J) and the results of ``_solve``."""
    if kernel_width(log_u) is not None and len(log_u):
        from pcmcnet.layers.factored import solution_triton

        return solution_triton.pull_back(grad, log_u, log_v, mask, log_total, p, b, factors, exits)
    kind, blocks = p.dtype, _blocks(log_u)
    # 1. The derivative by log(e / d), and by log b through the shares rho of the factors in e.
    h = torch.where(mask, grad, 0).to(kind)
    h = (h - p * h.sum(1, keepdim=True)).unsqueeze(2)  # (B, J, 1)
    log_b = _log_positive(b)
    by_b = torch.zeros_like(b)
    for block in blocks:
        log_a = _log_leads(log_v[block].to(kind), mask[block], log_total[block[0]])
        by_b[block[0]] += _shares(log_a, log_b[block[0]]).mul_(h[block]).sum(1)
    # 2. The derivative by the chain of the factors, from the factors of its elimination.
    by_b /= log_b.exp()
    by_chain = stationary_backward(by_b, _all_factors(log_u), factors, exits, working_b, scale)  # G (B, r, r)
    # 3. Back through both steps of a transition. The gradient by log a is stored as that by log v.
    by_u, by_v = (torch.empty_like(x, dtype=grad.dtype, memory_format=torch.contiguous_format) for x in (log_u, log_v))
    by_total = torch.zeros_like(log_total)
    for block in blocks:
        log_a, w, _ = _two_steps(log_u[block].to(kind), log_v[block].to(kind), mask[block], log_total[block[0]])
        by_entry = _shares(log_a, log_b[block[0]]).mul_(h[block])  # h rho
        a, G = log_a.exp_(), by_chain[block[0]]
        by_a = (w @ G.mT).mul_(a).add_(by_entry)
        by_w = (a @ G).mul_(w)
        by_exit = by_w - w.mul_(h[block] + by_w.sum(2, keepdim=True))
        by_u[block], by_v[block] = by_exit, by_a
        by_total[block[0]] += by_exit.sub_(by_a).sum(1, keepdim=True)
    # 4. Back through the total V, of which each v is a part.
    for block in blocks:
        a = _log_leads(log_v[block].to(kind), mask[block], log_total[block[0]]).exp_()
        by_v[block] += a.mul_(by_total[block[0]])
    return by_u, by_v


def _shares(log_a: Tensor, log_b: Tensor) -> Tensor:  # (B, J, r), (B, r) -> (B, J, r)
    """Return rho, the shares of the factors in the entries of each alternative."""
    return (log_a + log_b.unsqueeze(1)).softmax(2)


def _solve_shapes(log_u: Tensor, log_v: Tensor, mask: Tensor) -> Results:
    B, J, r = log_u.shape
    chain = log_u.new_empty(B, r, r, dtype=working_type(log_u.device))  # its elimination has the same type everywhere
    sizes = (B * factor_width(chain) ** 2, B * r, B * r, B)
    others = (chain.new_empty(shape) for shape in ((B, 1, r), (B, J), (B, r), *((size,) for size in sizes)))
    return (log_u.new_empty(B, J, dtype=result_type(log_u.dtype)), *others)  # type: ignore[return-value]


def _pull_back_shapes(grad: Tensor, log_u: Tensor, log_v: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
    return grad.new_empty(log_u.shape), grad.new_empty(log_v.shape)


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
    by_u, by_v = torch.ops.pcmcnet.factored_backward.default(grad, log_u, log_v, mask, *solution)
    return by_u.to(log_u.dtype), by_v.to(log_v.dtype), None


_SOLUTION = "Tensor log_total, Tensor p, Tensor b, Tensor factors, Tensor exits, Tensor working_b, Tensor scale"
define_operator(
    f"factored(Tensor log_u, Tensor log_v, Tensor mask) -> ({', '.join(['Tensor'] * 8)})", _solve, _solve_shapes
)
define_operator(
    f"factored_backward(Tensor grad, Tensor log_u, Tensor log_v, Tensor mask, {_SOLUTION}) -> (Tensor, Tensor)",
    _pull_back,
    _pull_back_shapes,
)
register_autograd("pcmcnet::factored", _differentiate, setup_context=_save, lib=OPERATOR_LIBRARY)
