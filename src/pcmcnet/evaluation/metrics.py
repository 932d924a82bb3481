"""Metrics of predicted log-probabilities: one value per choice set, given the choices.

The alternatives of all S sets are in flat arrays (N,), sorted by set. The array ``offsets`` (S + 1,) marks where each
set begins, and ``chosen`` (S,) is the position of the chosen alternative within its set. No set is empty. Each metric
has shape (S,):

    nll    -log p(chosen)
    top    1 if the chosen alternative is among the n most probable ones; the expected value if there are ties
    brier  sum over i of (p_i - y_i)^2, with y the indicator of the choice: 0 at best, 2 at worst
    kl     sum over i of t_i log(t_i / p_i), with t the true probabilities; a term with t_i = 0 is 0

The functions take log-probabilities, which remain accurate even if a probability underflows; -inf means probability 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import CatalogueData, ChunkedData
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.ragged import sum_by_set
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import (
    gives_of,
    predicted_log_p,
    predicted_scores,
    true_probabilities,
    truth_of_rows,
)

# Alternatives with equal features have equal probabilities, but in float32 their log p may differ by up to 8e-6
# (measured: two equal alternatives in sets of 3 to 100, log-rates with a range of 1 to 20). Without a tolerance,
# rounding would break such ties by the position in the set, which may be correlated with the choice. Different
# alternatives rarely have probabilities that agree to one part in 100,000.
TIE = 1e-5


class ChosenRank(NamedTuple):
    """Rank of the chosen alternative of each set."""

    better: Ints  # (S,) number of alternatives that are more probable
    tied: Ints  # (S,) number of alternatives with the same probability, including the chosen one


def nll(log_p: Floats, offsets: Ints, chosen: Ints) -> Floats:
    """Return the negative log-likelihood of each choice, which is inf if the choice has probability 0."""
    loss: Floats = 0.0 - log_p[offsets[:-1] + chosen]  # 0.0 - x, because -x would give -0.0 for probability 1
    return loss


def brier(log_p: Floats, offsets: Ints, chosen: Ints) -> Floats:
    """Return the Brier score of each set: the squared distance between the probabilities and the choice indicators."""
    residual = np.exp(log_p)
    residual[offsets[:-1] + chosen] -= 1.0
    return sum_by_set(residual**2, offsets)


def kl(true: Floats, log_p: Floats, offsets: Ints) -> Floats:
    """Return the Kullback-Leibler divergence of the predicted probabilities from the true probabilities.

    Examples
    --------
    >>> true, predicted = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.5, 0.25])
    >>> kl(true, np.log(predicted), np.array([0, 3])) / np.log(2)  # 1/2 log 2 + 1/2 log 1 + 0
    array([0.5])
    """
    log_true = np.log(true, where=true > 0, out=np.zeros_like(true))
    log_ratio = np.subtract(log_true, log_p, where=true > 0, out=np.zeros_like(true))  # 0 log(0 / 0) counts as 0
    return sum_by_set(true * log_ratio, offsets)


def rank_of_chosen(log_p: Floats, offsets: Ints, chosen: Ints, *, tie: float = TIE) -> ChosenRank:
    """Count the alternatives that are ranked above the choice, and the alternatives that are tied with the choice.

    An alternative is tied with the choice if their log-probabilities differ by at most ``tie``.
    """
    of_chosen = np.repeat(log_p[offsets[:-1] + chosen], np.diff(offsets))  # (N,)
    better = log_p > of_chosen + tie
    tied = (log_p >= of_chosen - tie) & ~better  # if of_chosen is -inf, all alternatives with -inf are tied
    return ChosenRank(sum_by_set(better.astype(np.int64), offsets), sum_by_set(tied.astype(np.int64), offsets))


def top_hits(log_p: Floats, offsets: Ints, chosen: Ints, n: int, *, tie: float = TIE) -> Floats:
    """Return the probability that the choice is among the n most probable alternatives if ties are broken at random.

    If b alternatives rank above the choice and t are tied, including the choice itself, the rank of the choice, counted
    from 0, is uniform on b, ..., b + t - 1. The result is the expected accuracy over random tie-breaks.

    Examples
    --------
    >>> log_p = np.log([0.4, 0.2, 0.2, 0.2])
    >>> [top_hits(log_p, np.array([0, 4]), np.array([1]), n).item() for n in (1, 2, 4)]  # b = 1, t = 3
    [0.0, 0.333..., 1.0]
    """
    better, tied = rank_of_chosen(log_p, offsets, chosen, tie=tie)
    return np.clip((n - better) / tied, 0.0, 1.0)


def places_of_chosen(log_p: Floats, offsets: Ints, chosen: Ints, rng: np.random.Generator, *, tie: float = TIE) -> Ints:
    """Return the rank of each choice, counted from 0, with ties broken at random.

    ``places_of_chosen(...) < n`` marks the choices within the top n. The same draw is used for every n, so that a
    choice within the top 1 is also within the top 5.
    """
    better, tied = rank_of_chosen(log_p, offsets, chosen, tie=tie)
    return better + rng.integers(0, tied)


def pseudo_r2(nll: float | None, uniform_nll: float) -> float | None:
    """Return McFadden's pseudo-R2, 1 - NLL / NLL of the uniform model, or None if it is undefined."""
    return 1 - nll / uniform_nll if nll is not None and np.isfinite(nll) and uniform_nll else None


