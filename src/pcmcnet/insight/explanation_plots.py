"""Every figure of an explanation in one call: ``explanation.plot.importance()``.

Each method draws on ``ax``, or on a new figure if None, in the reader's own style, and returns the axes. What a figure
draws is returned by :meth:`ExplanationPlots.numbers`. The drawing itself is done by ``pcmcnet.plots``, a stage to the
right, which is imported when a figure is drawn.
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
    """The figures of an explanation, as ``explanation.plot``; a part that was left out has none."""

    def __init__(self, explanation: Explanation) -> None:
        self._explanation = explanation

    def __repr__(self) -> str:
        return f"figures: {', '.join(self.names())}; each is a method, as in .plot.{self.names()[0]}()"

    def names(self) -> list[str]:
        """Return the names of the methods that draw something here."""
        return [name for name in _FIGURES if self._has(name)]

    def numbers(self, name: str, **options: Any) -> Any:
        """Return what a figure draws: ``explanation.plot.numbers("demand", column="cost")``.

        Parameters
        ----------
        name
            Name of the method that draws it.
        options
            Those of the method that choose what is drawn: ``column`` or ``example``.
        """
        if name not in _FIGURES:
            raise InputError(f"no figure {name!r}." + did_you_mean(name, _FIGURES))
        return self._numbers(name, **options)

    def sizes(self, ax: Axes | None = None) -> Axes:
        """Draw how many choice sets have how many alternatives."""
        from pcmcnet.plots.quality import plot_sizes

        return plot_sizes(self.numbers("sizes"), ax)

    def history(self, ax: Axes | None = None) -> Axes:
        """Draw the losses of a network by epoch."""
        from pcmcnet.plots.quality import plot_learning_curve

        return plot_learning_curve(self.numbers("history"), ax)

    def fit(self, ax: Axes | None = None) -> Axes:
        """Draw the NLL of the model and of its baselines."""
        from pcmcnet.plots.quality import plot_fit

        return plot_fit(self.numbers("fit"), ax)

    def calibration(self, ax: Axes | None = None, *, which: Literal["first", "alternatives"] = "first") -> Axes:
        """Draw predicted against observed shares, of the "first" alternative of each set or of all "alternatives"."""
        from pcmcnet.plots.quality import plot_calibration

        return plot_calibration(self.numbers("calibration"), ax, which=which)

    def importance(self, ax: Axes | None = None, *, most: int = 20) -> Axes:
        """Draw how much worse choices are predicted when a column is shuffled, of so many columns at most."""
        from pcmcnet.plots.effects import plot_importance

        return plot_importance(self.numbers("importance"), ax, most=most, names=self._explanation.names)

    def demand(self, ax: Axes | None = None, *, column: str | None = None) -> Axes:
        """Draw predicted shares as a numeric feature changes, the most important one if no column is named."""
        from pcmcnet.plots.effects import plot_demand

        return plot_demand(self.numbers("demand", column=column), ax, names=self._explanation.names)

    def categories(self, ax: Axes | None = None, *, column: str | None = None) -> Axes:
        """Draw which categories are liked, of the most important such column if none is named."""
        from pcmcnet.plots.effects import plot_categories

        return plot_categories(self.numbers("categories", column=column), ax, names=self._explanation.names)

    def context(self, ax: Axes | None = None, *, most: int = 12) -> Axes:
        """Draw the strongest cases in which an alternative changes the preference between two others."""
        from pcmcnet.plots.context import plot_effects

        return plot_effects(self.numbers("context"), ax, most=most)

    def orders(self, ax: Axes | None = None) -> Axes:
        """Draw how many alternatives act together on the preference between two others."""
        from pcmcnet.plots.context import plot_order_effects

        return plot_order_effects(self.numbers("orders"), ax)

    def preference_map(self, ax: Axes | None = None) -> Axes:
        """Draw the preference between two alternatives as a third one moves, in the strongest case of context."""
        from pcmcnet.plots.context import plot_preference_map

        preferences = self.numbers("preference_map")
        assert self._explanation.context is not None
        x, y = map(self._explanation.names.label, self._explanation.context.features or ("", ""))
        return plot_preference_map(preferences, ax, features=(x, y))

    def probabilities(self, ax: Axes | None = None, *, example: int = 0) -> Axes:
        """Draw the probabilities of an example, by its number in ``explanation.examples``."""
        from pcmcnet.plots.effects import plot_probabilities

        return plot_probabilities(self.numbers("probabilities", example=example), ax)

    def attribution(self, ax: Axes | None = None, *, example: int = 0) -> Axes:
        """Draw what the rivals of an example do to the alternative that was chosen."""
        from pcmcnet.plots.effects import plot_attribution

        return plot_attribution(self.numbers("attribution", example=example), ax)

    def chain(self, ax: Axes | None = None, *, example: int = 0, what: Literal["flows", "rates"] = "flows") -> Axes:
        """Draw the chain of an example: the "flows" between its alternatives, or its "rates"."""
        from pcmcnet.plots.chain import plot_chain

        return plot_chain(self.numbers("chain", example=example), ax, what=what)

    def _has(self, name: str) -> bool:
        try:
            self._numbers(name)
        except InputError:
            return False
        return True

    def _numbers(self, name: str, *, column: str | None = None, example: int = 0) -> Any:
        """Return what a method draws of its part, for the column or the example asked for."""
        # 1. The part, which may have been left out.
        part_name, attribute = _FIGURES[name]
        part = getattr(self._explanation, part_name)
        if part is None:
            why = self._explanation.left_out.get(part_name, "it was not asked for")
            raise InputError(f"there is no {name} to draw: the part {part_name!r} is missing ({why}).")
        # 2. What is drawn of it, by example and by column.
        if part_name == "examples":
            part = _example(part, example)
        numbers = getattr(part, attribute) if attribute else part
        if name == "categories":
            numbers = {table.column: table for table in numbers}
        if name in ("demand", "categories"):
            numbers = numbers.get(_column(column, list(numbers)))
        if numbers is None or numbers == {}:
            raise InputError(f"there is no {name} to draw: this model or table has none.")
        return numbers


# Method -> the part of the explanation that it draws, and its attribute that is drawn, "" for the whole part.
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
    """Return the column asked for, or the first if none is named."""
    if column is not None and column not in columns:
        raise InputError(f"no figure of column {column!r}." + did_you_mean(column, columns))
    return column if column is not None else next(iter(columns), "")


def _example(examples: Sequence[ExampleSet], number: int) -> ExampleSet:
    if not -len(examples) <= number < len(examples):
        raise InputError(f"no example {number}: there are {len(examples)}, the first being 0.")
    return examples[number]
