"""Search for options: a space, trials on held-out sets, the best or the defaults fitted. Optuna is loaded on use."""

from pcmcnet.tuning.result import TrialRecord, Tuning, Verdict
from pcmcnet.tuning.search import tune
from pcmcnet.tuning.space import Choice, Range, Space

__all__ = ["Choice", "Range", "Space", "TrialRecord", "Tuning", "Verdict", "tune"]
