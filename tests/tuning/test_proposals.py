import warnings
from collections.abc import Iterator

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from pcmcnet.models import PCMCNet
from pcmcnet.tuning.space import Choice, Range, Space
from pcmcnet.tuning.study import (
    DECAY,
    DEFAULTS,
    INTERRUPTED,
    NOTES,
    RANDOM_TRIALS,
    ProposalSampler,
    distributions,
    finished_trials,
    surrogate_losses,
    trial_loss,
)

SPACE = Space({"x": Range(0.0, 1.0), "kind": Choice(("a", "b"))})


def trial(value: float | None, state: TrialState = TrialState.COMPLETE, *steps: float) -> FrozenTrial:
    return create_trial(
        state=state,
        params={"x": 0.5, "kind": "a"},
        distributions=distributions(SPACE),
        value=value,
        intermediate_values=dict(enumerate(steps, 1)),
    )


def search(n: int, space: Space = SPACE, seed: int = 0) -> optuna.Study:
    """Minimise (x - 0.3)^2, with 1 added for the wrong kind."""
    study = optuna.create_study(sampler=ProposalSampler(space, seed))
    continue_search(study, n)
    return study


def continue_search(study: optuna.Study, n: int, space: Space = SPACE) -> None:
    for _ in range(n):
        drawn = study.ask(distributions(space))
        study.tell(drawn, (drawn.params.get("x", 0) - 0.3) ** 2 + (drawn.params.get("kind") == "b"))


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # raised by older versions
        yield
    optuna.logging.set_verbosity(before)


def test_the_search_finds_a_minimum_that_random_draws_miss() -> None:
    study = search(16)
    random = np.array([t.value for t in study.trials[:RANDOM_TRIALS]])
    assert len(study.trials) == 16
    assert study.best_value < 1e-4 < random.min()
    assert study.best_params["kind"] == "a"


def test_proposals_depend_on_the_seed_and_finished_trials() -> None:
    whole = search(9)
    broken = search(7)
    lost = broken.ask(distributions(SPACE))
    lost.set_user_attr(INTERRUPTED, True)
    broken.tell(lost, state=TrialState.FAIL)
    broken.sampler = ProposalSampler(SPACE, 0)  # simulates another process
    continue_search(broken, 2)
    assert [t.params for t in finished_trials(broken)] == [t.params for t in whole.trials]
    assert lost.params == whole.trials[7].params
    assert search(1, seed=1).trials[0].params != whole.trials[0].params


def test_no_configuration_is_proposed_twice_if_others_remain() -> None:
    space = Space({"kind": Choice(("a", "b", "c")), "step": Choice((1, 2, 4, 8))})
    study = optuna.create_study(sampler=ProposalSampler(space, 3))
    continue_search(study, 12, space)
    assert len({tuple(sorted(t.params.items())) for t in study.trials}) == 12


def test_running_trials_are_considered_and_not_repeated() -> None:
    """Four draws before any trial ends, after some finished trials: they spread instead of coinciding."""
    study = search(RANDOM_TRIALS + 2)
    parallel = [study.ask(distributions(SPACE)) for _ in range(4)]
    drawn = [tuple(t.params.values()) for t in parallel]
    assert len(set(drawn)) == 4
    alone = search(RANDOM_TRIALS + 2).ask(distributions(SPACE))
    assert drawn[0] == tuple(alone.params.values())


def test_parallel_random_draws_equal_sequential_ones() -> None:
    study = optuna.create_study(sampler=ProposalSampler(SPACE, 0))
    parallel = [study.ask(distributions(SPACE)).params for _ in range(RANDOM_TRIALS)]
    assert parallel == [t.params for t in search(RANDOM_TRIALS).trials]


def test_trials_of_a_dead_process_are_proposed_first() -> None:
    study = search(RANDOM_TRIALS)
    lost = [study.ask(distributions(SPACE)) for _ in range(3)]
    study.tell(lost[1], 0.5)
    for one in (lost[0], lost[2]):
        one.set_user_attr(INTERRUPTED, True)
        study.tell(one, state=TrialState.FAIL)
    proposed = [study.ask(distributions(SPACE)).params for _ in range(3)]
    assert proposed[:2] == [lost[0].params, lost[2].params]
    assert proposed[2] not in [t.params for t in lost]


