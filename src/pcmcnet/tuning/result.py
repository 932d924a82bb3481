"""Result of a hyperparameter search: best options, trials, importance of each option, and final model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pcmcnet.arrays import Floats
from pcmcnet.errors import printable
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.reports.formats import NotebookMixin
from pcmcnet.reports.sections import Block, Table, note
from pcmcnet.reports.tables import escaped, markdown_table, text_table
from pcmcnet.tuning.space import in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

State = Literal["complete", "pruned", "failed"]

FIRST_FOLD_STEP = 1_000_000  # step under which the loss of the whole first fold is reported; other steps are epochs


class Measurement(NamedTuple):
    """Held-out loss of a configuration."""

    loss: float  # mean NLL of the held-out sets
    epochs: int | None  # epoch of the final weights, mean over folds; None for models without epochs
    decay: float | None = None  # weight decay that the fits learnt; None if it was an option
    blocks: tuple[float, ...] = ()  # weighted NLL of the held-out sets by block


@dataclass(frozen=True)
class TrialRecord:
    """One trial of a hyperparameter search."""

    number: int  # from 1
    state: State
    value: float | None  # NLL of the held-out sets; for a pruned trial, its least loss, adjusted to all folds
    options: dict[str, Any]  # the searched options
    epochs: int | None  # epoch of the final weights, or of the pruning; None for models without epochs
    seconds: float
    message: str | None = None  # why it failed or was pruned
    defaults: bool = False  # whether these are the options of the given model

    def to_dict(self) -> dict[str, Any]:
        """Return the trial as plain numbers, strings, lists and dicts."""
        return asdict(self)

    @property
    def label(self) -> str:
        """Trial number, followed by "(defaults)" if the trial uses the defaults."""
        return f"{self.number} (defaults)" if self.defaults else str(self.number)


class Verdict(NamedTuple):
    """The decision whether the final model uses the options of the best trial or the defaults."""

    kept: int  # number of the trial
    gain: float | None  # in NLL, of the best trial over the defaults; None if they are the same, or the defaults failed
    standard_error: float | None  # of the gain; None also if all held-out sets are of one person

    def in_words(self, best: TrialRecord) -> str:
        """Return the decision and its reason as text."""
        if self.gain is None and best.defaults:
            return "Kept: the defaults. No trial was better."
        if self.gain is None:
            return f"Kept: trial {best.number}. No trial with the defaults was completed for comparison."
        error = "unknown" if self.standard_error is None else f"{self.standard_error:.4f}"
        gain = f"{self.gain:.4f} (standard error {error})"
        if self.kept == best.number:
            return f"Kept: trial {best.number}. It is better than the defaults by {gain}."
        return f"Kept: the defaults. Trial {best.number} is better by only {gain}, which is not significant."


@dataclass(frozen=True)
class Tuning(NotebookMixin):
    """Result of :func:`pcmcnet.tune`, printed as a table of trials with the best trial first.

    Attributes
    ----------
    model
        The final model, fitted to all data. The final model has the best options, or the defaults if the best options
        are not significantly better.
    best
        Searched options of the trial with the lowest NLL. The final model may have other options: see ``kept_options``.
    best_value
        NLL of the held-out sets with the best options. As the lowest of many values, this NLL is optimistic: evaluate
        the model on data that the search has not used.
    trials
        All trials: the defaults first, then the other trials in the order in which they ran.
    importance
        Share of the variance of the NLL, over the complete trials, that each dimension explains. Empty if the shares
        cannot be estimated.
    design
        Inputs of the search: model, options, space, table, seed.
    verdict
        The decision on which trial to keep, with the gain of the best trial over the defaults.
    """

    model: ChoiceModel
    best: dict[str, Any]
    best_value: float
    trials: list[TrialRecord]
    importance: dict[str, float]
    design: Mapping[str, Any]
    verdict: Verdict | None = None

    def _short(self) -> str:
        return f"{len(self.trials)} trials, best NLL {self.best_value:.4f}; {self.why}"

    def _blocks(self) -> list[Block]:
        return [Table(cells=self.cells()), note(self.how)]

    _frame_index = "number"

    def _frame_rows(self) -> Iterator[dict[str, Any]]:
        for trial in self.trials:
            row = {name: value for name, value in trial.to_dict().items() if name != "options"}
            yield row | {name: in_words(trial.options[name]) for name in self.best}

    @property
    def best_trial(self) -> TrialRecord:
        """The complete trial with the lowest NLL, or the first such trial in case of a tie."""
        return best_complete_trial(self.trials)

    @property
    def kept_trial(self) -> TrialRecord:
        """The trial whose options the final model uses: the best trial, or the trial with the defaults."""
        return self.best_trial if self.verdict is None else self.trials[self.verdict.kept - 1]

    @property
    def kept_options(self) -> dict[str, Any]:
        """The searched options of the final model."""
        return self.kept_trial.options

    @property
    def why(self) -> str:
        """Sentence that states which options are kept, and why."""
        return (self.verdict or Verdict(self.best_trial.number, None, None)).in_words(self.best_trial)

    @property
    def how(self) -> str:
        """Summary of the search in one sentence."""
        states = [trial.state for trial in self.trials]
        counts = [f"{states.count(state)} {state}" for state in ("complete", "pruned", "failed") if state in states]
        part = self.design["valid"]
        part = f"{part:.0%} of the choice sets" if isinstance(part, float) else "the given validation data"
        part = f"{folds} folds" if (folds := self.design.get("folds")) else part
        groups = "" if self.design["by"] is None else f", grouped by {self.design['by']}"
        return (
            f"{len(self.trials)} trials of {self.design['model']} ({', '.join(counts)}); validated on {part}{groups}; "
            f"seed {self.design['seed']}."
        )

    def plot(self, what: Literal["trials", "importance"] = "trials", ax: Axes | None = None) -> Axes:
        """Plot the loss of every trial or the importance of each dimension; :meth:`to_dict` returns the numbers.

        Parameters
        ----------
        what
            "trials" (default) plots the NLL of every trial. "importance" plots each dimension's share of the variance
            of the NLL.
        ax
            Axes to draw on. If None (default), a new figure is created.

        Returns
        -------
        The Axes.
        """
        from pcmcnet.plots.search import plot_search

        return plot_search(self, ax, what=what)

    def to_dict(self) -> dict[str, Any]:
        """Return the search result as plain numbers, strings, lists and dicts for JSON."""
        return {
            "best": _plain(self.best),
            "best_value": self.best_value,
            "best_trial": self.best_trial.number,
            "kept": _plain(self.kept_options),
            "kept_trial": self.kept_trial.number,
            "gain": None if self.verdict is None else self.verdict.gain,
            "standard_error": None if self.verdict is None else self.verdict.standard_error,
            "why": self.why,
            "importance": dict(self.importance),
            "trials": [_plain(trial.to_dict()) for trial in self.trials],
            "design": _plain(dict(self.design)),
        }

    def to_markdown(self) -> str:
        """Return the best options, their importance and all trials as Markdown tables."""
        options = [[name, in_words(value), in_words(self.kept_options[name])] for name, value in self.best.items()]
        shares = [[name, f"{share:.0%}"] for name, share in self.importance.items()]
        parts = [
            self.how,
            f"Best: trial {self.best_trial.label}, validation NLL {self.best_value:.4f}. {self.why}",
            markdown_table([["option", "best", "kept"], *options]),
            *([markdown_table([["dimension", "importance"], *shares])] if shares else []),
            markdown_table(self.cells()),
            *(f"Trial {t.number} failed: {escaped(t.message or '')}" for t in self.trials if t.state == "failed"),
        ]
        return printable("\n\n".join(parts))

    def __str__(self) -> str:
        best = ", ".join(f"{name}={in_words(value)}" for name, value in self.best.items())
        failed = [f"trial {t.number} failed: {t.message}" for t in self.trials if t.state == "failed"]
        summary = f"best: trial {self.best_trial.label}, validation NLL {self.best_value:.4f}: {best}"
        parts = [self.how, "", text_table(self.cells()), *(["", *failed] if failed else []), "", summary, self.why]
        return printable("\n".join(parts))

    def cells(self) -> list[list[str]]:
        """Return the trials as rows of text: a header, the complete trials, best first, and then the other trials."""
        names = list(self.best)
        rows = [["trial", "NLL", "state", "epochs", "s", *names]]
        for trial in sorted(self.trials, key=_rank):
            value = "-" if trial.value is None else f"{trial.value:.4f}"
            epochs = "-" if trial.epochs is None else str(trial.epochs)
            options = [in_words(trial.options[name]) for name in names]
            rows.append([trial.label, value, trial.state, epochs, f"{trial.seconds:.1f}", *options])
        return rows


def best_complete_trial(trials: Sequence[TrialRecord]) -> TrialRecord:
    """Return the complete trial with the lowest NLL, given at least one complete trial."""
    return min((trial for trial in trials if trial.state == "complete"), key=_rank)


def _rank(trial: TrialRecord) -> tuple[int, float, int]:
    order = ("complete", "pruned", "failed").index(trial.state)
    return order, 0.0 if trial.value is None else trial.value, trial.number


def _plain(value: Any) -> Any:
    """Replace tuples with lists, as JSON does."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


