"""Past trials -> the next one to try: a Gaussian process and expected improvement, after a few random draws.

What is proposed depends on the seed, the trials that ended before, those under way beside it and nothing else, so a
search that was interrupted goes on as if it had not been: what was under way then is proposed first. The process learns
from every trial: from a pruned one by the least loss that it had reached, but as no better than the median, since it
was measured on the first fold alone; from a failed one as from the worst. The defaults teach where they have a place in
the space, with the weight decay that their fits learnt. Values far above the bulk, as of networks that diverged, are
lowered to a fence, or they would hide all differences that matter. A configuration that was tried before is not
proposed again while random draws find another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from pcmcnet.tuning.space import Dimension, Range, Space

START = 5  # random trials before the first model of the objective
DRAWS = 1000  # random draws, at most, in place of a configuration that was tried before
INTERRUPTED = "interrupted"  # attribute of trials that never ended
NOTES = "notes"  # attribute with all that we keep of a trial
DEFAULTS, DECAY = "defaults", "decay"  # notes: whether it is that of the defaults, and the weight decay it learnt


class Proposals(optuna.samplers.BaseSampler):
    """Optuna's GP sampler, made afresh for each trial."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space, self.distributions = space, distributions(space)
        self.seed = seed

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All dimensions are drawn together."""
        return dict(self.distributions)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw a value for every dimension."""
        past, beside = ended(study), self._beside(study, trial)
        places = [self._place(other) for other in past]
        tried = [*places, *(other.params for other in beside)]
        for left in self._left(study):
            if left not in tried:
                return left
        seeds = np.random.SeedSequence([self.seed, len(past) + len(beside)]).generate_state(2)
        model = optuna.samplers.GPSampler(seed=int(seeds[0]), n_startup_trials=START)
        known = optuna.create_study(sampler=model)  # in memory, and minimising
        for place, value in zip(places, losses(past), strict=True):
            if place is not None and np.isfinite(value):
                known.add_trial(create_trial(params=place, distributions=self.distributions, value=float(value)))
        for other in beside:  # the process supposes that they end as it predicts
            if is_defaults(other):
                continue
            known.add_trial(
                create_trial(state=TrialState.RUNNING, params=other.params, distributions=self.distributions)
            )
        drawn = known.ask(self.distributions).params
        known.sampler = optuna.samplers.RandomSampler(seed=int(seeds[1]))
        for _ in range(DRAWS):
            if drawn not in tried:
                break
            drawn = known.ask(self.distributions).params
        return drawn

    def _beside(self, study: optuna.Study, trial: FrozenTrial) -> list[FrozenTrial]:
        """Return the other trials that are under way."""
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        known = self.distributions.keys()
        return [t for t in running if t.number != trial.number and (t.params.keys() == known or is_defaults(t))]

    def _place(self, trial: FrozenTrial) -> dict[str, Any] | None:
        """Return where in the space a trial was; None for defaults that lie outside."""
        if not is_defaults(trial):
            return dict(trial.params)
        decay = trial.user_attrs[NOTES].get(DECAY)
        return self.space.place({**self.space.defaults, **({} if decay is None else {"weight_decay": decay})})

    def _left(self, study: optuna.Study) -> list[dict[str, Any]]:
        """Return the configurations that were under way when a process died."""
        failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
        lost = [dict(t.params) for t in failed if INTERRUPTED in t.user_attrs]
        return [params for params in lost if params.keys() == self.distributions.keys()]

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw at random what is no dimension of the space; there is no such thing."""
        raise KeyError(param_name)


def ended(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that came to an end of their own, the defaults first and then in their order."""
    found = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished() and INTERRUPTED not in t.user_attrs]
    return sorted(found, key=lambda trial: not is_defaults(trial))


def is_defaults(trial: FrozenTrial) -> bool:
    """Tell the trial of the defaults, which has no draws."""
    return bool(trial.user_attrs.get(NOTES, {}).get(DEFAULTS))


def reached(trial: FrozenTrial) -> float | None:
    """Return the loss of a trial: the final one, or the least before it was pruned; none of one that failed."""
    if trial.state == TrialState.PRUNED:
        return min(trial.intermediate_values.values(), default=None)
    return trial.value if trial.state == TrialState.COMPLETE else None


def losses(trials: list[FrozenTrial]) -> NDArray[np.float64]:
    """(trials,) what the process learns from each; nan where nothing is known yet, since all failed."""
    found = np.array([np.nan if (value := reached(t)) is None else value for t in trials])
    complete = np.array([t.state == TrialState.COMPLETE for t in trials], bool)
    if complete.any():
        found = np.where(complete, found, np.maximum(found, np.median(found[complete])))
    known = found[~np.isnan(found)]
    if not known.size:
        return found
    bulk = float(np.quantile(known, 0.75) - known.min())
    fence = known.min() + 2.5 * bulk if bulk > 0 else known.max()
    lowered: NDArray[np.float64] = np.minimum(np.where(np.isnan(found), known.max(), found), fence)
    return lowered


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Say to Optuna what each dimension is."""
    return {name: _distribution(dimension) for name, dimension in space.dimensions.items()}


def _distribution(dimension: Dimension) -> BaseDistribution:
    if isinstance(dimension, Range):
        if dimension.whole:
            return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
        return FloatDistribution(dimension.low, dimension.high, log=dimension.log)
    if dimension.ordered:
        return IntDistribution(0, len(dimension.values) - 1)
    return CategoricalDistribution(dimension.labels)
