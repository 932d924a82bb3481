"""Adam (Kingma & Ba, 2015) with decoupled weight decay (Loshchilov & Hutter, 2019), in one call for all weights.

The results are the same as those of ``torch.optim.AdamW`` with ``fused=True``, and so is the form of the optimiser
state. ``AdamW`` itself is not used, because creating the first one loads torch's compiler, which takes longer than
fitting a small table. The fused function used here is not part of torch's public interface, so the formula is computed
directly in versions of torch without this function.
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
    """A weight with the running means of its gradient and squared gradient."""

    weight: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    step: Tensor  # steps taken so far
    decay: float


class Adam:
    """Adam optimiser in which the weights in ``without_decay`` have no weight decay.

    The learning rate ``lr`` may be a tensor and may be changed at any time.
    """

    def __init__(
        self, parameters: Iterable[Tensor], *, lr: float | Tensor, decay: float, without_decay: Iterable[Tensor] = ()
    ) -> None:
        self.lr, exempt = lr, {id(p) for p in without_decay}
        self.slots: list[Slot] = []
        for p in parameters:
            step = torch.zeros((), dtype=torch.float32, device=p.device)
            weight_decay = 0.0 if id(p) in exempt else decay
            self.slots.append(Slot(p, torch.zeros_like(p), torch.zeros_like(p), step, weight_decay))
        # One call updates all weights with the same device, dtype and decay.
        self.groups = [list(slots) for _, slots in groupby(sorted(self.slots, key=_call_key), key=_call_key)]

    def step(self) -> None:
        """Update the weights that have a gradient."""
        for group in self.groups:
            # 1. Collect the weights of the group that have a gradient, as lists of tensors.
            moved = [(slot, slot.weight.grad) for slot in group if slot.weight.grad is not None]
            if not moved:
                continue
            slots, gradients = zip(*moved, strict=True)
            weights, means, squares, steps = (list(part) for part in list(zip(*slots, strict=True))[:4])
            # 2. Count the step, then update all of them in one call.
            options = {"lr": self.lr, "beta1": BETAS[0], "beta2": BETAS[1], "weight_decay": group[0].decay, "eps": EPS}
            for_each("add", steps, 1)
            with torch.no_grad():
                step: Callable[..., object] = getattr(torch, "_fused_adamw_", _plain_adamw_)
                step(weights, list(gradients), means, squares, [], steps, **options, amsgrad=False, maximize=False)

    @property
    def state(self) -> dict[int, dict[str, Tensor]]:
        """The state that a resumed run needs, keyed by the position of the weight."""
        return {k: {"step": s.step, "exp_avg": s.exp_avg, "exp_avg_sq": s.exp_avg_sq} for k, s in enumerate(self.slots)}

    @torch.no_grad()
    def restore(self, state: AdamState) -> None:
        """Copy the state of an earlier run into the existing tensors, whose memory a captured CUDA graph reads."""
        for k, entries in state.items():
            slot = self.slots[k]
            for tensor, name in ((slot.step, "step"), (slot.exp_avg, "exp_avg"), (slot.exp_avg_sq, "exp_avg_sq")):
                tensor.copy_(entries[name])


def _plain_adamw_(
    *lists: list[Tensor], lr: float | Tensor, beta1: float, beta2: float, weight_decay: float, eps: float, **_: bool
) -> None:
    """Update weights in the same way as torch's fused function.

    The lists hold weights, gradients, running means of gradients and of squared gradients, an unused entry, and steps.
    """
    *tensors, _unused, steps = lists
    for w, g, m, v, step in zip(*tensors, steps, strict=True):
        # 1. Apply the decoupled decay.
        w.mul_(1 - lr * weight_decay)
        # 2. Update the running means of the gradient and of its square.
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        # 3. Correct both means for their bias towards 0, and step along their quotient.
        first, second = (1 - beta ** step.double() for beta in (beta1, beta2))  # float32 would lose digits
        w.sub_(lr / first * m / ((v / second).sqrt_() + eps))


def for_each(operator: str, tensors: list[Tensor], value: float | Tensor) -> None:
    """Apply a torch operator in place to all tensors, in one call if torch has a multi-tensor version of it."""
    one_call = getattr(torch, f"_foreach_{operator}_", None)
    if one_call is not None:
        one_call(tensors, value)
        return
    for tensor in tensors:
        getattr(tensor, f"{operator}_")(value)


def _call_key(slot: Slot) -> tuple[str, str, float]:
    """Return the properties that all weights updated in one call share: device, dtype and weight decay."""
    return str(slot.weight.device), str(slot.weight.dtype), slot.decay
