"""Parameters of a mixed logit and their coefficients."""

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, truncnorm

from choice_tables import ROLES, trips
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.random_coefficients import (
    DISTRIBUTION_NAMES,
    Distribution,
    MixingDistribution,
    RandomCoefficient,
    _triangular_of_normal,
    _uniform_of_normal,
    require_varying_columns,
    specify_mixing,
)

NORMAL, LOG = Distribution("normal"), Distribution("lognormal", sign=-1)
MIXING = MixingDistribution(
    ("cost", "time", "wait", "component[road]"),
    3,
    (
        RandomCoefficient(0, LOG),
        RandomCoefficient(1, NORMAL),
        RandomCoefficient(2, NORMAL),
        RandomCoefficient(3, NORMAL),
    ),
    group=(0, 1),
    means=((1, 0),),
    who=("income",),
)


def test_every_parameter_has_a_name_a_column_and_a_factor() -> None:
    assert MIXING.names == (
        *("cost", "time", "wait"),
        "mean[time]:income",
        *("sd[wait]", "component[road]"),
        *("cholesky[cost, cost]", "cholesky[time, cost]", "cholesky[time, time]"),
    )
    np.testing.assert_array_equal(MIXING.column, [0, 1, 2, 1, 2, 3, 0, 1, 1])
    np.testing.assert_array_equal(MIXING.basis, [0, 0, 0, 0, 3, 4, 1, 1, 2])
    np.testing.assert_array_equal(MIXING.individual, [0, 0, 0, 1, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(MIXING.feature, [0, 0, 0, 5, 3, 4, 1, 1, 2])


def test_coefficients_are_those_found_by_hand() -> None:
    """Draws (1, -1, 2, 3), income 10: cost -exp(0.1 + 0.5), time 1 + 10 x 0.2 + 0.3 - 0.4, wait 2 + 2 x 0.6."""
    x = np.array([0.1, 1.0, 2.0, 0.2, 0.6, 0.7, 0.5, 0.3, 0.4])
    draws = torch.tensor([1.0, -1.0, 2.0, 3.0], dtype=torch.float64)[None, :, None]
    locations = torch.from_numpy(MIXING.locations(x, np.array([[10.0]])))
    result = MIXING.sample(locations, torch.from_numpy(MIXING.triangle(x)), draws).value[0, :, 0]
    np.testing.assert_allclose(result.numpy(), [-np.exp(0.6), 2.9, 3.2, 2.1])


def test_mirrored_draws_make_deviations_positive() -> None:
    x = np.array([0.1, 1.0, 2.0, 0.2, -0.6, 0.7, -0.5, 0.3, -0.4])
    mirrored, y = MIXING.mirrored(x)
    assert (np.diag(mirrored.triangle(y)) >= 0).all()
    assert mirrored.mirror == (-1, -1, -1, 1)
    t = torch.rand(5, 4, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    before, after = (
        mixing.sample(
            torch.from_numpy(mixing.locations(at, np.ones((5, 1)))),
            torch.from_numpy(mixing.triangle(at)),
            mixing.standard(t),
        ).value
        for mixing, at in ((MIXING, x), (mirrored, y))
    )
    torch.testing.assert_close(after, before)


def test_signs_are_those_of_the_estimates_unless_given() -> None:
    either = Distribution("lognormal", sign=0)
    mixing = MixingDistribution(
        ("a", "b", "c"), 3, (RandomCoefficient(0, either), RandomCoefficient(1, either), RandomCoefficient(2, LOG))
    )
    result = mixing.signed(np.array([-0.2, 0.3, 0.4]))
    assert [r.distribution.sign for r in result.random] == [-1, 1, -1]


def test_parameters_survive_json_and_inconsistent_ones_are_refused() -> None:
    entries = asdict(MIXING) | {"random": [[r.column, asdict(r.distribution)] for r in MIXING.random]}
    entries = json.loads(json.dumps(entries))
    assert MixingDistribution.from_dict(entries) == MIXING
    for wrong in ({"located": 9}, {"group": [0, 7]}, {"mirror": [3]}, {"means": [[8, 0]]}, {"means": [[1, 4]]}):
        with pytest.raises(ValueError, match=r"that does not exist|that is not random"):
            MixingDistribution.from_dict({**entries, **wrong})


def test_a_copula_keeps_the_distributions_and_correlates_them() -> None:
    """Row (0.3, 0.4) of L: half width 0.5, and normal indices with correlation 0.6.

    The correlation of two uniform numbers with a Gaussian copula is 6 / pi asin(0.6 / 2), and that of a uniform and a
    normal number is sqrt(3 / pi) 0.6.
    """
    laws = (NORMAL, Distribution("uniform"), Distribution("uniform"), Distribution("triangular"))
    random = tuple(RandomCoefficient(k, law) for k, law in enumerate(laws))
    mixing = MixingDistribution(("a", "b", "c", "d"), 4, random, group=(0, 1, 2, 3))
    triangle = torch.tensor([[2.0, 0, 0, 0], [0.3, 0.4, 0, 0], [1, 0, 0, 0], [0, 0, 0.3, 0.4]], dtype=torch.float64)
    t = torch.quasirandom.SobolEngine(4, scramble=True, seed=0).draw(2**14).double().T[None] * 2 - 1
    result = mixing.sample(torch.zeros(1, 4).double(), triangle, mixing.standard(t)).value[0]
    a, b, c, d = result.numpy()
    assert np.abs(b).max() <= 0.5
    assert b.var() == pytest.approx(0.25 / 3, rel=1e-2)  # quasi-random draws
    assert d.var() == pytest.approx(0.25 / 6, rel=1e-2)
    assert np.quantile(d, 0.125) == pytest.approx(-0.25, abs=5e-3)
    assert a.std() == pytest.approx(2, rel=1e-2)
    assert np.corrcoef(b, c)[0, 1] == pytest.approx(6 / math.pi * math.asin(0.3), abs=5e-3)
    assert np.corrcoef(a, b)[0, 1] == pytest.approx(math.sqrt(3 / math.pi) * 0.6, abs=5e-3)
    assert mixing.names[4:7] == ("cholesky[a, a]", "cholesky[b, a]", "cholesky[b, b]")


@pytest.mark.parametrize("function", [_uniform_of_normal, _triangular_of_normal])
@pytest.mark.parametrize("v", [-9.0, -1.3, -0.2, 0.4, 2.5, 7.0])
def test_draws_of_copulas_have_the_derivatives_of_differences(function: Any, v: float) -> None:
    step, at = 1e-5, torch.tensor([v], dtype=torch.float64)
    value, slope, bend = (float(part) for part in function(at))
    (up, up_slope, _), (down, down_slope, _) = (map(float, function(at + h)) for h in (step, -step))
    assert slope == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-10)
    assert bend == pytest.approx((up_slope - down_slope) / (2 * step), rel=1e-6, abs=1e-10)
    assert -1 <= value <= 1


# -- Distributions -----------------------------------------------------------------------------------------------------
# Distributions of random coefficients.


ALL = ["normal", "+lognormal", "-lognormal", "+truncated-normal", "-truncated-normal", "triangular", "uniform"]
ALL += ["johnson-sb(-2, 1)", "-log-uniform", "zbu", "zbt"]
TRUNCATED = truncnorm(-5 / 3, np.inf, 0.5, 0.3)


def grid(number: int = 4001) -> torch.Tensor:
    """Return the midpoints of equal intervals of (-1, 1)."""
    return ((torch.arange(number, dtype=torch.float64) + 0.5) / number * 2 - 1)[None, None]


def values(text: str, a: float, b: float) -> torch.Tensor:
    mixing = MixingDistribution(("x",), 1, (RandomCoefficient(0, Distribution.parse("x", text)),))
    draws, b = mixing.standard(grid()), b * mixing.random[0].distribution.has_spread
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
        ("+log-uniform", math.exp(0.5) * math.sinh(0.3) / 0.3, 0.28901),  # variance e (sinh(.6)/.6 - (sinh(.3)/.3)^2)
        ("zbu", 0.5, 0.5 / math.sqrt(3)),
        ("zbt", 0.5, 0.5 / math.sqrt(6)),
    ],
)
def test_means_and_deviations_agree_with_textbook_formulas(text: str, mean: float, deviation: float) -> None:
    """Location 0.5 and scale 0.3, computed from 4,001 quantiles."""
    result = values(text, 0.5, 0.3)
    assert float(result.mean()) == pytest.approx(mean, abs=1e-3)
    assert float(result.std()) == pytest.approx(deviation, abs=2e-3)


