"""Write the report of an explanation: report.html, report.md and explanation.json in one folder.

The same sections are shown in notebooks. A part that was left out has no section, and the end of the report gives the
reason for the omission.
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
from pcmcnet.plots.effects import LOSS_NAMES
from pcmcnet.plots.report_sections import (
    SAMPLE_WORDS,
    axioms_section,
    calibration_section,
    categories_section,
    context_section,
    elasticities_section,
    examples_section,
    fit_section,
    format_value,
    importance_section,
    in_sample_block,
    model_section,
    table_section,
    trade_offs_section,
)
from pcmcnet.reports.formats import to_html, to_markdown, write_html
from pcmcnet.reports.sections import Block, Facts, Point, Points, Section, Tiles, warning
from pcmcnet.reports.tables import number
from pcmcnet.storage import as_path, require_folder, write_bytes

REPORT_FILES = ("report.html", "report.md", "explanation.json")
_SPECIALIST_SECTIONS = ("context", "axioms", "model", "made")  # folded on a page
_REMOVING_SECTIONS = ("context", "examples")  # they remove alternatives; the section on axioms has its own note


def write_explanation(explanation: Explanation, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the report of an explanation as HTML, Markdown and JSON, each file atomically.

    Parameters
    ----------
    explanation
        Result of :func:`pcmcnet.explain`.
    folder
        Folder for the files, which is created if it does not exist.

    Returns
    -------
    list of Path
        The HTML page, the same text and tables in Markdown, and all numbers as JSON.

    Raises
    ------
    InputError
        If the folder cannot be created.
    ConfigError
        If plotly is not installed.
    """
    place = require_folder(folder)
    sections = explanation_sections(explanation)
    contents = (
        to_html(explanation.title, sections),
        to_markdown(explanation.title, sections),
        json.dumps(explanation.to_dict(), ensure_ascii=False, allow_nan=False) + "\n",
    )
    written = [place / name for name in REPORT_FILES]
    for path, text in zip(written, contents, strict=True):
        write_bytes(path, text.encode())
    return written


def save_explanation(explanation: Explanation, path: str | os.PathLike[str]) -> Path:
    """Write the HTML page of a report, or all of its files to a folder, and return the page."""
    target = as_path(path)
    if not target.suffix:
        return write_explanation(explanation, target)[0]
    return write_html(to_html(explanation.title, explanation_sections(explanation)), target)


def explanation_sections(explanation: Explanation) -> list[Section]:
    """Return the sections of a report: findings, effects, predictive quality, table and model."""
    # 1. Make a section for each part that was computed.
    names, in_sample = explanation.names, explanation.fit is not None and explanation.fit.in_sample
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
    sections = [
        make(getattr(explanation, name)) for name, make in makers.items() if getattr(explanation, name) is not None
    ]
    # 2. Add a warning if a section removes alternatives that were always available.
    if explanation.removals is not None:
        for k, section in enumerate(sections):
            if section.name in _REMOVING_SECTIONS:
                sections[k] = replace(section, blocks=(warning(explanation.removals), *section.blocks))
    # 3. Put the findings first, and the settings of the report last.
    facts = {name: format_value(value) for name, value in explanation.facts.items()}
    omitted = {f"no section on {name}": reason for name, reason in explanation.left_out.items()}
    settings = Section(name="made", title="How this report was made", blocks=(Facts({**facts, **omitted}),))
    sections = [replace(section, folded=section.name in _SPECIALIST_SECTIONS) for section in [*sections, settings]]
    return [*_opening(explanation), *sections]


def _opening(explanation: Explanation) -> list[Section]:
    """Return the first sections of a report: the findings with their evidence, and the key numbers."""
    points = tuple(
        Point(finding.text, finding.figures, finding.part, "warning" if finding.warning else "plain")
        for finding in explanation.findings
    )
    findings = [Section(name="findings", title="Findings", blocks=(Points(points),))] if points else []
    return [*findings, overview_section(explanation)]


def overview_section(explanation: Explanation) -> Section:
    """Return the section with tiles for key figures, and warnings below the tiles."""
    # 1. Make tiles on the table, the model and its quality, then on what it does.
    tiles: list[tuple[str, str, str]] = []
    blocks: list[Block] = []
    if explanation.table is not None:
        tiles.append(
            ("choice sets", f"{explanation.table.choice_sets:,}", f"{explanation.table.alternatives:,} alternatives")
        )
    if explanation.model is not None:
        tiles.append(("model", explanation.model.kind, f"{explanation.model.parameters:,} parameters"))
    if explanation.fit is not None:
        tiles += _fit_tiles(explanation.fit)
        blocks.append(in_sample_block(explanation.fit))
    if explanation.calibration is not None:
        error = f"{100 * explanation.calibration.error:.1f} points"
        tiles.append(("calibration error", error, "most probable alternative; 0 is perfect"))
    if explanation.importance is not None:
        first = explanation.importance.rows[0]
        effect = f"{first.value:+.3f} {LOSS_NAMES[explanation.importance.loss]} when shuffled"
        tiles.append(("most important", explanation.names[first.name], effect))
    # 2. Below them, report whether the model was trained on the table, and its caveats that are not findings.
    part = explanation.model
    others = [] if part is None else [text for text in part.caveats if text not in part.sign_caveats.values()]
    caveats = [warning(f"Caveat: {caveat}.") for caveat in others]
    return Section(name="glance", title="At a glance", blocks=(Tiles(tuple(tiles)), *blocks, *caveats))


def _fit_tiles(fit: FitQuality) -> list[tuple[str, str, str]]:
    """Return tiles with NLL and accuracies, next to the values of the uniform model."""
    report, where = fit.report, f" ({SAMPLE_WORDS[fit.seen]})" if fit.in_sample else ""
    tiles = []
    if report.nll is not None:
        others = {"uniform": report.uniform["nll"]}
        if fit.baselines is not None and fit.rival is not None:
            others = {fit.rival: fit.baselines[fit.rival].values["nll"], **others}
        remark = f"{', '.join(f'{name}: {nll:.4f}' for name, nll in others.items())}; lower is better"
        tiles.append((f"NLL{where}", number(report.nll), remark))
    uniform = {n: report.uniform[f"top_{n}"] for n in report.shown_top}
    return tiles + [(f"top {n}{where}", f"{report.top[n]:.1%}", f"uniform: {u:.1%}") for n, u in uniform.items()]


def part_section(part: Any) -> Section:
    """Return the section on one part of an explanation, or one section with the opening of a whole explanation."""
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
