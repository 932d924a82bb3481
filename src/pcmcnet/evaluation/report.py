"""A model and a table with choices -> a report: how good are the probabilities, and how sure is that.

Every value is a mean over choice sets, weighted by the table's weights, of a metric of ``metrics.py``, with
the interval of ``bootstrap.py`` and, as a reference, the value of the model that tells no alternatives apart.
Where the table declares persons, whole persons are resampled: the choices of one depend on each other.
What a model does not give is not invented: a ranking has no likelihood, and scores that were made to sum to 1 are
marked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ScannedData
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

# -- Fit figures -------------------------------------------------------------------------------------------------------
# How well a fitted model fits, in the figures of a paper's table: likelihoods, rho-squared, criteria, sizes.
#
# Those of a logit come from its estimates. Another model is asked about choice sets that are given; it was not
# estimated by maximum likelihood alone, so that AIC and BIC mean nothing for it.

FIT_STATISTICS = {  # with the form of their numbers
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


def fit_statistics(model: ChoiceModel, data: ChoiceData | None = None) -> dict[str, float | None]:
    """Return the figures by their names in ``FIT_STATISTICS``; None where there is none."""
    facts = model.require_fitted().facts
    found: dict[str, float | None] = dict.fromkeys(FIT_STATISTICS)
    sizes = {"choice sets": facts["choice_sets"], "persons": facts.get("persons"), "parameters": model.num_parameters}
    found |= sizes
    if isinstance(model, LogitModel):
        estimates = model.estimates_
        return found | {
            "log-likelihood": estimates.log_likelihood,
            "null log-likelihood": estimates.null_log_likelihood,
            "constants-only log-likelihood": estimates.constants_log_likelihood,
            "rho-squared": estimates.rho_squared,
            "adjusted rho-squared": estimates.adjusted_rho_squared,
            "AIC": estimates.aic,
            "BIC": estimates.bic,
            "choice sets": estimates.n_sets,
        }
    if data is not None and gives_of(model) == "probabilities":
        value = model.score(data) * float(data.weights.sum())
        null = -float(data.weights @ np.log(data.sizes))
        found |= {"log-likelihood": value, "null log-likelihood": null}
        found["rho-squared"] = round(1 - value / null, 9) + 0.0 if null else 0.0  # no negative zero
    return found


# -- Report ------------------------------------------------------------------------------------------------------------

Ties = Literal["expected", "random"]

LEVEL = 0.95
_ROUNDING = 1e-9  # of a weighted mean of ones
MARK = "*"
FOOTNOTE = f"{MARK} scores normalised within each set, not probabilities"


@dataclass(frozen=True, kw_only=True)
class Report(ToDictMixin, NotebookMixin):
    """How well a model predicts the choices of a table. Made by :func:`evaluate`; prints as a table.

    Attributes
    ----------
    n_sets
        Number of choice sets.
    nll
        Mean negative log-likelihood of the choices; inf where a choice has probability 0, None for a ranking.
    top
        For each n, the share of choices among the n most probable alternatives.
    brier
        Mean squared distance between probabilities and choices: 0 at best, 2 at worst; None for a ranking.
    kl
        Mean divergence from the known probabilities; None where none were given, and for a ranking.
    n_impossible
        Number of choices that the model held to have probability 0.
    intervals
        For each metric ("nll", "top_1", ..., "brier", "kl"), low and high end of its interval of ``level``;
        (-inf, inf) where only one set has a weight; empty where no resamples were asked for.
    uniform
        For each metric, the value of the model that tells no alternatives apart.
    level
        The level of the intervals.
    gives
        What the model gives: "probabilities", "scores" or a "ranking"; see ``ChoiceModel.gives``.
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

    @property
    def values(self) -> dict[str, float | None]:
        """The value of each metric, by the names that ``intervals`` and ``uniform`` use."""
        tops = {f"top_{n}": value for n, value in self.top.items()}
        known = {"kl": self.kl} if self.kl is not None or "kl" in self.uniform else {}
        return {"nll": self.nll, **tops, "brier": self.brier, **known}

    @property
    def shown_top(self) -> list[int]:
        """The n for which the accuracy within the first n is shown: not those of which every model has 1."""
        return [n for n in self.top if discriminating_metrics([f"top_{n}"], self.uniform)]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the metrics with their intervals beside the uniform model; :meth:`to_dict` has the numbers."""
        from pcmcnet.plots.comparison import plot_report

        return plot_report(self, ax)

    @property
    def pseudo_r2(self) -> float | None:
        """McFadden's 1 - NLL / NLL of the uniform model; None for a ranking, or where every set has one alternative."""
        return pseudo_r2(self.nll, self.uniform.get("nll", 0.0))

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON knows them; an infinite number is None: of ``nll``, ``n_impossible`` says so."""
        return {name: value for name, value in super().to_dict().items() if name != "kl" or "kl" in self.values}

    def to_markdown(self) -> str:
        """Return the report as a Markdown table."""
        notes = [escaped(note) for note in self._notes()]
        return "\n\n".join([markdown_table(self._cells()), *notes])

    def __str__(self) -> str:
        noun = "choice set" if self.n_sets == 1 else "choice sets"
        zeros = [f"{self.n_impossible:,} of the choices got probability 0."] if self.n_impossible else []
        return "\n".join([f"{self.n_sets:,} {noun}", text_table(self._cells()), *zeros, *self._notes()])

    def _notes(self) -> list[str]:
        return [*notes_on_omitted_metrics(self.top, self.uniform), *([FOOTNOTE] if self.gives == "scores" else [])]

    def _cells(self) -> list[list[str]]:
        """The table as text: a row of heads, then one row per metric."""
        head = ["metric", "value", *([f"{self.level:.0%} interval"] if self.intervals else []), "uniform"]
        rows = [head]
        for name in discriminating_metrics(self.values, self.uniform):
            value = self.values[name]
            mark = MARK if self.gives == "scores" and not name.startswith("top_") else ""
            row = [name.upper().replace("_", " "), "-" if value is None else _number(value, name) + mark]
            if self.intervals:
                low, high = self.intervals.get(name, (np.nan, np.nan))
                span = "unknown" if low == -np.inf else f"{_number(low, name)} to {_number(high, name)}"
                row.append(span if name in self.intervals else "-")
            rows.append([*row, _number(self.uniform[name], name)])
        return rows


def evaluate(
    model: Predictor,
    data: ChoiceData | ScannedData | Any,
    top: Sequence[int] = (1, 5),
    seed: int = 0,
    *,
    truth: ArrayLike | None = None,
    resamples: int = 1000,
    ties: Ties = "expected",
) -> Report:
    """Compare a model's probabilities with the choices of a table.

    Parameters
    ----------
    model
        Anything with ``predict_log_proba(data)``; see :class:`Predictor`. A model whose attribute ``gives`` is
        "ranking" is asked by ``predict_scores(data)`` and gets accuracies alone.
    data
        Choice sets with choices; or a table (path, data frame, mapping), read by the model's own schema. Of a scanned
        table one shard after the other is looked at, and the metrics of each set are kept.
    top
        For which n the accuracy within the n most probable alternatives is wanted.
    seed
        Where the resamples, and tie-breaks with ``ties="random"``, come from.
    truth
        The known probabilities, one per row of the table, where there are any: adds the divergence from them.
    resamples
        Resamples for the intervals; 0 for none. They draw choice sets or, where the table declares persons, whole
        persons.
    ties
        "expected" counts a tie by its chance of falling to the choice; "random" breaks it, as in the paper.

    Raises
    ------
    InputError
        When the table cannot be read or has no choices, or the model or ``truth`` gives something else than
        probabilities.

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
    data = data if isinstance(data, ScannedData) else require_data(model, data)
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


