"""What a search found: the best configuration, every trial, what mattered, and the model fitted again with the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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

FIRST_FOLD_STEP = 1_000_000  # stands for the whole first fold where others are epochs


class Measurement(NamedTuple):
    """What came of a configuration."""

    loss: float  # mean NLL of the held-out sets
    epochs: int | None  # of the weights kept, the mean over folds; None for models without epochs
    decay: float | None = None  # weight decay that the fits learnt, if they did
    blocks: tuple[float, ...] = ()  # NLL of the held-out sets by blocks, weighted


@dataclass(frozen=True)
class TrialRecord:
    """One trial, by its number in the search."""

    number: int  # from 1
    state: State
    value: float | None  # NLL of the held-out sets; of a pruned trial, the least it had reached, as if on all folds
    options: dict[str, Any]  # those that were searched
    epochs: int | None  # of the weights kept, or until it was pruned; None for models without epochs
    seconds: float
    message: str | None = None  # why it failed, or was pruned
    defaults: bool = False  # whether these are the options of the model as given

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts."""
        return asdict(self)

    @property
    def label(self) -> str:
        """Its number, and whether it is that of the defaults."""
        return f"{self.number} (defaults)" if self.defaults else str(self.number)


class Verdict(NamedTuple):
    """Which trial is kept, the best or the defaults, and why; see :mod:`pcmcnet.tuning.result`."""

    kept: int  # number of the trial
    gain: float | None  # of the best trial on the defaults, in NLL; None where they are one, or the defaults failed
    standard_error: float | None  # of the gain; None also where the held-out sets are of one person

    def in_words(self, best: TrialRecord) -> str:
        """Say what is kept, and why."""
        if self.gain is None:
            why = "no trial was better" if best.defaults else "there is no trial of the defaults to compare with"
            return f"Kept: {'the defaults' if best.defaults else f'trial {best.number}'}: {why}."
        error = "unknown" if self.standard_error is None else f"{self.standard_error:.4f}"
        by = f"{self.gain:.4f} (standard error {error})"
        if self.kept == best.number:
            return f"Kept: trial {best.number}: it is better than the defaults by {by}."
        return f"Kept: the defaults: trial {best.number} is better by {by} only, which may be chance."


@dataclass(frozen=True)
class Tuning(NotebookMixin):
    """The result of :func:`pcmcnet.tune`; prints as a table of its trials, the best first.

    Attributes
    ----------
    model
        Fitted to all data given with the options that are kept: the best ones, or the defaults where these are as
        good up to chance.
    best
        The options of the trial with the least NLL, of those that were searched; ``kept`` are those of ``model``.
    best_value
        NLL of the held-out sets with them. It was chosen as the least of many, so it flatters: measure the model
        on data that the search has not seen.
    trials
        All trials, the defaults first and then in their order.
    importance
        Share of each dimension in the differences between the complete trials; empty where they tell nothing.
    design
        What the search depends on: model, its options, space, table, seed.
    verdict
        Which trial is kept, and by how much the best is better than the defaults.
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

    @property
    def best_trial(self) -> TrialRecord:
        """The first complete trial of least value."""
        return best_complete_trial(self.trials)

    @property
    def kept_trial(self) -> TrialRecord:
        """The trial whose options the model has: the best, or that of the defaults."""
        return self.best_trial if self.verdict is None else self.trials[self.verdict.kept - 1]

    @property
    def kept(self) -> dict[str, Any]:
        """The options of the model, of those that were searched."""
        return self.kept_trial.options

    @property
    def why(self) -> str:
        """One sentence on what is kept."""
        return (self.verdict or Verdict(self.best_trial.number, None, None)).in_words(self.best_trial)

    @property
    def how(self) -> str:
        """One sentence on how it was searched."""
        states = [trial.state for trial in self.trials]
        counts = [f"{states.count(state)} {state}" for state in ("complete", "pruned", "failed") if state in states]
        part = self.design["valid"]
        part = f"{part:.0%} of the choice sets" if isinstance(part, float) else "a part given"
        part = f"{folds} folds" if (folds := self.design.get("folds")) else part
        groups = "" if self.design["by"] is None else f", groups by {self.design['by']} whole"
        return (
            f"{len(self.trials)} trials of {self.design['model']} ({', '.join(counts)}); validated on {part}{groups}; "
            f"seed {self.design['seed']}."
        )

    def plot(self, what: Literal["trials", "importance"] = "trials", ax: Axes | None = None) -> Axes:
        """Draw the loss of every trial, or how much each dimension mattered; :meth:`to_dict` has the numbers.

        Parameters
        ----------
        what
            "trials" or "importance".
        ax
            Where to draw; a new figure if None.
        """
        from pcmcnet.plots.search import plot_search

        return plot_search(self, ax, what=what)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts that survive JSON."""
        return {
            "best": _plain(self.best),
            "best_value": self.best_value,
            "best_trial": self.best_trial.number,
            "kept": _plain(self.kept),
            "kept_trial": self.kept_trial.number,
            "gain": None if self.verdict is None else self.verdict.gain,
            "standard_error": None if self.verdict is None else self.verdict.standard_error,
            "why": self.why,
            "importance": dict(self.importance),
            "trials": [_plain(trial.to_dict()) for trial in self.trials],
            "design": _plain(dict(self.design)),
        }

    def to_markdown(self) -> str:
        """Return the best options and the trials as Markdown."""
        options = [[name, in_words(value), in_words(self.kept[name])] for name, value in self.best.items()]
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
        found = f"best: trial {self.best_trial.label}, validation NLL {self.best_value:.4f}: {best}"
        parts = [self.how, "", text_table(self.cells()), *(["", *failed] if failed else []), "", found, self.why]
        return printable("\n".join(parts))

    def cells(self) -> list[list[str]]:
        """The trials as text: a row of heads, then the complete ones, the best first, and the others."""
        names = list(self.best)
        rows = [["trial", "NLL", "state", "epochs", "s", *names]]
        for trial in sorted(self.trials, key=_rank):
            value = "-" if trial.value is None else f"{trial.value:.4f}"
            epochs = "-" if trial.epochs is None else str(trial.epochs)
            options = [in_words(trial.options[name]) for name in names]
            rows.append([trial.label, value, trial.state, epochs, f"{trial.seconds:.1f}", *options])
        return rows


