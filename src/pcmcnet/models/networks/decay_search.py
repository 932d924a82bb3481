"""Weight decay and length of a fit, learnt from the table: held-out choice sets say how firmly to hold a network.

    ladder of decays   64 -- 16 -- 4 -- 1 -- 0.25 -- 0.06 -- 0.016 -- 0.004     from a logit to a network left to itself

The best decay spans three orders of magnitude from table to table, and no rule that was tried on sizes and numbers of
weights finds it. So a few short fits to part of the training sets predict the others. The walk begins at 4 and 1, goes
on along the ladder while the held-out sets are predicted better, and ends after three rungs or a few more. A parabola
through the best rung and its neighbours, over the logarithm of the decay, gives the decay. It is never further from the
rung than a quarter of a step: losses soar where the decay is too weak, so that the bottom seems to lie where it is
strong. Then all sets are fitted.

Whole persons are held out where persons are known, and not fewer than twenty. Where sets are few, two parts of the
table are held out in turn, and the last two rungs are left out: they would serve many sets alone. Where sets abound, a
sample of the table will do: decay acts as a prior does, whose weight against the data falls with the number of sets, so
the decay found on a sample is multiplied by the sample's share of the table. A validation part joins the held-out sets:
alone it would often be smaller than these, and a choice by fewer sets is a worse one.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pcmcnet.data import ChoiceData, ScannedData, Sets
from pcmcnet.errors import ArtifactError, TrainingError
from pcmcnet.storage.files import json_bytes, parse_json, write_bytes
from pcmcnet.training.checkpoint import require_same_run
from pcmcnet.training.data_parallel import current_group

LADDER = (64.0, 16.0, 4.0, 1.0, 0.25, 0.0625, 0.015625, 0.00390625)
OF_FEW = 6  # rungs for few sets
BEGIN = (2, 3)  # rungs
FEWEST = 20  # sets below which held-out ones tell nothing
FEW = 5_000  # sets below which two parts are held out in turn: a quarter each, else a fifth
ENOUGH = 12_000  # sets that a search looks at
FURTHEST = 0.25  # steps that the decay may be from the best rung
DIVERGED = 1e9  # the loss of a trial that did
SHORT = 0.5  # length of a trial, of the epochs of a fit: the best decay is nearly the same

log = logging.getLogger("pcmcnet")

Pair = tuple[ChoiceData, tuple[ChoiceData, ...]]  # sets to fit, sets held out: of the same table, and of others


@dataclass(frozen=True, slots=True)
class Trial:
    """A decay that was tried: mean loss of the held-out sets after each epoch."""

    decay: float
    curve: tuple[float, ...]

    @property
    def loss(self) -> float:
        """Loss at the end."""
        return self.curve[-1]


@dataclass(frozen=True, slots=True)
class Search:
    """What a search has found."""

    trials: tuple[Trial, ...]
    fitted: int  # sets of each trial
    held_out: int  # sets that were predicted, in all trials of a decay
    share: float = 1.0  # of the training sets that the search looked at

    @property
    def best(self) -> Trial:
        """The rung with the least loss."""
        return min(self.trials, key=lambda trial: trial.loss)

    @property
    def decay(self) -> float:
        """The decay to fit all training sets with."""
        return self.share * self._bottom

    @property
    def _bottom(self) -> float:
        """The best decay of the sets looked at: at the bottom of a parabola, near the best rung."""
        best, step = self.best, LADDER[0] / LADDER[1]
        by_decay = {trial.decay: trial.loss for trial in self.trials}
        place = LADDER.index(best.decay)
        around = [by_decay.get(LADDER[k]) if 0 <= k < len(LADDER) else None for k in (place - 1, place + 1)]
        if None in around:
            return best.decay
        above, below = (float(loss) - best.loss for loss in around if loss is not None)
        if above + below <= 0:
            return best.decay
        shift = 0.5 * (above - below) / (above + below)  # in steps down the ladder
        return float(best.decay * step ** -min(max(shift, -FURTHEST), FURTHEST))

    def epochs(self, most: int) -> int:
        """Return so many epochs, or fewer where the best trial had its least loss long before its end.

        A rise counts from half a standard error on, of a loss whose standard deviation over sets is 1.
        """
        curve = self.best.curve
        least = int(np.argmin(curve))
        rose = curve[-1] - curve[least] > 0.5 / math.sqrt(self.held_out)
        return max(round(most * (least + 1) / len(curve)), 1) if rose else most

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        trials = [{"weight_decay": t.decay, "held_out_nll": t.loss} for t in self.trials]
        return {"trials": trials, "fitted_sets": self.fitted, "held_out_sets": self.held_out}


def walk(evaluate: Callable[[float], Trial], rungs: int = len(LADDER)) -> tuple[Trial, ...]:
    """Try decays along the first rungs of the ladder, from the beginning on to where they no longer get better."""
    found = {k: evaluate(LADDER[k]) for k in BEGIN}
    up = found[BEGIN[0]].loss <= found[BEGIN[1]].loss
    place, step = (BEGIN[0], -1) if up else (BEGIN[1], 1)
    while 0 <= place + step < rungs:
        found[place + step] = evaluate(LADDER[place + step])
        if found[place + step].loss >= found[place].loss:
            break
        place += step
    return tuple(found[k] for k in sorted(found))


def held_out_parts(train: Sets, valid: Sets | None, seed: int) -> list[Pair]:
    """Return pairs of sets to fit and sets to predict; none where there are too few of them."""
    known = at_most(train, ENOUGH, seed)
    others = () if valid is None else (at_most(valid, ENOUGH // 5, seed),)
    if len(known) < FEWEST:
        return [(known, others)] if others else []
    folds, used = (4, 2) if len(known) < FEW else (5, 1)
    pairs = known.folds(folds, seed=seed, by=_groups(known))[:used]
    return [(part, (held_out, *others)) for part, held_out in pairs]


def share_searched(train: Sets) -> float:
    """Return the share of the training sets that a search looks at."""
    return min(ENOUGH / len(train), 1.0)


def at_most(data: Sets, most: int, seed: int) -> ChoiceData:
    """Draw so many sets, whole persons where there are enough of them, or take all where there are fewer."""
    if isinstance(data, ScannedData):
        return data.sample(most, seed)
    if len(data) <= most:
        return data
    share = most / len(data)
    return data.split((share, 1 - share), seed=seed, by=_groups(data))[0]


def _groups(data: ChoiceData) -> Any:
    """Return what keeps persons together, or, where they are so few that none can be spared, cuts by set."""
    return None if len(np.unique(data.groups(None))) >= FEWEST else data.set_ids


@dataclass
class SearchLog:
    """Trials of an unfinished fit, kept in its folder so that a run that goes on need not repeat them."""

    path: Path | None
    identity: Mapping[str, Any]
    curves: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def opened(cls, path: Path | None, identity: Mapping[str, Any], *, resume: bool) -> SearchLog:
        """Read what an earlier run with the same identity has left there, when resuming."""
        opened = cls(path, json.loads(json.dumps(identity)))
        if path is None or not resume or not path.exists():
            return opened
        try:
            entries = parse_json(path.read_bytes())
            found = entries["identity"]
            opened.curves = {key: [float(x) for x in curve] for key, curve in entries["curves"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArtifactError(f"{path} is damaged ({error!r}): delete it, and the trials are made again.") from error
        require_same_run(path, found, opened.identity)
        return opened

    def curve(self, key: str, make: Callable[[], Sequence[float]]) -> list[float]:
        """Return the losses of a trial, made now unless they are kept from before."""
        if key not in self.curves:
            self.curves[key] = [float(x) for x in make()]
            if self.path is not None and current_group().leads:
                write_bytes(self.path, json_bytes({"identity": self.identity, "curves": self.curves}))
                current_group().kept()
        return self.curves[key]


def search_decay(
    pairs: Sequence[Pair], run: Callable[[Pair, float], Sequence[float]], kept: SearchLog, *, share: float = 1.0
) -> Search:
    """Walk along the ladder; ``run`` fits sets with a decay and returns the loss of held-out ones after each epoch.

    ``share`` is how much of the training part the pairs were drawn from.

    Raises
    ------
    TrainingError
        When no trial came to an end.
    """
    weights = [sum(float(data.weights.sum()) for data in held_out) for _, held_out in pairs]

    def evaluate(decay: float) -> Trial:
        curves = [kept.curve(f"{decay:g}/{k}", partial(_losses, run, pair, decay)) for k, pair in enumerate(pairs)]
        longest = max(map(len, curves))
        even = [[*curve, *curve[-1:] * (longest - len(curve))] for curve in curves]  # one that diverged is shorter
        curve = np.average(even, axis=0, weights=weights)
        log.info("weight decay %g: held-out NLL %.4f", decay, curve[-1])
        return Trial(decay, tuple(map(float, curve)))

    fitted = sum(len(part) for part, _ in pairs) // len(pairs)
    rungs = OF_FEW if fitted < FEW else len(LADDER)
    held_out = sum(len(data) for _, parts in pairs for data in parts)
    search = Search(walk(evaluate, rungs), fitted, held_out, share)
    if search.best.loss >= DIVERGED:
        tried = ", ".join(f"{trial.decay:g}" for trial in search.trials)
        raise TrainingError(f"training diverged with every weight decay that was tried ({tried}): lower lr.")
    return search


def _losses(run: Callable[[Pair, float], Sequence[float]], pair: Pair, decay: float) -> Sequence[float]:
    """Make a trial; one that diverges is worse than any other."""
    try:
        return run(pair, decay)
    except TrainingError as error:
        log.info("weight decay %g: %s", decay, error)
        return [DIVERGED]
