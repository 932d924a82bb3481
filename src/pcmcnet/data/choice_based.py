"""Weights for choice-based samples (Manski and Lerman, 1977), in which people were sampled by what they chose.

If bus passengers are interviewed on buses and drivers at car parks, the share H_i of choices of i in the sample differs
from its share Q_i in the population. The weighted exogenous sample maximum likelihood (WESML) estimator maximises

    sum over sets s of w_s log P(y_s | S_s),     w_s = Q_{y_s} / H_{y_s}.

It is consistent for any model. Weighted scores do not have the covariance of the Hessian, so standard errors have to be
robust, as those of the logits are by default if weights differ from 1.

The sampling design fixes the number of choices of each alternative, or H_i is estimated from these numbers. In both
cases, the sum of the weighted scores g_s varies only within strata. A stratum is formed by the sets with the same
choice. The covariance of the sum is

    sum over i of sum over s with y_s = i of (g_s - mean_i g) (g_s - mean_i g)'

(Manski and Lerman, 1977; Imbens and Lancaster, 1996). The outer product of the scores without the means of the strata
would be larger, above all for the constants. The stratum of each choice set is stored with the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pcmcnet.arrays import Ints
from pcmcnet.checks import suggests_arguments
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical
from pcmcnet.errors import InputError, SchemaError, did_you_mean

STRATUM = "sampling_stratum"  # column of `keep` with the choice of each set, by which the sets were sampled
_SUM_ROUNDING = 1e-3  # shares are often written in per cent with one decimal


@suggests_arguments()
def wesml(data: ChoiceData, shares: Mapping[str, float]) -> ChoiceData:
    """Weight a choice-based sample so that the shares of the choices are those of the population.

    Parameters
    ----------
    data
        Choice sets with labels and choices.
    shares
        Share of each label among the choices of the population, such as ``{"car": 0.7, "bus": 0.3}``. They sum to 1.

    Returns
    -------
    ChoiceData
        The same choice sets. Their weights are multiplied by the ratio of the share in the population to the (weighted)
        share in the sample, so that the sum of the weights does not change. The kept column ``sampling_stratum``
        contains the choice; logits use it for robust errors if the table has no persons.

    Raises
    ------
    InputError
        If the choices are unknown, a share is missing, unknown or not positive, or the shares do not sum to 1.
    SchemaError
        If the table declares no labels.

    Examples
    --------
    >>> table = {"trip": [1, 1, 2, 2, 3, 3, 4, 4], "mode": ["car", "bus"] * 4, "took": [1, 0, 1, 0, 1, 0, 0, 1]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode")
    >>> wesml(data, {"car": 0.9, "bus": 0.1}).weights.round(3).tolist()
    [1.2, 1.2, 1.2, 0.4]
    """
    if not isinstance(data, ChoiceData):
        raise InputError(f"data: expected ChoiceData, got {type(data).__name__}: see ChoiceData.from_long.")
    chosen = data.require_chosen("weighting by shares")
    if data.labels is None:
        raise SchemaError("weights by shares need labels: read the table with alternative=<column>.")
    # 1. The shares of the choices in the sample.
    names, codes = data.labels.categories, data.labels.codes[data.offsets[:-1] + chosen]
    sums = np.bincount(codes, data.weights, minlength=len(names))
    sample = {name: total / sums.sum() for name, total in zip(names, sums.tolist(), strict=True) if total > 0}
    # 2. Check the shares in the population.
    if not isinstance(shares, Mapping):
        raise InputError(f"shares: expected a mapping from labels to shares, as in {{'car': 0.6}}, got {shares!r}.")
    population = {str(label): float(share) for label, share in shares.items()}
    for label, share in population.items():
        if not (np.isfinite(share) and share > 0):
            raise InputError(f"shares: expected a share above 0 for {label!r}, got {share:g}.")
        if label not in sample:
            reason = "is never chosen in the sample" if label in names else "is not a label of the table"
            raise InputError(f"shares: {label!r} {reason}." + did_you_mean(label, sample))
    if missing := [label for label in sample if label not in population]:
        raise InputError(f"shares: expected a share for each chosen label, but {missing[0]!r} has none.")
    total = sum(population.values())
    if abs(total - 1) > _SUM_ROUNDING:
        raise InputError(
            f"shares: expected shares that sum to 1, got a sum of {total:g}. Divide each share by their sum."
        )
    # 3. Multiply the weights.
    ratios = np.array([population[name] / total / sample[name] if name in sample else 1.0 for name in names])
    strata = data.labels.take(data.offsets[:-1] + chosen)
    return replace(data, weights=data.weights * ratios[codes], keep={**data.keep, STRATUM: strata})


def sampling_strata(data: ChoiceData) -> Ints | None:  # -> (S,)
    """Return the stratum by which each choice set was sampled, or None if the table has none or has persons."""
    column = data.keep.get(STRATUM)
    if not isinstance(column, Categorical) or data.schema.group_column is not None:
        return None
    return column.codes.astype(np.int64)