# -- Decision ----------------------------------------------------------------------------------------------------------
# The best trial is kept if it is significantly better than the defaults; otherwise the defaults are kept.
#
#     gain     g = sum_b (l_b - l'_b) / sum_b w_b                               of the best l' over the defaults l
#     error    s = sqrt(n / (n - 1) sum_b (l_b - l'_b - g w_b)^2) / sum_b w_b   over n blocks of weights w_b
#
# l_b is the weighted NLL of a block of held-out sets. Differences are paired, so the difficulty of a set cancels. The
# best is the least of m trials in addition to the defaults. Even if no trial is better, the largest of m gains exceeds
# z standard errors with a probability of up to m (1 - F(z)), with F Student's t distribution of n - 1 degrees of
# freedom (Bonferroni). The required z makes this 5 %: with many blocks, 1.6 for one trial, 2.7 for 14, 3.1 for 50;
# with few blocks, more.


SIGNIFICANCE_LEVEL = 0.05  # probability of replacing the defaults although no trial is better


def decide(trials: Sequence[TrialRecord], losses: Sequence[Floats], weights: Floats) -> Verdict:
    """Choose between the best trial and the defaults.

    Parameters
    ----------
    trials
        All trials, at least one of which is complete.
    losses
        Losses by block (blocks,) of each trial. The losses of incomplete trials are ignored.
    weights
        Weights of the blocks (blocks,).
    """
    best = best_complete_trial(trials)
    defaults = next((t for t in trials if t.defaults and t.state == "complete"), None)
    if defaults is None or defaults is best:
        return Verdict(best.number, None, None)
    gain, error = paired_gain(losses[trials.index(defaults)], losses[trials.index(best)], weights)
    required = required_standard_errors(len(trials) - 1, blocks=int((weights > 0).sum()))
    chosen = best if gain > required * error else defaults
    return Verdict(chosen.number, gain, error if math.isfinite(error) else None)


def required_standard_errors(trials: int, blocks: int) -> float:
    """Return the number of standard errors by which the best of several trials must be better than the defaults.

    >>> [round(required_standard_errors(m, 500), 1) for m in (1, 14, 50)]
    [1.6, 2.7, 3.1]
    >>> round(required_standard_errors(14, 5), 1)
    5.1
    """
    from scipy.stats import t  # slow to import

    return float(t.ppf(1 - SIGNIFICANCE_LEVEL / trials, max(blocks - 1, 1)))


def paired_gain(ours: Floats, theirs: Floats, weights: Floats) -> tuple[float, float]:
    """Return the mean by which the losses ``ours`` exceed the losses ``theirs``, and its standard error."""
    is_held_out = weights > 0
    difference, weight = (ours - theirs)[is_held_out], weights[is_held_out]
    gain, n = float(difference.sum() / weight.sum()), len(weight)
    if n < 2:
        return gain, math.inf
    squares = float(((difference - gain * weight) ** 2).sum())
    return gain, math.sqrt(n / (n - 1) * squares) / float(weight.sum())
