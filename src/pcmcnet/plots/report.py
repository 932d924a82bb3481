"""An explanation -> its report: report.html, report.md and explanation.json in one folder, or sections for a notebook.

A part that was left out has no section; the report says why at its end.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from pcmcnet.insight.axioms import Audit
from pcmcnet.insight.calibration import Calibration, FitQuality
from pcmcnet.insight.context_effects import ContextSummary
from pcmcnet.insight.explanation import Explanation, ModelSummary
from pcmcnet.insight.feature_effects import AllCategories, NumericEffects
from pcmcnet.insight.table_summary import ExampleSet, TableSummary
from pcmcnet.plots.effects import LOSSES
from pcmcnet.plots.report_sections import (
    MEASURED,
    axioms_section,
    calibration_section,
    categories_section,
    context_section,
    elasticities_section,
    examples_section,
    fit_section,
    importance_section,
    model_section,
    seen_words,
    spoken,
    table_section,
    trade_offs_section,
)
from pcmcnet.reports.formats import to_html, to_markdown
from pcmcnet.reports.sections import Block, Facts, Point, Points, Section, Tiles, warning
from pcmcnet.reports.tables import number
from pcmcnet.storage import require_folder, write_bytes

NAMES = ("report.html", "report.md", "explanation.json")
_REMOVE = ("context", "examples")  # parts that take alternatives away; the axioms say so themselves


def write_explanation(explanation: Explanation, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the report of an explanation, each file whole or not at all.

    Parameters
    ----------
    explanation
        What :func:`pcmcnet.explain` returned.
    folder
        Where the files go; it is made where it is not there.

    Returns
    -------
    list of Path
        The page, the same words and tables in Markdown, and all numbers as JSON.

    Raises
    ------
    InputError
        When the folder cannot be one.
    ConfigError
        When plotly is not installed.
    """
    place = require_folder(folder)
    sections = explanation_sections(explanation)
    contents = (
        to_html(explanation.title, sections),
        to_markdown(explanation.title, sections),
        json.dumps(explanation.to_dict(), ensure_ascii=False, allow_nan=False) + "\n",
    )
    written = [place / name for name in NAMES]
    for path, text in zip(written, contents, strict=True):
        write_bytes(path, text.encode())
    return written


def explanation_sections(found: Explanation) -> list[Section]:
    """Return the sections of a report, in its order: findings, what the model does, how good it is, what it is."""
    # 1. A section for each part that is there.
    names, in_sample = found.names, found.fit is not None and found.fit.in_sample
    makers: dict[str, Any] = {
        "importance": lambda part: importance_section(part, names, in_sample=in_sample),
        "elasticities": lambda part: elasticities_section(part, names),
        "categories": lambda part: categories_section(part, names),
        "trade_offs": lambda part: trade_offs_section(part, names),
        "context": lambda part: context_section(part, names),
        "examples": lambda part: examples_section(part, names),
        "fit": fit_section,
        "calibration": calibration_section,
        "axioms": axioms_section,
        "table": lambda part: table_section(part, names),
        "model": model_section,
    }
    sections = [make(getattr(found, name)) for name, make in makers.items() if getattr(found, name) is not None]
    # 2. A warning where alternatives are taken away that were always on offer.
    if found.removals is not None:
        for k, section in enumerate(sections):
            if section.name in _REMOVE:
                sections[k] = replace(section, blocks=(warning(found.removals), *section.blocks))
    # 3. What is to be known first, and how the report was made at the end.
    facts = {name: spoken(value) for name, value in found.facts.items()}
    left = {f"no section on {name}": why for name, why in found.left_out.items()}
    made = Section(name="made", title="How this report was made", blocks=(Facts({**facts, **left}),))
    return [*_opening(found), *sections, made]


def _opening(found: Explanation) -> list[Section]:
    """Return what is to be known first: findings, each sentence with its figures, and the numbers at a glance."""
    points = tuple(Point(finding.text, finding.figures, finding.part) for finding in found.findings)
    findings = [Section(name="findings", title="Findings", blocks=(Points(points),))] if points else []
    return [*findings, glance_section(found)]


def glance_section(found: Explanation) -> Section:
    """Put the numbers to see first in tiles, and what must not be missed below them."""
    # 1. Tiles on the table, the model and its quality, then on what it does.
    tiles: list[tuple[str, str, str]] = []
    blocks: list[Block] = []
    if found.table is not None:
        tiles.append(("choice sets", f"{found.table.choice_sets:,}", f"{found.table.alternatives:,} alternatives"))
    if found.model is not None:
        tiles.append(("model", found.model.kind, f"{found.model.parameters:,} parameters"))
    if found.fit is not None:
        tiles += _fit_tiles(found.fit)
        blocks.append(seen_words(found.fit))
    if found.calibration is not None:
        error = f"{100 * found.calibration.error:.1f} points"
        tiles.append(("calibration error", error, "of favourites; 0 is perfect"))
    if found.importance is not None:
        first = found.importance.rows[0]
        effect = f"{first.value:+.3f} {LOSSES[found.importance.loss]} when shuffled"
        tiles.append(("most important", found.names[first.name], effect))
    if found.context is not None:
        size = "none" if found.context.has_no_effects else f"{found.context.strongest:.2f}"
        tiles.append(("strongest context effect", size, "change of a log-ratio"))
    if found.axioms is not None:
        checked = [f for f in found.axioms.findings if f.verdict != "not checked"]
        tiles.append(("axioms obeyed", f"{len(found.axioms.obeyed)} of {len(checked)}", "on sampled sets"))
    # 2. Below them, whether the model has seen the table, and its caveats.
    caveats = [] if found.model is None else [warning(f"Caveat: {caveat}.") for caveat in found.model.caveats]
    return Section(name="glance", title="At a glance", blocks=(Tiles(tuple(tiles)), *blocks, *caveats))


def _fit_tiles(fit: FitQuality) -> list[tuple[str, str, str]]:
    """Put NLL and accuracies beside those of a blind guess."""
    report, where = fit.report, f" ({MEASURED[fit.seen]})" if fit.in_sample else ""
    tiles = []
    if report.nll is not None:
        tiles.append((f"NLL{where}", number(report.nll), f"uniform: {report.uniform['nll']:.4f}"))
    uniform = {n: report.uniform[f"top_{n}"] for n in report.shown_top}
    return tiles + [(f"top {n}{where}", f"{report.top[n]:.1%}", f"uniform: {u:.1%}") for n, u in uniform.items()]


def section_of(part: Any) -> Section:
    """Return the section on a part; of a whole explanation, what its report opens with."""
    if isinstance(part, Explanation):
        blocks = [block for section in _opening(part) for block in section.blocks]
        return Section(title=part.title, blocks=tuple(blocks))
    makers = {
        TableSummary: table_section,
        ModelSummary: model_section,
        FitQuality: fit_section,
        Calibration: calibration_section,
        NumericEffects: elasticities_section,
        AllCategories: categories_section,
        ContextSummary: context_section,
        Audit: axioms_section,
        ExampleSet: lambda example: examples_section((example,)),
    }
    section: Section = makers[type(part)](part)  # type: ignore[operator]
    return section
