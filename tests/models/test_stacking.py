"""Stacks: weights by hand, members left out, the averaged chain, saved and resumed runs."""

import logging
import math
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from choice_tables import PANEL, logit_choices, normal_tastes, panel, read
from choice_tables import trips as trip_table
from pcmcnet import MNL, Boosted, LatentClassMNL, PCMCNet, Stacking, Uniform, evaluate, load, stationary_distribution
from pcmcnet.concurrency import tasks_run_by
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import ordered_pairs
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.models import stacking
from pcmcnet.models.stacking import (
    DEFAULT_MODELS,
    LABEL_MODELS,
    PANEL_MODELS,
    StackingConfig,
    cross_fitted_nll,
    default_models,
    default_options,
    log_weighted_mean,
    stacking_weights,
    without_negligible,
)
from pcmcnet.selection import cross_folds
from pcmcnet.training.run_folder import CHECKPOINT

QUICK: dict[str, Any] = {"hidden": (4,), "epochs": 2, "batch_size": 16, "weight_decay": 0.1, "members": 1}


@pytest.fixture(scope="module")
def stack(trips: ChoiceData) -> Stacking:
    """A fitted stack to ask, never to change."""
    fitted: Stacking = Stacking([MNL(), Boosted(trees=5), PCMCNet(**QUICK)]).fit(trips, seed=3, progress=False)
    return fitted


# -- weights -------------------------------------------------------------------------------------------------------


def test_weights_of_one_choice_by_hand() -> None:
    """One choice, with probability 1 under the first model and 1/2 under the second.

    The weight a of the first maximises log((1 + a) / 2) + log a + log(1 - a). The derivative is
    1 / (1 + a) + 1 / a - 1 / (1 - a) = (1 - 3 a²) / (...), so a = 1 / sqrt(3).
    """
    weights = stacking_weights(np.array([[0.0], [math.log(2)]]), np.ones(1))
    np.testing.assert_allclose(weights, [1 / math.sqrt(3), 1 - 1 / math.sqrt(3)], atol=1e-7)  # where EM ends


def test_weights_are_equal_without_data_and_for_equal_models() -> None:
    np.testing.assert_array_equal(stacking_weights(np.zeros((2, 0)), np.zeros(0)), [0.5, 0.5])
    np.testing.assert_allclose(stacking_weights(np.full((4, 9), 1.3), np.ones(9)), 0.25, rtol=1e-12)


def test_weights_sum_to_one_and_ignore_the_scale_of_set_weights() -> None:
    rng = np.random.default_rng(0)
    losses, set_weights = rng.exponential(size=(3, 50)), rng.uniform(0.5, 2, 50)
    weights = stacking_weights(losses, set_weights)
    assert weights.sum() == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose(stacking_weights(losses, 100 * set_weights), weights, rtol=1e-9)
    # A choice set of weight 2 counts as two.
    doubled = stacking_weights(np.concatenate([losses, losses], 1), np.concatenate([set_weights, set_weights]))
    np.testing.assert_allclose(doubled, stacking_weights(losses, set_weights), atol=0.05)  # the prior counts half


def test_no_other_weights_have_a_higher_posterior() -> None:
    rng = np.random.default_rng(1)
    losses = rng.exponential(size=(3, 40))
    weights = stacking_weights(losses, np.ones(40))

    def posterior(a: np.ndarray) -> float:
        return float(np.log(a @ np.exp(-losses)).sum() + np.log(a).sum())

    others = rng.dirichlet(np.ones(3), 500)
    assert all(posterior(a) < posterior(weights) for a in others)


def test_negligible_weights_become_zero() -> None:
    np.testing.assert_allclose(without_negligible(np.array([0.6, 0.395, 0.005])), [0.6 / 0.995, 0.395 / 0.995, 0.0])


