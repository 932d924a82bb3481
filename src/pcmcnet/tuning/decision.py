"""The best trial, or the defaults: the best is kept where it is better by more than chance explains.

    gain     g = sum_b (l_b - l'_b) / sum_b w_b                               of the best l' on the defaults l
    error    s = sqrt(n / (n - 1) sum_b (l_b - l'_b - g w_b)^2) / sum_b w_b   over n blocks of weights w_b

l_b is the weighted NLL of a block of held-out sets, so what makes a set hard for both cancels. The best is the least of
m trials beside the defaults: were none of them better, the largest of m gains would still exceed z standard errors with
a probability of at most m (1 - F(z)), F Student's distribution with n - 1 degrees of freedom. The best is asked for the
z at which that is 5 %: for many blocks 1.6 for one trial, 2.7 for 14, 3.1 for 50; more where blocks are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pcmcnet.arrays import Floats
from pcmcnet.tuning.result import TrialRecord, Verdict, best_of

CHANCE = 0.05  # of replacing defaults that no trial is better than


def decide(trials: Sequence[TrialRecord], losses: Sequence[Floats], weights: Floats) -> Verdict:
    """Choose between the best trial and the defaults.

    Parameters
    ----------
    trials
        Of which one is complete.
    losses
        Of each trial, by blocks (blocks,); only those of complete trials are looked at.
    weights
        Of the blocks.
    """
    best = best_of(trials)
    defaults = next((t for t in trials if t.defaults and t.state == "complete"), None)
    if defaults is None or defaults is best:
        return Verdict(best.number, None, None)
    gain, error = paired_gain(losses[trials.index(defaults)], losses[trials.index(best)], weights)
    asked = errors_asked(len(trials) - 1, blocks=int((weights > 0).sum()))
    return Verdict((best if gain > asked * error else defaults).number, gain, error if math.isfinite(error) else None)


def errors_asked(trials: int, blocks: int) -> float:
    """Return by how many standard errors the best of so many trials has to be better.

    >>> [round(errors_asked(m, 500), 1) for m in (1, 14, 50)]
    [1.6, 2.7, 3.1]
    >>> round(errors_asked(14, 5), 1)
    5.1
    """
    from scipy.stats import t  # slow to import

    return float(t.ppf(1 - CHANCE / trials, max(blocks - 1, 1)))


def paired_gain(ours: Floats, theirs: Floats, weights: Floats) -> tuple[float, float]:
    """Return by how much the losses of the second are smaller, and the standard error of that."""
    there = weights > 0
    difference, weight = (ours - theirs)[there], weights[there]
    gain, n = float(difference.sum() / weight.sum()), len(weight)
    if n < 2:
        return gain, math.inf
    squares = float(((difference - gain * weight) ** 2).sum())
    return gain, math.sqrt(n / (n - 1) * squares) / float(weight.sum())
