"""Number of classes and penalty of a mixture of chains of items, both learnt from held-out choice sets.

For each number of classes, 1, 2, ..., paths of fits go down the ladder of penalties from a mixture of logits
(:mod:`pcmcnet.models.items.penalty_search`), as long as held-out choices gain
(:mod:`pcmcnet.models.items.class_trials`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.models.interface.persons import By
from pcmcnet.models.items.binning import Grid
from pcmcnet.models.items.class_trials import ClassTrial, best_number, try_numbers
from pcmcnet.models.items.lbfgs import Minimum
from pcmcnet.models.items.pcmc_classes import Chains, ClassProblem, choosers_of
from pcmcnet.models.items.pcmc_search import PATH_TOLERANCE, Settings, item_log_p
from pcmcnet.models.items.penalty_search import (
    LADDER,
    Fold,
    Losses,
    Penalty,
    PenaltySearch,
    cut_items,
    held_out_choices,
    otherwise,
    search_penalty,
)
from pcmcnet.models.items.universe import DistinctSets, Universe

log = logging.getLogger("pcmcnet")

TRIAL_STARTS = 3  # of a fit of the search


class ClassSettings(Settings, Protocol):
    """The options that are read here; those of ``PCMCConfig``."""

    @property
    def classes(self) -> int | Literal["auto"]: ...  # noqa: D102
    @property
    def by(self) -> By: ...  # noqa: D102
    @property
    def smoothing(self) -> float: ...  # noqa: D102
    @property
    def ridge(self) -> Penalty: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class ClassSearch:
    """A table, its items and the options; looks for numbers of classes, penalties and chains."""

    data: ChoiceData
    universe: Universe | Grid
    settings: ClassSettings
    seed: int

    def number(self) -> tuple[int, list[ClassTrial]]:
        """Learn the number of classes; one where sets are too few to tell."""
        folds = cut_items(self.data, self.universe, self.seed)
        if not folds:
            return 1, []
        trials = try_numbers(lambda classes: self._search(folds, classes).best_losses, *held_out_choices(folds))
        return best_number(trials), trials

    def chains(self, classes: int) -> tuple[Chains, Minimum, PenaltySearch | None]:
        """Fit so many classes to the whole table, with the penalty given or learnt."""
        learnt, settings = None, self.settings
        if settings.ridge == "auto":
            folds = cut_items(self.data, self.universe, self.seed)
            learnt = self._search(folds, classes) if folds else PenaltySearch((), 0, otherwise(self.data))
        ridge = learnt.penalty if learnt else float(settings.ridge)
        problem = self._problem(self.data, classes)
        x = problem.logits(np.random.default_rng(self.seed), settings.restarts)
        for stronger in [trial.penalty for trial in learnt.trials if trial.penalty > ridge] if learnt else []:
            x = problem.fit(x, stronger, PATH_TOLERANCE).at
        found = problem.fit(x, ridge, settings.tolerance)
        return problem.chains(found.at), found, learnt

    def _search(self, folds: Sequence[Fold], classes: int) -> PenaltySearch:
        """Try the penalties of the ladder, or the one that is given."""
        paths, ridge = [self._path(fold, classes) for fold in folds], self.settings.ridge
        mean_weight = float(held_out_choices(folds)[0].mean())
        return search_penalty(folds, paths, LADDER if ridge == "auto" else (ridge / mean_weight,))

    def _problem(self, data: ChoiceData, classes: int) -> ClassProblem:
        sets = DistinctSets.of(data, self.universe.index(data))
        entries = sets.place[data.offsets[:-1] + data.require_chosen("fitting")]
        choosers, options = choosers_of(data, entries, self.settings.by), self.settings
        n = self.universe.size
        return ClassProblem(sets, choosers, n, classes=classes, smoothing=options.smoothing, settings=options)

    def _path(self, fold: Fold, classes: int) -> Losses:
        """Begin a path of fits down the ladder of ridges, each from where the one before ended."""
        problem = self._problem(fold.known, classes)
        held_out = DistinctSets.of(fold.held_out, self.universe.index(fold.held_out))
        chosen = held_out.place[fold.held_out.offsets[:-1] + fold.held_out.require_chosen("fitting")]
        at = problem.logits(np.random.default_rng(self.seed), TRIAL_STARTS)

        def losses(ridge: float) -> Floats:
            nonlocal at
            at = problem.fit(at, ridge, PATH_TOLERANCE).at
            found: Floats = -mixed_log_p(held_out, problem.chains(at))[chosen]
            return found

        return losses


def mixed_log_p(sets: DistinctSets, chains: Chains) -> Floats:  # -> (M,)
    """Log-probabilities of the items of distinct sets, of all classes together."""
    each = [np.log(share) + item_log_p(sets, t) for share, t in zip(chains.shares, chains.log_rates, strict=True)]
    found: Floats = np.logaddexp.reduce(each, axis=0)
    return found


def class_facts(training: Mapping[str, Any]) -> dict[str, str]:
    """Say which numbers of classes were tried."""
    trials = training.get("class_trials")
    return {"classes tried": ", ".join(f"{t['classes']}: {t['held_out_nll']:.4f}" for t in trials)} if trials else {}