def test_pruned_and_failed_trials_are_used() -> None:
    """A pruned trial counts with its least loss, a failed one as the worst."""
    trials = [trial(1.0), trial(None, TrialState.PRUNED, 3.0, 2.0, 2.5), trial(None, TrialState.FAIL), trial(3.0)]
    assert [trial_loss(t) for t in trials] == [1.0, 2.0, None, 3.0]
    assert surrogate_losses(trials).tolist() == [1.0, 2.0, 3.0, 3.0]
    assert np.isnan(surrogate_losses([trial(None, TrialState.FAIL)])).all()


def test_a_pruned_trial_counts_at_least_as_the_median() -> None:
    """Its first fold may have been easy: 0.5 does not count as better than complete trials with 1 to 3."""
    trials = [trial(1.0), trial(2.0), trial(3.0), trial(None, TrialState.PRUNED, 0.5)]
    assert surrogate_losses(trials).tolist() == [1.0, 2.0, 3.0, 2.0]


def with_defaults(space: Space, decay: float | None, value: float) -> optuna.Study:
    """Return a study whose first trial has the defaults."""
    study = optuna.create_study(sampler=ProposalSampler(space, 0))
    first = study.ask()
    first.set_user_attr(NOTES, {DEFAULTS: True, DECAY: decay})
    study.tell(first, value)
    return study


def test_the_defaults_are_used_with_their_learnt_decay() -> None:
    """They count as one of the initial random trials."""
    space = Space({"weight_decay": Range(0.0, 1.0)}).with_defaults({"weight_decay": "auto"})

    def draws(decay: float | None) -> list[float]:
        study = with_defaults(space, decay, 0.0)
        values = []
        for _ in range(RANDOM_TRIALS):
            drawn = study.ask(distributions(space))
            values.append(drawn.params["weight_decay"])
            study.tell(drawn, (values[-1] - 0.35) ** 2)
        return values

    with_decay, without_decay, outside = draws(0.35), draws(None), draws(7.0)
    assert with_decay[:-1] == without_decay[:-1]  # random draws; the defaults replace the first one
    assert with_decay[-1] != without_decay[-1]  # drawn by the Gaussian process, which has enough trials
    assert outside == without_decay


def test_defaults_in_the_space_are_not_repeated() -> None:
    space = Space({"step": Choice((1, 2, 4))}).with_defaults({"step": 2})
    study = with_defaults(space, None, 1.0)
    drawn = []
    for _ in range(2):
        trial = study.ask(distributions(space))
        drawn.append(trial.params["step"])
        study.tell(trial, 1.0)
    assert sorted(drawn) == [0, 2]


def test_outliers_are_clipped_and_equal_values_unchanged() -> None:
    """Three quarters are within 1 of the best: the fence is 2.5 above it."""
    assert surrogate_losses([trial(v) for v in (1.0, 1.5, 2.0, 2.0, 1e6)]).tolist() == [1.0, 1.5, 2.0, 2.0, 3.5]
    assert surrogate_losses([trial(v) for v in (1.0, 1.0, 1.0, 1.0, 1.0, 5.0)]).tolist() == [
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        5.0,
    ]


def test_a_search_survives_initial_failures() -> None:
    study = optuna.create_study(sampler=ProposalSampler(SPACE, 0))
    study.tell(study.ask(distributions(SPACE)), state=TrialState.FAIL)
    continue_search(study, 7)
    assert len(study.trials) == 8


def test_dimensions_are_passed_to_optuna_with_their_scale() -> None:
    space = Space.of(
        PCMCNet, {"lr": (1e-3, 0.1, "log"), "epochs": (2, 9), "batch_size": [1, 2, 4], "activation": ["relu", "tanh"]}
    )
    assert distributions(space) == {
        "lr": optuna.distributions.FloatDistribution(1e-3, 0.1, log=True),
        "epochs": optuna.distributions.IntDistribution(2, 9),
        "batch_size": optuna.distributions.IntDistribution(0, 2),
        "activation": optuna.distributions.CategoricalDistribution(("relu", "tanh")),
    }


def test_unknown_dimensions_are_not_drawn() -> None:
    study = optuna.create_study(sampler=ProposalSampler(SPACE, 0))
    with pytest.raises(KeyError, match="other"):
        study.ask().suggest_float("other", 0, 1)
