"""Weight decay and length learnt inside a fit: the walk by hand, what is held out, and runs that are interrupted."""

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choice_tables import logit_choices, read
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, InputError, TrainingError
from pcmcnet.models import PCMCNet, PointerNetwork, load
from pcmcnet.models.networks import decay_search
from pcmcnet.models.networks.decay_search import (
    FEW,
    FEWEST,
    LADDER,
    OF_FEW,
    Pair,
    Search,
    SearchLog,
    Trial,
    at_most,
    held_out_parts,
    search_decay,
    walk,
)
from pcmcnet.training import loop
from pcmcnet.training.checkpoint import CHECKPOINT
from pcmcnet.training.run_folder import SEARCH

MakeMlba = Callable[..., ChoiceData]
FURTHEST = 0.25  # of a step, from the best rung
LEARNING: dict[str, Any] = {"hidden": (4,), "epochs": 4, "batch_size": 16, "lr": 0.02, "dropout": 0.1}


class Interruption(KeyboardInterrupt):
    """What ends a run in these tests."""


def choices(sets: int, *, persons: int | None = None, weight: list[float] | None = None, seed: int = 0) -> ChoiceData:
    """Sets of three with two features, of whom the first drives the choice."""
    table = logit_choices(sets, {"x": 1.0, "y": 0.0}, seed, sizes=(3, 3))
    roles: dict[str, Any] = {"features": ["x", "y"]}
    if persons is not None:
        table["person"] = np.repeat(np.arange(sets) % persons, 3)
        roles["person"] = "person"
    if weight is not None:
        table["weight"] = np.repeat(weight, 3)
        roles["weight"] = "weight"
    return read(table, **roles)


def persons_of(data: ChoiceData) -> set[int]:
    return set(np.asarray(data.keep["person"].plain()).tolist())


def weights(model: PCMCNet) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in model.network_.state_dict().values()]


# -- the walk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "tried"),
    [
        ({4: 0.5, 1: 0.6, 16: 0.7}, [4, 1, 16]),  # the top of the hill is where it begins
        ({4: 0.5, 1: 0.6, 16: 0.4, 64: 0.3}, [4, 1, 16, 64]),  # up to the end of the ladder
        ({4: 0.6, 1: 0.5, 0.25: 0.7}, [4, 1, 0.25]),
        ({4: 0.6, 1: 0.5, 0.25: 0.4, 0.0625: 0.45}, [4, 1, 0.25, 0.0625]),
        ({4: 0.6, 1: 0.5, 0.25: 0.4, 0.0625: 0.3}, [4, 1, 0.25, 0.0625]),  # down to the last rung that few sets have
        ({4: 0.5, 1: 0.5, 16: 0.5}, [4, 1, 16]),  # alike: the firmer hand is tried
        ({4: 0.6, 1: 0.5, 0.25: 0.5}, [4, 1, 0.25]),  # no better is no reason to go on
    ],
)
def test_the_walk_goes_on_while_held_out_sets_are_predicted_better(
    losses: dict[float, float], tried: list[float]
) -> None:
    seen: list[float] = []

    def evaluate(decay: float) -> Trial:
        seen.append(decay)
        return Trial(decay, (9.0, losses[decay]))

    found = walk(evaluate, OF_FEW)
    assert seen == tried
    assert [trial.decay for trial in found] == sorted(tried, reverse=True)
    assert [trial.loss for trial in found] == [losses[trial.decay] for trial in found]


def test_many_sets_have_the_whole_ladder() -> None:
    seen: list[float] = []

    def run(_: Pair, decay: float) -> list[float]:
        seen.append(decay)
        return [decay]

    for data in choices(FEW - 1), choices(FEW):
        search_decay([(data, (data,))], run, SearchLog(None, {}))
    assert seen == [*LADDER[2:OF_FEW], *LADDER[2:]]