def best_complete_trial(trials: Sequence[TrialRecord]) -> TrialRecord:
    """Return the first complete trial of least value; there must be one."""
    return min((trial for trial in trials if trial.state == "complete"), key=_rank)


def _rank(trial: TrialRecord) -> tuple[int, float, int]:
    order = ("complete", "pruned", "failed").index(trial.state)
    return order, 0.0 if trial.value is None else trial.value, trial.number


def _plain(value: Any) -> Any:
    """Take tuples for lists, as JSON does."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


# -- Decision ----------------------------------------------------------------------------------------------------------
# The best trial, or the defaults: the best is kept where it is better by more than chance explains.
#
#     gain     g = sum_b (l_b - l'_b) / sum_b w_b                               of the best l' on the defaults l
#     error    s = sqrt(n / (n - 1) sum_b (l_b - l'_b - g w_b)^2) / sum_b w_b   over n blocks of weights w_b
#
# l_b is the weighted NLL of a block of held-out sets, so what makes a set hard for both cancels. The best is the least
# of m trials beside the defaults: were none of them better, the largest of m gains would still exceed z standard errors
# with a probability of at most m (1 - F(z)), F Student's distribution with n - 1 degrees of freedom. The best is asked
# for the z at which that is 5 %: for many blocks 1.6 for one trial, 2.7 for 14, 3.1 for 50; more where blocks are few.


SIGNIFICANCE_LEVEL = 0.05  # of replacing defaults that no trial is better than


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
    best = best_complete_trial(trials)
    defaults = next((t for t in trials if t.defaults and t.state == "complete"), None)
    if defaults is None or defaults is best:
        return Verdict(best.number, None, None)
    gain, error = paired_gain(losses[trials.index(defaults)], losses[trials.index(best)], weights)
    asked = required_standard_errors(len(trials) - 1, blocks=int((weights > 0).sum()))
    return Verdict((best if gain > asked * error else defaults).number, gain, error if math.isfinite(error) else None)


def required_standard_errors(trials: int, blocks: int) -> float:
    """Return by how many standard errors the best of so many trials has to be better.

    >>> [round(required_standard_errors(m, 500), 1) for m in (1, 14, 50)]
    [1.6, 2.7, 3.1]
    >>> round(required_standard_errors(14, 5), 1)
    5.1
    """
    from scipy.stats import t  # slow to import

    return float(t.ppf(1 - SIGNIFICANCE_LEVEL / trials, max(blocks - 1, 1)))


def paired_gain(ours: Floats, theirs: Floats, weights: Floats) -> tuple[float, float]:
    """Return by how much the losses of the second are smaller, and the standard error of that."""
    there = weights > 0
    difference, weight = (ours - theirs)[there], weights[there]
    gain, n = float(difference.sum() / weight.sum()), len(weight)
    if n < 2:
        return gain, math.inf
    squares = float(((difference - gain * weight) ** 2).sum())
    return gain, math.sqrt(n / (n - 1) * squares) / float(weight.sum())
