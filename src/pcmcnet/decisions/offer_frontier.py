"""What each further alternative is worth: the best offer of every size, the efficient frontier of revenue and size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pcmcnet.decisions.constraints import Constraints
from pcmcnet.decisions.offer import Offer
from pcmcnet.decisions.optimise_offer import Revenue, optimise_offer
from pcmcnet.errors import InputError
from pcmcnet.models import ChoiceModel
from pcmcnet.reports.data_frames import data_frame
from pcmcnet.reports.tables import Cells, PrintsAsTable, number, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True, eq=False)
class Frontier(PrintsAsTable):
    """The best offers of at most so many alternatives.

    Attributes
    ----------
    sizes
        How many alternatives may be shown.
    offers
        The best offer of each size.
    """

    sizes: tuple[int, ...]
    offers: tuple[Offer, ...]

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row for each size."""
        columns = {
            "size": self.sizes,
            "value": [offer.value for offer in self.offers],
            "bound": [offer.bound for offer in self.offers],
            "offer": [list(offer.labels) for offer in self.offers],
        }
        return data_frame(pa.table(columns))

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw revenue against size; returns matplotlib's Axes."""
        from pcmcnet.plots.search import draw_offer_frontier

        return draw_offer_frontier(self, ax)

    def _cells(self) -> Cells:
        most = max(offer.value for offer in self.offers)
        rows = [
            [str(size), number(offer.value), percent(offer.value / most), ", ".join(offer.labels)]
            for size, offer in zip(self.sizes, self.offers, strict=True)
        ]
        return [["size", "expected revenue", "of the most", "offer"], *rows]


def offer_frontier(
    model: ChoiceModel,
    catalogue: Any,
    revenue: Revenue = "revenue",
    *,
    sizes: Sequence[int] = (1, 2, 3, 4, 5, 6),
    constraints: Constraints | None = None,
    **same: Any,
) -> Frontier:
    """Find the best offer of at most so many alternatives, for several sizes.

    Parameters
    ----------
    sizes
        How many alternatives may be shown.
    constraints
        Others than the size.
    model, catalogue, revenue, same
        As for :func:`optimise_offer`, for every size.

    Returns
    -------
    Frontier
    """
    limits = constraints or Constraints()
    if limits.size is not None:
        raise InputError("the frontier is about sizes: give sizes=[...], and no size among the constraints.")
    if not sizes:
        raise InputError("sizes: expected at least one.")
    offers = [
        optimise_offer(model, catalogue, revenue, constraints=replace(limits, size=size), **same) for size in sizes
    ]
    return Frontier(sizes=tuple(sizes), offers=tuple(offers))
