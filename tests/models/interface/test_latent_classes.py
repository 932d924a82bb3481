"""Persons of choice sets: values by hand and invalid input."""

from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.models.interface.latent_classes import Persons

# Five sets of two: A, B, A, B, A. The length of the trip varies within a person, the home does not.
TABLE: dict[str, Any] = {
    "trip": np.repeat([1, 2, 3, 4, 5], 2),
    "took": [1, 0] * 5,
    "cost": np.arange(10.0),
    "who": np.repeat(["A", "B", "A", "B", "A"], 2),
    "km": np.repeat([1.0, 2.0, 1.0, 3.0, 1.0], 2),
    "home": np.repeat(["town", "land", "town", "land", "town"], 2),
}


def read(**roles: Any) -> ChoiceData:
    roles = {"person": "who", "individual": ["km", "home"], **roles}
    return ChoiceData.from_long(TABLE, choice_set="trip", chosen="took", features=["cost"], **roles)


def test_sets_are_grouped_by_person() -> None:
    persons = Persons.of(read(), "person")
    assert persons.number.tolist() == [0, 1, 0, 1, 0]
    assert persons.first.tolist() == [0, 1]
    assert persons.has_several_sets
    assert persons.table.individual["home"].plain().tolist() == ["town", "land"]
    assert persons.varying == {"km": "4"}


@pytest.mark.parametrize("roles", [{}, {"person": None}])
def test_every_set_can_count_as_a_person(roles: dict[str, Any]) -> None:
    persons = Persons.of(read(**roles), "set")
    assert persons.number.tolist() == persons.first.tolist() == [0, 1, 2, 3, 4]
    assert not persons.has_several_sets
    assert not persons.varying


def test_missing_values_are_equal() -> None:
    table = TABLE | {"km": np.repeat([np.nan, 2.0, np.nan, 2.0, 1.0], 2)}
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "features": ["cost"], "person": "who"}
    data = ChoiceData.from_long(table, **roles, individual=["km"], missing="indicator")
    assert Persons.of(data, "person").varying == {"km": "5"}
    assert not Persons.of(data.subset([0, 1, 2, 3]), "person").varying


def test_columns_and_clusters_that_vary_within_a_person_are_refused() -> None:
    data = read()
    persons = Persons.of(data, "person")
    persons.require_constant(["home"])
    with pytest.raises(InputError, match=r"column 'km' varies within a person, first in choice set 4, .* by='set'"):
        persons.require_constant(["home", "km"])
    np.testing.assert_array_equal(persons.weights(data), [1, 1])
    with pytest.raises(InputError, match=r"choice set 4: the cluster in column 'town' .* 1 such sets. Use one"):
        persons.require_one_cluster(data, np.array([0, 1, 0, 2, 0]), "town")


def test_weights_that_vary_within_a_person_are_refused() -> None:
    table = TABLE | {"weight": np.repeat([1.0, 2.0, 1.0, 2.0, 5.0], 2)}
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "features": ["cost"], "person": "who"}
    data = ChoiceData.from_long(table, **roles, weight="weight")
    with pytest.raises(InputError, match=r"choice set 5: the weight in column 'weight' differs from the same"):
        Persons.of(data, "person").weights(data)
    np.testing.assert_array_equal(Persons.of(data, "set").weights(data), [1, 2, 1, 2, 5])
    some = data.subset([0, 1, 2, 3])
    np.testing.assert_array_equal(Persons.of(some, "person").weights(some), [1, 2])
