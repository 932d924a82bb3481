"""The offer to show to one individual, as a result that prints as a table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from pcmcnet.reports.data_frames import data_frame
from pcmcnet.reports.tables import Cells, PrintsAsTable, number, percent


@dataclass(frozen=True, kw_only=True, eq=False)
class Offer(PrintsAsTable):
    """The alternatives to show to one individual.

    Attributes
    ----------
    labels
        What to show, the most probable first; the outside option is not among them.
    probabilities, revenue
        For each label, the probability of being chosen and what a choice earns.
    outside, outside_revenue
        Probability of the outside option, None where there is none, and what a choice of it earns.
    value
        Expected revenue of one choice.
    bound
        What no offer can exceed.
    exact
        Whether the offer is proven to be the best, to a millionth of its value.
    nodes, seconds
        Size and time of the search.
    best_for
        Of an ensemble, the share of members for whom no offer was found to be better than this one.
    added, dropped
        Changes relative to the current offer, and ``current_value`` what that earns, where it was given.
    draws
        Of a mixed logit, how many draws of tastes the offer is the best for; None for other models.
    """

    labels: tuple[str, ...]
    probabilities: tuple[float, ...]
    revenue: tuple[float, ...]
    outside: float | None
    outside_revenue: float
    value: float
    bound: float
    exact: bool
    nodes: int
    seconds: float
    best_for: float | None = None
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    current_value: float | None = None
    draws: int | None = None

    @property
    def gap(self) -> float:
        """How far the bound lies above the value, relative to it."""
        return max(self.bound - self.value, 0.0) / max(abs(self.value), 1e-300)

    @property
    def verdict(self) -> str:
        """Say in words what is known of the offer."""
        if self.exact:
            return "proven to be the best offer" + ("" if self.draws is None else f" for {self.draws:,} fixed draws")
        if self.nodes:
            return f"heuristic: at most {percent(self.gap)} below the best offer"
        return "heuristic: no bound is known but the largest revenue"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {**plain, "gap": self.gap}

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row for each alternative shown."""
        columns = {"alternative": self.labels, "probability": self.probabilities, "revenue": self.revenue}
        return data_frame(pa.table(columns), instead="to_dict()")

    def _cells(self) -> Cells:
        shown = zip(self.labels, self.probabilities, self.revenue, strict=True)
        rows = [[label, percent(p), number(r), number(p * r)] for label, p, r in shown]
        if self.outside is not None:
            earns = self.outside_revenue
            rows.append(["outside option", percent(self.outside), number(earns), number(self.outside * earns)])
        rows.append(["expected revenue", "", "", number(self.value)])
        if self.current_value is not None:
            rows.append(["of the current offer", "", "", number(self.current_value)])
            rows += [[word, ", ".join(names)] for word, names in (("add", self.added), ("drop", self.dropped)) if names]
        if self.outside is None:
            rows.append(["note", "without an outside option everybody takes something of what is shown"])
        if self.best_for is not None:
            rows.append(["best for", f"{percent(self.best_for)} of the members"])
        return [["alternative", "probability", "revenue", "contribution"], *rows, ["verdict", self.verdict]]
