"""Explain a fitted model in several parts, based on a table of choices.

A part that was skipped or cannot be computed is None, and ``left_out`` gives the reason. Expensive parts use only a
sample of the choice sets, so their cost does not grow with the table.

    part           needs choices  predicts
    table          no             nothing
    model          no             nothing
    fit            yes            all sets; baselines up to 5,000
    calibration    yes            all sets
    importance     yes            the sample, each column shuffled 5 times
    elasticities   no             the sample; two copies of each set per alternative if the model has no derivatives
    categories     no             the sample, a copy of each set per category
    trade_offs     no             60 sets of the sample, as for elasticities
    context        no             10 sets for each set of the sample
    axioms         no             the sample, 25 sets for each set of it
    examples       no             up to 5,000 sets, and three sets without each of their alternatives
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pcmcnet.checks import suggests_arguments
from pcmcnet.data import ChoiceData, read_chunked
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
    NumericEffects,
    all_category_effects,
    numeric_effects,
    numeric_features,
)
from pcmcnet.insight.findings import Finding, findings
from pcmcnet.insight.importance import Importance, importance
from pcmcnet.insight.queries import require_sampling
from pcmcnet.insight.removals import extrapolation_warning
from pcmcnet.insight.table_summary import ExampleSet, TableSummary, example_sets, summarise_table
from pcmcnet.insight.willingness_to_pay import TradeOffs, main_trade_offs
from pcmcnet.models import MNL, Uniform
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.progress import log_once, show_steps
from pcmcnet.reports.formats import ReportPartMixin, Summary, ToDictMixin, to_json
from pcmcnet.storage import package_version

PARTS = (
    *("table", "model", "fit", "calibration", "importance", "elasticities", "categories", "trade_offs", "context"),
    *("axioms", "examples"),
)
NEED_CHOICES = ("fit", "calibration", "importance")
SAMPLED_SETS = 150


@dataclass(frozen=True, kw_only=True)
class ModelSummary(ToDictMixin, ReportPartMixin):
    """Options, size and training of a fitted model.

    Attributes
    ----------
    kind
        Name of the model class.
    options
        Options of the model.
    parameters
        Number of parameters.
    training
        Mapping with facts about the fit.
    caveats
        Limitations reported by the model.
    sign_caveats
        Caveats about wrong signs, by column. The ``caveats`` contain them, too.
    summary
        Summary table of the model.
    histories
        Losses of each network by epoch (empty for models without epochs).
    """

    kind: str
    options: Mapping[str, Any]
    parameters: int
    training: Mapping[str, Any]
    caveats: tuple[str, ...]
    sign_caveats: Mapping[str, str]
    summary: Summary
    histories: Mapping[str, list[dict[str, Any]]]

    def _frame_rows(self) -> list[dict[str, Any]]:
        return self.summary._frame_rows()

    def _short(self) -> str:
        return f"{self.kind}, {self.parameters:,} parameters"


@dataclass(frozen=True, kw_only=True)
class Explanation(ReportPartMixin):
    """Result of :func:`explain`.

    Attributes
    ----------
    title
        The title of the report.
    table, model, fit, calibration, importance, elasticities, categories, trade_offs, context, axioms, examples
        Parts of the explanation, each None if it was left out.
    removals
        Warning that the effects of removals are extrapolated, or None if the training sets offer different
        alternatives.
    names
        Display names and units of the columns.
    left_out
        Mapping from each missing part to the reason why it is missing.
    facts
        Seed, sample size, versions, machine and run time.
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
    left_out: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [finding.to_dict() for finding in self.findings]

    def _short(self) -> str:
        return f"{self.title}; {', '.join(self._parts)}; figures: .plot"

    @property
    def _parts(self) -> list[str]:
        """Names of the parts that are present."""
        return [name for name in PARTS if getattr(self, name) is not None]

    @property
    def plot(self) -> ExplanationPlots:
        """Figures of the explanation, such as ``explanation.plot.importance()``.

        All figures are listed in :class:`ExplanationPlots`.
        """
        return ExplanationPlots(self)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The main results in plain sentences, sorted by usefulness."""
        return findings(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as an HTML page, or all files of the report to a folder.

        Parameters
        ----------
        path
            Name of an HTML page that ends in .html, or a folder for ``report.html``, ``report.md`` and
            ``explanation.json``. An existing file is replaced.

        Returns
        -------
        Path
            The page.

        Raises
        ------
        InputError
            If the file or folder cannot be written.
        ConfigError
            If plotly is not installed.
        """
        from pcmcnet.plots.report import save_explanation

        return save_explanation(self, path)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON-compatible values, with None for infinite numbers."""
        names = ("title", "findings", *self._parts, "removals", "left_out", "facts")
        return {name: to_json(getattr(self, name)) for name in names}

    def summary(self) -> dict[str, Any]:
        """Return the key figures and the missing parts as JSON-compatible values."""
        figures: dict[str, Any] = {}
        if self.findings:
            figures["findings"] = [finding.text for finding in self.findings]
        if self.table is not None:
            figures |= {"choice_sets": self.table.choice_sets, "alternatives": self.table.alternatives}
        if self.model is not None:
            figures |= {"model": self.model.kind, "parameters": self.model.parameters}
        if self.fit is not None:
            report = self.fit.report
            figures |= {"seen_in_training": self.fit.seen, "nll": report.nll}
            figures |= {f"top_{n}": value for n, value in report.top.items()}
        if self.calibration is not None:
            figures["calibration_error"] = self.calibration.error
        if self.importance is not None:
            figures["most_important"] = self.importance.rows[0].name
        if self.context is not None:
            figures["strongest_context_effect"] = self.context.strongest
            if self.removals is not None:
                figures["removals"] = self.removals
        if self.axioms is not None:
            figures["axioms_obeyed"] = list(self.axioms.obeyed)
        summary: dict[str, Any] = to_json({"title": self.title, "found": figures, "left_out": self.left_out})
        return summary


@suggests_arguments()
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
    """Explain what a fitted model has learnt, based on a table of choices.

    Parameters
    ----------
    model
        A fitted model of any kind.
    data
        Choice data, or a table that matches the model's schema, with or without the choices.
    seed
        Seed for all draws (0 by default).
    sets
        Number of choice sets to sample for the expensive parts (150 by default).
    skip
        Names of the parts to skip, out of :data:`PARTS` (none by default).
    baselines
        Mapping from names to baseline models, which are cross-validated on the table for comparison. By default, the
        baselines are the uniform model and a multinomial logit.
    title
        Title of the report (the model class by default).
    progress
        If True (the default), show a progress bar on a terminal, or log a line per part if there is no terminal.

    Returns
    -------
    Explanation
        The parts of the explanation, which :meth:`Explanation.save` writes to a file or folder. A part that
        cannot be computed is None, and ``left_out`` gives the reason.

    Raises
    ------
    InputError
        If the table cannot be read, or no set has a positive weight.
    ConfigError
        If a number is out of range, or ``skip`` contains an unknown part.
    """
    began = time.perf_counter()
    require_sampling(sets=sets, seed=seed)
    for name in skip:
        if name not in PARTS:
            raise ConfigError(f"skip: unknown part {name!r}." + did_you_mean(name, PARTS))
    data = _read(model, data)
    require_sets(data)
    baselines = {"uniform": Uniform(), "mnl": MNL()} if baselines is None else baselines
    builder = _PartBuilder(model, data, seed, sets, baselines)
    left_out = {name: "skipped" for name in PARTS if name in skip}
    if data.chosen is None:
        left_out |= {name: "the table has no choices" for name in NEED_CHOICES if name not in skip}
    with show_steps(len(PARTS) - len(left_out), show=progress) as report, log_once():
        for name in PARTS:
            if name in left_out:
                continue
            report.begin(name)
            since = time.perf_counter()
            try:
                builder.results[name] = builder.parts[name]()
                report.end(name, f"{time.perf_counter() - since:.1f} s")
            except PcmcNetError as error:
                left_out[name] = str(error)
                report.end(name, f"left out: {error}")
    where = describe_environment()
    return Explanation(
        title=title or type(model).__name__,
        **builder.results,
        removals=extrapolation_warning(model, data),
        names=data.schema.names,
        left_out={name: left_out[name] for name in PARTS if name in left_out},
        facts={
            "table (SHA-256)": data.fingerprint(),
            "seed": seed,
            "sampled choice sets": len(builder.sample),
            "versions": {"pcmcnet": package_version("pcmcnet"), **where["versions"]},
            "machine": where["machine"],
            "seconds": round(time.perf_counter() - began, 1),
        },
    )


class _PartBuilder:
    """Builder of the parts of an explanation, in which later parts use the columns in order of importance."""

    def __init__(
        self, model: ChoiceModel, data: ChoiceData, seed: int, sets: int, baselines: Mapping[str, ChoiceModel]
    ) -> None:
        counted = np.random.default_rng(seed).permutation(np.flatnonzero(data.weights > 0))
        self.sample = data.subset(np.sort(counted[:sets]))
        self.results: dict[str, Any] = {}
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
        """Return all columns in descending order of importance, or None if the importance is unknown."""
        importance = self.results.get("importance")
        return None if importance is None else [row.name for row in importance.rows]

    def amounts(self) -> list[str]:
        """Return the numeric features on a ratio scale, sorted by importance if the importance is known."""
        if "elasticities" in self.results:
            return [table.column for table in self.results["elasticities"].tables]
        return self.features() or numeric_features(self.sample)

    def features(self) -> list[str] | None:
        """Return the numeric features in descending order of importance, or None if their importance is unknown."""
        varying = numeric_features(self.sample)
        if "importance" in self.results:
            return [row.name for row in self.results["importance"].rows if row.name in varying]
        if "elasticities" in self.results:
            return [table.column for table in self.results["elasticities"].tables]
        return None


def summarise_model(model: ChoiceModel) -> ModelSummary:
    """Return the options, the size and the training history of a fitted model."""
    models = {"": model, **{f"member {k}": member for k, member in enumerate(getattr(model, "members_", []), start=1)}}
    return ModelSummary(
        kind=type(model).__name__,
        options=asdict(model.config),
        parameters=model.num_parameters,
        training={
            name: value for name, value in model.require_fitted().facts.items() if not isinstance(value, Mapping)
        },
        caveats=model.caveats,
        sign_caveats=model.sign_caveats,
        summary=model.summary(),
        histories={name: list(each.history) for name, each in models.items() if each.history},
    )


def _read(model: Any, data: Any) -> ChoiceData:
    """Return choice data, read according to the model's schema if ``data`` is a table. Choices are optional."""
    if not isinstance(model, ChoiceModel):
        raise InputError(f"model: expected a fitted model such as PCMCNet, got {type(model).__name__}.")
    schema, data = model.schema, read_chunked(data)
    if isinstance(data, ChoiceData):
        return data
    rows = read_table(data, text=schema.text_columns, ids=schema.id_columns)
    has_choices = schema.has_choices_in(rows.column_names)
    return ChoiceData.from_schema(rows, schema if has_choices else schema.for_prediction())
