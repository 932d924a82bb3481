"""The frontier of offers -> expected revenue against the number of alternatives shown, with bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pcmcnet.decisions import Frontier
from pcmcnet.plots.style import colour, tidy
from pcmcnet.reports.drawing import draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@draws("offer_frontier")
def draw_offer_frontier(frontier: Frontier, ax: Axes | None = None) -> Axes:
    """Draw the best revenue of each size, and a bound where an offer is not proven to be the best."""
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(6.4, 4.0), layout="constrained").subplots()
    values = [offer.value for offer in frontier.offers]
    ax.plot(frontier.sizes, values, color=colour(0), marker="o", label="best offer found")
    open_ = [(size, o) for size, o in zip(frontier.sizes, frontier.offers, strict=True) if not o.exact]
    for k, (size, offer) in enumerate(open_):
        ax.plot([size] * 2, [offer.value, offer.bound], color=colour(1), label=None if k else "up to its bound")
    tidy(ax)
    ax.set_xticks(frontier.sizes)
    ax.set_xlabel("alternatives shown, at most")
    ax.set_ylabel("expected revenue of one choice")
    if open_:
        ax.legend(frameon=False)
    return ax
