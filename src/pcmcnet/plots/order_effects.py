"""Orders of context effects -> bars: what each order contributes to log-odds, or the largest single terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pcmcnet.errors import InputError
from pcmcnet.insight.order_effects import OrderEffects, Term, What
from pcmcnet.plots.style import axes_for, colour, cut, ink, name_lines
from pcmcnet.reports.drawing import draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class OrderBar(NamedTuple):
    """One order, or one term."""

    label: str
    value: float
    error: float  # of sampling
    note: str  # at the end of the bar


def order_bars(found: OrderEffects, what: What = "orders") -> tuple[OrderBar, ...]:
    """Gather the bars of the orders, or of the largest terms.

    Parameters
    ----------
    found
        What :func:`pcmcnet.order_effects` returned.
    what
        The "orders", or the "terms".

    Returns
    -------
    tuple of OrderBar
    """
    if what == "orders":
        return tuple(
            OrderBar(f"order {row.order}", row.contribution, row.error, f"{row.explained:.1%}") for row in found.orders
        )
    if not found.terms:
        raise InputError("there is no term to draw: no set has three alternatives.")
    return tuple(OrderBar(_label(term), term.value, 0.0, f"{term.value:+.2f}") for term in found.terms)


@draws("order_effects")
def plot_order_effects(found: OrderEffects, ax: Axes | None = None, *, what: What = "orders") -> Axes:
    """Draw a bar for each order with the share of the variance up to it, or for each of the largest terms.

    Parameters
    ----------
    found, what
        As for :func:`order_bars`.
    ax
        Where to draw; a new figure if None.

    Returns
    -------
    matplotlib.axes.Axes
    """
    bars = order_bars(found, what)
    axes = axes_for(ax, (6.4, 1.3 + (0.32 if what == "orders" else 0.45) * max(len(bars), 2)))
    for k, bar in enumerate(bars):
        axes.barh(k, bar.value, color=colour(0 if what == "orders" or bar.value > 0 else 1), height=0.6)
        if bar.error:
            axes.plot([bar.value - bar.error, bar.value + bar.error], [k, k], color=ink(), linewidth=1.4)
        axes.annotate(bar.note, (1.02, k), xycoords=("axes fraction", "data"), va="center")
    name_lines(axes, [bar.label for bar in bars])
    axes.axvline(0, color=ink(), linewidth=1)
    axes.set_xlabel(
        "mean |contribution| to log-odds; on the right, variance explained up to here"
        if what == "orders"
        else "what the others add to the log-odds of the two"
    )
    return axes


def _label(term: Term) -> str:
    return f"{cut(f'set {term.choice_set}: {term.i} against {term.k}')}\n{cut('by ' + ' + '.join(term.others))}"
