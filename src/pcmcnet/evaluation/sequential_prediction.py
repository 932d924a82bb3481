"""Prediction of a sequence of choices by a model whose features are earlier choices.

The history before the t-th choice of a person contains the choices y_1, ..., y_{t-1}. If they are not observed yet, the
probability of alternative i is an average over the paths that these choices may take:

    P(y_t = i) = sum over paths P(y_1) ... P(y_{t-1} | y_1, ..., y_{t-2}) P(y_t = i | y_1, ..., y_{t-1}).

The sum is estimated by R simulated paths: all persons make their first choice, then their second, and so on, and each
simulated choice updates the history of the next one. The last factor is not simulated, so the first choices are exact
and the others have a standard error of at most 0.5 / sqrt(R).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, suggests_arguments
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.ragged import spread, sum_by_set
from pcmcnet.data.history import ChoiceHistory, Past, choice_numbers
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import predicted_log_p, require_predictor


@suggests_arguments()
def predict_sequence(
    model: Any, data: ChoiceData, history: ChoiceHistory, *, past: Past = None, paths: int = 100, seed: int = 0
) -> Floats:
    """Predict several future choices of each person. Each predicted choice updates the history of the next one.

    Parameters
    ----------
    model
        A fitted model whose table has the features of ``history``.
    data
        Future choice sets without these features. Their choices are not used, even if they are known.
    history
        Options of the features, as for the training part. ``burn_in`` is ignored.
    past
        Observed choices before those in ``data``. Default None: no choices are observed.
    paths
        Number of simulated paths. Default 100.
    seed
        Seed of the simulated choices. Default 0.

    Returns
    -------
    array of float, (n_rows,)
        Probability of each table row, in the order of the rows; 0 if the alternative is not available.

    Raises
    ------
    InputError
        If the model does not predict from a table, or if ``history`` is not a ``ChoiceHistory``.
    SchemaError
        If the table declares no persons or no labels, or if a person has two choices at the same time.

    Examples
    --------
    >>> from pcmcnet.models import Uniform
    >>> table = {"trip": [1, 1, 2, 2], "mode": ["car", "bus"] * 2, "who": [7] * 4}
    >>> future = ChoiceData.from_long(table, choice_set="trip", alternative="mode", person="who")
    >>> options = ChoiceHistory()
    >>> known = ChoiceData.from_long(
    ...     {**table, "took": [1, 0, 0, 1]}, choice_set="trip", chosen="took", alternative="mode", person="who"
    ... )
    >>> predict_sequence(Uniform().fit(options.features(known)), future, options, past=known, paths=5).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    require_predictor(model)
    if not isinstance(history, ChoiceHistory):
        raise InputError(f"history: expected a ChoiceHistory, got {type(history).__name__}.")
    require_number("paths", paths, whole=True, low=1)
    require_number("seed", seed, whole=True, low=0)
    options = replace(history, burn_in=0)
    earlier = [past] if isinstance(past, ChoiceData) else list(past or ())
    # 1. Number the choices of each person: all persons make their first choices at once, then their second choices.
    number = choice_numbers(data, options.order)
    steps = [np.flatnonzero(number == t) for t in range(int(number.max(initial=-1)) + 1)]
    rng = np.random.default_rng(seed)
    total = np.zeros(len(data.rows))
    for _ in range(paths):
        # 2. Predict each step from the observed and the simulated choices, and draw its choices.
        chosen = np.zeros(len(data), np.int64)
        for t, sets in enumerate(steps):
            before = np.flatnonzero(number < t)
            simulated = replace(data.subset(before), chosen=chosen[before]) if t else None
            current = replace(data.subset(sets), chosen=None)
            features = options.features(current, [*earlier, *([] if simulated is None else [simulated])])
            p = np.exp(predicted_log_p(model, features))
            total[_flat(data, sets)] += p
            chosen[sets] = _draws(p, current.offsets, rng)
    return data.to_rows(total / paths)


def _flat(data: ChoiceData, sets: Ints) -> Ints:
    """Return the positions of the alternatives of some sets."""
    return np.flatnonzero(np.isin(np.arange(len(data)), sets)[data.set_of_alternative])


def _draws(p: Floats, offsets: Ints, rng: np.random.Generator) -> Ints:
    """Draw a choice in each set: (N,) -> (S,)."""
    # The choice is the first alternative whose cumulative probability exceeds a uniform number.
    total = np.cumsum(p)
    base = np.concatenate([[0.0], total])[offsets[:-1]]
    mass = sum_by_set(p, offsets)
    below = total - spread(base, offsets) <= spread(rng.random(len(mass)) * mass, offsets)
    choices: Ints = np.minimum(sum_by_set(below.astype(np.int64), offsets), np.diff(offsets) - 1)
    return choices
