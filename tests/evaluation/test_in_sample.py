"""Whether a model was fitted to a table."""

from dataclasses import replace

import numpy as np
import pytest

import choice_tables
from pcmcnet import MNL, ChoiceData
from pcmcnet.evaluation.predictions import in_sample_warning, training_overlap


def make_trips(seed: int = 0) -> ChoiceData:
    """Return 40 sets of three, with prices and a column of the individual."""
    table = choice_tables.trips(40, seed, sizes=(3, 3), slope=-0.2)
    return choice_tables.read(table, features=["price", "comfort"], individual=["income"])


@pytest.fixture(scope="module")
def trips() -> ChoiceData:
    return make_trips()


@pytest.fixture(scope="module")
def model(trips: ChoiceData) -> MNL:
    return MNL().fit(trips)  # type: ignore[no-any-return]


def test_the_training_table_is_recognised_by_its_fingerprint(model: MNL, trips: ChoiceData) -> None:
    assert training_overlap(model, trips) == "all"


def test_another_table_is_not_recognised(model: MNL) -> None:
    assert training_overlap(model, make_trips(seed=5)) == "none known"


def test_a_table_that_contains_the_training_part_overlaps_it(trips: ChoiceData) -> None:
    """The model was fitted to a part. The whole table contains its sets in another order."""
    part, _ = trips.split((0.9, 0.1), seed=0)
    model = MNL().fit(part)
    whole = trips.subset(np.arange(len(trips))[::-1])
    assert training_overlap(model, trips) == training_overlap(model, whole) == "some"
    price = trips.features["price"]
    moved = replace(trips, features={**trips.features, "price": replace(price, values=price.values + 1)})  # type: ignore[type-var]
    assert training_overlap(model, moved) == "none known"


def test_the_source_table_of_a_training_part_is_recognised(trips: ChoiceData) -> None:
    part, _ = trips.split((0.9, 0.1), seed=0)
    model = MNL().fit(part)
    model.add_table_facts(drawn_from=trips.fingerprint())
    assert training_overlap(model, trips) == "most"
    assert "trained on 36 of these 40 choice sets" in (in_sample_warning(model, trips) or "")


def test_an_unseen_table_gives_no_warning(model: MNL) -> None:
    assert in_sample_warning(model, make_trips(seed=5)) is None
