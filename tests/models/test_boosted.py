"""Boosted utilities: Newton steps by hand, context by ratios, and a number of trees learnt from held-out sets."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcmcnet as pn
from choice_tables import trips
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.insight.queries import with_values
from pcmcnet.models import Boosted, boosted
from pcmcnet.models.boosted import BoostedConfig, TreeSets, UtilityTrees, grow_trees
from pcmcnet.models.tree_growth import as_bins, bin_edges

Table = dict[str, Any]


def bargains(sets: int = 200, seed: int = 0) -> Table:
    """Return sets of three at very different price levels. The cheapest is chosen four times in five."""
    rng = np.random.default_rng(seed)
    price = rng.uniform(10, 1000, (sets, 1)) * rng.uniform(1, 2, (sets, 3))
    best = np.where(rng.random(sets) < 0.8, price.argmin(1), rng.integers(0, 3, sets))
    took = np.arange(3) == best[:, None]
    return {"s": np.repeat(np.arange(sets), 3), "took": took.ravel(), "price": price.ravel()}


def read(table: Any, **roles: Any) -> ChoiceData:
    return ChoiceData.from_long(table, **{"choice_set": "s", "chosen": "took", "features": ["price"], **roles})


def test_the_first_tree_takes_the_newton_step_of_each_leaf() -> None:
    """Pairs in which x = 1 is chosen 3 times of 4: p = 1/2 at first, so g = +-1/2 and h = 1/4 for all.

    The leaf of x = 1 has 4 alternatives: sum g = 3/2 - 1/2 = 1 and sum h = 1. With l2 = 1 its value is lr / 2.
    """
    x = np.tile(np.array([[0.0], [1.0]], np.float32), (4, 1))
    edges = bin_edges(x)
    sets = TreeSets(
        as_bins(x, edges),
        edges,
        np.arange(0, 9, 2),
        2 * np.arange(4) + np.array([1, 1, 1, 0]),
        np.ones(4),
        np.zeros(1, int),
    )
    config = BoostedConfig(lr=0.1, leaves=2, min_samples_leaf=1, l2=1.0, subsample=1.0, max_features=1.0)
    (tree, value), *_ = islice(grow_trees(sets, config, 0), 1)
    assert value[tree.leaves(sets.bins)] == pytest.approx(np.tile([-0.05, 0.05], 4))
    assert UtilityTrees.from_trees([(tree, value)], edges)(x) == pytest.approx(np.tile([-0.05, 0.05], 4))
    assert sets.loss(np.zeros(8)) == pytest.approx(np.log(2))


@given(seed=st.integers(0, 2**16), weight=st.floats(0.1, 10))
def test_results_do_not_depend_on_the_scale_of_weights(seed: int, weight: float) -> None:
    data = read(bargains(20, seed))
    x = data.features["price"].plain()[:, None].astype(np.float32)
    config = BoostedConfig(min_samples_leaf=2, leaves=8)
    one = [value for _, value in islice(grow_trees(TreeSets.of(data, x), config, 0), 3)]
    heavy = read({**bargains(20, seed), "w": np.full(60, weight)}, weight="w")
    other = [value for _, value in islice(grow_trees(TreeSets.of(heavy, x), config, 0), 3)]
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-9)  # weights are stored in float32


def test_flat_trees_predict_as_the_grown_trees() -> None:
    data = read(bargains(100))
    x = np.column_stack([data.features["price"].plain(), np.random.default_rng(0).normal(size=300)]).astype(np.float32)
    sets = TreeSets.of(data, x)
    grown = list(islice(grow_trees(sets, BoostedConfig(min_samples_leaf=3, leaves=8), 0), 5))
    trees = UtilityTrees.from_trees(grown, sets.edges)
    expected = sum(value[tree.leaves(sets.bins)] for tree, value in grown)
    np.testing.assert_allclose(trees(x), expected, rtol=1e-12)
    assert trees.importance.shape == (2,)
    assert trees.importance[0] > trees.importance[1]


def test_relative_features_capture_the_context() -> None:
    train, test = read(bargains()), read(bargains(seed=1))
    model = Boosted().fit(train)
    assert -model.score(test) < 0.75  # the true one: -(.8 + .2/3) log(.8 + .2/3) - ... = 0.49
    assert -Boosted(relative=()).fit(train).score(test) > 0.95  # log 3 is 1.10
    assert model.record_.trees < 2000
    assert model.summary().rows[0][0] == "price / smallest in the set"


def test_constant_inputs_are_not_drawn() -> None:
    """A node that may only split on a constant would remain a leaf."""
    table = bargains(100)
    constants = {f"c{k}": np.ones(300) for k in range(9)}
    data = read({**table, **constants}, features=["price", *constants])
    model = Boosted(trees=20, relative=(), min_samples_leaf=5).fit(data)
    assert len(model.trees_.feature) > 2 * 20
    assert (np.diff(model.trees_.roots) > 1).all()


def test_labels_can_be_the_only_inputs_or_be_left_out() -> None:
    table = trips(sets=60)
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode")
    model = Boosted(trees=5, min_samples_leaf=5).fit(data)
    assert [row[0] for row in model.summary().rows] == ["mode"]
    with pytest.raises(InputError, match="declare features, or declare an alternative column"):
        Boosted(labels=False).fit(data)


def test_the_validation_part_limits_the_number_of_trees() -> None:
    """A validation part without a learnable pattern leaves fewer trees."""
    noise = {**bargains(100, seed=3), "took": np.tile([True, False, False], 100)}
    train = read(bargains(60))
    assert Boosted().fit(train, read(noise)).record_.trees < Boosted().fit(train).record_.trees


def test_few_sets_get_a_fixed_number_of_trees() -> None:
    assert Boosted(min_samples_leaf=2).fit(read(bargains(12))).record_.trees == 50


def test_leaves_are_chosen_on_large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk begins at 8 and 16 leaves."""
    data, grow = read(bargains(200)), boosted.grow_trees
    grown: list[int] = []
    monkeypatch.setattr(boosted, "grow_trees", lambda *parts: (grown.append(parts[1].leaves), grow(*parts))[1])
    assert Boosted(min_samples_leaf=5).fit(data).trees_.max_leaves == 8
    assert grown == [8, 8, 8]  # two folds, then all sets
    grown.clear()
    monkeypatch.setattr(boosted, "MIN_SETS_FOR_LEAVES", 200)
    model = Boosted(min_samples_leaf=5).fit(data)
    assert grown[:4] == [8, 8, 16, 16]
    assert grown[-1] in grown[:-1]
    assert 1 < model.trees_.max_leaves <= grown[-1]
    grown.clear()
    Boosted(leaves=5).fit(data)
    Boosted(trees=3).fit(data)
    assert grown == [5, 5, 5, 8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trees": 0}, "trees must be a whole number of at least 1"),
        ({"lr": 0.0}, "lr must be a number above 0"),
        ({"leaves": 1}, "leaves must be a whole number of at least 2"),
        ({"subsample": 1.5}, "subsample must be a number above 0 and at most 1"),
        ({"labels": 1}, "labels must be true or false"),
        ({"relative": "price"}, "relative must be 'auto' or a list"),
    ],
)
def test_options_are_checked(options: Table, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Boosted(**options)


def test_sets_of_one_alternative_are_refused() -> None:
    with pytest.raises(InputError, match="single alternative"):
        Boosted().fit(read({"s": [1, 2], "took": [1, 1], "price": [2.0, 3.0]}))


@pytest.mark.parametrize(
    "change",
    [
        {"left": lambda a: a * 0},  # a cycle
        {"feature": lambda a: a + 9},
        {"right": lambda a: a + 10**6},
        {"value": lambda a: a * np.nan},
        {"roots": lambda a: a - 1},
        {"threshold": lambda a: a[:-1]},
        {"importance": lambda a: a.astype(np.float32)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_damaged_trees_are_refused(change: dict[str, Callable[[Any], Any]], tmp_path: Path) -> None:
    model = Boosted(trees=3, min_samples_leaf=2).fit(read(bargains(30)))
    trees = model.trees_
    arrays = {name: getattr(trees, name) for name in vars(trees)}
    damaged = UtilityTrees(**{**arrays, **{name: f(arrays[name]) for name, f in change.items()}})
    with pytest.raises(ArtifactError, match="is damaged"):
        UtilityTrees.from_bytes(damaged.to_bytes(), 2)
    with pytest.raises(ArtifactError, match="cannot be read"):
        UtilityTrees.from_bytes(b"no trees", 2)
    back = pn.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(back.predict_proba(bargains(5)), model.predict_proba(bargains(5)))


# -- monotone features ---------------------------------------------------------------------------------------------


def signed_table(seed: int, slope: float = 0.3) -> Table:
    """Return sets of two to four whose choices favour expensive alternatives, with a quality and an age."""
    table = trips(60, seed, slope=slope)
    return {"s": table["trip"], **{name: table[name] for name in ("took", "price", "minutes", "comfort", "income")}}


SIGNED_ROLES: Table = {"features": ["price", "minutes", "comfort"], "individual": ["income"]}


@given(seed=st.integers(0, 2**16), sign=st.sampled_from("+-"), label=st.sampled_from(["price", "minutes"]))
def test_own_probabilities_follow_the_declared_sign(seed: int, sign: Any, label: str) -> None:
    """At any values, also 0 and below, where the relative form of the column has another definition."""
    rng = np.random.default_rng(seed)
    data = read(signed_table(seed % 7), **SIGNED_ROLES, signs={label: sign})
    model = Boosted(trees=15, leaves=6, min_samples_leaf=2, lr=0.5).fit(data, progress=False)
    values = data.features[label].plain().astype(float)
    values[rng.random(len(values)) < 0.3] = rng.choice([-2.0, 0.0, 1.0, 8.0])
    place = np.arange(len(values)) - data.offsets[data.set_of_alternative]
    for moved in range(2):
        steps = np.unique([-9.0, -1, 0, 1e-3, 5, 20, *rng.choice(values, 5), 100])
        log_p = []
        for step in steps:
            now = with_values(data, label, np.where(place == moved, step, values))
            log_p.append(model.predict_log_proba(now)[place == moved])
        change = np.diff(log_p, axis=0) * (1 if sign == "+" else -1)
        assert (change >= -1e-12).all()


def test_without_signs_the_probability_rises_and_the_option_frees_or_forces_it() -> None:
    plain, signed = (read(signed_table(0), **SIGNED_ROLES, signs=signs) for signs in ({}, {"price": "-"}))
    options: Table = {"trees": 20, "lr": 0.2}
    free, obeys = Boosted(**options).fit(plain), Boosted(**options).fit(signed)
    assert free.sign_caveats["price"].endswith("If not, declare signs={'price': '-'} and fit again")
    assert "does not depend on its price in 100% of" in obeys.sign_caveats["price"]
    assert obeys.table_.signs[0].wrong == 0
    forced = Boosted(**options, monotone={"price": "decreasing"}).fit(plain)
    assert (forced.predict_proba(plain) == obeys.predict_proba(plain)).all()
    freed = Boosted(**options, monotone={"price": "free"}).fit(signed)
    assert (freed.predict_proba(plain) == free.predict_proba(plain)).all()
    assert freed.sign_caveats["price"].endswith("remove 'price' from the option monotone, and fit again")


def test_a_saved_model_keeps_its_signs(tmp_path: Path) -> None:
    data = read(signed_table(1), **SIGNED_ROLES, signs={"price": "-"})
    model = Boosted(trees=5).fit(data)
    changed = with_values(data, "price", data.features["price"].plain() - 5)  # some prices are below 0
    assert (pn.load(model.save(tmp_path / "model")).predict_proba(changed) == model.predict_proba(changed)).all()


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("income", "monotone includes 'income', an individual-level column"),
        ("comfort", "monotone includes 'comfort', which is not a numeric column"),
        ("prize", r"monotone includes 'prize', which is not a numeric feature. Did you mean 'price'\?"),
    ],
)
def test_only_numeric_features_can_be_monotone(column: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Boosted(trees=2, monotone={column: "decreasing"}).fit(read(signed_table(0), **SIGNED_ROLES))
