"""Every figure of an explanation in one call: ``explanation.plot.importance()``.

Each method draws on ``ax``, or on a new figure if None, in the reader's own style, and returns the axes. What a figure
draws is returned by :meth:`ExplanationPlots.numbers`. The drawing itself is done by ``pcmcnet.plots``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.insight.example_sets import ExampleSet
from pcmcnet.reports.drawing import draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pcmcnet.insight.explanation import Explanation


class ExplanationPlots:
    """The figures of an explanation, as ``explanation.plot``; a part that was left out has none."""

    def __init__(self, explanation: Explanation) -> None:
        self._found = explanation

    def __repr__(self) -> str:
        return f"figures: {', '.join(self.names())}; each is a method, as in .plot.{self.names()[0]}()"

    def names(self) -> list[str]:
        """Return the names of the methods that draw something here."""
        return [name for name in _PARTS if self._there(name)]

    def numbers(self, name: str, **options: Any) -> Any:
        """Return what a figure draws: ``explanation.plot.numbers("demand", column="cost")``.

        Parameters
        ----------
        name
            Name of the method that draws it.
        options
            Those of the method that choose what is drawn: ``column`` or ``example``.
        """
        if name not in _PARTS:
            raise InputError(f"no figure {name!r}." + did_you_mean(name, _PARTS))
        return self._shown(name, **options)

    def sizes(self, ax: Axes | None = None) -> Axes:
        """Draw how many choice sets have how many alternatives."""
        return _axes(draw("sizes", self.numbers("sizes"), ax))

    def history(self, ax: Axes | None = None) -> Axes:
        """Draw the losses of a network by epoch."""
        return _axes(draw("history", self.numbers("history"), ax))

    def fit(self, ax: Axes | None = None) -> Axes:
        """Draw the NLL of the model and of its baselines."""
        return _axes(draw("fit", self.numbers("fit"), ax))

    def calibration(self, ax: Axes | None = None, *, which: Literal["first", "alternatives"] = "first") -> Axes:
        """Draw predicted against observed shares, of the "first" alternative of each set or of all "alternatives"."""
        return _axes(draw("calibration", self.numbers("calibration"), ax, which=which))

    def importance(self, ax: Axes | None = None, *, most: int = 20) -> Axes:
        """Draw how much worse choices are predicted when a column is shuffled, of so many columns at most."""
        return _axes(draw("importance", self.numbers("importance"), ax, most=most, names=self._found.names))

    def demand(self, ax: Axes | None = None, *, column: str | None = None) -> Axes:
        """Draw predicted shares as a numeric feature changes, the most important one if no column is named."""
        return _axes(draw("demand", self.numbers("demand", column=column), ax, names=self._found.names))

    def categories(self, ax: Axes | None = None, *, column: str | None = None) -> Axes:
        """Draw which categories are liked, of the most important such column if none is named."""
        return _axes(draw("categories", self.numbers("categories", column=column), ax, names=self._found.names))

    def context(self, ax: Axes | None = None, *, most: int = 12) -> Axes:
        """Draw the strongest cases in which an alternative changes the preference between two others."""
        return _axes(draw("context", self.numbers("context"), ax, most=most))

    def orders(self, ax: Axes | None = None) -> Axes:
        """Draw how many alternatives act together on the preference between two others."""
        return _axes(draw("order_effects", self.numbers("orders"), ax))

    def preference_map(self, ax: Axes | None = None) -> Axes:
        """Draw the preference between two alternatives as a third one moves, in the strongest case of context."""
        drawn = self.numbers("preference_map")
        assert self._found.context is not None
        x, y = self._found.context.features or ("", "")
        names = self._found.names
        return _axes(draw("preference_map", drawn, ax, features=(names.label(x), names.label(y))))

    def probabilities(self, ax: Axes | None = None, *, example: int = 0) -> Axes:
        """Draw the probabilities of an example, by its number in ``explanation.examples``."""
        return _axes(draw("probabilities", self.numbers("probabilities", example=example), ax))

    def attribution(self, ax: Axes | None = None, *, example: int = 0) -> Axes:
        """Draw what the rivals of an example do to the alternative that was chosen."""
        return _axes(draw("attribution", self.numbers("attribution", example=example), ax))

    def chain(self, ax: Axes | None = None, *, example: int = 0, what: Literal["flows", "rates"] = "flows") -> Axes:
        """Draw the chain of an example: the "flows" between its alternatives, or its "rates"."""
        return _axes(draw("chain", self.numbers("chain", example=example), ax, what=what))

    # -- what is there ----------------------------------------------------------------------------------------

    def _there(self, name: str) -> bool:
        try:
            self._shown(name)
        except InputError:
            return False
        return True

    def _shown(self, name: str, *, column: str | None = None, example: int = 0) -> Any:
        part = getattr(self._found, _PARTS[name])
        if part is None:
            why = self._found.left_out.get(_PARTS[name], "it was not asked for")
            raise InputError(f"there is no {name} to draw: the part {_PARTS[name]!r} is missing ({why}).")
        found = self._inside(name, part, column, example)
        if found is None or found == {}:
            raise InputError(f"there is no {name} to draw: this model or table has none.")
        return found

    def _inside(self, name: str, part: Any, column: str | None, example: int) -> Any:
        """Return what a method draws of a part."""
        if name == "demand":
            return part.demand.get(self._column(column, list(part.demand)))
        if name == "categories":
            return {table.column: table for table in part.tables}.get(
                self._column(column, [table.column for table in part.tables])
            )
        if name in ("probabilities", "attribution", "chain"):
            one = _example(part, example)
            return one if name == "probabilities" else getattr(one, name)
        inside = {"history": "histories", "context": "search", "orders": "orders", "preference_map": "map"}
        return getattr(part, inside[name]) if name in inside else part

    def _column(self, column: str | None, known: Sequence[str]) -> str:
        if column is not None and column not in known:
            raise InputError(f"no figure of column {column!r}." + did_you_mean(column, known))
        return column if column is not None else next(iter(known), "")


# Method -> the part of the explanation that it draws.
_PARTS = {
    "sizes": "table",
    "history": "model",
    "fit": "fit",
    "calibration": "calibration",
    "importance": "importance",
    "demand": "elasticities",
    "categories": "categories",
    "context": "context",
    "orders": "context",
    "preference_map": "context",
    "probabilities": "examples",
    "attribution": "examples",
    "chain": "examples",
}


def _example(examples: Sequence[ExampleSet], number: int) -> ExampleSet:
    if not -len(examples) <= number < len(examples):
        raise InputError(f"no example {number}: there are {len(examples)}, the first being 0.")
    return examples[number]


def _axes(drawn: Any) -> Axes:
    """Name the type of what was drawn."""
    axes: Axes = drawn
    return axes
