import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFitted
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.utils.validation import check_is_fitted
from torch import nn

from pcmcnet import MNL, Calibrated, ChoiceData, Ensemble, PCMCNet, Uniform
from pcmcnet.datasets import mlba
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models import KINDS, ChoiceModel

NEEDED: dict[str, dict[str, Any]] = {
    "calibrated": {"model": "mnl"},
    "ensemble": {"model": "pcmcnet", "options": {"hidden": (8,)}},
    "lc-mnl": {"classes": 3},
    "cross-nested-mnl": {"nests": {"road": ["car", "bus"], "public": ["bus"]}},
    "nested-mnl": {"nests": {"car": "road", "bus": "road"}},
    "pcmcnet": {"hidden": [4, 4]},
    "rank-by": {"column": "price"},
    "with-constants": {"model": "mnl", "shares": {"car": 0.75, "bus": 0.25}},
}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    table = mlba.simulate(60, seed=0)
    return ChoiceData.from_long(table, choice_set="choice_set", chosen="chosen", features=["attr1", "attr2"])


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_params_and_clone_give_an_equal_model(name: str) -> None:
    model = KINDS[name](**NEEDED.get(name, {}))
    params = model.get_params(deep=False)
    for other in (KINDS[name](**params), clone(model)):
        assert type(other) is type(model)
        assert other is not model
        assert other.config == model.config


@pytest.mark.parametrize("name", KINDS)
def test_an_unknown_param_is_refused_without_changing_the_model(name: str) -> None:
    model = KINDS[name](**NEEDED.get(name, {}))
    before = model.config
    with pytest.raises(ConfigError, match="unknown option 'epohcs'"):
        model.set_params(epohcs=3)
    assert model.config is before


def test_set_params_changes_options_and_unfits_the_model(data: ChoiceData) -> None:
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=1.0).fit(data, progress=False)
    check_is_fitted(model)
    assert model.set_params() is model
    check_is_fitted(model)
    assert model.set_params(epochs=2) is model
    assert (model.config.epochs, model.config.hidden) == (2, (4,))
    assert not hasattr(model, "network_")
    with pytest.raises(SklearnNotFitted):
        check_is_fitted(model)


def test_options_of_an_inner_model_have_prefixed_names() -> None:
    model = Ensemble(PCMCNet(hidden=(8,)), n=3)
    assert model.get_params()["options__hidden"] == (8,)
    assert "options__hidden" not in model.get_params(deep=False)
    model.set_params(n=4, options__epochs=2)
    assert (model.config.n, model.config.options["epochs"], model.config.options["hidden"]) == (4, 2, (8,))
    assert model.set_params(model="mnl").config.model == "mnl"
    with pytest.raises(ConfigError, match="unknown option 'epohcs'"):
        Calibrated("pcmcnet").set_params(options__epohcs=2)


def test_custom_encoders_are_cloned() -> None:
    module = nn.Linear(3, 2)
    assert clone(PCMCNet(encoders={"photo": module})).encoders == {"photo": module}
    assert clone(Ensemble("pcmcnet", encoders={"photo": module})).extras == {"encoders": {"photo": module}}


# -- choice data as an array of choice sets --------------------------------------------------------------------------


def test_choice_data_is_indexed_by_choice_sets(data: ChoiceData) -> None:
    assert data.shape == (len(data),) == (60,)
    expected = data.subset([3, 1]).fingerprint()
    for index in ([3, 1], np.array([3, 1]), (np.array([3, 1]), ...), slice(3, None, -2)):
        assert data[index].fingerprint() == expected
    assert len(data[data.sizes > 99]) == 0
    with pytest.raises(InputError, match=r"Write data\[\[3\]\] for choice data"):
        data[3]
    with pytest.raises(TypeError, match="not iterable"):
        list(data)


def test_cross_validation_splits_choice_sets(data: ChoiceData) -> None:
    folds = KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(MNL(), data, cv=folds)
    expected = [MNL().fit(data[rest]).score(data[part]) for rest, part in folds.split(data)]
    np.testing.assert_allclose(scores, expected)


def test_grid_search_fits_the_best_model(data: ChoiceData) -> None:
    grid = {"hidden": [(4,), (8,)], "epochs": [1, 2]}
    search = GridSearchCV(PCMCNet(weight_decay=1.0), grid, cv=GroupKFold(2), error_score="raise")
    search.fit(data, groups=data.groups(), progress=False)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_.get_params().items() >= search.best_params_.items()
    assert np.isclose(search.predict_proba(data).sum(), len(data))


# -- empty tables ----------------------------------------------------------------------------------------------------


def test_an_empty_table_has_no_probabilities_and_no_score(data: ChoiceData) -> None:
    models: list[ChoiceModel] = [
        Uniform(),
        Calibrated("mnl"),
        PCMCNet(hidden=(4,), epochs=1, weight_decay=1.0),
    ]
    for model in models:
        model.fit(data, data if model.stops_early else None, progress=False)
        for result in (model.predict_proba(data[:0]), model.predict_scores(data[:0]), model.predict(data[:0])):
            assert result.shape == (0,)
        with pytest.raises(InputError, match="expected a choice set with a weight above 0, but none of the 0"):
            model.score(data[:0])


# -- types -----------------------------------------------------------------------------------------------------------

TYPES = """
from pcmcnet import MNL, Calibrated, ChoiceData, Ensemble, PCMCNet, PointerNetwork, RankBy, Uniform


def right(data: ChoiceData) -> PCMCNet:
    RankBy("price"), Ensemble("mnl", n=3, resample=True), Calibrated(MNL()), Uniform(), PCMCNet.paper()
    return PCMCNet(epochs=3, hidden=(8,), encoders={}).fit(data).set_params(epochs=4)


PCMCNet(epohcs=3)
PCMCNet(epochs="three")
PointerNetwork(hiden=3)
MNL(formla="price")
RankBy("price", ascendin=True)
Ensemble("mnl", resampel=True)
Calibrated("mnl", n=3)
Uniform(n=3)
"""


@pytest.mark.slow
def test_a_type_checker_finds_a_wrong_option(tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(TYPES, "utf-8")
    config = Path(__file__).parents[3] / "pyproject.toml"
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(config), str(file)]
    run = subprocess.run(words, capture_output=True, text=True, check=False, cwd=config.parent)
    lines = TYPES.splitlines()
    wrong = {k for k, line in enumerate(lines, 1) if k > lines.index("PCMCNet(epohcs=3)")}
    result = {
        int(line.split(":")[1]) for line in run.stdout.splitlines() if line.startswith(str(file)) and ": error:" in line
    }
    assert result == wrong, run.stdout


@pytest.mark.parametrize("name", KINDS)
def test_every_model_declares_its_options_to_type_checkers(name: str) -> None:
    """Other arguments of a model are declared in a separate class that also has all options."""
    owner = next(kind for kind in KINDS[name].__mro__ if "config_class" in vars(kind))
    assert "__init__" in vars(owner)  # a class that declares options also has the constructor
