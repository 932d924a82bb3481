"""Log-probabilities and choices -> one value per choice set.

Alternatives of all S sets lie in flat arrays (N,), set after set; ``offsets`` (S + 1,) says where each set
begins and ``chosen`` (S,) which of its alternatives was chosen. No set is empty. Every function returns (S,):

    nll    -log p(chosen)
    top    1 where the chosen alternative is among the n most probable ones, with random ties in expectation
    brier  sum over i of (p_i - y_i)^2, with y the indicator of the choice: 0 at best, 2 at worst
    kl     sum over i of t_i log(t_i / p_i), with t the known probabilities; a term with t_i = 0 is 0

Log-probabilities come in because they are exact where a probability underflows; -inf is probability 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ScannedData
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.ragged import sum_by_set
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import gives_of, predicted_log_p, predicted_scores, true_probabilities

# Alternatives with equal features have equal probabilities, but in float32 their log p come out up to 8e-6
# apart (measured: two equal alternatives in sets of 3 to 100, log-rates with a spread of 1 to 20). Without a
# tolerance, rounding would break such ties by place in the set, which may well be correlated with the choice.
# Different alternatives that a model tells apart by less than one part in 100,000 are next to never met.
TIE = 1e-5


class ChosenRank(NamedTuple):
    """Where the chosen alternative of each set stands: (S,) and (S,)."""

    better: Ints  # alternatives that are more probable
    tied: Ints  # alternatives that are as probable, the chosen one included


def nll(log_p: Floats, offsets: Ints, chosen: Ints) -> Floats:
    """Return the negative log-likelihood of each choice; inf where the choice has probability 0."""
    loss: Floats = 0.0 - log_p[offsets[:-1] + chosen]  # 0.0 - x, since -x turns a sure choice into -0.0
    return loss


def brier(log_p: Floats, offsets: Ints, chosen: Ints) -> Floats:
    """Return the squared distance between the probabilities and the indicator of the choice."""
    miss = np.exp(log_p)
    miss[offsets[:-1] + chosen] -= 1.0
    return sum_by_set(miss**2, offsets)


def kl(true: Floats, log_p: Floats, offsets: Ints) -> Floats:
    """Return the Kullback-Leibler divergence of the prediction from the truth.

    Examples
    --------
    >>> true, predicted = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.5, 0.25])
    >>> kl(true, np.log(predicted), np.array([0, 3])) / np.log(2)  # 1/2 log 2 + 1/2 log 1 + 0
    array([0.5])
    """
    log_true = np.log(true, where=true > 0, out=np.zeros_like(true))
    gap = np.subtract(log_true, log_p, where=true > 0, out=np.zeros_like(true))  # 0 log(0 / 0) is left out
    return sum_by_set(true * gap, offsets)


def rank_of_chosen(log_p: Floats, offsets: Ints, chosen: Ints, *, tie: float = TIE) -> ChosenRank:
    """Count the alternatives above and level with the choice; a gap in log p up to ``tie`` is a tie."""
    own = np.repeat(log_p[offsets[:-1] + chosen], np.diff(offsets))  # (N,)
    above = log_p > own + tie
    level = (log_p >= own - tie) & ~above  # also right where own is -inf: level with all that are -inf
    return ChosenRank(sum_by_set(above.astype(np.int64), offsets), sum_by_set(level.astype(np.int64), offsets))


def top_hits(log_p: Floats, offsets: Ints, chosen: Ints, n: int, *, tie: float = TIE) -> Floats:
    """Return the probability that the choice is among the first n when ties are broken at random.

    With a alternatives better and t tied, the place of the choice is uniform on a, ..., a + t - 1. This is
    the expectation of the accuracy with random tie-breaks: the same number without its noise.

    Examples
    --------
    >>> log_p = np.log([0.4, 0.2, 0.2, 0.2])
    >>> [top_hits(log_p, np.array([0, 4]), np.array([1]), n).item() for n in (1, 2, 4)]  # a = 1, t = 3
    [0.0, 0.333..., 1.0]
    """
    better, tied = rank_of_chosen(log_p, offsets, chosen, tie=tie)
    return np.clip((n - better) / tied, 0.0, 1.0)


def places_of_chosen(log_p: Floats, offsets: Ints, chosen: Ints, rng: np.random.Generator, *, tie: float = TIE) -> Ints:
    """Return the place of each choice, 0 for the first, with ties broken at random.

    ``places_of_chosen(...) < n`` says which are within the top n; one draw serves every n, so top 5 contains top 1.
    """
    better, tied = rank_of_chosen(log_p, offsets, chosen, tie=tie)
    return better + rng.integers(0, tied)


def pseudo_r2(nll: float | None, uniform_nll: float) -> float | None:
    """Return McFadden's 1 - NLL / NLL of the uniform model; None if either is missing, zero or infinite."""
    return 1 - nll / uniform_nll if nll is not None and np.isfinite(nll) and uniform_nll else None


