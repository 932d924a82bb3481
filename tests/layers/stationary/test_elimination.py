"""Scaling of rates before a solver, and its results."""

import math

import pytest
import torch

from pcmcnet.layers.stationary.elimination import copy_as_result, scaled_rates


def test_the_largest_rate_between_real_states_becomes_one() -> None:
    """State 2 is padding and the diagonal is ignored, so 4 is the largest rate of set 0."""
    rates = torch.tensor([[[9.0, 2.0, 9.0], [4.0, math.nan, math.nan], [math.inf, 1.0, 0.0]]])
    q, scale = scaled_rates(rates, torch.tensor([[True, True, False]]))
    assert q.tolist() == [[[0, 0.5, 0], [1, 0, 0], [0, 0, 0]]]
    assert scale.tolist() == [4]
    assert q.dtype == scale.dtype == torch.float64


@pytest.mark.parametrize("mask", [[True, True], [True, False], [False, False]])
def test_a_set_without_rates_is_not_divided_by_zero(mask: list[bool]) -> None:
    q, scale = scaled_rates(torch.zeros(1, 2, 2), torch.tensor([mask]))
    assert (q == 0).all()
    assert (scale > 0).all()


def test_tiny_rates_stay_finite() -> None:
    q, _ = scaled_rates(torch.full((1, 2, 2), 5e-324, dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool))
    assert torch.isfinite(q).all()
    assert (q.sum((1, 2)) > 0).all()


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float64, torch.float64)],
)
def test_results_are_contiguous_copies_in_the_result_type(dtype: torch.dtype, expected: torch.dtype) -> None:
    value = torch.rand(3, 2, dtype=torch.float64)
    result = copy_as_result(value.t(), dtype)
    assert result.dtype == expected
    assert result.is_contiguous()
    assert result.data_ptr() != value.data_ptr()