def test_johnsons_distribution_has_its_middle_at_index_0() -> None:
    """Index 0 is halfway between the bounds. Quantiles are transformed normal quantiles."""
    result = values("johnson-sb(-2, 1)", 0.0, 0.7)
    assert float(result.median()) == pytest.approx(-0.5)
    assert float(result[3000]) == pytest.approx(-2 + 3 / (1 + math.exp(-0.7 * norm.ppf(3000.5 / 4001))))
    assert -2 < float(result.min()) < float(result.max()) < 1


@given(a=st.floats(-3, 3), b=st.floats(0.2, 2))
def test_truncated_draws_are_quantiles_of_the_truncated_normal(a: float, b: float) -> None:
    result = values("+truncated-normal", a, b).numpy()
    probabilities = truncnorm(-a / b, np.inf, a, b)
    np.testing.assert_allclose(probabilities.cdf(result), np.linspace(0, 1, 4002)[1:] - 0.5 / 4001, atol=1e-6)


@pytest.mark.parametrize("text", ALL)
@pytest.mark.parametrize("b", [0.4, -0.4])
def test_derivatives_agree_with_central_differences(text: str, b: float) -> None:
    """First and second derivatives in location and scale at 4,001 draws."""
    mixing = MixingDistribution(("x",), 1, (RandomCoefficient(0, Distribution.parse("x", text)),))
    draws = mixing.standard(grid())

    def at(x: torch.Tensor) -> torch.Tensor:
        return mixing.sample(x[:1, None], x[1:, None], draws).value[0, 0]

    x, h = torch.tensor([0.3, b], dtype=torch.float64), 1e-4
    unit = torch.eye(2, dtype=torch.float64) * h
    sampled = mixing.sample(x[:1, None], x[1:, None], draws)
    slope = torch.ones_like(draws) if sampled.slope is None else sampled.slope
    first = torch.stack([slope[0, 0], (slope * sampled.basis)[0, 0]])
    curvature = sampled.curvatures.get(0, torch.zeros_like(draws[0]))[0]
    tilt = torch.stack([torch.ones_like(curvature), sampled.tilt[0, 0]])
    for p in range(2):
        slopes = (at(x + unit[p]) - at(x - unit[p])) / (2 * h)
        torch.testing.assert_close(first[p], slopes, rtol=1e-5, atol=1e-6)
        for q in range(2):
            corners = [at(x + s * unit[p] + t * unit[q]) * s * t for s in (1, -1) for t in (1, -1)]
            second = sum(corners) / (4 * h * h)
            torch.testing.assert_close(
                curvature * tilt[p] * tilt[q], second, rtol=1e-4, atol=2e-5
            )  # error of differences


