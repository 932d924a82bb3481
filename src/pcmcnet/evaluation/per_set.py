"""A model and choice sets -> every metric of ``metrics.py`` that its answers admit, one value per set (S,).

Means and intervals of a report are taken of these. Of a scanned table one shard after the other is looked at, and of
each set only its metrics are kept: some tens of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ScannedData
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation import metrics
from pcmcnet.evaluation.predictions import gives_of, predicted_log_p, predicted_scores, true_p


class Metrics(NamedTuple):
    """Metrics (S,) by name, those of the model that tells no alternatives apart, and the weights of the sets."""

    per_set: dict[str, Floats]
    reference: dict[str, Floats]
    weights: Floats


def measured(
    model: Any, data: ChoiceData, top: Sequence[int], truth: ArrayLike | None, rng: np.random.Generator | None
) -> Metrics:
    """Ask a model about choice sets in memory."""
    chosen, true = data.require_chosen("an evaluation"), None if truth is None else true_p(truth, data)
    per_set = model_metrics(model, data, chosen, top, true=true, rng=rng)
    reference = metrics_per_set(metrics.uniform_log_p(data.offsets), data.offsets, chosen, top, true=true)
    return Metrics(per_set, reference, data.weights)


def measured_by_shards(
    model: Any, data: ScannedData, top: Sequence[int], truth: ArrayLike | None, rng: np.random.Generator | None
) -> Metrics:
    """Ask a model about one shard after the other; the sets are in the order of the table, as those in memory are."""
    if truth is not None:
        raise InputError("truth is for choice sets in memory: evaluate data.sample(n_sets), or data.read() if it fits.")
    first, found = [], []
    for shard in data.shards():
        first.append(shard.first)
        found.append(measured(model, shard.data, top, None, rng))
    order = np.argsort(np.concatenate(first), kind="stable")

    def joined(side: str) -> dict[str, Floats]:
        parts = [getattr(each, side) for each in found]
        return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}

    weights = np.concatenate([each.weights for each in found])[order]
    return Metrics(joined("per_set"), joined("reference"), weights)


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
    tops = _hits(log_p, offsets, chosen, top, rng, tie=metrics.TIE)
    known = {} if true is None else {"kl": metrics.kl(true, log_p, offsets)}
    loss, squares = metrics.nll(log_p, offsets, chosen), metrics.brier(log_p, offsets, chosen)
    return {"nll": loss, **tops, "brier": squares, **known}


def _hits(
    scores: Floats, offsets: Ints, chosen: Ints, top: Sequence[int], rng: np.random.Generator | None, *, tie: float
) -> dict[str, Floats]:
    """Return the accuracies (S,) within the first n."""
    if rng is None:
        return {f"top_{n}": metrics.top(scores, offsets, chosen, n, tie=tie) for n in top}
    places = metrics.places(scores, offsets, chosen, rng, tie=tie)
    return {f"top_{n}": (places < n).astype(np.float64) for n in top}


def mean_metrics(per_set: Mapping[str, Floats], weights: Floats) -> dict[str, float]:
    """Return weighted means; a set of weight 0 takes no part, not even where its value is infinite."""
    there = weights > 0
    return {name: float(np.average(v[there], weights=weights[there])) for name, v in per_set.items()}
