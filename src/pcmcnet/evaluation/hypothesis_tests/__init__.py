"""Hypothesis tests of fitted models: nested models, independence of irrelevant alternatives, non-nested models."""

from pcmcnet.evaluation.hypothesis_tests.hausman_mcfadden import hausman_mcfadden
from pcmcnet.evaluation.hypothesis_tests.likelihood_ratio import likelihood_ratio
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome
from pcmcnet.evaluation.hypothesis_tests.vuong import vuong

__all__ = ["Outcome", "hausman_mcfadden", "likelihood_ratio", "vuong"]