def search(losses: dict[float, float], *, held_out: int = 100) -> Search:
    return Search(tuple(Trial(decay, (loss,)) for decay, loss in losses.items()), 300, held_out)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({4: 0.8, 1: 0.5, 0.25: 0.7}, 4**-0.1),  # above .3, below .2: (.3 - .2) / .5 / 2 = 1/10 of a step down
        ({4: 0.7, 1: 0.5, 0.25: 0.8}, 4**0.1),  # and up
        ({4: 0.7, 1: 0.5, 0.25: 0.7}, 1.0),  # neighbours alike
        ({4: 0.7, 1: 0.5, 0.25: 0.5}, 4**-FURTHEST),  # as good below: half-way, but for the limit
        ({4: 0.5 + 1e-12, 1: 0.5, 0.25: 0.9}, 4**FURTHEST),
        ({16: 0.4, 4: 0.5, 1: 0.6}, 16.0),  # at an end there is no parabola
        ({1: 0.6, 0.25: 0.5, 0.0625: 0.4}, 0.0625),
        ({16: 0.5, 4: 0.5, 1: 0.5}, 16.0),
        ({4: 0.5, 1: 0.5, 0.25: 0.5}, 4.0),  # no neighbour above was tried
    ],
)
def test_the_decay_is_at_the_bottom_of_a_parabola_close_to_the_best_rung(
    losses: dict[float, float], expected: float
) -> None:
    found = search(losses)
    assert found.decay == pytest.approx(expected, rel=1e-9)
    best = min(losses, key=losses.__getitem__)
    assert found.best.decay == best
    assert best / 2 < found.decay < best * 2


def test_a_parabola_is_found_exactly() -> None:
    """Losses (log4 decay - 0.2)^2 have their bottom at 4^0.2."""
    losses = {decay: (math.log(decay, 4) - 0.2) ** 2 for decay in LADDER}
    found = walk(lambda decay: Trial(decay, (losses[decay],)))
    assert Search(found, 1, 1).decay == pytest.approx(4**0.2, rel=1e-12)


def test_the_decay_of_a_sample_is_that_of_all_sets_times_its_share() -> None:
    """A prior of a given strength weighs a third as much against three times as many sets."""
    trials = (Trial(4.0, (0.7,)), Trial(1.0, (0.5,)), Trial(0.25, (0.7,)))
    assert Search(trials, 300, 100, share=1 / 3).decay == pytest.approx(1 / 3, rel=1e-12)


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ((1.0, 0.8, 0.7, 0.6), 20),  # still falling
        ((1.0, 0.5, 0.54, 0.549), 20),  # rose by less than .05, the noise of 100 sets
        ((1.0, 0.5, 0.54, 0.551), 10),  # rose by more: half of the epochs
        ((0.5, 0.6, 0.7, 0.8), 5),
    ],
)
def test_epochs_are_cut_where_the_loss_rose_by_more_than_noise(curve: tuple[float, ...], expected: int) -> None:
    found = Search((Trial(4.0, (9.0,)), Trial(1.0, curve)), 300, 100)
    assert found.epochs(20) == expected
    assert found.epochs(1) == 1


def test_each_part_counts_by_the_weight_of_what_it_holds_out() -> None:
    """Parts of 1 set of weight 3 and of 1 of weight 1 with losses 1 and 5: the mean is 2."""
    data = choices(4, weight=[3.0, 1.0, 3.0, 1.0])
    pairs = [(data.subset([2, 3]), data.subset([0])), (data.subset([2]), data.subset([1]))]
    found = search_decay(
        [(part, (held_out,)) for part, held_out in pairs],
        lambda pair, decay: [9.0, 1.0 if pair[1][0].weights[0] == 3 else 5.0],
        SearchLog(None, {}),
    )
    assert [trial.curve for trial in found.trials] == [(9.0, 2.0)] * 3
    assert (found.fitted, found.held_out) == (1, 2)
    assert found.to_dict() == {
        "trials": [{"weight_decay": decay, "held_out_nll": 2.0} for decay in (16.0, 4.0, 1.0)],
        "fitted_sets": 1,
        "held_out_sets": 2,
    }


# -- what is held out ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sets", "folds", "share"), [(100, 2, 4), (200, 1, 5)])
def test_parts_are_held_out_in_turn_where_sets_are_few(
    sets: int, folds: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decay_search, "FEW", 200)
    pairs = held_out_parts(choices(sets), None, seed=0)
    assert len(pairs) == folds
    ids = [set(held_out.set_ids.tolist()) for _, (held_out,) in pairs]
    assert len(set.union(*ids)) == sum(map(len, ids)) == folds * sets // share
    for part, (held_out,) in pairs:
        assert sorted([*part.set_ids, *held_out.set_ids]) == list(range(sets))