def uniform_log_p(offsets: Ints) -> Floats:
    """Return the log-probabilities (N,) of the model that tells no alternatives apart."""
    sizes = np.diff(offsets)
    return np.repeat(-np.log(sizes), sizes)


# -- Per set -----------------------------------------------------------------------------------------------------------
# A model and choice sets -> every metric of `metrics.py` that its answers admit, one value per set (S,).
#
# Means and intervals of a report are taken of these. Of a scanned table one shard after the other is looked at, and of
# each set only its metrics are kept: some tens of bytes.


class Metrics(NamedTuple):
    """Metrics (S,) by name, those of the model that tells no alternatives apart, and the weights of the sets."""

    per_set: dict[str, Floats]
    reference: dict[str, Floats]
    weights: Floats


def metrics_of_table(
    model: Any,
    data: ChoiceData | ScannedData,
    top: Sequence[int],
    truth: ArrayLike | None,
    rng: np.random.Generator | None,
) -> Metrics:
    """Ask a model about choice sets; of a scanned table, about one shard after the other."""
    if isinstance(data, ChoiceData):
        chosen, true = data.require_chosen("an evaluation"), None if truth is None else true_probabilities(truth, data)
        per_set = model_metrics(model, data, chosen, top, true=true, rng=rng)
        reference = metrics_per_set(uniform_log_p(data.offsets), data.offsets, chosen, top, true=true)
        return Metrics(per_set, reference, data.weights)
    if truth is not None:
        raise InputError("truth is for choice sets in memory: evaluate data.sample(n_sets), or data.read() if it fits.")
    shards = [(shard.first, metrics_of_table(model, shard.data, top, None, rng)) for shard in data.shards()]
    order = np.argsort(np.concatenate([first for first, _ in shards]), kind="stable")  # that of the table

    def joined(parts: list[dict[str, Floats]]) -> dict[str, Floats]:
        return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}

    weights = np.concatenate([part.weights for _, part in shards])[order]
    return Metrics(
        joined([part.per_set for _, part in shards]), joined([part.reference for _, part in shards]), weights
    )


def model_metrics(
    model: Any,
    data: ChoiceData,
    chosen: Ints,
    top: Sequence[int] = (1, 5),
    *,
    true: Floats | None = None,
    rng: np.random.Generator | None = None,
) -> dict[str, Floats]:
    """Ask a model about choice sets and return every metric (S,) that its answers admit."""
    if gives_of(model) == "ranking":
        # Scores may be of any size, so that only equal ones are tied.
        return _hits(predicted_scores(model, data), data.offsets, chosen, top, rng, tie=0.0)
    return metrics_per_set(predicted_log_p(model, data), data.offsets, chosen, top, true=true, rng=rng)


def metrics_per_set(
    log_p: Floats,
    offsets: Ints,
    chosen: Ints,
    top: Sequence[int] = (1, 5),
    *,
    true: Floats | None = None,
    rng: np.random.Generator | None = None,
) -> dict[str, Floats]:
    """Return every metric (S,) by its name in a report; ``rng`` breaks ties, where it is given."""
    tops = _hits(log_p, offsets, chosen, top, rng, tie=TIE)
    known = {} if true is None else {"kl": kl(true, log_p, offsets)}
    loss, squares = nll(log_p, offsets, chosen), brier(log_p, offsets, chosen)
    return {"nll": loss, **tops, "brier": squares, **known}


def _hits(
    scores: Floats, offsets: Ints, chosen: Ints, top: Sequence[int], rng: np.random.Generator | None, *, tie: float
) -> dict[str, Floats]:
    """Return the accuracies (S,) within the first n."""
    if rng is None:
        return {f"top_{n}": top_hits(scores, offsets, chosen, n, tie=tie) for n in top}
    places = places_of_chosen(scores, offsets, chosen, rng, tie=tie)
    return {f"top_{n}": (places < n).astype(np.float64) for n in top}


def mean_metrics(per_set: Mapping[str, Floats], weights: Floats) -> dict[str, float]:
    """Return weighted means; a set of weight 0 takes no part, not even where its value is infinite."""
    there = weights > 0
    return {name: float(np.average(v[there], weights=weights[there])) for name, v in per_set.items()}