def test_the_nll_of_the_stack_uses_weights_of_the_other_folds() -> None:
    """The first model is right in fold 1 and wrong in fold 2, so the weights of the other fold are the wrong ones."""
    losses = np.array([[0.1] * 50 + [2.0] * 50, [2.0] * 50 + [0.1] * 50])
    assert cross_fitted_nll(losses, np.ones(100), [50, 50]) > np.log(2)
    together = -log_weighted_mean(-losses, stacking_weights(losses, np.ones(100)))
    assert together.mean() < np.log(2) + 0.1


# -- fits ----------------------------------------------------------------------------------------------------------


def test_a_single_fold_is_divided_into_halves() -> None:
    """The weights of a half are learnt from the other half, in which the other model is better."""
    losses = np.array([[2.0, 2.0, 1.0, 1.0], [1.0, 1.0, 2.0, 2.0]])
    expected = cross_fitted_nll(losses, np.ones(4), [2, 2])
    assert cross_fitted_nll(losses, np.ones(4), [4]) == expected
    assert expected > -np.log(0.5 * (np.exp(-1) + np.exp(-2)))  # worse than equal weights


def test_a_large_table_needs_fewer_folds(trips: ChoiceData, monkeypatch: pytest.MonkeyPatch) -> None:
    folds = cross_folds(trips, 0, 3)
    sizes = [len(fold.weights) for fold in folds]
    assert len(sizes) == 3
    for enough, n_folds in ((1, 1), (sizes[0], 1), (sizes[0] + 1, 2), (sum(sizes), 3), (10_000, 3)):
        monkeypatch.setattr(stacking, "HELD_OUT_SETS", enough)
        assert len(stacking.enough_folds(folds)) == n_folds
    assert list(stacking.enough_folds([])) == []


def test_copies_share_the_probability_of_the_original() -> None:
    """Uniform expansion: a set in which every alternative occurs twice has half of each probability, twice."""
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "features": ["price", "minutes"]}
    table = {name: np.asarray(values) for name, values in trip_table(60, slope=-0.3).items()}
    model = Stacking([PCMCNet(**QUICK), Boosted(trees=20), LatentClassMNL(classes=2), MNL()])
    model.fit(ChoiceData.from_long(table, **roles), progress=False)
    assert len(model.members_) == 4
    once = {name: values[table["trip"] == 0] for name, values in table.items()}
    twice = {name: np.tile(values, 2) for name, values in once.items()}
    twice["took"][len(once["took"]) :] = False
    p, q = (model.predict_proba(ChoiceData.from_long(part, **roles)) for part in (once, twice))
    np.testing.assert_allclose(q, np.tile(p / 2, 2), rtol=1e-5)  # the network computes in float32


def test_probabilities_are_weighted_means_of_the_members(stack: Stacking, trips: ChoiceData) -> None:
    each = np.stack([member.predict_proba(trips) for member in stack.members_])
    np.testing.assert_allclose(stack.predict_proba(trips), stack.weights_ @ each, rtol=1e-12)
    assert stack.weights_.sum() == pytest.approx(1, abs=1e-12)
    assert [member.weight for member in stack.record_.members if member.weight] == stack.weights_.tolist()
    assert "out-of-fold NLL" in str(stack.summary())


def test_a_stack_of_one_model_is_that_model_bit_for_bit(trips: ChoiceData) -> None:
    alone = PCMCNet(**QUICK).fit(trips, seed=3, progress=False)
    stack = Stacking([PCMCNet(**QUICK)]).fit(trips, seed=3, progress=False)
    np.testing.assert_array_equal(stack.predict_log_proba(trips), alone.predict_log_proba(trips))
    assert stack.weights_.tolist() == [1.0]


def test_a_stack_of_copies_has_the_probabilities_of_one(trips: ChoiceData) -> None:
    stack = Stacking(["mnl", "mnl", "mnl"]).fit(trips, seed=3, progress=False)
    np.testing.assert_array_equal(stack.predict_log_proba(trips), MNL().fit(trips).predict_log_proba(trips))
    assert [member.label for member in stack.record_.members] == ["mnl", "mnl 2", "mnl 3"]


