"""Hyperparameter search: search spaces, trials on held-out sets, and the tuned model.

Optuna is imported only when it is needed.
"""

from pcmcnet.tuning.result import TrialRecord, Tuning, Verdict
from pcmcnet.tuning.search import tune
from pcmcnet.tuning.space import Choice, Range, Space

__all__ = ["Choice", "Range", "Space", "TrialRecord", "Tuning", "Verdict", "tune"]
