"""Scorers for ``cross_val_score``, ``GridSearchCV`` and other tools of scikit-learn.

The scorers of scikit-learn expect a class for each sample and therefore do not work with choice sets. These scorers
have the same names and signs (larger is better), but take a model and choice data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.evaluation.report import evaluate

SCORES = {"neg_log_loss": ("nll", -1.0), "neg_brier_score": ("brier", -1.0), "accuracy": ("top_1", 1.0)}


def scorer(name: str) -> Callable[..., float]:
    """Return a scorer for tools of scikit-learn, such as ``cross_val_score(..., scoring=scorer("accuracy"))``.

    Parameters
    ----------
    name
        "neg_log_loss" (the mean log-likelihood, as ``model.score``), "neg_brier_score", "accuracy" (of the most
        probable alternative) or "top_n", such as "top_5".

    Returns
    -------
    Callable
        Function of a fitted model and choice data, whose value is larger for better models.

    Raises
    ------
    ConfigError
        If the name is unknown.

    Examples
    --------
    >>> from pcmcnet.data import ChoiceData
    >>> from pcmcnet.models import Uniform
    >>> table = {"trip": [1, 1, 2, 2], "took": [1, 0, 0, 1], "price": [3.0, 4.0, 9.0, 1.0]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"])
    >>> scorer("accuracy")(Uniform().fit(data), data)
    0.5
    """
    top = name.removeprefix("top_") if isinstance(name, str) else ""
    if name not in SCORES and not (name != top and top.isdigit() and int(top) > 0):
        known = [*SCORES, "top_5"]
        raise ConfigError(f"scorer: unknown score {name!r}." + did_you_mean(str(name), known))
    metric, sign = SCORES.get(name, (name, 1.0))
    ranks = [int(metric.removeprefix("top_"))] if metric.startswith("top_") else [1]

    def score(model: Any, data: Any, y: Any = None) -> float:
        """Return the score of a fitted model. ``y`` is ignored, because the data contain the choices."""
        value = evaluate(model, data, ranks, resamples=0).values[metric]
        if value is None:
            raise ConfigError(
                f"scoring {name!r}: {type(model).__name__} returns a ranking, which has no probabilities."
            )
        return sign * value

    return score