def test_whole_persons_are_held_out() -> None:
    for part, (held_out,) in held_out_parts(choices(120, persons=30), None, seed=0):
        assert persons_of(part) & persons_of(held_out) == set()
        assert len(persons_of(held_out)) > 5


def test_of_a_few_persons_single_sets_are_held_out() -> None:
    pairs = held_out_parts(choices(100, persons=FEWEST - 1), None, seed=0)
    assert [len(held_out) for _, (held_out,) in pairs] == [25, 25]
    assert all(persons_of(part) & persons_of(held_out) for part, (held_out,) in pairs)


def test_a_validation_part_joins_the_held_out_sets() -> None:
    train, valid = choices(50), choices(30, seed=1)
    alone = held_out_parts(train, None, seed=0)
    for (part, held_out), (fitted, (others,)) in zip(held_out_parts(train, valid, seed=0), alone, strict=True):
        assert part.fingerprint() == fitted.fingerprint()
        assert [data.fingerprint() for data in held_out] == [others.fingerprint(), valid.fingerprint()]


def test_where_sets_are_too_few_to_be_held_out_the_validation_part_is_all_there_is() -> None:
    train, valid = choices(FEWEST - 1), choices(30, seed=1)
    ((part, (held_out,)),) = held_out_parts(train, valid, seed=0)
    assert (part.fingerprint(), held_out.fingerprint()) == (train.fingerprint(), valid.fingerprint())


def test_of_many_sets_a_sample_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decay_search, "ENOUGH", 50)
    for part, (held_out,) in held_out_parts(choices(200), None, seed=0):
        assert len(part) + len(held_out) == 50
    for part, (held_out, others) in held_out_parts(choices(200), choices(90, seed=1), seed=0):
        assert (len(part) + len(held_out), len(others)) == (50, 10)
    model = PCMCNet(**LEARNING).fit(choices(200), progress=False)
    tried = {trial["weight_decay"]: trial["held_out_nll"] for trial in model.training_["search"]["trials"]}
    best = min(tried, key=tried.__getitem__)
    assert best / 2 < model.training_["weight_decay"] / (50 / 200) < best * 2


def test_of_a_few_persons_a_sample_takes_single_sets() -> None:
    assert len(at_most(choices(120, persons=1), 40, seed=0)) == 40


def test_a_validation_part_may_have_other_columns_beside_those_of_the_model() -> None:
    model = PCMCNet(**LEARNING).fit(choices(60), choices(40, seed=1, persons=8), progress=False)
    assert "search" in model.training_


def test_a_trial_that_diverges_is_worse_than_any_other() -> None:
    def run(pair: Pair, decay: float) -> list[float]:
        if decay > 1:
            raise TrainingError("epoch 1: the loss is no longer finite.")
        return [2.0, 1.0 + decay]

    data = choices(40)
    found = search_decay([(data, (data,))], run, SearchLog(None, {}))
    assert found.best.decay == LADDER[OF_FEW - 1]


def test_where_all_trials_diverge_the_fit_does() -> None:
    def run(pair: Pair, decay: float) -> list[float]:
        raise TrainingError("epoch 1: the loss is no longer finite.")

    data = choices(40)
    with pytest.raises(TrainingError, match=r"diverged with every weight decay that was tried \(16, 4, 1\): lower lr"):
        search_decay([(data, (data,))], run, SearchLog(None, {}))


def test_a_sample_takes_whole_persons() -> None:
    data = choices(120, persons=30)
    drawn = at_most(data, 40, seed=0)
    assert len(drawn) == 40
    assert len(persons_of(drawn)) == 10
    assert at_most(data, 120, seed=0) is data


@pytest.mark.parametrize(("sets", "pairs"), [(FEWEST - 1, 0), (FEWEST, 2)])
def test_too_few_sets_tell_nothing(sets: int, pairs: int) -> None:
    assert len(held_out_parts(choices(sets), None, seed=0)) == pairs


# -- trials that are kept ------------------------------------------------------------------------------------------


def test_trials_that_are_kept_are_not_made_again(tmp_path: Path) -> None:
    path, made = tmp_path / SEARCH, []

    def make() -> list[float]:
        made.append(1)
        return [0.5, 0.25]

    first = SearchLog.opened(path, {"seed": 3, "hidden": (4,)}, resume=False)
    assert first.curve("1/0", make) == first.curve("1/0", make) == [0.5, 0.25]
    again = SearchLog.opened(path, {"seed": 3, "hidden": (4,)}, resume=True)
    assert again.curve("1/0", make) == [0.5, 0.25]
    assert len(made) == 1
    again.curve("1/1", make)
    assert set(json.loads(path.read_text())["curves"]) == {"1/0", "1/1"}


