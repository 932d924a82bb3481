"""Search for options: a space, trials on a part held out, the best fitted again. Optuna is loaded by searching only."""

from pcmcnet.tuning.result import TrialRecord, Tuning
from pcmcnet.tuning.search import tune
from pcmcnet.tuning.space import Choice, Range, Space

__all__ = ["Choice", "Range", "Space", "TrialRecord", "Tuning", "tune"]
