"""A part of an explanation -> the section of the report on it, for a notebook that shows the part alone."""

from __future__ import annotations

from typing import Any

from pcmcnet.insight.axioms import Audit
from pcmcnet.insight.calibration import Calibration
from pcmcnet.insight.category_effects import AllCategories
from pcmcnet.insight.context_summary import ContextSummary
from pcmcnet.insight.example_sets import ExampleSet
from pcmcnet.insight.explanation import Explanation, ModelSummary
from pcmcnet.insight.fit_quality import FitQuality
from pcmcnet.insight.numeric_effects import NumericEffects
from pcmcnet.insight.table_summary import TableSummary
from pcmcnet.plots.explanation.answers import axioms_section, context_section, examples_section
from pcmcnet.plots.explanation.quality import calibration_section, fit_section
from pcmcnet.plots.explanation.responses import categories_section, elasticities_section
from pcmcnet.plots.explanation.sections import findings_section, glance_section, model_section, table_section
from pcmcnet.reports.drawing import draws
from pcmcnet.reports.sections import Section


@draws("section")
def section_of(part: Any) -> Section:
    """Return the section on a part; of a whole explanation, what its report opens with."""
    if isinstance(part, Explanation):
        opening = [findings_section(part.findings)] if part.findings else []
        blocks = [block for section in (*opening, glance_section(part)) for block in section.blocks]
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
