"""Hypothesis tests of fitted models: coefficients, nested and non-nested models, irrelevant alternatives, scales."""

from pcmcnet.evaluation.hypothesis_tests.hausman_mcfadden import hausman_mcfadden
from pcmcnet.evaluation.hypothesis_tests.horowitz import horowitz
from pcmcnet.evaluation.hypothesis_tests.lagrange_multiplier import score_test
from pcmcnet.evaluation.hypothesis_tests.likelihood_ratio import likelihood_ratio
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome
from pcmcnet.evaluation.hypothesis_tests.swait_louviere import SwaitLouviere, swait_louviere
from pcmcnet.evaluation.hypothesis_tests.vuong import vuong
from pcmcnet.evaluation.hypothesis_tests.wald import wald

__all__ = [
    "Outcome",
    "SwaitLouviere",
    "hausman_mcfadden",
    "horowitz",
    "likelihood_ratio",
    "score_test",
    "swait_louviere",
    "vuong",
    "wald",
]
