import math
from pathlib import Path

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.models import Uniform, load


def test_each_of_n_available_alternatives_has_one_nth(trips: ChoiceData) -> None:
    model = Uniform().fit(trips)
    expected = np.concatenate([np.full(n, 1 / n) for n in trips.sizes])
    # Through logs and back.
    np.testing.assert_allclose(trips.from_rows(model.predict_proba(trips)), expected, rtol=1e-15)
    assert trips.hidden_rows.size
    assert (model.predict_proba(trips)[trips.hidden_rows] == 0).all()


def test_the_score_is_minus_the_mean_log_size(trips: ChoiceData) -> None:
    expected = -np.average(np.log(trips.sizes), weights=trips.weights)
    assert math.isclose(Uniform().fit(trips).score(trips), expected, rel_tol=1e-12)


def test_it_needs_neither_features_nor_labels() -> None:
    table = {"s": [0, 0, 1], "took": [0, 1, 1]}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took")
    model = Uniform().fit(data)
    assert model.predict_proba(data).tolist() == [0.5, 0.5, 1.0]
    assert model.predict(data).tolist() == [0, 2]  # the first of equals


def test_nothing_but_the_common_files_is_saved(trips: ChoiceData, tmp_path: Path) -> None:
    folder = Uniform().fit(trips).save(tmp_path / "model")
    files = {"README.md", "config.json", "history.json", "model.json", "schema.json"}
    assert {path.name for path in folder.iterdir()} == files
    assert "1 / n" in str(load(folder).summary())
