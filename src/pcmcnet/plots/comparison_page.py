"""A comparison -> one HTML page: the table, the values with their intervals, and how it was measured."""

from __future__ import annotations

import os
from pathlib import Path

from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.plots.comparison import comparison_chart
from pcmcnet.reports.html import to_html, write_html
from pcmcnet.reports.sections import Block, Facts, Intervals, Section, Table, Text, note


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
    return write_html(comparison_page(comparison, title=title), path)


def comparison_page(comparison: Comparison, *, title: str = "Comparison of choice models") -> str:
    """Return the page as text."""
    best = frozenset(k for k, row in enumerate(comparison.rows) if row.label == comparison.best)
    how_to_read = (
        f"In brackets: {comparison.level:.0%} bootstrap intervals. NLL: mean negative log-likelihood of the choices. "
        "TOP n: share of choices among the first n alternatives. NLL - best: difference on the same choice sets to the "
        "best model that gives probabilities; p: two-sided, of no difference."
    )
    notes = map(note, (*comparison.notes, how_to_read))
    table = Table(cells=comparison.cells(), strong=best)
    sections = [
        Section(title="", blocks=(Text(comparison.verdict), note(comparison.how), table, *notes)),
        Section(title="Values with intervals", blocks=_charts(comparison)),
        Section(title="How it was measured", blocks=(Facts(_facts(comparison)),)),
    ]
    return to_html(title, sections)


def _charts(comparison: Comparison) -> tuple[Block, ...]:
    if all(row.error is not None for row in comparison.rows):
        return (note("Every model failed: there is nothing to draw."),)
    chart = comparison_chart(comparison)
    drawn = [
        Intervals(
            metric=panel.title,
            caption=f"{panel.title}: {'lower' if panel.lower_is_better else 'higher'} is better",
            labels=chart.labels,
            dots=panel.dots,
            best=chart.best,
            reference=panel.reference,
        )
        for panel in chart.panels
    ]
    left_out = [f"Not shown: {'; '.join(chart.left_out)}."] if chart.left_out else []
    return (*drawn, *map(note, ["Dashed: the uniform model. Hollow: scores, not probabilities.", *left_out]))


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
