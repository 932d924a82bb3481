"""Adam (Kingma & Ba, 2015) with decoupled decay (Loshchilov & Hutter, 2019): one call for all weights.

The numbers are those of ``torch.optim.AdamW`` with ``fused=True``, whose state this one shares. That class loads the
compiler of torch when it is first made, which takes longer than to fit a small table. The function inside it is not one
that torch promises to keep: a version without it gets the formula itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

BETAS, EPS = (0.9, 0.999), 1e-8

AdamState = Mapping[int, Mapping[str, Tensor]]


class Slot(NamedTuple):
    """A weight, and running means of its gradient and of the gradient's square."""

    weight: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    step: Tensor  # taken so far
    decay: float


class Adam:
    """The optimiser of some weights; ``lr`` may be changed at any time, and may be a tensor.

    Weights in ``without_decay`` have no weight decay.
    """

    def __init__(
        self, parameters: Iterable[Tensor], *, lr: float | Tensor, decay: float, without_decay: Iterable[Tensor] = ()
    ) -> None:
        self.lr, exempt = lr, {id(p) for p in without_decay}
        self.slots: list[Slot] = []
        for p in parameters:
            step = torch.zeros((), dtype=torch.float32, device=p.device)
            own_decay = 0.0 if id(p) in exempt else decay
            self.slots.append(Slot(p, torch.zeros_like(p), torch.zeros_like(p), step, own_decay))
        kinds = sorted(self.slots, key=_kind)  # one call moves all weights of one kind
        self.groups = [list(slots) for _, slots in groupby(kinds, key=_kind)]

    def step(self) -> None:
        """Move the weights that have a gradient."""
        for group in self.groups:
            # 1. The weights of one kind that have a gradient, as lists of tensors.
            moved = [(slot, slot.weight.grad) for slot in group if slot.weight.grad is not None]
            if not moved:
                continue
            slots, gradients = zip(*moved, strict=True)
            weights, means, squares, steps = (list(part) for part in list(zip(*slots, strict=True))[:4])
            # 2. Count the step, then move all of them in one call.
            options = {"lr": self.lr, "beta1": BETAS[0], "beta2": BETAS[1], "weight_decay": group[0].decay, "eps": EPS}
            for_each("add", steps, 1)
            with torch.no_grad():
                step: Callable[..., object] = getattr(torch, "_fused_adamw_", _plain_adamw_)
                step(weights, list(gradients), means, squares, [], steps, **options, amsgrad=False, maximize=False)

    @property
    def state(self) -> dict[int, dict[str, Tensor]]:
        """The state that a resumed run needs, by the number of the weight."""
        return {k: {"step": s.step, "exp_avg": s.exp_avg, "exp_avg_sq": s.exp_avg_sq} for k, s in enumerate(self.slots)}

    @torch.no_grad()
    def restore(self, state: AdamState) -> None:
        """Copy the state of an earlier run into the memory of this one, which a recorded graph reads."""
        for k, entries in state.items():
            slot = self.slots[k]
            for tensor, name in ((slot.step, "step"), (slot.exp_avg, "exp_avg"), (slot.exp_avg_sq, "exp_avg_sq")):
                tensor.copy_(entries[name])


def _plain_adamw_(
    *lists: list[Tensor], lr: float | Tensor, beta1: float, beta2: float, weight_decay: float, eps: float, **_: bool
) -> None:
    """Compute what the fused function does, weight by weight: weights, gradients, means, squares, nothing, steps."""
    *tensors, _nothing, steps = lists
    for w, g, m, v, step in zip(*tensors, steps, strict=True):
        # 1. Decoupled decay.
        w.mul_(1 - lr * weight_decay)
        # 2. Running means of the gradient and of its square.
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        # 3. A step along their quotient, both freed of their bias towards 0.
        first, second = (1 - beta ** step.double() for beta in (beta1, beta2))  # in float32 they would lose digits
        w.sub_(lr / first * m / ((v / second).sqrt_() + eps))


def for_each(operator: str, tensors: list[Tensor], value: float | Tensor) -> None:
    """Apply an operator of torch in place to all tensors, in one call if torch has one for it."""
    one_call = getattr(torch, f"_foreach_{operator}_", None)
    if one_call is not None:
        one_call(tensors, value)
        return
    for tensor in tensors:
        getattr(tensor, f"{operator}_")(value)


def _kind(slot: Slot) -> tuple[str, str, float]:
    """Return what the weights of one call share: device, dtype, decay."""
    return str(slot.weight.device), str(slot.weight.dtype), slot.decay
