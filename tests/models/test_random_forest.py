import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError, SchemaError
from pcmcnet.models import RandomForest
from pcmcnet.models.interface.parse_options import parse_option
from pcmcnet.models.random_forest import RandomForestConfig
from pcmcnet.models.tree_inputs import tree_inputs

MakeTrips = Callable[..., pa.Table]
QUICK: dict[str, Any] = {"trees": 20, "min_samples_leaf": 2, "floor": 0.001}


@pytest.fixture(scope="module")
def forest(trips: ChoiceData) -> RandomForest:
    """A fitted model that tests must not change."""
    model: RandomForest = RandomForest(**QUICK).fit(trips)
    return model


def bargains(sets: int = 200, seed: int = 0, weight: float = 1.0, *, dearest: bool = False) -> dict[str, Any]:
    """Return sets of three at very different price levels. The cheapest (or the dearest) is chosen."""
    rng = np.random.default_rng(seed)
    price = rng.uniform(10, 1000, (sets, 1)) * rng.uniform(1, 2, (sets, 3))
    best = price.argmax(1) if dearest else price.argmin(1)
    return {
        "s": np.repeat(np.arange(sets), 3),
        "took": (np.arange(3) == best[:, None]).ravel(),
        "price": price.ravel(),
        "weight": np.full(3 * sets, weight),
    }


def read(table: Any, **roles: Any) -> ChoiceData:
    return ChoiceData.from_long(table, choice_set="s", chosen="took", features=["price"], **roles)


# -- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trees": 0}, "trees must be a whole number of at least 1, got 0"),
        ({"max_depth": 0}, "max_depth must be a whole number of at least 1"),
        ({"min_samples_leaf": 0.5}, "min_samples_leaf must be a whole number"),
        ({"max_features": "all"}, "unknown max_features 'all'"),
        ({"max_features": 0}, "max_features must be a number above 0 and at most 1"),
        ({"floor": 0.0}, "floor must be a number above 0"),
        ({"relative": "price"}, r"relative must be 'auto' or a list of features such as \('price',\), got 'price'"),
        ({"relative": [1]}, "relative must be 'auto' or a list"),
        ({"relative": None}, "relative must be 'auto' or a list"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RandomForest(**options)


@pytest.mark.parametrize(
    ("word", "option", "value"),
    [
        ("relative=auto", "relative", "auto"),
        ("relative=price,minutes", "relative", ("price", "minutes")),
        ("relative=", "relative", ()),
        ("max_features=0.5", "max_features", 0.5),
        ("max_features=sqrt", "max_features", "sqrt"),
        ("max_depth=none", "max_depth", None),
    ],
)
def test_options_can_be_read_from_text(word: str, option: str, value: Any) -> None:
    name, read_value = parse_option(RandomForestConfig, word)
    assert getattr(RandomForest(**{name: read_value}).config, option) == value


# -- relative features ---------------------------------------------------------------------------------------------


def odds_of_the_last_two(model: RandomForest, cheapest: float) -> float:
    p = model.predict_proba({"s": [0, 0, 0], "price": [cheapest, 120.0, 180.0]})
    return float(p[1] / p[2])


def test_the_lowest_price_changes_the_odds_of_the_others() -> None:
    model = RandomForest(trees=50).fit(read(bargains()))
    assert model.relative_ == ("price",)
    # 120 is attractive next to 119 but not next to 60. 180 never is.
    assert odds_of_the_last_two(model, 119.0) > 2 * odds_of_the_last_two(model, 60.0)


def test_odds_are_independent_without_relative_features() -> None:
    model = RandomForest(trees=50, relative=()).fit(read(bargains()))
    assert odds_of_the_last_two(model, 119.0) == pytest.approx(odds_of_the_last_two(model, 60.0), rel=1e-12)


def test_relative_features_identify_the_cheapest() -> None:
    train, test = read(bargains()), read(bargains(seed=1))
    with_ratio, without = (RandomForest(trees=50, relative=r).fit(train).score(test) for r in ("auto", ()))
    assert with_ratio > -0.15
    assert without < -0.7


def test_a_set_with_a_minimum_of_0_has_probabilities() -> None:
    model = RandomForest(**QUICK).fit(read(bargains()))
    p = model.predict_proba({"s": [0, 0, 1, 1], "price": [0.0, 9.0, -1.0, 9.0]})
    assert (p > 0).all()
    np.testing.assert_allclose(p.reshape(2, 2).sum(1), 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("prise", r"no feature 'prise'. Did you mean 'price'\?"),
        ("comfort", "got 'comfort', which is categorical"),
    ],
)
def test_an_invalid_relative_feature_is_refused(name: str, message: str, trips: ChoiceData) -> None:
    with pytest.raises(SchemaError, match=message):
        RandomForest(**QUICK, relative=[name]).fit(trips)


# -- scores --------------------------------------------------------------------------------------------------------


def test_probabilities_are_normalised_scores_plus_the_floor(forest: RandomForest, trips: ChoiceData) -> None:
    scores = forest.forest_.predict_proba(tree_inputs(forest.encoder_, forest.relative_, trips))[:, 1] + 0.001
    p = trips.from_rows(forest.predict_proba(trips))
    assert forest.config.floor == 0.001
    assert RandomForest.gives == "scores"
    for begin, end in zip(trips.offsets[:-1], trips.offsets[1:], strict=True):
        np.testing.assert_allclose(p[begin:end], scores[begin:end] / scores[begin:end].sum(), rtol=1e-12)