def test_the_better_model_gets_the_weight() -> None:
    data = read(logit_choices(400, {"x": -2.0}, seed=1), features=["x"])
    stack = Stacking([MNL(), Uniform()]).fit(data, progress=False)
    assert stack.weights_[0] > 0.95
    assert evaluate(stack, data).nll == pytest.approx(evaluate(MNL().fit(data), data).nll, abs=0.02)


def test_a_model_that_cannot_be_fitted_is_left_out_with_its_reason(trips: ChoiceData) -> None:
    stack = Stacking([MNL(), MNL(formula="no_such_column")]).fit(trips, progress=False)
    assert [member.label for member in stack.record_.members] == ["mnl"]
    assert "no_such_column" in stack.record_.left_out["mnl 2"]
    assert "mnl 2 was left out" in stack.caveats[-1]
    assert not stack.caveats[-1].endswith(".")  # a report adds the final stop
    assert "left out" in str(stack.summary())
    with pytest.raises(InputError, match="no model of the stack can be fitted"):
        Stacking([MNL(formula="no_such_column"), MNL(formula="nor_this")]).fit(trips, progress=False)


class FailsOnAll(MNL):
    """A logit that can be fitted to folds, but not to all choice sets of the fixture."""

    def _fit(self, train: ChoiceData, *arguments: Any) -> Any:
        if len(train) == 60:
            raise InputError("too many sets")
        return super()._fit(train, *arguments)


