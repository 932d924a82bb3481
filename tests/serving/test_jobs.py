"""Questions to a model: their size."""

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.serving.jobs import Job


def test_a_set_of_n_alternatives_has_n_squared_ordered_pairs() -> None:
    """Sets of 2, 3 and 1: 4 + 9 + 1."""
    table = {"trip": np.repeat([0, 1, 2], [2, 3, 1]), "price": np.arange(6.0)}
    data = ChoiceData.from_long(table, choice_set="trip", features=["price"])
    assert Job("main", "log_proba", data).pairs == 14
