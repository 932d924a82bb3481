"""Limits must be sensible, and a baseline must read the columns of the model."""

from typing import Any

import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError
from pcmcnet.models import MNL, PCMCNet, Uniform
from pcmcnet.serving.app import create_app
from pcmcnet.serving.settings import ServeSettings

COUNTS = [
    "max_sets",
    "max_alternatives",
    "max_pairs",
    "max_body",
    "max_bodies",
    "max_values",
    "max_depth",
    "max_points",
]


@pytest.mark.parametrize("name", [*COUNTS, "queue"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "many"])
def test_an_invalid_limit_is_rejected(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        ServeSettings(**{name: value})


@pytest.mark.parametrize("name", ["head_timeout", "body_timeout", "deadline", "drain"])
@pytest.mark.parametrize("value", [-1, float("inf"), float("nan"), "long"])
def test_an_invalid_timeout_is_rejected(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        ServeSettings(**{name: value})


def test_the_depth_limit_is_bounded_by_python() -> None:
    with pytest.raises(ConfigError, match="max_depth must be a whole number of at least 1 and at most 500"):
        ServeSettings(max_depth=501)


@pytest.mark.parametrize("token", ["", "  ", "a\nb", "clé", " a"])
def test_a_token_that_is_invalid_in_a_header_is_rejected(token: str) -> None:
    with pytest.raises(ConfigError, match="token must"):
        ServeSettings(token=token)


def test_a_baseline_with_other_columns_is_rejected(net: PCMCNet, logit: MNL, make_trips: Any) -> None:
    few = ChoiceData.from_long(make_trips(), choice_set="trip", chosen="took", features=["price", "minute"][:1])
    small = Uniform().fit(few)
    create_app(net, small)
    with pytest.raises(ConfigError, match=r"the baseline reads column 'income', which the main model does not read"):
        create_app(small, logit)
    other = ChoiceData.from_long(make_trips(), choice_set="trip", chosen="took", features=["income"])
    with pytest.raises(
        ConfigError, match=r"column 'income' is a number \(individual\) for the main model and a number \(feat"
    ):
        create_app(net, Uniform().fit(other))