def test_weights_are_learnt_again_if_a_final_fit_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logit has nearly all weight. Without it, the stack is that of the other models, in its own run folders."""
    table = logit_choices(60, {"x": 3.0}, 0, sizes=(3, 3))
    data = read(table, features=["x"])
    others = {"pcmcnet": PCMCNet(**QUICK), "uniform": Uniform()}
    monkeypatch.setattr(Stacking, "_unfitted", lambda self, data: {"logit": FailsOnAll(), **others})
    stack = Stacking().fit(data, progress=False, run_folder=tmp_path / "run")
    monkeypatch.setattr(Stacking, "_unfitted", lambda self, data: others)
    expected = Stacking().fit(data, progress=False)
    assert stack.record_.left_out == {"logit": "too many sets"}
    np.testing.assert_array_equal(stack.weights_, expected.weights_)
    assert stack.record_.out_of_fold_nll == expected.record_.out_of_fold_nll
    assert np.array_equal(stack.predict_proba(data), expected.predict_proba(data))


def test_a_resumed_run_knows_why_a_model_was_left_out(trips: ChoiceData, tmp_path: Path) -> None:
    def stop(entry: Any) -> None:
        raise KeyboardInterrupt

    whole = Stacking([MNL(), MNL(formula="nothing"), PCMCNet(**QUICK)])
    expected = whole.fit(trips, progress=False).record_.left_out
    assert "nothing" in expected["mnl 2"]
    with pytest.raises(KeyboardInterrupt):
        whole.fit(trips, progress=False, run_folder=tmp_path, on_epoch=stop)
    resumed = whole.fit(trips, progress=False, run_folder=tmp_path, resume=True)
    assert resumed.record_.left_out == expected


def test_only_the_final_fits_warn(trips: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    class Wary(Uniform):
        def _fit(self, *arguments: Any) -> Any:
            logging.getLogger("pcmcnet").warning("beware")
            return super()._fit(*arguments)

    stack = Stacking([Uniform(), Uniform()])
    wary = {"uniform": Wary(), "uniform 2": Uniform()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stacking, "_unfitted", lambda self, data: wary)
        stack.fit(trips, progress=False)
    assert caplog.messages.count("beware") == 1


def test_held_out_predictions_do_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    """Every ticket occurs once, so every ticket of a held-out set is new to the models of its fold."""
    table = trip_table(60, slope=-0.3)
    table["ticket"] = np.array([f"ticket {row}" for row in range(len(table["trip"]))])
    Stacking([Boosted(trees=3), Uniform()]).fit(read(table, features=["price", "ticket"]), progress=False)
    assert "never seen in training" not in caplog.text


def test_a_model_is_not_left_out_for_a_value_that_only_a_held_out_set_has() -> None:
    """One set has a missing price, and one has a rare mode: each is in the training part of two folds only."""
    roles: dict[str, Any] = {"features": ["price"], "alternative": "mode", "missing": "indicator"}
    table = trip_table(80, slope=-0.3, sizes=(3, 3))
    table["price"][6] = np.nan
    table["mode"] = np.where(np.arange(len(table["mode"])) == 9, "zeppelin", table["mode"])
    models = [MNL(), Boosted(trees=3), PCMCNet(**QUICK)]
    stack = Stacking(models).fit(read(table, **roles), progress=False)
    assert stack.record_.left_out == {}
    assert len(stack.record_.members) == 3


def test_a_device_that_is_not_available_is_an_error(trips: ChoiceData) -> None:
    """Otherwise the networks would be left out, and the stack would be one of logits."""
    with pytest.raises(ConfigError, match="device 'abacus' is not available"):
        Stacking([MNL(), PCMCNet(**QUICK)]).fit(trips, device="abacus", progress=False)


def test_a_fit_says_what_it_will_do(
    trips: ChoiceData, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = f"then a fit of each model to all {len(trips)} choice sets"
    with caplog.at_level(logging.INFO):
        Stacking(["mnl", "uniform"]).fit(trips)
        monkeypatch.setattr(stacking, "HELD_OUT_SETS", 1)
        Stacking(["mnl", "uniform"]).fit(trips, progress=False)
        Stacking(["mnl"]).fit(trips, progress=False)
    plans = [line for line in caplog.messages if line.startswith("stacking ")]
    assert plans == [
        f"stacking mnl, uniform: 3 folds to learn the weights, {plan}",
        f"stacking mnl, uniform: 1 fold to learn the weights, {plan}",
        f"stacking mnl: a fit of each model to all {len(trips)} choice sets",
    ]


def test_progress_has_a_line_for_every_fit(trips: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Stacking([MNL(formula="price"), Uniform()]).fit(trips)
    steps = [line.partition(":")[0] for line in caplog.messages if re.search(r": NLL|: fitted to all", line)]
    assert steps == [*(f"{name}, fold {k} of 3" for k in (1, 2, 3) for name in ("mnl", "uniform")), "mnl", "uniform"]


# -- validation part -----------------------------------------------------------------------------------------------


def test_a_validation_part_adds_to_the_data_of_several_models(trips: ChoiceData) -> None:
    train, valid = trips.split((0.6, 0.4), seed=0)
    stack = Stacking([MNL(), Uniform()], folds=2).fit(train, valid, progress=False)
    expected = Stacking([MNL(), Uniform()], folds=2).fit(train.concat(valid), progress=False)
    np.testing.assert_array_equal(stack.weights_, expected.weights_)
    assert stack.table_.choice_sets == len(trips)
    assert stack.table_.fingerprint == expected.table_.fingerprint


@pytest.mark.parametrize("model", [MNL(), PCMCNet(**QUICK), PCMCNet(**QUICK, refit=True)], ids=str)
def test_a_single_model_uses_a_validation_part_as_if_alone(model: Any, trips: ChoiceData) -> None:
    train, valid = trips.split((0.6, 0.4), seed=0)
    stack = Stacking([model]).fit(train, valid, seed=3, progress=False)
    alone = model.fit(train, valid, seed=3, progress=False)
    np.testing.assert_array_equal(stack.predict_log_proba(trips), alone.predict_log_proba(trips))
    assert stack.table_.choice_sets == alone.table_.choice_sets
    assert stack.table_.fingerprint == alone.table_.fingerprint


def test_a_run_is_not_resumed_with_another_validation_part(trips: ChoiceData, tmp_path: Path) -> None:
    def stop(entry: Any) -> None:
        raise KeyboardInterrupt

    train, valid, other = trips.split((0.4, 0.3, 0.3), seed=0)
    stack = Stacking([MNL(), PCMCNet(**QUICK)], folds=2)
    with pytest.raises(KeyboardInterrupt):
        stack.fit(train, valid, on_epoch=stop, progress=False, run_folder=tmp_path)
    with pytest.raises(ArtifactError, match="belongs to another run; differences: table"):
        stack.fit(train, other, progress=False, run_folder=tmp_path, resume=True)


# -- persons -------------------------------------------------------------------------------------------------------


def test_persons_are_held_out_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trips 0 to 3 are of person 0, trips 4 to 7 of person 1, and so on."""
    data = read(panel(30, normal_tastes, sets=4), **PANEL)
    folds: list[Any] = []

    def record_fold(self: Any, step: tuple[str, int]) -> Any:
        folds.append(self.folds[step[1]])
        return *step, [0.0] * len(folds[-1].weights)

    monkeypatch.setattr(stacking.HeldOutStep, "__call__", record_fold)
    Stacking(["mnl", "uniform"]).fit(data, progress=False)
    assert len(folds) == 6
    for fold in folds:
        fitted, predicted = ({int(trip) // 4 for trip in sets.set_ids} for sets in (fold.train, fold.held_out[0]))
        assert fitted.isdisjoint(predicted)
        assert len(fitted | predicted) == 30


def test_known_choices_of_a_person_move_the_members_with_classes() -> None:
    data = read(panel(30, normal_tastes, sets=4), **PANEL)
    first = np.arange(0, len(data), 4)
    later, earlier = data.subset(first), data.subset(np.setdiff1d(np.arange(len(data)), first))
    stack = Stacking([LatentClassMNL(classes=2), MNL()], folds=2).fit(earlier, progress=False)
    given = stack.predict_proba_given(later, earlier)
    classes, logit = stack.members_
    expected = stack.weights_ @ np.stack([classes.predict_proba_given(later, earlier), logit.predict_proba(later)])
    np.testing.assert_allclose(given, expected, rtol=1e-12)
    assert np.abs(given - stack.predict_proba(later)).max() > 0.01
    nested = Stacking([stack]).fit(earlier, progress=False)
    np.testing.assert_array_equal(nested.predict_proba_given(later, earlier), given)


def test_the_default_models_depend_on_the_columns(trips: ChoiceData) -> None:
    assert tuple(Stacking()._unfitted(trips)) == DEFAULT_MODELS
    table = {"set": [0, 0, 1, 1], "item": ["a", "b", "a", "b"], "chosen": [1, 0, 0, 1]}
    for features in ([], ["item"]):  # the label may also be a feature
        labels = read(table, choice_set="set", chosen="chosen", alternative="item", features=features)
        assert default_models(labels) == LABEL_MODELS


def test_a_panel_adds_the_mixed_logit(monkeypatch: pytest.MonkeyPatch) -> None:
    people = read(panel(20, normal_tastes, sets=4), **PANEL)
    assert default_models(people) == PANEL_MODELS
    first_choices = people.subset(np.arange(0, len(people), 4))  # one per person
    assert default_models(first_choices) == DEFAULT_MODELS
    monkeypatch.setattr(stacking, "MAX_PANEL_SETS", len(people) - 1)
    assert default_models(people) == DEFAULT_MODELS


def test_the_depth_of_nested_stacks_is_limited() -> None:
    """Without a limit, a crafted folder exceeds the recursion limit of Python."""
    stack = Stacking(["mnl"])
    for _ in range(4):
        stack = Stacking([stack])
    with pytest.raises(ConfigError, match="at most 4 nested models, got 5"):
        Stacking([stack])
    options: dict[str, Any] = {}
    for _ in range(400):
        options = {"models": ["mnl", "stacking"], "options": [{}, options]}
    with pytest.raises(ConfigError, match="at most 4 nested models, got 400"):
        Stacking(["stacking"], options=[options])


def test_new_models_do_not_get_the_options_of_the_old_ones() -> None:
    stack = Stacking([MNL(formula="price"), Boosted(trees=5)])
    assert stack.set_params(folds=2).config.options[1]["trees"] == 5
    assert stack.set_params(models=["uniform"]).config == StackingConfig(models=("uniform",), folds=2)
    assert stack.set_params(models=[Boosted(trees=7)]).config.options[0]["trees"] == 7
    assert stack.set_params(models=["boosted"], options=[{"trees": 9}]).config.options[0]["trees"] == 9
    assert stack.set_params(models=None).config == StackingConfig(folds=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ["pcmcnett"]}, "Did you mean 'pcmcnet'"),
        ({"models": "mnl"}, "expected a list of models"),
        ({"models": []}, "expected options for each of the 0 models"),
        ({"models": ["mnl"], "folds": 1}, "folds must be a whole number of at least 2"),
        ({"models": [MNL()], "options": [{}]}, "model objects have their own"),
        ({"models": ["rank-by"], "options": [{"column": "price"}]}, "gives a ranking"),
        ({"models": [FailsOnAll()]}, "FailsOnAll is not a model of this library"),
    ],
)
def test_options_that_cannot_be_meant_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Stacking(**options)


