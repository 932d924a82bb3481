"""The law and its derivatives, in any of torch's ways.

The plain reverse mode, which training takes, is one backward pass from the factors of the elimination, registered with
the operator. All else is a matter of :mod:`plain`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd

from pcmcnet.layers.stationary.elimination_differentiable import plain_law
from pcmcnet.layers.stationary.operators import LIBRARY, Results, stationary, stationary_backward
from pcmcnet.layers.transforms import is_transformed, pull_back


def solve(rates: Tensor, mask: Tensor) -> Tensor:  # (B, n, n), (B, n) -> (B, n)
    """Return the law of chains known to be sound."""
    if is_transformed(rates):
        return plain_law(rates, mask)
    p: Tensor = stationary(rates, mask)[0]
    return p


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Results) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # or the factors would be given gradients of zeros
    ctx.save_for_backward(*inputs, *output[1:])


def _differentiate(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, None]:
    if grad is None:
        return None, None
    rates, mask, *kept = ctx.saved_tensors
    if torch.is_grad_enabled():  # create_graph=True; torch's once_differentiable would let a Hessian be 0
        real = torch.where(mask, grad, 0)  # whatever it holds at padding
        return pull_back(partial(plain_law, mask=mask), [rates], real)[0], None
    return stationary_backward(grad, mask, *kept).to(rates.dtype), None


register_autograd("pcmcnet::stationary", _differentiate, setup_context=_save, lib=LIBRARY)