def test_trials_of_another_run_are_refused(tmp_path: Path) -> None:
    path = tmp_path / SEARCH
    SearchLog.opened(path, {"seed": 3}, resume=False).curve("1/0", lambda: [0.5])
    with pytest.raises(ArtifactError, match=rf"^{re.escape(str(path))} belongs to another run; what differs: seed"):
        SearchLog.opened(path, {"seed": 4}, resume=True)


def test_trials_that_are_nested_too_deeply_are_damaged(tmp_path: Path) -> None:
    (tmp_path / SEARCH).write_text("[" * 100_000)
    with pytest.raises(ArtifactError, match=r"nested too deeply.*delete it, and the trials are made again"):
        SearchLog.opened(tmp_path / SEARCH, {"seed": 4}, resume=True)


def test_a_run_that_does_not_go_on_makes_its_trials_again(tmp_path: Path) -> None:
    path = tmp_path / SEARCH
    SearchLog.opened(path, {"seed": 3}, resume=False).curve("1/0", lambda: [0.5])
    assert SearchLog.opened(path, {"seed": 3}, resume=False).curve("1/0", lambda: [0.7]) == [0.7]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"identity": {"seed": 3}, "curves": {"1/0": ["x"]}}', "\xff"])
def test_a_damaged_file_of_trials_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / SEARCH
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ArtifactError, match=rf"{SEARCH} is damaged .*: delete it, and the trials are made again"):
        SearchLog.opened(path, {"seed": 3}, resume=True)


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    SearchLog.opened(None, {}, resume=False).curve("1/0", lambda: [0.5])
    assert not list(tmp_path.iterdir())


# -- in a fit ------------------------------------------------------------------------------------------------------


def test_a_fit_learns_its_decay_and_tells_so(tmp_path: Path) -> None:
    data = choices(60)
    model = PCMCNet(**LEARNING).fit(data, progress=False)
    found = model.training_["search"]
    assert (found["fitted_sets"], found["held_out_sets"]) == (45, 30)
    tried = {trial["weight_decay"]: trial["held_out_nll"] for trial in found["trials"]}
    assert {4.0, 1.0} < set(tried) <= set(LADDER)
    best = min(tried, key=tried.__getitem__)
    assert best / 2 < model.training_["weight_decay"] < best * 2
    text = str(model.summary())
    assert f"{model.training_['weight_decay']:.3g}, learnt from 30 held-out sets (NLL " in text
    assert f"1: {tried[1.0]:.4f}" in text
    folder = model.save(tmp_path / "model")
    assert "learnt from 30 held-out sets" in (folder / "README.md").read_text("utf-8")
    assert load(folder).training_ == model.training_


def test_the_fit_is_that_of_the_decay_it_found() -> None:
    """Told the decay, a fit without a search ends in the same weights."""
    data = choices(60)
    learnt = PCMCNet(**LEARNING).fit(data, progress=False)
    told = PCMCNet(**LEARNING, weight_decay=learnt.training_["weight_decay"]).fit(data, progress=False)
    assert weights(told) == weights(learnt)
    assert len(told.history) == LEARNING["epochs"]
    assert learnt.config.weight_decay == "auto"  # what was asked for stays


def test_the_same_seed_learns_the_same_and_another_seed_something_else() -> None:
    first, second, other = (PCMCNet(**LEARNING).fit(choices(60), seed=s, progress=False) for s in (1, 1, 2))
    assert weights(first) == weights(second)
    assert first.training_ == second.training_
    assert other.training_["search"]["trials"] != first.training_["search"]["trials"]


def test_a_number_given_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("searched")

    monkeypatch.setattr("pcmcnet.models.networks.held_out_trials.search_decay", never)
    model = PCMCNet(**LEARNING, weight_decay=0.3).fit(choices(60), progress=False)
    assert model.training_["weight_decay"] == 0.3
    assert "search" not in model.training_
    assert model.summary().facts["weight decay"] == "0.3"


