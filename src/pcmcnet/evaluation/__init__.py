"""Probabilities and choices -> metrics, intervals and reports."""

from pcmcnet.evaluation.report import Report, evaluate

__all__ = ["Report", "evaluate"]
