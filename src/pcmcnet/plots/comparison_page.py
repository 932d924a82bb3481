"""A comparison -> one HTML page: the table, the chart as inline SVG, and how it was measured.

The page is whole in itself: no script, no font, nothing fetched from elsewhere. It follows the reader's light or
dark mode, fits a phone and prints. Every text that comes from the comparison is escaped.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.plots.comparison import ComparisonChart, Dot, Panel, comparison_chart
from pcmcnet.reports.html import escape, facts, note, page, table, write_page

_LINE, _LABELS, _PLOT, _TOP = 26, 120, 250, 8  # height of a model's line; widths of labels and plot; space above

_STYLE = """
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
svg { width: 100%; max-width: 32rem; height: auto; font: 12px system-ui, sans-serif; fill: var(--text); }
svg line { stroke: var(--rule); } svg .reference { stroke: var(--soft); stroke-dasharray: 4 3; }
svg .tick { fill: var(--soft); font-size: 11px; }
svg .dot line { stroke: var(--dot); stroke-width: 2.5; } svg .dot circle { fill: var(--dot); stroke: var(--dot); }
svg .dot.best line { stroke: var(--best); } svg .dot.best circle { fill: var(--best); stroke: var(--best); }
svg .dot.marked circle { fill: var(--back); stroke-width: 2; }
"""


def write_comparison_page(
    comparison: Comparison, path: str | os.PathLike[str], *, title: str = "Comparison of choice models"
) -> Path:
    """Write the page of a comparison.

    Parameters
    ----------
    comparison
        What :func:`pcmcnet.compare` returned.
    path
        Where the HTML file goes.
    title
        Heading of the page.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    InputError
        When the name does not end in .html.
    """
    return write_page(comparison_page(comparison, title=title), path)


def comparison_page(comparison: Comparison, *, title: str = "Comparison of choice models") -> str:
    """Return the page as text."""
    best = [k for k, row in enumerate(comparison.rows) if row.label == comparison.best]
    how_to_read = (
        f"In brackets: {comparison.level:.0%} bootstrap intervals. NLL: mean negative log-likelihood of the choices. "
        "TOP n: share of choices among the first n alternatives. NLL - best: difference on the same choice sets to the "
        "best model that gives probabilities; p: two-sided, of no difference."
    )
    parts = [
        f"<p>{escape(comparison.how)}</p>",
        table(comparison.cells(), strong=best),
        *map(note, (*comparison.notes, how_to_read)),
        _charts(comparison),
        "<h2>How it was measured</h2>",
        facts(_facts(comparison)),
    ]
    return page(title, "\n".join(parts), style=_STYLE)


def _charts(comparison: Comparison) -> str:
    if all(row.error is not None for row in comparison.rows):
        return note("Every model failed: there is nothing to draw.")
    chart = comparison_chart(comparison)
    figures = "\n".join(_figure(chart, panel) for panel in chart.panels)
    left_out = note(f"Not shown: {'; '.join(chart.left_out)}.") if chart.left_out else ""
    legend = note("Dashed: the uniform model. Hollow: scores, not probabilities.")
    return f'<h2>Values with intervals</h2>\n<div class="charts">\n{figures}\n</div>\n{legend}\n{left_out}'


def _figure(chart: ComparisonChart, panel: Panel) -> str:
    """One panel as a figure with its SVG."""
    from matplotlib.ticker import MaxNLocator

    low, high = panel.limits
    bottom = _TOP + _LINE * len(chart.labels)

    def at(value: float) -> float:
        share = (float(np.clip(value, low, high)) - low) / (high - low)
        return round(_LABELS + _PLOT * share, 1)

    ticks = [tick for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]
    parts = [f'<line x1="{at(t)}" y1="{_TOP}" x2="{at(t)}" y2="{bottom}"/>' for t in ticks]
    parts += [f'<text class="tick" x="{at(t)}" y="{bottom + 14}" text-anchor="middle">{t:.4g}</text>' for t in ticks]
    parts.append(
        f'<line class="reference" x1="{at(panel.reference)}" y1="{_TOP}" x2="{at(panel.reference)}" y2="{bottom}"/>'
    )
    for line, label in enumerate(chart.labels):
        shown = label if len(label) <= 18 else f"{label[:17]}…"
        y = _TOP + _LINE * (line + 0.5) + 4
        parts.append(f'<text x="{_LABELS - 8}" y="{y}" text-anchor="end">{escape(shown)}</text>')
    parts += [_dot(chart, dot, at(dot.low), at(dot.value), at(dot.high)) for dot in panel.dots]
    caption = f"{panel.title}: {'lower' if panel.lower_is_better else 'higher'} is better"
    box = f"0 0 {_LABELS + _PLOT + 20} {bottom + 20}"
    return (
        f'<figure><figcaption>{escape(caption)}</figcaption><svg viewBox="{box}" role="img" '
        f'aria-label="{escape(caption)}">{"".join(parts)}</svg></figure>'
    )


def _dot(chart: ComparisonChart, dot: Dot, low: float, x: float, high: float) -> str:
    y = _TOP + _LINE * (dot.line + 0.5)
    kind = "dot" + (" best" if dot.line == chart.best else "") + (" marked" if dot.marked else "")
    title = f"{chart.labels[dot.line]}: {dot.value:.4f} [{dot.low:.4f}, {dot.high:.4f}]"
    return (
        f'<g class="{kind}"><title>{escape(title)}</title><line x1="{low}" y1="{y}" x2="{high}" y2="{y}"/>'
        f'<circle cx="{x}" cy="{y}" r="4.5"/></g>'
    )


def _facts(comparison: Comparison) -> dict[str, object]:
    design = comparison.design
    way = f"{design['folds']} folds" if design["split"] is None else f"one split, {design['split']}"
    versions = {"pcmcnet": design["version"], **design["versions"]}
    found = {
        "parts": way,
        "seed": design["seed"],
        "groups kept whole": design["by"] or "none",
        "held out for early stopping": f"{design['valid']:.0%}",
        "choice sets tested": f"{comparison.n_sets:,}",
        "resamples": f"{design['resamples']:,}",
        "table (SHA-256)": design["table"],
        "machine": f"{design['machine']}; device {design['device']}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    for row in comparison.rows:
        options = ", ".join(f"{name}={value}" for name, value in row.options.items())
        found[f"model {row.label}"] = f"{row.model}: {options}" if options else row.model
    return found