def test_epochs_that_are_given_are_not_cut() -> None:
    found = Search((Trial(4.0, (0.5, 0.7, 0.8, 0.9)), Trial(1.0, (0.9,))), 300, 10_000)
    short = Search((Trial(4.0, (0.5, 0.7, 0.8, 0.6)), Trial(1.0, (0.9,))), 300, 10_000)
    for result in (found, short):
        assert PCMCNet(epochs=8)._resolved(result).epochs == 8
    assert PCMCNet()._resolved(short).epochs == 5
    assert PCMCNet()._resolved(None).passes == 20


def test_of_too_few_sets_a_middling_decay_is_taken() -> None:
    model = PCMCNet(**LEARNING).fit(choices(FEWEST - 1), progress=False)
    assert model.training_["weight_decay"] == 1.0
    assert "search" not in model.training_


def test_with_a_validation_part_the_decay_is_learnt_from_it() -> None:
    model = PCMCNet(**LEARNING).fit(choices(60), choices(40, seed=1), progress=False)
    found = model.training_["search"]
    assert (found["fitted_sets"], found["held_out_sets"]) == (45, 2 * (15 + 40))


def test_sets_of_weight_0_take_no_part() -> None:
    data = choices(60, weight=[1.0] * 40 + [0.0] * 20)
    model = PCMCNet(**LEARNING).fit(data, progress=False)
    found = model.training_["search"]
    assert (found["fitted_sets"], found["held_out_sets"]) == (30, 20)


def test_a_pointer_network_learns_its_decay_too() -> None:
    model = PointerNetwork(hidden=4, epochs=2).fit(choices(60), progress=False)
    assert "search" in model.training_


def test_a_search_shows_no_progress_of_its_own() -> None:
    shown: list[int] = []
    PCMCNet(**LEARNING).fit(choices(60), progress=False, on_epoch=lambda entry: shown.append(entry["epoch"]))
    assert shown == [1, 2, 3, 4]


# -- interruption --------------------------------------------------------------------------------------------------


def counting(left: list[int]) -> Any:
    """A progress display that ends the fit at the report numbered by ``left[0]``; counts all of them below 0."""

    @contextmanager
    def watch(epochs: int, *, show: bool) -> Iterator[Any]:
        def report(entry: dict[str, Any]) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Interruption

        yield report

    return watch


@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["half", "all"])
@pytest.mark.parametrize("with_valid", [False, True], ids=["no-valid", "valid"])
def test_a_run_interrupted_anywhere_goes_on_to_the_same_weights(
    everywhere: bool, with_valid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a trial, between trials and in the fit itself; a trial that ended is not made again.

    The quick tests take half of the places with a validation part, and the other half without one.
    """
    train, valid = choices(60), choices(40, seed=1) if with_valid else None
    options, left = {**LEARNING, "members": 1}, [0]
    monkeypatch.setattr(loop, "show_epochs", counting(left))
    whole = PCMCNet(**options).fit(train, valid, progress=False)
    reports, each = -left[0], 2  # epochs of a trial: half of the 4 of the fit
    trials = len(whole.training_["search"]["trials"]) * 2
    assert reports == trials * each + LEARNING["epochs"]
    places = (1, each, each + 1, trials * each, trials * each + 1, reports)
    for number in places if everywhere else places[with_valid::2]:
        folder = tmp_path / str(number)
        left[0] = number
        with pytest.raises(Interruption):
            PCMCNet(**options).fit(train, valid, progress=False, run_folder=folder)
        assert (folder / CHECKPOINT).exists() == (number > trials * each)
        if number > each:
            with pytest.raises(InputError, match="holds an unfinished run"):
                PCMCNet(**options).fit(train, valid, progress=False, run_folder=folder)
        left[0] = 0
        resumed = PCMCNet(**options).fit(train, valid, progress=False, run_folder=folder, resume=True)
        done = number if number > trials * each else (number - 1) // each * each
        assert -left[0] == reports - done
        assert weights(resumed) == weights(whole)
        assert resumed.training_ == whole.training_


def test_a_saved_run_leaves_no_trials_behind(tmp_path: Path) -> None:
    model = PCMCNet(**LEARNING).fit(choices(60), progress=False, run_folder=tmp_path / "run")
    assert (tmp_path / "run" / SEARCH).exists()
    model.save(tmp_path / "run")
    assert not (tmp_path / "run" / SEARCH).exists()
    assert weights(load(tmp_path / "run")) == weights(model)  # type: ignore[arg-type]
