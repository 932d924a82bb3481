"""Sections on how good a model is: its predictions beside baselines, and what its probabilities are worth."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from pcmcnet.evaluation.in_sample import Seen
from pcmcnet.evaluation.report import FOOTNOTE, MARK, Report
from pcmcnet.insight.calibration import Calibration
from pcmcnet.insight.fit_quality import FOLDS, FitQuality
from pcmcnet.plots.explanation.page_figures import calibration_figures
from pcmcnet.reports.sections import Block, Dot, Intervals, Section, Table, Text, note, warning
from pcmcnet.reports.tables import number


def fit_tiles(fit: FitQuality) -> list[tuple[str, str, str]]:
    """Put NLL and accuracies beside those of a blind guess."""
    report, where = fit.report, f" ({_MEASURED[fit.seen]})" if fit.in_sample else ""
    found = []
    if report.nll is not None:
        found.append((f"NLL{where}", number(report.nll), f"uniform: {report.uniform['nll']:.4f}"))
    uniform = {n: report.uniform[f"top_{n}"] for n in report.shown_top}
    return found + [(f"top {n}{where}", f"{report.top[n]:.1%}", f"uniform: {u:.1%}") for n, u in uniform.items()]


def seen_words(fit: FitQuality) -> Block:
    """Say whether the model has seen the table."""
    if fit.warning is not None:
        return warning(fit.warning)
    return note(
        "This is not the table that the model was trained on: the fingerprints differ. The figures of the model are "
        "out of sample as far as the two share no choice sets."
    )


def fit_section(part: FitQuality) -> Section:
    """The model beside baselines, and what is what."""
    report = part.report
    own = f"this model, {_MEASURED[part.seen] if part.in_sample else 'as it is'}"
    heads = ["", "NLL", *(f"TOP {n}" for n in report.shown_top), "measured"]
    shown = {n: report.top[n] for n in report.shown_top}
    rows = [[own, *_values(report.nll, shown, report.intervals, report.gives), _measured(part)]]
    compared = part.baselines
    for row in compared.rows if compared is not None else ():
        if row.error is not None:
            rows.append([row.label, f"failed: {row.error}"])
            continue
        top = {n: row.values[f"top_{n}"] for n in report.shown_top}
        values = _values(row.values.get("nll"), top, row.intervals, row.gives)
        rows.append([row.label, *values, f"out of sample, {FOLDS} folds"])
    blocks: list[Block] = [seen_words(part), Table(cells=[heads, *rows], strong=frozenset({0}))]
    drawn = fit_intervals(part)
    if len(drawn.dots) > 1:
        blocks.append(drawn)
    if compared is not None:
        blocks.append(note(_what_is_what(part, report)))
    if report.n_impossible:
        blocks.append(warning(f"{report.n_impossible:,} of the choices got probability 0."))
    if report.gives == "ranking":
        blocks.append(note("A ranking gives no probabilities, and so has no NLL."))
    if MARK in rows[0][1]:
        blocks.append(note(FOOTNOTE))
    blocks.append(
        note(f"In brackets: {report.level:.0%} intervals by the bootstrap over choice sets. NLL: lower is better.")
    )
    return Section(name="fit", title="How well it predicts these choices", blocks=tuple(blocks))


def fit_intervals(part: FitQuality) -> Intervals:
    """The NLL of all, or the accuracy where the model has none; what is infinite cannot be drawn."""
    metric = "top_1" if part.report.nll is None else "nll"
    rows = [("this model", part.report.values[metric], part.report.intervals)]
    rows += [(r.label, r.values.get(metric), r.intervals) for r in (part.baselines.rows if part.baselines else ())]
    name, seen = metric.upper().replace("_", " "), part.seen != "none known"
    return Intervals(
        metric=name,
        caption=f"{name} with intervals{'; hollow: in-sample' if seen else ''}.",
        labels=tuple(label for label, _, _ in rows),
        dots=tuple(
            Dot(k, value, *ends.get(metric, (value, value)), marked=k == 0 and seen)
            for k, (_, value, ends) in enumerate(rows)
            if value is not None and isfinite(value)
        ),
        best=0,
    )


def _measured(part: FitQuality) -> str:
    return _MEASURED[part.seen]


_MEASURED: dict[Seen, str] = {
    "all": "in-sample",
    "most": "mostly in-sample",
    "some": "perhaps in part in-sample",
    "none known": "on the whole table",
}


def _what_is_what(part: FitQuality, report: Report) -> str:
    compared = part.baselines
    assert compared is not None
    drawn = f" on {compared.n_sets:,} sets drawn from it" if compared.n_sets < report.n_sets else ""
    text = (
        f"The baselines are cross-validated on this table{drawn}: fitted to four fifths of it and tested on the rest, "
        f"in turn, so that their figures are out of sample."
    )
    if part.in_sample:
        text += (
            " Those of the model are not, and the two do not compare fairly: cross-validate a model of its kind, or "
            "ask about a table that it has not seen."
        )
    return text


def _values(nll: float | None, top: Mapping[int, float], intervals: Mapping[str, Any], gives: str) -> list[str]:
    mark = MARK if gives == "scores" else ""
    cells = ["-" if nll is None else f"{nll:.4f}{mark}{_interval(intervals.get('nll'))}"]
    return cells + [f"{value:.3f}{_interval(intervals.get(f'top_{n}'), 3)}" for n, value in top.items()]


def _interval(ends: tuple[float, float] | None, digits: int = 4) -> str:
    return "" if ends is None else f" [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]"


def calibration_section(part: Calibration) -> Section:
    """Whether probabilities can be taken at their word."""
    first = part.first
    gap = float(first.share @ (first.predicted - first.observed))
    leaning = "surer than it should be" if gap > 0 else "less sure than it could be"
    text = (
        f"The favourite of each set, its most probable alternative, is predicted with "
        f"{first.share @ first.predicted:.1%} on average and chosen in {first.share @ first.observed:.1%}: if "
        f"anything, the model is {leaning}. Sets are put into {len(first.share)} bins by how probable the favourite "
        f"is. The calibration error is the mean distance of predicted and chosen over the bins: {100 * part.error:.1f} "
        f"points."
    )
    return Section(
        name="calibration",
        title="Can its probabilities be taken at their word?",
        blocks=(Text(text), *calibration_figures(part), note(f"{part.n_sets:,} sets of two alternatives or more.")),
    )