def test_a_larger_floor_evens_probabilities_but_keeps_the_ranking(trips: ChoiceData) -> None:
    models = [RandomForest(**QUICK | {"floor": f}).fit(trips) for f in (1e-6, 10.0)]
    low, high = (model.predict_proba(trips) for model in models)
    alone = trips.rows[np.repeat(trips.sizes == 1, trips.sizes)]
    shared = np.setdiff1d(trips.rows, alone)
    assert low[shared].min() < 1e-4
    assert high[shared].max() < 0.55
    assert models[0].predict(trips).tolist() == models[1].predict(trips).tolist()


def test_new_choices_are_predicted(trips: ChoiceData, make_trips: MakeTrips) -> None:
    """The cheapest is always chosen."""
    model = RandomForest(trees=50, min_samples_leaf=2).fit(trips)
    fresh = make_trips(seed=5)
    took = fresh["took"].to_numpy() == 1
    assert model.predict_proba(fresh)[took].mean() > 0.6


def test_weights_of_sets_count() -> None:
    """The cheapest is chosen in half of the sets, the dearest in the other. The heavier half decides."""
    for heavy in (False, True):
        one, other = bargains(weight=9.0, dearest=heavy), bargains(seed=1, weight=1.0, dearest=not heavy)
        both = {k: np.concatenate([one[k], other[k] + 200 * (k == "s")]) for k in one}
        model = RandomForest(trees=50).fit(read(both, weight="weight"))
        p = model.predict_proba({"s": [0, 0], "price": [100.0, 190.0], "weight": [1.0, 1.0]})
        assert p[int(heavy)] > 0.7


def test_missing_numbers_are_accepted_if_training_had_some(make_trips: MakeTrips, roles: dict[str, Any]) -> None:
    table = make_trips()
    price = table["price"].to_numpy().copy()
    price[::7] = np.nan
    table = table.set_column(table.column_names.index("price"), "price", pa.array(price))
    model = RandomForest(**QUICK).fit(ChoiceData.from_long(table, **roles, missing="indicator"))
    assert "price" in model.relative_
    assert "price missing" in {name for name, _ in model.summary().rows}
    assert (model.predict_proba(table)[table["open"].to_numpy() == 1] > 0).all()


def test_sets_of_one_alternative_are_refused(trips: ChoiceData) -> None:
    lonely = trips.subset(trips.sizes == 1)
    with pytest.raises(InputError, match="every choice set has a single alternative"):
        RandomForest(**QUICK).fit(lonely)
    without = RandomForest(**QUICK).fit(trips.subset(trips.sizes > 1))
    np.testing.assert_array_equal(without.predict_proba(trips), RandomForest(**QUICK).fit(trips).predict_proba(trips))


def test_a_table_without_features_is_refused(make_trips: MakeTrips, roles: dict[str, Any]) -> None:
    data = ChoiceData.from_long(make_trips(), **roles | {"features": []})
    with pytest.raises(InputError, match="needs features to distinguish the alternatives"):
        RandomForest(**QUICK).fit(data)


def test_different_seeds_give_different_forests(trips: ChoiceData) -> None:
    first, second = (RandomForest(**QUICK).fit(trips, seed=seed).predict_proba(trips) for seed in (0, 2**63 - 1))
    assert not np.array_equal(first, second)


# -- summary and saved form ----------------------------------------------------------------------------------------


def test_results_do_not_depend_on_the_number_of_threads(trips: ChoiceData, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = RandomForest(**QUICK), RandomForest(**QUICK)
    for threads, model in enumerate((one, two), 1):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        model.fit(trips)
    assert one.num_parameters == two.num_parameters
    assert np.array_equal(one.predict_proba(trips), two.predict_proba(trips))


def test_the_summary_lists_importances_that_sum_to_1(forest: RandomForest) -> None:
    summary = forest.summary()
    names, values = zip(*summary.rows, strict=True)
    inputs = {"income", "purpose", "price", "minutes", "comfort"}
    assert set(names) == inputs | {"price / smallest in the set", "minutes / smallest in the set"}
    assert names[0] == "price / smallest in the set"  # the cheapest is always chosen
    assert sum(map(float, values)) == pytest.approx(1, abs=1e-3)  # printed with four digits
    assert summary.facts["parameters"].startswith(f"{forest.num_parameters:,} ")


def test_the_number_of_parameters_counts_the_nodes(trips: ChoiceData) -> None:
    """A tree of depth 1 is a split and two leaves."""
    assert RandomForest(trees=4, max_depth=1, min_samples_leaf=1).fit(trips).num_parameters == 12


@pytest.mark.slow
def test_scikit_learn_is_imported_only_by_a_fit() -> None:
    code = "import sys, pcmcnet; pcmcnet.RandomForest(); print('sklearn' in sys.modules)"
    source = str(Path(__file__).parents[2] / "src")
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.strip() == "False", run.stderr
