"""A fitted model and a table -> all that can be said of the two, part by part.

Each part is computed by a module of its own, and is None where it was skipped or cannot be had: ``left_out`` says why.
Costly parts ask about a sample of the choice sets, so that the work is bounded however long the table is.

    part           needs choices  asks about
    table          no             nothing
    model          no             nothing
    fit            yes            all sets; up to 5,000 for baselines
    calibration    yes            all sets
    importance     yes            the sample, each column shuffled 5 times
    elasticities   no             the sample, two copies of each set per alternative where there are no derivatives
    categories     no             the sample, a copy of each set per category
    trade_offs     no             60 sets of the sample, as for elasticities
    context        no             10 sets for each of the sample
    axioms         no             the sample, 25 sets for each
    examples       no             up to 5,000 sets, and three without each of their alternatives
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.names import DEFAULT_NAMES, ColumnNames
from pcmcnet.data.files.tabular import read_table
from pcmcnet.errors import ConfigError, InputError, PcmcNetError, did_you_mean
from pcmcnet.evaluation.compare import describe_environment
from pcmcnet.evaluation.predictions import require_sets
from pcmcnet.insight.axioms import Audit, audit
from pcmcnet.insight.calibration import Calibration, FitQuality, calibration, fit_quality
from pcmcnet.insight.context_effects import ContextSummary, context_summary
from pcmcnet.insight.explanation_plots import ExplanationPlots
from pcmcnet.insight.feature_effects import (
    AllCategories,
    CategoryRow,
    NumericEffects,
    all_category_effects,
    numeric_effects,
    numeric_features,
)
from pcmcnet.insight.importance import Importance, importance
from pcmcnet.insight.queries import require_sampling
from pcmcnet.insight.removals import extrapolation_warning
from pcmcnet.insight.table_summary import ExampleSet, TableSummary, example_sets, summarise_table
from pcmcnet.insight.willingness_to_pay import TradeOffs, main_trade_offs
from pcmcnet.models import MNL, Uniform
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.progress import log_once, show_steps
from pcmcnet.reports.formats import ReportPartMixin, Summary, ToDictMixin, to_json
from pcmcnet.reports.tables import number, percent
from pcmcnet.storage import package_version

# -- Findings ----------------------------------------------------------------------------------------------------------
# The parts of an explanation -> what they say, in sentences that need no statistics, each with its figures.
#
# A sentence is only said where its figures bear it: a category gains or loses where the interval of its lift leaves out
# 1, a column matters where the interval of its importance lies above 0, and context counts where it is no rounding.

_CALIBRATED_WITHIN = 0.02  # points between predicted and chosen that nobody would notice


@dataclass(frozen=True, slots=True)
class Finding(ToDictMixin):
    """One sentence, the figures behind it, and the part of the explanation where they come from."""

    text: str
    figures: str
    part: str


def findings(found: Explanation) -> tuple[Finding, ...]:
    """Say what was found, the most useful first."""
    names = found.names
    parts: list[tuple[Any, Callable[[Any], Iterator[Finding]]]] = [
        (found.elasticities, lambda part: _responses(part, names)),
        (found.importance, lambda part: _importance(part, found.categories, names)),
        (found.trade_offs, lambda part: _trade_offs(part, names)),
        *((found.context, _context), (found.fit, _fit), (found.calibration, _calibration)),
    ]
    return tuple(finding for part, say in parts if part is not None for finding in say(part))


def _responses(part: NumericEffects, names: ColumnNames) -> Iterator[Finding]:
    """What one per cent more, and a tenth less, of the most important number does."""
    table = part.tables[0]
    own, other = table.rows[0].own, table.rows[0].other
    what = names[table.column]
    if table.kind != "elasticity":
        per, unit = "raises" if own > 0 else "lowers", names.unit(table.column) or "unit"
        text = f"One {unit} more of {what} {per} the share of an alternative by {percent(abs(own))}."
    else:
        verb = "costs" if own < 0 else "gains"
        text = f"A 1% rise of {what} {verb} an alternative {percent(abs(own / 100))} of its share."
    kind = "elasticity" if table.kind == "elasticity" else "semi-elasticity"
    rivals = "" if other is None else f"; of its rivals {number(other)}"
    yield Finding(text, f"{kind} {number(own)}{rivals}; average over {part.sets:,} choice sets", "elasticities")
    of, curve = next(iter(part.curves.items()))
    at = np.flatnonzero(np.isclose(curve.points, 0.9)) if curve.scaled else np.empty(0, np.int64)
    if at.size:
        now, less = float(curve.now[0]), float(curve.shares[0, at[0]])
        side = "rises" if less > now else "falls"
        yield Finding(
            f"With 10% less {what}, the share of {of} {side} from {percent(now)} to {percent(less)}.",
            f"demand curve of {what}, at 0.9 of what it is",
            "elasticities",
        )


def _importance(part: Importance, categories: AllCategories | None, names: ColumnNames) -> Iterator[Finding]:
    """Which columns matter most; of a categorical one, who gains and who loses."""
    sure = [row for row in part.rows if row.low > 0]
    liked = {table.column: table for table in (categories.tables if categories else ())}
    if not sure:
        yield Finding(
            "No column matters for sure: predictions are hardly worse where one is shuffled.",
            f"all 95 % intervals reach 0; {part.repeats} shuffles",
            "importance",
        )
        return
    first, *others = sure
    then = f", then {' and '.join(names[row.name] for row in others[:2])}" if others else ""
    what = "NLL" if part.loss == "nll" else "misses"
    figures = ", ".join(f"{names[row.name]} {row.value:+.3f}" for row in sure[:3])
    yield Finding(
        f"{names[first.name]} matters most{then}.", f"increase of {what} when shuffled: {figures}", "importance"
    )
    for row in sure:
        if row.name in liked:
            yield from _liked(names[row.name], liked[row.name].rows)


def _liked(column: str, rows: tuple[CategoryRow, ...]) -> Iterator[Finding]:
    gains = [row for row in rows if row.is_significant and row.lift > 1][:2]
    loses = [row for row in rows[::-1] if row.is_significant and row.lift < 1][:2]
    if not gains and not loses:
        return
    parts = [
        f"{' and '.join(row.category for row in group)} {verb if len(group) > 1 else f'{verb}s'}"
        for group, verb in ((gains, "gain"), (loses, "lose"))
        if group
    ]
    figures = ", ".join(f"{r.category} {r.lift:.2f} [{r.low:.2f}, {r.high:.2f}]" for r in (*gains, *loses))
    yield Finding(
        f"{column}: {', '.join(parts)}, all else equal.",
        f"times the share of an average one, with 95 % intervals: {figures}",
        "categories",
    )


def _trade_offs(part: TradeOffs, names: ColumnNames) -> Iterator[Finding]:
    """What makes up for one more of the most important other feature, where the sign is clear."""
    # Members of an ensemble must agree on the sign; a single model has none to ask.
    clear = [row for row in part.rows if row.odd < 0.25 and (row.ends is None or row.ends[0] * row.ends[1] > 0)]
    if not clear:
        return
    row, reference = clear[0], part.reference
    unit = names.unit(row.column) or "unit"
    size = f"{number(abs(row.median))} {names.unit(reference)}".strip()
    less = "less" if row.median < 0 else "more"
    ends = "" if row.ends is None else f"; {part.members} members say {number(row.ends[0])} to {number(row.ends[1])}"
    yield Finding(
        f"One {unit} more of {names[row.column]} is made up for by {size} {less} of {names[reference]}.",
        f"median {number(row.median)}, quartiles {number(row.low)} to {number(row.high)}{ends}",
        "trade_offs",
    )


def _context(part: ContextSummary) -> Iterator[Finding]:
    found = part.search
    if part.has_no_effects:
        text = "What else is on offer never changes the preference between two alternatives, as in every logit."
        figures = f"largest change of a log-ratio among {found.pairs:,} pairs: {part.strongest:.1g}"
    else:
        first = found.cases[0]
        text = (
            f"What else is on offer changes preferences: at most from {first.share_without:.1%} to "
            f"{first.share_with:.1%} for one alternative against another."
        )
        figures = (
            f"choice set {first.choice_set}: {first.i} against {first.j}, without and with {first.removed}; change of "
            f"the log-ratio {first.by_adding:+.2f}, on average {found.mean:.3g} over {found.pairs:,} pairs"
        )
    yield Finding(text, figures, "context")


def _fit(part: FitQuality) -> Iterator[Finding]:
    right = part.report.top.get(1)
    if right is None:
        return
    chance = part.report.uniform["top_1"]
    where = ", measured on its own training table" if part.in_sample else ""
    yield Finding(
        f"The model's favourite is what people choose in {percent(right)} of the sets; a blind guess is right in "
        f"{percent(chance)}.",
        f"top-1 accuracy over {part.report.n_sets:,} choice sets{where}",
        "fit",
    )


def _calibration(part: Calibration) -> Iterator[Finding]:
    said, happened = (float(part.first.share @ v) for v in (part.first.predicted, part.first.observed))
    if abs(said - happened) <= _CALIBRATED_WITHIN:
        verdict = "On average its probabilities can be taken at their word"
    elif said > happened:
        verdict = "It is surer than it should be"
    else:
        verdict = "It is less sure than it could be"
    yield Finding(
        f"{verdict}: favourites get {percent(said)} on average, and are chosen in {percent(happened)}.",
        f"calibration error {100 * part.error:.1f} points over {part.n_sets:,} choice sets",
        "calibration",
    )


# -- Explanation -------------------------------------------------------------------------------------------------------

PARTS = (
    *("table", "model", "fit", "calibration", "importance", "elasticities", "categories", "trade_offs", "context"),
    *("axioms", "examples"),
)
NEED_CHOICES = ("fit", "calibration", "importance")
SAMPLED_SETS = 150


@dataclass(frozen=True, kw_only=True)
class ModelSummary(ToDictMixin, ReportPartMixin):
    """What a fitted model tells of itself."""

    kind: str  # name of the class
    options: Mapping[str, Any]
    parameters: int
    training: Mapping[str, Any]  # plain facts of the fit
    caveats: tuple[str, ...]
    summary: Summary
    histories: Mapping[str, list[dict[str, Any]]]  # by epoch, of each network; empty for models that have no epochs

    def _short(self) -> str:
        return f"{self.kind}, {self.parameters:,} parameters"


@dataclass(frozen=True, kw_only=True)
class Explanation(ReportPartMixin):
    """What :func:`explain` found about a model on a table.

    Attributes
    ----------
    title
        The title of the report.
    table, model, fit, calibration, importance, elasticities, categories, trade_offs, context, axioms, examples
        The parts; None where a part was left out.
    removals
        That figures of removals are extrapolation, where all training sets offer the same alternatives.
    names
        What people call the columns.
    left_out
        For each part that is missing, why.
    facts
        Seed, sample, versions, machine and seconds.
    """

    title: str
    table: TableSummary | None = None
    model: ModelSummary | None = None
    fit: FitQuality | None = None
    calibration: Calibration | None = None
    importance: Importance | None = None
    elasticities: NumericEffects | None = None
    categories: AllCategories | None = None
    trade_offs: TradeOffs | None = None
    context: ContextSummary | None = None
    axioms: Audit | None = None
    examples: tuple[ExampleSet, ...] | None = None
    removals: str | None = None
    names: ColumnNames = DEFAULT_NAMES
    left_out: Mapping[str, str] = field(default_factory=dict)  # part -> why
    facts: Mapping[str, Any] = field(default_factory=dict)  # seed, sample, versions, machine, seconds

    def _short(self) -> str:
        there = [name for name in PARTS if getattr(self, name) is not None]
        return f"{self.title}; {', '.join(there)}; figures by .plot"

    @property
    def plot(self) -> ExplanationPlots:
        """The figures: ``explanation.plot.importance()`` and others; see :class:`ExplanationPlots`."""
        return ExplanationPlots(self)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found, in sentences."""
        return findings(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON; an infinite number is None."""
        there = [name for name in PARTS if getattr(self, name) is not None]
        names = ("title", "findings", *there, "removals", "left_out", "facts")
        return {name: to_json(getattr(self, name)) for name in names}

    def summary(self) -> dict[str, Any]:
        """Return the numbers to see first, and what was left out, as plain values that survive JSON."""
        found: dict[str, Any] = {}
        if self.findings:
            found["findings"] = [finding.text for finding in self.findings]
        if self.table is not None:
            found |= {"choice_sets": self.table.choice_sets, "alternatives": self.table.alternatives}
        if self.model is not None:
            found |= {"model": self.model.kind, "parameters": self.model.parameters}
        if self.fit is not None:
            report = self.fit.report
            found |= {"seen_in_training": self.fit.seen, "nll": report.nll}
            found |= {f"top_{n}": value for n, value in report.top.items()}
        if self.calibration is not None:
            found["calibration_error"] = self.calibration.error
        if self.importance is not None:
            found["most_important"] = self.importance.rows[0].name
        if self.context is not None:
            found["strongest_context_effect"] = self.context.strongest
            if self.removals is not None:
                found["removals"] = self.removals
        if self.axioms is not None:
            found["axioms_obeyed"] = list(self.axioms.obeyed)
        first: dict[str, Any] = to_json({"title": self.title, "found": found, "left_out": self.left_out})
        return first


def explain(
    model: ChoiceModel,
    data: Any,
    seed: int = 0,
    *,
    sets: int = SAMPLED_SETS,
    skip: Collection[str] = (),
    baselines: Mapping[str, ChoiceModel] | None = None,
    title: str | None = None,
    progress: bool = True,
) -> Explanation:
    """Find out what a fitted model makes of a table.

    Parameters
    ----------
    model
        A fitted model of any kind.
    data
        Choice data, or a table that the model's schema reads, with or without the column of choices.
    seed
        Where all draws come from.
    sets
        Choice sets to draw for the costly parts.
    skip
        Parts to leave out, of :data:`PARTS`.
    baselines
        Label -> model to cross-validate on the table beside; the uniform model and a multinomial logit if None.
    title
        What it is about; the model's class by default.
    progress
        Show a bar on a terminal, or log a line per part elsewhere.

    Returns
    -------
    Explanation
        Written to a folder by :func:`pcmcnet.plots.write_explanation`.

    Raises
    ------
    InputError
        When the table cannot be read, or no set has a weight. A part that cannot be had is left out, and named.
    ConfigError
        When a number is out of its range, or there is no such part to skip.
    """
    began = time.perf_counter()
    require_sampling(sets=sets, seed=seed)
    for name in skip:
        if name not in PARTS:
            raise ConfigError(f"no part {name!r} to skip." + did_you_mean(name, PARTS))
    data = _read(model, data)
    require_sets(data)
    baselines = {"uniform": Uniform(), "mnl": MNL()} if baselines is None else baselines
    work = _PartBuilder(model, data, seed, sets, baselines)
    left_out = {name: "skipped, as asked for" for name in PARTS if name in skip}
    if data.chosen is None:
        left_out |= {name: "needs the choices, and the table has none" for name in NEED_CHOICES if name not in skip}
    with show_steps(len(PARTS) - len(left_out), show=progress) as report, log_once():
        for name in PARTS:
            if name in left_out:
                continue
            report.begin(name)
            since = time.perf_counter()
            try:
                work.found[name] = work.parts[name]()
                report.end(name, f"{time.perf_counter() - since:.1f} s")
            except PcmcNetError as error:
                left_out[name] = str(error)
                report.end(name, f"left out: {error}")
    where = describe_environment()
    return Explanation(
        title=title or type(model).__name__,
        **work.found,
        removals=extrapolation_warning(model, data),
        names=data.schema.names,
        left_out={name: left_out[name] for name in PARTS if name in left_out},
        facts={
            "table (SHA-256)": data.fingerprint(),
            "seed": seed,
            "sampled choice sets": len(work.sample),
            "versions": {"pcmcnet": package_version("pcmcnet"), **where["versions"]},
            "machine": where["machine"],
            "seconds": round(time.perf_counter() - began, 1),
        },
    )


class _PartBuilder:
    """Computes the parts in order; later parts use the importance ranking of earlier ones."""

    def __init__(
        self, model: ChoiceModel, data: ChoiceData, seed: int, sets: int, baselines: Mapping[str, ChoiceModel]
    ) -> None:
        counted = np.random.default_rng(seed).permutation(np.flatnonzero(data.weights > 0))
        self.sample = data.subset(np.sort(counted[:sets]))
        self.found: dict[str, Any] = {}
        limits = {"context": 10 * sets, "axioms": 25 * sets}
        self.parts: dict[str, Callable[[], Any]] = {
            "table": lambda: summarise_table(data),
            "model": lambda: summarise_model(model),
            "fit": lambda: fit_quality(model, data, baselines, seed=seed),
            "calibration": lambda: calibration(model, data, seed=seed),
            "importance": lambda: importance(model, self.sample, seed=seed),
            "elasticities": lambda: numeric_effects(model, self.sample, self.features(), seed=seed),
            "categories": lambda: all_category_effects(model, self.sample, self.order(), seed=seed),
            "trade_offs": lambda: main_trade_offs(model, self.sample, self.amounts(), seed=seed),
            "context": lambda: context_summary(
                model, data, self.features() or numeric_features(data), limit=limits["context"], seed=seed
            ),
            "axioms": lambda: audit(model, data, sets, seed, limit=limits["axioms"]),
            "examples": lambda: example_sets(model, data, seed=seed),
        }

    def order(self) -> list[str] | None:
        """Return all columns, the most important first, where that is known."""
        found = self.found.get("importance")
        return None if found is None else [row.name for row in found.rows]

    def amounts(self) -> list[str]:
        """Return the numeric features that respond as amounts do, the most important first, where that is known."""
        if "elasticities" in self.found:
            return [table.column for table in self.found["elasticities"].tables]
        return self.features() or numeric_features(self.sample)

    def features(self) -> list[str] | None:
        """Return the numeric features, the most important first, where that is known."""
        varying = numeric_features(self.sample)
        if "importance" in self.found:
            return [row.name for row in self.found["importance"].rows if row.name in varying]
        if "elasticities" in self.found:
            return [table.column for table in self.found["elasticities"].tables]
        return None


def summarise_model(model: ChoiceModel) -> ModelSummary:
    """Gather what a fitted model tells of itself."""
    inside = {"": model, **{f"member {k}": member for k, member in enumerate(getattr(model, "members_", []), start=1)}}
    return ModelSummary(
        kind=type(model).__name__,
        options=asdict(model.config),
        parameters=model.num_parameters,
        training={
            name: value for name, value in model.require_fitted().facts.items() if not isinstance(value, Mapping)
        },
        caveats=model.caveats,
        summary=model.summary(),
        histories={name: list(each.history) for name, each in inside.items() if each.history},
    )


def _read(model: Any, data: Any) -> ChoiceData:
    """Pass choice data on; read a table by the schema of the model, with choices and weights where it has them."""
    if not isinstance(model, ChoiceModel):
        raise InputError(f"model: expected a fitted model such as PCMCNet, got {type(model).__name__}.")
    schema = model.schema
    if isinstance(data, ChoiceData):
        return data
    rows = read_table(data, text=schema.text_columns, ids=schema.id_columns)
    known = schema.has_choices_in(rows.column_names)
    return ChoiceData.from_schema(rows, schema if known else schema.for_prediction())
