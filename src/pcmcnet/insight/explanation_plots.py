"""Draw the figures of an explanation, each with one call such as ``explanation.plot.importance()``.

Each method draws on ``ax``, or on a new figure if ``ax`` is None, and returns the Axes. The method
:meth:`ExplanationPlots.numbers` returns the data behind a figure. The drawing functions are imported only when a figure
is drawn, because ``pcmcnet.plots`` imports this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.insight.table_summary import ExampleSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pcmcnet.insight.explanation import Explanation


class ExplanationPlots:
    """The figures of an explanation, available as ``explanation.plot``.

    Every method draws on the matplotlib Axes ``ax``, or on a new figure if ``ax`` is None (the default), and returns
    the Axes. Every method raises InputError if the explanation lacks the part that the figure shows.
    """

    def __init__(self, explanation: Explanation) -> None:
        self._explanation = explanation

    def __repr__(self) -> str:
        return f"figures: {', '.join(self.names())}; draw one with .plot.{self.names()[0]}()"

    def names(self) -> list[str]:
        """Return the names of the figures that are available for this explanation."""
        return [name for name in _FIGURES if self._has(name)]

    def numbers(self, name: str, **options: Any) -> Any:
        """Return the data behind a figure, as in ``explanation.plot.numbers("demand", column="cost")``.

        Parameters
        ----------
        name
            Name of the figure.
        options
            Options that select the data of the figure: ``column`` or ``example``.

        Returns
        -------
        Any
            The part of the explanation that the figure draws.

        Raises
        ------
        InputError
            If the figure, column or example does not exist, or the part was left out.
        """
        if name not in _FIGURES:
            raise InputError(f"unknown figure {name!r}." + did_you_mean(name, _FIGURES))
        return self._numbers(name, **options)

    def sizes(self, ax: Axes | None = None) -> Axes:
        """Draw the distribution of the number of alternatives per choice set."""
        from pcmcnet.plots.quality import plot_sizes

        return plot_sizes(self.numbers("sizes"), ax)

    def history(self, ax: Axes | None = None) -> Axes:
        """Draw the losses of the network by epoch."""
        from pcmcnet.plots.quality import plot_learning_curve

        return plot_learning_curve(self.numbers("history"), ax)

    def fit(self, ax: Axes | None = None) -> Axes:
        """Draw the NLL of the model and of its baselines."""
        from pcmcnet.plots.quality import plot_fit

        return plot_fit(self.numbers("fit"), ax)

    def calibration(self, ax: Axes | None = None, *, which: Literal["first", "alternatives"] = "first") -> Axes:
        """Draw predicted against observed shares.

        Parameters
        ----------
        ax
            Matplotlib Axes to draw on, or None (the default) to create a new figure.
        which
            "first" (the default) for the most probable alternative of each set, or "alternatives" for all alternatives.
        """
        from pcmcnet.plots.quality import plot_calibration

        return plot_calibration(self.numbers("calibration"), ax, which=which)

    def importance(self, ax: Axes | None = None, *, most: int = 20) -> Axes:
        """Draw the increase in loss when each column is shuffled.

        Parameters
        ----------
        ax
            Matplotlib Axes to draw on, or None (the default) to create a new figure.
        most
            Maximum number of columns (20 by default).
        """
        from pcmcnet.plots.effects import plot_importance

        return plot_importance(self.numbers("importance"), ax, most=most, names=self._explanation.names)

    def demand(self, column: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw predicted shares as a function of a numeric column.

        Parameters
        ----------
        column
            Numeric feature or individual-level column to vary (the most important feature by default). The explanation
            contains the curves of three features; curves of other columns are predicted by this call.
        ax
            Matplotlib Axes to draw on, or None (the default) to create a new figure.
        """
        from pcmcnet.plots.effects import plot_demand

        return plot_demand(self.numbers("demand", column=column), ax, names=self._explanation.names)

    def categories(self, column: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw how much each category raises or lowers the share of an alternative.

        Parameters
        ----------
        column
            Categorical feature (the most important one by default).
        ax
            Matplotlib Axes to draw on, or None (the default) to create a new figure.
        """
        from pcmcnet.plots.effects import plot_categories

        return plot_categories(self.numbers("categories", column=column), ax, names=self._explanation.names)

    def context(self, ax: Axes | None = None, *, most: int = 12) -> Axes:
        """Draw the strongest effects of an alternative on the preference between two others.

        Parameters
        ----------
        ax
            Matplotlib Axes to draw on, or None (the default) to create a new figure.
        most
            Maximum number of cases (12 by default).
        """
        from pcmcnet.plots.context import plot_context_effects

        return plot_context_effects(self.numbers("context"), ax, most=most)

    def orders(self, ax: Axes | None = None) -> Axes:
        """Draw context effects by order, that is, by the number of alternatives that act jointly on two others."""
        from pcmcnet.plots.context import plot_order_effects

        return plot_order_effects(self.numbers("orders"), ax)

    def preference_map(self, ax: Axes | None = None) -> Axes:
        """Draw the preference between two alternatives as the features of a third one vary, in the strongest case."""
        from pcmcnet.plots.context import plot_preference_map

        preferences = self.numbers("preference_map")
        assert self._explanation.context is not None
        x, y = map(self._explanation.names.label, self._explanation.context.features or ("", ""))
        return plot_preference_map(preferences, ax, features=(x, y))

    def probabilities(self, ax: Axes | None = None, *, example: int = 0) -> Axes:
        """Draw the choice probabilities of an example set.

        Parameters
        ----------
        ax
            Matplotlib Axes to draw on, or None (the default) to create a new figure.
        example
            Index of the example set in ``explanation.examples`` (0 by default).
        """
        from pcmcnet.plots.effects import plot_probabilities

        return plot_probabilities(self.numbers("probabilities", example=example), ax)

    def attribution(self, ax: Axes | None = None, *, example: int = 0) -> Axes:
        """Draw the effect of each rival on the chosen alternative of an example set.

        Parameters
        ----------
        ax
            Matplotlib Axes to draw on, or None (the default) to create a new figure.
        example
            Index of the example set in ``explanation.examples`` (0 by default).
        """
        from pcmcnet.plots.effects import plot_attribution

        return plot_attribution(self.numbers("attribution", example=example), ax)

    def chain(self, ax: Axes | None = None, *, example: int = 0, what: Literal["flows", "rates"] = "flows") -> Axes:
        """Draw the Markov chain of an example set.

        Parameters
        ----------
        ax
            Matplotlib Axes to draw on, or None (the default) to create a new figure.
        example
            Index of the example set in ``explanation.examples`` (0 by default).
        what
            "flows" (the default) or "rates" between the alternatives.
        """
        from pcmcnet.plots.chain import plot_chain

        return plot_chain(self.numbers("chain", example=example), ax, what=what)

    def _has(self, name: str) -> bool:
        try:
            self._numbers(name)
        except InputError:
            return False
        return True

    def _numbers(self, name: str, *, column: str | None = None, example: int = 0) -> Any:
        """Return the data behind a figure, for one column or example."""
        # 1. Find the part, which may have been left out.
        part_name, attribute = _FIGURES[name]
        part = getattr(self._explanation, part_name)
        if part is None:
            reason = self._explanation.left_out.get(part_name, "it was not computed")
            raise InputError(f"figure {name!r} is not available: the part {part_name!r} is missing ({reason}).")
        # 2. Select the example, the attribute and the column.
        if part_name == "examples":
            part = _example(part, example)
        numbers = getattr(part, attribute) if attribute else part
        if column is not None and not isinstance(column, str):
            raise InputError(f"column: expected the name of a column, got {type(column).__name__}; pass axes as ax=.")
        if name == "demand":
            numbers = part.curves_of(column)
        if name == "categories":
            numbers = {table.column: table for table in numbers}
            numbers = numbers.get(_column(column, list(numbers)))
        if numbers is None or numbers == {}:
            raise InputError(f"figure {name!r} is not available for this model or table.")
        return numbers


# Figure -> the part of the explanation and the attribute that it draws; "" for the whole part.
_FIGURES = {
    "sizes": ("table", ""),
    "history": ("model", "histories"),
    "fit": ("fit", ""),
    "calibration": ("calibration", ""),
    "importance": ("importance", ""),
    "demand": ("elasticities", "demand"),
    "categories": ("categories", "tables"),
    "context": ("context", "search"),
    "orders": ("context", "orders"),
    "preference_map": ("context", "map"),
    "probabilities": ("examples", ""),
    "attribution": ("examples", "attribution"),
    "chain": ("examples", "chain"),
}


def _column(column: str | None, columns: Sequence[str]) -> str:
    """Return ``column``, or the first of ``columns`` if ``column`` is None."""
    if column is not None and column not in columns:
        raise InputError(f"there is no figure for column {column!r}." + did_you_mean(column, columns))
    return column if column is not None else next(iter(columns), "")


def _example(examples: Sequence[ExampleSet], number: int) -> ExampleSet:
    if not -len(examples) <= number < len(examples):
        raise InputError(f"example: expected a number from 0 to {len(examples) - 1}, got {number}.")
    return examples[number]