def _persons(data: ChoiceData | ScannedData) -> Ints | None:
    """(S,) the first set of each set's person, which is the same on disk and in memory; None without persons."""
    if data.schema.together is None:
        return None
    _, first, number = np.unique(data.groups(), return_index=True, return_inverse=True)
    return np.asarray(first[number])


def _intervals(
    per_set: Mapping[str, Floats], weights: Floats, persons: Ints | None, *, rng: np.random.Generator, resamples: int
) -> dict[str, tuple[float, float]]:
    """Return the interval of each metric; persons (S,) are resampled where given, else sets."""
    values = np.column_stack(list(per_set.values()))  # (S, M)
    if persons is not None:
        values, weights = aggregate_by_group(values, weights, persons)
    ends = bootstrap_interval(values, weights, rng=rng, resamples=resamples, level=LEVEL).tolist()
    return {name: (low, high) for name, (low, high) in zip(per_set, ends, strict=True)}


def require_evaluation_options(top: Any, resamples: int, seed: int, ties: str = "expected") -> None:
    """Refuse impossible options of an evaluation."""
    if not isinstance(top, Collection) or not all(_is_whole(n, least=1) for n in top) or len(set(top)) < len(top):
        raise ConfigError(f"top must list different whole numbers of at least 1, such as (1, 5); got {top!r}.")
    for name, value in (("resamples", resamples), ("seed", seed)):
        if not _is_whole(value, least=0):
            raise ConfigError(f"{name} must be a whole number of at least 0, got {value!r}.")
    if ties not in get_args(Ties):
        raise ConfigError(f"ties must be one of {get_args(Ties)}, got {ties!r}.")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def discriminating_metrics(names: Iterable[str], uniform: Mapping[str, float]) -> list[str]:
    """Return the metrics that can tell models apart.

    Where no choice set has more than n alternatives, every model has the choice among its first n. So has the uniform
    one, whose accuracy is 1 there and nowhere else.
    """
    return [name for name in names if not (name.startswith("top_") and uniform.get(name, 0.0) > 1 - _ROUNDING)]


def notes_on_omitted_metrics(top: Iterable[int], uniform: Mapping[str, float]) -> list[str]:
    """Say which accuracies a table leaves out, and why."""
    certain = [n for n in top if not discriminating_metrics([f"top_{n}"], uniform)]
    return [f"TOP {n} is left out: no choice set has more than {n} alternatives." for n in certain]


def _number(value: float, name: str) -> str:
    """Four decimals; five for KL, which is often small."""
    return f"{value:.{5 if name == 'kl' else 4}f}"