# -- the chain -----------------------------------------------------------------------------------------------------


def test_the_stationary_distribution_of_the_rates_is_the_prediction(stack: Stacking, trips: ChoiceData) -> None:
    data = trips.subset(np.arange(5))
    chains = [stationary_distribution(torch.from_numpy(rates)).numpy() for rates in stack.rates(data)]
    log_p = stack._log_proba(data)
    np.testing.assert_allclose(np.concatenate(chains), np.exp(log_p), atol=1e-6)  # networks compute in 32 bits


def test_the_order_of_rows_matters_if_it_matters_to_a_member() -> None:
    assert not Stacking().order_matters
    assert not Stacking(["mnl", "pcmcnet"]).order_matters
    assert Stacking(["mnl", Stacking(["dpn"])]).order_matters


def test_an_empty_table_has_no_rates(stack: Stacking, trips: ChoiceData) -> None:
    assert list(stack.rates(trips.subset(np.arange(0)))) == []


def test_slopes_agree_with_differences(trips: ChoiceData) -> None:
    stack = Stacking([MNL(), PCMCNet(**{**QUICK, "activation": "tanh"})]).fit(trips, seed=3, progress=False)
    slopes = stack._slopes(trips, "price")
    assert slopes is not None
    i, j = ordered_pairs(trips.offsets)
    column, step = trips.features["price"], 0.05
    logs = []
    for sign in (-1, 1):  # change the price of alternative 0, the first of its set
        values = column.values.copy()
        values[0] += sign * step
        logs.append(
            stack._log_proba(replace(trips, features={**trips.features, "price": replace(column, values=values)}))
        )
    by_difference = (logs[1] - logs[0]) / (2 * step)
    pairs = j == 0
    np.testing.assert_allclose(slopes[pairs], by_difference[i[pairs]], atol=2e-3)  # networks compute in 32 bits


