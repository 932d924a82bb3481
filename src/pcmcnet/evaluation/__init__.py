"""Evaluation of models: metrics with intervals, comparisons, leaderboards, hypothesis tests and tables of estimates."""

from pcmcnet.evaluation.bootstrap import BootstrapErrors, bootstrap_errors
from pcmcnet.evaluation.compare import compare
from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.evaluation.delta import DerivedEstimate, DerivedEstimates, delta
from pcmcnet.evaluation.hypothesis_tests import Outcome, hausman_mcfadden, likelihood_ratio, vuong
from pcmcnet.evaluation.leaderboard import leaderboard
from pcmcnet.evaluation.model_table import ModelTable, table
from pcmcnet.evaluation.report import Report, evaluate
from pcmcnet.evaluation.scorer import scorer
from pcmcnet.evaluation.standings import Leaderboard

__all__ = [
    "BootstrapErrors",
    "Comparison",
    "DerivedEstimate",
    "DerivedEstimates",
    "Leaderboard",
    "ModelTable",
    "Outcome",
    "Report",
    "bootstrap_errors",
    "compare",
    "delta",
    "evaluate",
    "hausman_mcfadden",
    "leaderboard",
    "likelihood_ratio",
    "scorer",
    "table",
    "vuong",
]