def uniform_log_p(offsets: Ints) -> Floats:
    """Return the log-probabilities (N,) of the uniform model."""
    sizes = np.diff(offsets)
    return np.repeat(-np.log(sizes), sizes)


# -- Per set -----------------------------------------------------------------------------------------------------------
# A model and choice sets -> every metric that is defined for its predictions, one value per set (S,).
#
# Reports show means and intervals of these values. A scanned table is processed chunk by chunk, and only the metrics of
# each set are kept, some tens of bytes.


class Metrics(NamedTuple):
    """Metrics (S,) by name, the same metrics for the uniform model, and the weights of the sets (S,)."""

    per_set: dict[str, Floats]
    reference: dict[str, Floats]
    weights: Floats


def metrics_of_table(
    model: Any,
    data: ChoiceData | ChunkedData,
    top: Sequence[int],
    truth: ArrayLike | None,
    rng: np.random.Generator | None,
) -> Metrics:
    """Compute the metrics of a model on choice sets; scanned tables and catalogues are processed chunk by chunk."""
    if isinstance(data, ChoiceData):
        chosen, true = data.require_chosen("an evaluation"), None if truth is None else true_probabilities(truth, data)
        per_set = model_metrics(model, data, chosen, top, true=true, rng=rng)
        reference = metrics_per_set(uniform_log_p(data.offsets), data.offsets, chosen, top, true=true)
        return Metrics(per_set, reference, data.weights)
    is_catalogue = isinstance(data, CatalogueData)
    if truth is not None and not is_catalogue:
        raise InputError(
            "truth is not supported for a scanned table: evaluate data.sample(n_sets), or data.read() if it fits into "
            "memory."
        )
    true = None if truth is None else truth_of_rows(truth, data.n_rows)
    chunks = [
        (c.first, metrics_of_table(model, c.data, top, None if true is None else true[c.table_rows], rng))
        for c in data.chunks()
    ]
    order = np.argsort(np.concatenate([first for first, _ in chunks]), kind="stable")  # order of the table

    def joined(parts: list[dict[str, Floats]]) -> dict[str, Floats]:
        return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}

    weights = np.concatenate([part.weights for _, part in chunks])[order]
    return Metrics(
        joined([part.per_set for _, part in chunks]), joined([part.reference for _, part in chunks]), weights
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
    """Compute predictions for choice sets, and return every metric (S,) that is defined for the model."""
    if gives_of(model) == "ranking":
        # Scores have no scale, so only equal ones are tied.
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
    """Return all metrics (S,) by name; if ``rng`` is given, ties are broken at random."""
    hits = _hits(log_p, offsets, chosen, top, rng, tie=TIE)
    divergence = {} if true is None else {"kl": kl(true, log_p, offsets)}
    loss, squares = nll(log_p, offsets, chosen), brier(log_p, offsets, chosen)
    return {"nll": loss, **hits, "brier": squares, **divergence}


def _hits(
    scores: Floats, offsets: Ints, chosen: Ints, top: Sequence[int], rng: np.random.Generator | None, *, tie: float
) -> dict[str, Floats]:
    """Return the top-n accuracies (S,)."""
    if rng is None:
        return {f"top_{n}": top_hits(scores, offsets, chosen, n, tie=tie) for n in top}
    places = places_of_chosen(scores, offsets, chosen, rng, tie=tie)
    return {f"top_{n}": (places < n).astype(np.float64) for n in top}


def mean_metrics(per_set: Mapping[str, Floats], weights: Floats) -> dict[str, float]:
    """Return the weighted mean of each metric; sets with weight 0 are ignored even if their value is infinite."""
    counted = weights > 0
    return {name: float(np.average(v[counted], weights=weights[counted])) for name, v in per_set.items()}
