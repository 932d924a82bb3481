"""Probabilities and choices -> metrics, intervals, reports and comparisons."""

from pcmcnet.evaluation.compare import compare
from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.evaluation.report import Report, evaluate

__all__ = ["Comparison", "Report", "compare", "evaluate"]
