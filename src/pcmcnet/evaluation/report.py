"""Evaluation of a model on observed choices: metrics with intervals, and the same metrics for random guessing.

Every value is the weighted mean of a metric (``metrics.py``) over choice sets, with a bootstrap interval
(``bootstrap.py``) and, for reference, the value for the uniform model. If the table declares persons, persons are
resampled, because the choices of a person depend on each other. For a model that gives only a ranking, only accuracies
are computed. Metrics computed from normalised scores are marked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import suggests_arguments
from pcmcnet.data import ChunkedData
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.errors import ConfigError
from pcmcnet.evaluation.bootstrap import aggregate_by_group, bootstrap_interval
from pcmcnet.evaluation.metrics import mean_metrics, metrics_of_table, pseudo_r2
from pcmcnet.evaluation.predictions import Predictor, gives_of, require_data, require_predictor, require_sets
from pcmcnet.models.interface.choice_model import ChoiceModel, Gives
from pcmcnet.models.logit.logit_model import LogitModel
from pcmcnet.reports.formats import NotebookMixin, ToDictMixin
from pcmcnet.reports.sections import Block, Table, note
from pcmcnet.reports.tables import escaped, markdown_table, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# -- Goodness of fit ---------------------------------------------------------------------------------------------------
# Goodness-of-fit statistics as in the tables of papers: likelihoods, rho-squared, information criteria, sizes.
#
# The statistics of a logit are part of its estimates and refer to its training choice sets. On given choice sets, those
# of all models are computed from the predicted probabilities. AIC, BIC and the other TRAINING_STATISTICS depend on the
# fit, so they are undefined for models that are not logits and on choice sets that a logit was not fitted to.

FIT_STATISTICS = {  # name -> number format
    "log-likelihood": ".3f",
    "null log-likelihood": ".3f",
    "constants-only log-likelihood": ".3f",
    "rho-squared": ".4f",
    "adjusted rho-squared": ".4f",
    "AIC": ".2f",
    "BIC": ".2f",
    "choice sets": ",.0f",
    "persons": ",.0f",
    "parameters": ",.0f",
}
TRAINING_STATISTICS = ("constants-only log-likelihood", "adjusted rho-squared", "AIC", "BIC")
_SAME_LIKELIHOOD = 1e-8  # relative difference of two ways to add up a log-likelihood


def fit_statistics(model: ChoiceModel, data: Any | None = None) -> dict[str, float | None]:
    """Return the goodness-of-fit statistics by name, in the order of FIT_STATISTICS; undefined statistics are None.

    Without ``data``, all statistics refer to the training choice sets. With ``data``, all of them refer to ``data``.
    """
    facts = model.require_fitted().facts
    statistics: dict[str, float | None] = dict.fromkeys(FIT_STATISTICS)
    statistics["parameters"] = model.num_parameters
    if data is None:
        sizes = {"choice sets": facts["choice_sets"], "persons": facts.get("persons")}
        return statistics | sizes | (_training_statistics(model) if isinstance(model, LogitModel) else {})
    # 1. Count the choice sets and persons of the given data, which the schema of the model can read from a table.
    data = require_data(model, data)
    sets = data.with_positive_weight()
    statistics["choice sets"] = len(sets)
    statistics["persons"] = None if data.schema.person is None else len(np.unique(sets.groups()))
    if gives_of(model) != "probabilities":
        return statistics
    # 2. Add up the log-likelihood of the choices.
    value = model.score(sets) * float(sets.weights.sum())
    null = -float(sets.weights @ np.log(sets.sizes))
    rho_squared = round(1 - value / null, 9) + 0.0 if null else 0.0  # no negative zero
    statistics |= {"log-likelihood": value, "null log-likelihood": null, "rho-squared": rho_squared}
    # 3. Add the other statistics of a logit if its maximised log-likelihood is that of the given data.
    if isinstance(model, LogitModel) and model.table_.fingerprint == data.fingerprint():
        of_training = _training_statistics(model)
        if np.isclose(value, of_training["log-likelihood"], rtol=_SAME_LIKELIHOOD):
            statistics |= {name: of_training[name] for name in TRAINING_STATISTICS}
    return statistics


def _training_statistics(model: LogitModel) -> dict[str, Any]:
    """Return the goodness-of-fit statistics of a logit on its training choice sets."""
    estimates = model.estimates_
    return {
        "log-likelihood": estimates.log_likelihood,
        "null log-likelihood": estimates.null_log_likelihood,
        "constants-only log-likelihood": estimates.constants_log_likelihood,
        "rho-squared": estimates.rho_squared,
        "adjusted rho-squared": estimates.adjusted_rho_squared,
        "AIC": estimates.aic,
        "BIC": estimates.bic,
        "choice sets": estimates.n_sets,
    }


# -- Report ------------------------------------------------------------------------------------------------------------

Ties = Literal["expected", "random"]

LEVEL = 0.95
_ROUNDING = 1e-9  # of a weighted mean of values that are all 1
MARK = "*"
FOOTNOTE = f"{MARK} scores normalised within each set, not probabilities"


@dataclass(frozen=True, kw_only=True)
class Report(ToDictMixin, NotebookMixin):
    """Evaluation of a model on a table, returned by :func:`evaluate` and printed as a table.

    Attributes
    ----------
    n_sets
        Number of choice sets.
    nll
        Mean negative log-likelihood of the choices, which is inf if a choice has probability 0, and None for a ranking.
    top
        Top-n accuracy for each n: the share of choices that are among the n most probable alternatives.
    brier
        Brier score: the mean squared distance between probabilities and choices, from 0 (best) to 2 (worst), or None
        for a ranking.
    kl
        Mean Kullback-Leibler divergence from the true probabilities, or None without ``truth`` or for a ranking.
    n_impossible
        Number of observed choices to which the model gives probability 0.
    intervals
        Interval ends of each metric ("nll", "top_1", ..., "brier", "kl"). An interval is (-inf, inf) if only one set
        has a positive weight. Without resamples, the mapping is empty.
    uniform
        For each metric, its value for guessing at random.
    level
        Confidence level of the intervals.
    gives
        Kind of the model's predictions: "probabilities", "scores" or "ranking".
    """

    n_sets: int
    nll: float | None
    top: Mapping[int, float]
    brier: float | None
    kl: float | None = None
    n_impossible: int = 0
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    uniform: Mapping[str, float] = field(default_factory=dict)
    level: float = LEVEL
    gives: Gives = "probabilities"

    def _short(self) -> str:
        nll = "" if self.nll is None else f", NLL {self.nll:.4f}"
        return f"{self.n_sets:,} choice sets{nll}"

    def _blocks(self) -> list[Block]:
        return [Table(cells=self._cells()), *map(note, self._notes())]

    _frame_index = "metric"

    def _frame_rows(self) -> Iterator[dict[str, Any]]:
        for name, value in self.values.items():
            low, high = self.intervals.get(name, (None, None))
            yield {"metric": name, "value": value, "low": low, "high": high, "uniform": self.uniform[name]}

    @property
    def values(self) -> dict[str, float | None]:
        """Value of each metric, by the names used in ``intervals`` and ``uniform``."""
        tops = {f"top_{n}": value for n, value in self.top.items()}
        divergence = {"kl": self.kl} if self.kl is not None or "kl" in self.uniform else {}
        return {"nll": self.nll, **tops, "brier": self.brier, **divergence}

    @property
    def shown_top(self) -> list[int]:
        """Values of n whose top-n accuracy can be below 1 and is therefore shown."""
        return [n for n in self.top if discriminating_metrics([f"top_{n}"], self.uniform)]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the metrics of the model, with intervals, and of the uniform model; :meth:`to_dict` returns the values.

        Parameters
        ----------
        ax
            Axes to draw on. If None (default), a new figure is created.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        from pcmcnet.plots.comparison import plot_report

        return plot_report(self, ax)

    @property
    def pseudo_r2(self) -> float | None:
        """McFadden's pseudo-R2, 1 - NLL / NLL of the uniform model, or None for a ranking or if undefined."""
        return pseudo_r2(self.nll, self.uniform.get("nll", 0.0))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values; infinite numbers, such as ``nll`` if ``n_impossible`` > 0, become None."""
        return {name: value for name, value in super().to_dict().items() if name != "kl" or "kl" in self.values}

    def to_markdown(self) -> str:
        """Return the report as a Markdown table."""
        notes = [escaped(note) for note in self._notes()]
        return "\n\n".join([markdown_table(self._cells()), *notes])

    def __str__(self) -> str:
        noun = "choice set" if self.n_sets == 1 else "choice sets"
        zeros = [f"Observed choices with predicted probability 0: {self.n_impossible:,}."] if self.n_impossible else []
        return "\n".join([f"{self.n_sets:,} {noun}", text_table(self._cells()), *zeros, *self._notes()])

    def _notes(self) -> list[str]:
        return [*notes_on_omitted_metrics(self.top, self.uniform), *([FOOTNOTE] if self.gives == "scores" else [])]

    def _cells(self) -> list[list[str]]:
        """Return the table as rows of text: a header, then one row per metric."""
        head = ["metric", "value", *([f"{self.level:.0%} interval"] if self.intervals else []), "uniform"]
        rows = [head]
        for name in discriminating_metrics(self.values, self.uniform):
            value = self.values[name]
            mark = MARK if self.gives == "scores" and not name.startswith("top_") else ""
            row = [name.upper().replace("_", " "), "-" if value is None else _number(value, name) + mark]
            if self.intervals:
                low, high = self.intervals.get(name, (np.nan, np.nan))
                ends = "unknown" if low == -np.inf else f"{_number(low, name)} to {_number(high, name)}"
                row.append(ends if name in self.intervals else "-")
            rows.append([*row, _number(self.uniform[name], name)])
        return rows


@suggests_arguments()
def evaluate(
    model: Predictor,
    data: ChoiceData | ChunkedData | Any,
    top: Sequence[int] = (1, 5),
    seed: int = 0,
    *,
    truth: ArrayLike | None = None,
    resamples: int = 1000,
    ties: Ties = "expected",
) -> Report:
    """Evaluate a model on a table with choices.

    Parameters
    ----------
    model
        A fitted model, or any object with a method ``predict_log_proba(data)``. If its attribute ``gives`` is
        "ranking", ``predict_scores(data)`` is used, and only accuracies are computed.
    data
        Choice sets with observed choices, or a table (path, data frame, mapping) to read with the model's schema. A
        scanned table is processed shard by shard.
    top
        Values of n for which the top-n accuracy is computed. Default (1, 5).
    seed
        Seed of the resamples and, with ``ties="random"``, of the tie-breaks. Default 0.
    truth
        True probabilities, one per row of the table. If given, the Kullback-Leibler divergence is computed. Default
        None.
    resamples
        Number of bootstrap resamples for the intervals. If 0, no intervals are computed. Default 1,000. Persons are
        resampled if the table declares them, otherwise choice sets.
    ties
        Treatment of tied probabilities in accuracies: "expected" (default) computes the expected accuracy over random
        tie-breaks; "random" breaks ties at random, as in the paper.

    Returns
    -------
    Report
        The metrics with their intervals, and the same metrics for random guessing.

    Raises
    ------
    InputError
        If the table cannot be read or has no choices, or if the predictions or ``truth`` are not probabilities.
    ConfigError
        If an option is not valid.

    Examples
    --------
    >>> class Uniform:
    ...     def predict_log_proba(self, data):
    ...         return np.full(data.n_rows, -np.log(2))
    >>> table = {"trip": [1, 1, 2, 2, 3, 3], "mode": ["car", "bus"] * 3, "took": [1, 0, 0, 1, 1, 0]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode")
    >>> print(evaluate(Uniform(), data, top=[1]))
    3 choice sets
    metric   value      95% interval  uniform
    NLL     0.6931  0.6931 to 0.6931   0.6931
    TOP 1   0.5000  0.5000 to 0.5000   0.5000
    BRIER   0.5000  0.5000 to 0.5000   0.5000
    """
    require_evaluation_options(top, resamples, seed, ties)
    require_predictor(model)
    data = data if isinstance(data, ChunkedData) else require_data(model, data)
    data.require_chosen("an evaluation")
    require_sets(data)
    tie_seed, boot_seed = np.random.SeedSequence(seed).spawn(2)
    tie_rng = np.random.default_rng(tie_seed) if ties == "random" else None
    per_set, reference, weights = metrics_of_table(model, data, top, truth, tie_rng)
    intervals: dict[str, tuple[float, float]] = {}
    if resamples and per_set:
        rng = np.random.default_rng(boot_seed)
        intervals = _intervals(per_set, weights, _persons(data), rng=rng, resamples=resamples)
    means = mean_metrics(per_set, weights)
    return Report(
        n_sets=len(data),
        nll=means.get("nll"),
        top={int(n): means[f"top_{n}"] for n in top},
        brier=means.get("brier"),
        kl=means.get("kl"),
        n_impossible=int(np.isposinf(per_set.get("nll", 0.0)).sum()),
        intervals=intervals,
        uniform=mean_metrics(reference, weights),
        gives=gives_of(model),
    )


def _persons(data: ChoiceData | ChunkedData) -> Ints | None:
    """Return, for each set (S,), the index of the first set of the same person, or None if persons are not declared.

    These person indices are the same whether the table is on disk or in memory.
    """
    if data.schema.group_column is None:
        return None
    _, first, number = np.unique(data.groups(), return_index=True, return_inverse=True)
    return np.asarray(first[number])


def _intervals(
    per_set: Mapping[str, Floats], weights: Floats, persons: Ints | None, *, rng: np.random.Generator, resamples: int
) -> dict[str, tuple[float, float]]:
    """Return the bootstrap interval of each metric, resampling persons, or choice sets if ``persons`` (S,) is None."""
    values = np.column_stack(list(per_set.values()))  # (S, M)
    if persons is not None:
        values, weights = aggregate_by_group(values, weights, persons)
    ends = bootstrap_interval(values, weights, rng=rng, resamples=resamples, level=LEVEL).tolist()
    return {name: (low, high) for name, (low, high) in zip(per_set, ends, strict=True)}


def require_evaluation_options(top: Any, resamples: int, seed: int, ties: str = "expected") -> None:
    """Raise ConfigError if an evaluation option is not valid."""
    if not isinstance(top, Collection) or not all(_is_whole(n, least=1) for n in top) or len(set(top)) < len(top):
        raise ConfigError(f"top must be distinct whole numbers of at least 1, such as (1, 5), got {top!r}.")
    for name, value in (("resamples", resamples), ("seed", seed)):
        if not _is_whole(value, least=0):
            raise ConfigError(f"{name} must be a whole number of at least 0, got {value!r}.")
    if ties not in get_args(Ties):
        raise ConfigError(f"ties must be one of {get_args(Ties)}, got {ties!r}.")


def _is_whole(value: Any, least: int) -> bool:
    """Return True if the value is an integer of at least ``least``."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def discriminating_metrics(names: Iterable[str], uniform: Mapping[str, float]) -> list[str]:
    """Return the metrics that can differ between models.

    If no choice set has more than n alternatives, the top-n accuracy of every model, including the uniform model, is 1.
    Otherwise, the top-n accuracy of the uniform model is below 1.
    """
    return [name for name in names if not (name.startswith("top_") and uniform.get(name, 0.0) > 1 - _ROUNDING)]


def notes_on_omitted_metrics(top: Iterable[int], uniform: Mapping[str, float]) -> list[str]:
    """Return a note for each top-n accuracy that is left out of the table."""
    omitted = [n for n in top if not discriminating_metrics([f"top_{n}"], uniform)]
    return [f"TOP {n} is left out: no choice set has more than {n} alternatives." for n in omitted]


def _number(value: float, name: str) -> str:
    """Format a metric with four decimals, or five for KL, which is often small."""
    return f"{value:.{5 if name == 'kl' else 4}f}"
