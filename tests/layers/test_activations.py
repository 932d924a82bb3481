"""Every derivative is that of autograd, told from the result or from the input."""

from typing import get_args

import pytest
import torch

from pcmcnet.layers.activations import ACTIVATIONS, Activation


def test_every_word_has_a_rule() -> None:
    assert set(ACTIVATIONS) == set(get_args(Activation))


@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_derivative_is_that_of_autograd(activation: Activation, dtype: torch.dtype) -> None:
    rule, x = ACTIVATIONS[activation], torch.linspace(-3, 3, 61).to(dtype)  # 0 among them
    g = torch.cos(x)
    leaf = x.clone().requires_grad_()
    y = getattr(torch.nn.functional, activation)(leaf)
    (expected,) = torch.autograd.grad(y, leaf, g)
    given = x.clone()
    result = rule.apply(given)
    assert torch.equal(result, y)
    assert (result is given) != rule.of_input  # overwritten where the result is enough
    back = g.clone()
    assert rule.pull_back_(back, given) is back
    assert torch.equal(back, expected)
