"""Probabilities and choices -> metrics, intervals, reports and comparisons."""

from pcmcnet.evaluation.compare import compare
from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.evaluation.leaderboard import leaderboard
from pcmcnet.evaluation.report import Report, evaluate
from pcmcnet.evaluation.standings import Leaderboard

__all__ = ["Comparison", "Leaderboard", "Report", "compare", "evaluate", "leaderboard"]
