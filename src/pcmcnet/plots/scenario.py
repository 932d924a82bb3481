"""Plots of a scenario: a figure of each group of alternatives before and after the changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import numpy as np

from pcmcnet.checks import require_number, require_word
from pcmcnet.insight.scenarios.scenario import Scenario, ScenarioView
from pcmcnet.plots.charts import GREY, Axis, Bars, Chart, draw_chart, row_inches

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def scenario_chart(scenario: Scenario, what: ScenarioView = "shares", *, most: int = 12) -> Chart:
    """Return a chart of the figures of at most ``most`` groups before (grey) and after the changes.

    Raises
    ------
    InputError
        If ``what`` is "revenue" and the scenario has no revenue.
    """
    require_word("what", what, get_args(ScenarioView))
    require_number("most", most, whole=True, low=1)
    effects = getattr(scenario, what)
    # 1. Keep the groups with the largest changes, in the order of the table, without the total revenue.
    groups = [row for row in effects.rows if any(row.group == share.group for share in scenario.shares.rows)]
    largest = np.argsort([-abs(row.change) for row in groups], kind="stable")[:most]
    rows = [groups[k] for k in sorted(largest)]
    # 2. Draw two bars for each group; the interval belongs to the figure after the changes.
    low = [row.after if row.after_low is None else row.after_low for row in rows]
    high = [row.after if row.after_high is None else row.after_high for row in rows]
    share = what == "shares"
    rest = len(groups) - len(rows)
    return Chart(
        marks=(
            Bars(values=[row.before for row in rows], colours=[GREY] * len(rows), legend="before"),
            Bars(values=[row.after for row in rows], colours=[0] * len(rows), low=low, high=high, legend="after"),
        ),
        rows=tuple(row.group for row in rows),
        x=Axis(title=f"predicted {effects.quantity}", ticks=".0%" if share else "", from_zero=share),
        note=f"{rest} groups with smaller changes are not shown" if rest else "",
        inches=row_inches(2 * len(rows)),
    )


def plot_scenario(scenario: Scenario, ax: Axes | None = None, *, what: ScenarioView = "shares", most: int = 12) -> Axes:
    """Plot the shares, volumes or revenue of each group before and after the changes.

    Parameters
    ----------
    scenario
        Result of :func:`pcmcnet.scenario`.
    ax
        Axes to draw on (default: a new figure).
    what
        "shares" (default), "volumes" or "revenue".
    most
        Largest number of groups (default 12). Groups with the largest changes are kept.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InputError
        If ``what`` is "revenue" and the scenario has no revenue.
    """
    return draw_chart(scenario_chart(scenario, what, most=most), ax)
