"""Distributions of a random coefficient."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, truncnorm

from pcmcnet.errors import ConfigError
from pcmcnet.models.logits.simulation.coefficients import Mixing, Random
from pcmcnet.models.logits.simulation.distributions import NAMES, Distribution

ALL = ["normal", "+lognormal", "-lognormal", "+truncated-normal", "-truncated-normal", "triangular", "uniform"]
ALL += ["johnson-sb(-2, 1)"]
TRUNCATED = truncnorm(-5 / 3, np.inf, 0.5, 0.3)


def grid(number: int = 4001) -> torch.Tensor:
    """Midpoints of equal intervals of (-1, 1)."""
    return ((torch.arange(number, dtype=torch.float64) + 0.5) / number * 2 - 1)[None, None]


def values(text: str, a: float, b: float) -> torch.Tensor:
    mixing = Mixing(("x",), 1, (Random(0, Distribution.parse("x", text)),))
    draws = mixing.standard(grid())
    return mixing.sample(torch.tensor([[a]]).double(), torch.tensor([[b]]).double(), draws).value[0, 0]


@pytest.mark.parametrize(
    ("text", "mean", "deviation"),
    [
        ("normal", 0.5, 0.3),
        ("uniform", 0.5, 0.3 / math.sqrt(3)),
        ("triangular", 0.5, 0.3 / math.sqrt(6)),
        ("+lognormal", math.exp(0.545), math.exp(0.545) * math.sqrt(math.expm1(0.09))),
        ("-lognormal", -math.exp(0.545), math.exp(0.545) * math.sqrt(math.expm1(0.09))),
        ("+truncated-normal", *(float(v) for v in (TRUNCATED.mean(), TRUNCATED.std()))),
    ],
)
def test_means_and_deviations_are_those_of_the_textbook(text: str, mean: float, deviation: float) -> None:
    """Location 0.5 and spread 0.3, by 4,001 quantiles."""
    found = values(text, 0.5, 0.3)
    assert float(found.mean()) == pytest.approx(mean, abs=1e-3)
    assert float(found.std()) == pytest.approx(deviation, abs=2e-3)


def test_the_middle_of_johnsons_distribution_is_that_of_its_index() -> None:
    """Index 0 is halfway between the bounds; quantiles are those of the normal, squeezed."""
    found = values("johnson-sb(-2, 1)", 0.0, 0.7)
    assert float(found.median()) == pytest.approx(-0.5)
    assert float(found[3000]) == pytest.approx(-2 + 3 / (1 + math.exp(-0.7 * norm.ppf(3000.5 / 4001))))
    assert -2 < float(found.min()) < float(found.max()) < 1


@given(a=st.floats(-3, 3), b=st.floats(0.2, 2))
def test_truncated_draws_are_quantiles_of_the_truncated_normal(a: float, b: float) -> None:
    found = values("+truncated-normal", a, b).numpy()
    law = truncnorm(-a / b, np.inf, a, b)
    np.testing.assert_allclose(law.cdf(found), np.linspace(0, 1, 4002)[1:] - 0.5 / 4001, atol=1e-6)


@pytest.mark.parametrize("text", ALL)
@pytest.mark.parametrize("b", [0.4, -0.4])
def test_derivatives_are_those_of_central_differences(text: str, b: float) -> None:
    """First and second ones in location and spread, at 4,001 draws."""
    mixing = Mixing(("x",), 1, (Random(0, Distribution.parse("x", text)),))
    draws = mixing.standard(grid())

    def at(x: torch.Tensor) -> torch.Tensor:
        return mixing.sample(x[:1, None], x[1:, None], draws).value[0, 0]

    x, h = torch.tensor([0.3, b], dtype=torch.float64), 1e-4
    unit = torch.eye(2, dtype=torch.float64) * h
    sampled = mixing.sample(x[:1, None], x[1:, None], draws)
    slope = torch.ones_like(draws) if sampled.slope is None else sampled.slope
    first = torch.stack([slope[0, 0], (slope * sampled.basis)[0, 0]])
    bend = sampled.bends.get(0, torch.zeros_like(draws[0]))[0]
    tilt = torch.stack([torch.ones_like(bend), sampled.tilt[0, 0]])
    for p in range(2):
        slopes = (at(x + unit[p]) - at(x - unit[p])) / (2 * h)
        torch.testing.assert_close(first[p], slopes, rtol=1e-5, atol=1e-6)
        for q in range(2):
            corners = [at(x + s * unit[p] + t * unit[q]) * s * t for s in (1, -1) for t in (1, -1)]
            second = sum(corners) / (4 * h * h)
            torch.testing.assert_close(bend * tilt[p] * tilt[q], second, rtol=1e-4, atol=2e-5)  # of differences


def test_a_text_is_a_distribution_and_is_written_as_it_was() -> None:
    assert str(Distribution.parse("x", " -lognormal ")) == "-lognormal"
    assert str(Distribution.parse("x", "johnson-sb(-2, 0.5)")) == "johnson-sb(-2, 0.5)"
    assert Distribution.parse("x", "lognormal").sign == 0  # to be learnt
    assert {Distribution.parse("x", text).name for text in ALL} == set(NAMES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lognrmal", r"random\['x'\]: unknown distribution 'lognrmal'. Did you mean 'lognormal'\?"),
        (3, r"unknown distribution 3"),
        ("-normal", r"normal has no sign, got '-normal'; lognormal and truncated-normal have"),
        ("johnson-sb", r"johnson-sb needs its bounds, as in 'johnson-sb\(-2, 0\)'"),
        ("normal(0, 1)", r"normal has no bounds"),
        ("johnson-sb(1, 0)", r"expected two numbers, the lower one first, got \(1,  0\)"),
        ("johnson-sb(a, b)", r"expected two numbers"),
    ],
)
def test_what_is_no_distribution_is_refused(text: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Distribution.parse("x", text)


@pytest.mark.parametrize("text", ALL)
def test_a_search_begins_near_the_logit(text: str) -> None:
    """The median coefficient is the estimate, where the distribution allows it."""
    law = Distribution.parse("x", text)
    estimate = -0.5 if law.sign < 0 or text.startswith("johnson") else 0.5
    a, b = law.start(estimate, scale=1.0)
    assert b > 0
    assert float(values(text, a, b).median()) == pytest.approx(estimate, abs=0.1)
