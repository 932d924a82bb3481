"""Prices to ask for, as a result that prints as a table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from pcmcnet.reports.data_frames import data_frame
from pcmcnet.reports.tables import Cells, PrintsAsTable, number, percent


@dataclass(frozen=True, kw_only=True, eq=False)
class Prices(PrintsAsTable):
    """Prices of the alternatives on offer.

    Attributes
    ----------
    labels, before, after
        The alternatives, their prices in the catalogue and the prices to ask; None for one that is not to be offered.
    probabilities_before, probabilities
        Of being chosen, at the prices before and after.
    value_before, value
        Expected margin of one choice.
    bound, exact
        On a ladder: what no price list can exceed, and whether these prices are proven to be the best. None and False
        for continuous prices, which are a local maximum.
    at_bound
        Alternatives whose price is as low or as high as it may be.
    seconds
        Time of the search.
    customers, inventory, shadow_prices
        Where stock must last: for how many customers, how much there is of each alternative (None where it is not
        limited), and what one more of it would earn.
    draws
        Of a mixed logit on a ladder, how many draws of tastes the prices are the best for; None otherwise.
    """

    labels: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[float | None, ...]
    probabilities_before: tuple[float, ...]
    probabilities: tuple[float, ...]
    value_before: float
    value: float
    bound: float | None
    exact: bool
    at_bound: tuple[str, ...]
    seconds: float
    customers: float | None = None
    inventory: tuple[float | None, ...] | None = None
    shadow_prices: tuple[float, ...] | None = None
    draws: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row for each alternative."""
        names = ["before", "after", "probabilities_before", "probabilities"]
        names += [] if self.inventory is None else ["inventory", "demand", "shadow_prices"]
        columns = {"alternative": self.labels} | {name: getattr(self, name) for name in names}
        return data_frame(pa.table(columns), instead="to_dict()")

    @property
    def demand(self) -> tuple[float, ...] | None:
        """Of each alternative, how many of the customers are expected to choose it."""
        return None if self.customers is None else tuple(self.customers * p for p in self.probabilities)

    @property
    def verdict(self) -> str:
        """Say in words what is known of the prices."""
        if self.exact:
            draws = "" if self.draws is None else f" for {self.draws:,} fixed draws"
            return f"proven to be the best prices of the ladder{draws}"
        if self.bound is not None:
            return f"heuristic: no price list earns more than {number(self.bound)}"
        return "a local maximum, the best of many starts"

    def _cells(self) -> Cells:
        columns = (self.labels, self.before, self.after, self.probabilities_before, self.probabilities)
        rows = [
            [label, number(b), "not offered" if a is None else number(a), percent(p), percent(q)]
            for label, b, a, p, q in zip(*columns, strict=True)
        ]
        if self.demand is not None and self.inventory is not None and self.shadow_prices is not None:
            stock = zip(rows, self.demand, self.inventory, self.shadow_prices, strict=True)
            for row, asked, there, worth in stock:
                row += [number(asked), "" if there is None else number(there), number(worth)]
        rows.append(["expected margin", number(self.value_before), number(self.value)])
        rows += [["at a bound", ", ".join(self.at_bound)]] if self.at_bound else []
        head = ["alternative", "price", "new price", "probability", "then"]
        head += [] if self.inventory is None else ["demand", "inventory", "shadow price"]
        return [head, *rows, ["verdict", self.verdict]]