def test_distributions_are_parsed_and_written_as_text() -> None:
    assert str(Distribution.parse("x", " -lognormal ")) == "-lognormal"
    assert str(Distribution.parse("x", "johnson-sb(-2, 0.5)")) == "johnson-sb(-2, 0.5)"
    assert Distribution.parse("x", "lognormal").sign == 0  # the sign will be learnt
    assert {Distribution.parse("x", text).name for text in ALL} == set(DISTRIBUTION_NAMES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lognrmal", r"random\['x'\]: unknown distribution 'lognrmal'. Did you mean 'lognormal'\?"),
        (3, r"unknown distribution 3"),
        ("-normal", r"normal takes no sign, got '-normal'; only lognormal, log-uniform, truncated-normal do"),
        ("johnson-sb", r"johnson-sb needs bounds, as in 'johnson-sb\(-2, 0\)'"),
        ("normal(0, 1)", r"normal takes no bounds"),
        ("johnson-sb(1, 0)", r"expected two numbers, the lower one first, got \(1,  0\)"),
        ("johnson-sb(a, b)", r"expected two numbers"),
    ],
)
def test_an_invalid_distribution_is_refused(text: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Distribution.parse("x", text)


@pytest.mark.parametrize("text", ALL)
def test_the_search_starts_near_the_logit(text: str) -> None:
    """The median coefficient is the estimate of the logit if the distribution allows it."""
    probabilities = Distribution.parse("x", text)
    estimate = -0.5 if probabilities.sign < 0 or text.startswith("johnson") else 0.5
    a, b = probabilities.start(estimate, scale=1.0)
    assert b > 0 or not probabilities.has_spread
    assert float(values(text, a, b).median()) == pytest.approx(estimate, abs=0.1)


# -- Specification -----------------------------------------------------------------------------------------------------
# Selection of the random coefficients of a mixed logit.


DATA = ChoiceData.from_long(trips(), **ROLES)


def specified(formula: str = "price + minutes + comfort", **options: Any) -> MixingDistribution:
    design = Design.learn(formula, DATA)
    given = {"random": None, "correlated": False, **options}
    return specify_mixing(design, design.sources(DATA), given.pop("random"), given.pop("correlated"), **given)


def random_of(mixing: MixingDistribution) -> dict[str, str]:
    return {mixing.columns[r.column]: str(r.distribution) for r in mixing.random}


def test_coefficients_of_numeric_features_are_normal_by_default() -> None:
    assert random_of(specified()) == {"price": "normal", "minutes": "normal"}
    only_words = specified("comfort | 0")
    assert set(random_of(only_words)) == set(only_words.columns)  # all of them if no feature is numeric


def test_a_term_selects_all_its_coefficients() -> None:
    result = random_of(specified(random={"comfort": "normal", "price": "-lognormal"}))
    assert result["price"] == "-lognormal"
    assert {name for name in result if name.startswith("comfort[")} == set(result) - {"price"}
    assert len(result) > 2


def test_an_error_lists_each_coefficient_once() -> None:
    with pytest.raises(ConfigError, match="'wrong' is not a coefficient of this model") as raised:
        specified(random={"wrong": "normal"})
    known = str(raised.value).partition("Known: ")[2].rstrip(".").split(", ")
    assert len(set(known)) == len(known) > 1


def test_correlated_coefficients_are_all_or_selected_by_name() -> None:
    distributions = {"price": "-lognormal", "minutes": "normal", "comfort": "zbu"}
    assert specified(random=distributions, correlated=True).group == (0, 1)
    assert specified(random={**distributions, "comfort": "uniform"}, correlated=True).group == (0, 1, 2, 3)
    assert specified(random={**distributions, "comfort": "normal"}, correlated=["price", "minutes"]).group == (0, 1)


def test_nests_and_means_add_parameters() -> None:
    mixing = specified(random={"price": "normal"}, nests=["road"], means={"price": ["income"]})
    assert mixing.names[-3:] == ("mean[price]:income", "sd[price]", "component[road]")
    assert mixing.located == len(mixing.columns) - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"random": {"prise": "normal"}}, r"random: 'prise' is not a coefficient.* Did you mean 'price'\?"),
        ({"random": {}}, "random is empty: a mixed logit needs a random coefficient"),
        (
            {"random": {"price": "normal"}, "correlated": True},
            "correlated needs at least two random coefficients .* got 1",
        ),
        (
            {"random": {"price": "normal"}, "correlated": ["minutes"]},
            "correlated includes 'minutes', which is not random",
        ),
        (
            {"random": {"price": "normal", "minutes": "zbu"}, "correlated": ["price", "minutes"]},
            "correlated includes 'minutes', which is zbu: only normal, lognormal, johnson-sb, uniform",
        ),
        ({"random": {"price": "normal"}, "means": {"minutes": ["income"]}}, "means includes 'minutes', which is not"),
    ],
)
def test_invalid_specifications_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        specified(**options)


def test_a_random_coefficient_of_a_constant_column_is_refused() -> None:
    mixing = specified(random={"price": "normal"}, nests=["road"])
    z = np.ones((5, len(mixing.columns)))
    require_varying_columns(z, mixing)
    z[:, -1] = 0
    with pytest.raises(InputError, match=r"random coefficient of 'component\[road\]' is not identified.*1 such"):
        require_varying_columns(z, mixing)
