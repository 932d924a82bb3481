"""Which coefficients of a mixed logit are random."""

from typing import Any

import numpy as np
import pytest

from choice_tables import ROLES, trips
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models.logits.design import Design
from pcmcnet.models.logits.simulation.coefficients import Mixing
from pcmcnet.models.logits.simulation.specification import require_moving, specify

DATA = ChoiceData.from_long(trips(), **ROLES)


def specified(formula: str = "price + minutes + comfort", **options: Any) -> Mixing:
    design = Design.learn(formula, DATA)
    given = {"random": None, "correlated": False, **options}
    return specify(design, design.sources(DATA), given.pop("random"), given.pop("correlated"), **given)


def random_of(mixing: Mixing) -> dict[str, str]:
    return {mixing.columns[r.column]: str(r.distribution) for r in mixing.random}


def test_without_a_word_the_coefficients_of_numeric_features_are_normal() -> None:
    assert random_of(specified()) == {"price": "normal", "minutes": "normal"}
    only_words = specified("comfort | 0")
    assert set(random_of(only_words)) == set(only_words.columns)  # where no feature is numeric, all


def test_a_term_stands_for_all_its_coefficients() -> None:
    found = random_of(specified(random={"comfort": "normal", "price": "-lognormal"}))
    assert found["price"] == "-lognormal"
    assert {name for name in found if name.startswith("comfort[")} == set(found) - {"price"}
    assert len(found) > 2


def test_coefficients_are_correlated_all_or_by_name_where_they_can_be() -> None:
    laws = {"price": "-lognormal", "minutes": "normal", "comfort": "uniform"}
    assert specified(random=laws, correlated=True).group == (0, 1)
    assert specified(random={**laws, "comfort": "normal"}, correlated=["price", "minutes"]).group == (0, 1)


def test_nests_and_means_add_parameters() -> None:
    mixing = specified(random={"price": "normal"}, nests=["road"], means={"price": ["income"]})
    assert mixing.names[-3:] == ("mean[price]:income", "sd[price]", "component[road]")
    assert mixing.located == len(mixing.columns) - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"random": {"prise": "normal"}}, r"random names 'prise', which is no coefficient.* Did you mean 'price'\?"),
        ({"random": {}}, "random names no coefficient: a mixed logit needs one"),
        ({"random": {"price": "normal"}, "correlated": True}, "correlated needs two random coefficients .* found 1"),
        ({"random": {"price": "normal"}, "correlated": ["minutes"]}, "correlated names 'minutes', which is not random"),
        (
            {"random": {"price": "normal", "minutes": "uniform"}, "correlated": ["price", "minutes"]},
            "correlated names 'minutes', which is uniform: only normal, lognormal, johnson-sb can be",
        ),
        ({"random": {"price": "normal"}, "means": {"minutes": ["income"]}}, "means names 'minutes', which is not rand"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        specified(**options)


def test_a_random_coefficient_of_a_column_that_never_varies_is_refused() -> None:
    mixing = specified(random={"price": "normal"}, nests=["road"])
    z = np.ones((5, len(mixing.columns)))
    require_moving(z, mixing)
    z[:, -1] = 0
    with pytest.raises(InputError, match=r"random coefficient of 'component\[road\]' has no effect.*1 such"):
        require_moving(z, mixing)
