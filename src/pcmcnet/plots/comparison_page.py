"""A comparison -> one HTML page: the table, the chart as inline SVG, and how it was measured.

The page is whole in itself: no script, no font, nothing fetched from elsewhere. It follows the reader's light or
dark mode, fits a phone and prints. Every text that comes from the comparison is escaped.
"""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

import numpy as np

from pcmcnet.data.files import write_bytes
from pcmcnet.errors import InputError
from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.plots.comparison import ComparisonChart, Dot, Panel, comparison_chart

_LINE, _LABELS, _PLOT, _TOP = 26, 120, 250, 8  # height of a model's line; widths of labels and plot; space above

_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1a1a1a; --soft: #5c5c5c; --rule: #d5d5d5;
  --dot: #0072b2; --best: #c04e00; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --text: #e8e8e8; --soft: #a4a4a4; --rule: #3c4048;
  --dot: #5ab4e6; --best: #ff9e57; } }
@media print { :root { --back: #fff; --text: #000; --soft: #444; --rule: #bbb; --dot: #0072b2; --best: #c04e00; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 75rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child, td.failed, .facts td { text-align: left; }
th { color: var(--soft); font-weight: 600; } tr.best td, tr.best th { font-weight: 600; }
tbody th { color: var(--text); } td.failed { white-space: normal; color: var(--best); }
.facts th { text-align: left; vertical-align: top; } .facts td { white-space: normal; }
.note { color: var(--soft); font-size: .9rem; margin: .4rem 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
figure { margin: 0; break-inside: avoid; } figcaption { font-size: .9rem; color: var(--soft); }
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
    target = Path(path)
    if target.suffix.lower() != ".html":
        raise InputError(f"expected a file name that ends in .html, got {target.name!r}.")
    write_bytes(target, comparison_page(comparison, title=title).encode())
    return target


def comparison_page(comparison: Comparison, *, title: str = "Comparison of choice models") -> str:
    """Return the page as text."""
    notes = "".join(f'<p class="note">{escape(note)}</p>\n' for note in comparison.notes)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p>{escape(comparison.how)}</p>
<div class="wide">{_table(comparison)}</div>
{notes}<p class="note">In brackets: {comparison.level:.0%} bootstrap intervals. NLL: mean negative log-likelihood of the
choices. TOP n: share of choices among the first n alternatives. NLL - best: difference on the same choice sets to the
best model that gives probabilities; p: two-sided, of no difference.</p>
{_charts(comparison)}
<h2>How it was measured</h2>
<div class="wide">{_facts(comparison)}</div>
</body>
</html>
"""


def _table(comparison: Comparison) -> str:
    head, *body = comparison.cells()
    rows = []
    for row, (label, *cells) in zip(comparison.rows, body, strict=True):
        kind = ' class="best"' if row.label == comparison.best else ""
        if row.error is not None:
            inner = f'<td class="failed" colspan="{len(head) - 1}">{escape(cells[0])}</td>'
        else:
            inner = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        rows.append(f'<tr{kind}><th scope="row">{escape(label)}</th>{inner}</tr>')
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    return f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>"


def _charts(comparison: Comparison) -> str:
    if all(row.error is not None for row in comparison.rows):
        return '<p class="note">Every model failed: there is nothing to draw.</p>'
    chart = comparison_chart(comparison)
    figures = "\n".join(_figure(chart, panel) for panel in chart.panels)
    left_out = f'<p class="note">Not shown: {escape("; ".join(chart.left_out))}.</p>' if chart.left_out else ""
    note = '<p class="note">Dashed: the uniform model. Hollow: scores, not probabilities.</p>'
    return f'<h2>Values with intervals</h2>\n<div class="charts">\n{figures}\n</div>\n{note}\n{left_out}'


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


def _facts(comparison: Comparison) -> str:
    design = comparison.design
    way = f"{design['folds']} folds" if design["split"] is None else f"one split, {design['split']}"
    versions = {"pcmcnet": design["version"], **design["versions"]}
    facts = [
        ("parts", way),
        ("seed", design["seed"]),
        ("groups kept whole", design["by"] or "none"),
        ("held out for early stopping", f"{design['valid']:.0%}"),
        ("choice sets tested", f"{comparison.n_sets:,}"),
        ("resamples", f"{design['resamples']:,}"),
        ("table (SHA-256)", design["table"]),
        ("machine", f"{design['machine']}; device {design['device']}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    for row in comparison.rows:
        options = ", ".join(f"{name}={value}" for name, value in row.options.items())
        facts.append((f"model {row.label}", f"{row.model}: {options}" if options else row.model))
    rows = "\n".join(f"<tr><th>{escape(k)}</th><td>{escape(str(v))}</td></tr>" for k, v in facts)
    return f'<table class="facts">\n{rows}\n</table>'
