"""Tests of fitted models: restrictions, independence of irrelevant alternatives, models that are not nested."""

from pcmcnet.evaluation.hypothesis_tests.hausman_mcfadden import hausman_mcfadden
from pcmcnet.evaluation.hypothesis_tests.likelihood_ratio import likelihood_ratio
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome
from pcmcnet.evaluation.hypothesis_tests.vuong import vuong

__all__ = ["Outcome", "hausman_mcfadden", "likelihood_ratio", "vuong"]