# -- files ---------------------------------------------------------------------------------------------------------


def test_a_saved_stack_predicts_the_same_bits(stack: Stacking, trips: ChoiceData, tmp_path: Path) -> None:
    again = load(stack.save(tmp_path / "stack"))
    np.testing.assert_array_equal(again.predict_log_proba(trips), stack.predict_log_proba(trips))
    assert again.record_ == stack.record_
    np.testing.assert_array_equal(again.weights_, stack.weights_)


def test_a_killed_run_resumes_without_repeating_its_folds(
    trips: ChoiceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Stacking([MNL(), PCMCNet(**QUICK)]).fit(trips, seed=3, progress=False)

    def stop(entry: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    run = {"seed": 3, "progress": False, "run_folder": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        Stacking([MNL(), PCMCNet(**QUICK)]).fit(trips, on_epoch=stop, **run)
    assert (tmp_path / "run" / "search.json").exists()
    # Every fold is in the log: a fold that is fitted again would fail.
    monkeypatch.setattr(stacking.HeldOutStep, "__call__", lambda *_: pytest.fail("fitted again"))
    again = Stacking([MNL(), PCMCNet(**QUICK)]).fit(trips, resume=True, **run)
    np.testing.assert_array_equal(again.predict_log_proba(trips), whole.predict_log_proba(trips))


def test_workers_share_the_fits_that_predict_held_out_sets(trips: ChoiceData) -> None:
    """The workers run tasks ahead of the result: a model that fails is left out once."""
    sizes: list[int] = []

    def run_ahead(function: Any, items: Any) -> Any:
        steps = list(items)
        sizes.append(len(steps))
        return iter([pickle.loads(pickle.dumps(function))(step) for step in steps])

    models = [MNL(), Boosted(trees=3), MNL(formula="no_such_column")]
    alone = Stacking(models).fit(trips, seed=3, progress=False)
    with tasks_run_by(run_ahead):
        shared = Stacking(models).fit(trips, seed=3, progress=False)
    assert sizes == [9]
    np.testing.assert_array_equal(shared.predict_log_proba(trips), alone.predict_log_proba(trips))
    assert shared.record_ == alone.record_
    assert list(shared.record_.left_out) == ["mnl 2"]


def test_a_damaged_checkpoint_is_an_error_and_leaves_no_model_out(trips: ChoiceData, tmp_path: Path) -> None:
    def stop(entry: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    stack = Stacking([MNL(), PCMCNet(**QUICK)])
    with pytest.raises(KeyboardInterrupt):
        stack.fit(trips, on_epoch=stop, progress=False, run_folder=tmp_path)
    (checkpoint,) = tmp_path.rglob(CHECKPOINT)
    checkpoint.write_bytes(b"half of a file")
    with pytest.raises(ArtifactError, match="is damaged"):
        stack.fit(trips, progress=False, run_folder=tmp_path, resume=True)


# -- expected signs ------------------------------------------------------------------------------------------------


def dear_is_chosen(signs: dict[str, Any]) -> ChoiceData:
    """Return trips in which expensive alternatives are chosen; the name of the price needs quotes in a formula."""
    table = trip_table(80, slope=0.3)
    table["ticket price"] = table.pop("price")
    return read(table, features=["ticket price", "minutes"], signs=signs)


def test_the_default_models_obey_declared_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "DEFAULT_MODELS", ("mnl", "uniform"))
    free = Stacking(folds=2).fit(dear_is_chosen({}), progress=False)
    assert free.sign_caveats["ticket price"].endswith("If not, declare signs={'ticket price': '-'} and fit again")
    signs = {"ticket price": "-", "minutes": "-"}
    signed = Stacking(folds=2).fit(dear_is_chosen(signs), progress=False)
    assert [check.wrong for check in signed.table_.signs] == [0, 0]
    options = {"max_classes": 2, "starts": 1, **default_options("lc-mnl", signed.schema)}
    classes = LatentClassMNL(**options).fit(dear_is_chosen(signs), progress=False)
    assert [check.wrong for check in classes.table_.signs] == [0, 0]


def test_bounds_of_the_default_logits() -> None:
    schema = dear_is_chosen({"ticket price": "-", "minutes": "+"}).schema
    bounds = {"`ticket price`": (None, 0.0), "minutes": (0.0, None)}
    assert [default_options(name, schema) for name in PANEL_MODELS] == [
        {},
        {},
        {"bounds": bounds},
        {"bounds": bounds},
        {},
    ]
    assert default_options("mnl", dear_is_chosen({}).schema) == {}


def test_models_of_the_user_are_only_checked() -> None:
    model = Stacking([MNL(), Boosted(trees=5)], folds=2).fit(dear_is_chosen({"ticket price": "-"}), progress=False)
    assert model.sign_caveats["ticket price"].endswith(
        "against the declared sign '-': use members that obey signs, such as pcmcnet, boosted and logits with bounds"
    )


def test_the_mixed_logit_is_left_out_if_signs_are_declared(caplog: pytest.LogCaptureFixture) -> None:
    data = read(panel(10, normal_tastes), **PANEL)
    assert default_models(data) == PANEL_MODELS
    with caplog.at_level(logging.INFO):
        assert default_models(replace(data, schema=replace(data.schema, signs={"x": "+"}))) == DEFAULT_MODELS
    assert "mixed-mnl is left out, because its normal coefficients do not obey" in caplog.text
