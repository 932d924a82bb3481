"""Evaluation of models: metrics with intervals, comparisons, leaderboards, hypothesis tests and tables of estimates.

Hypothesis tests need PyTorch and are imported when they are first used.
"""

from typing import TYPE_CHECKING

from pcmcnet.evaluation.bootstrap import BootstrapErrors, bootstrap_errors
from pcmcnet.evaluation.compare import compare
from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.evaluation.delta import DerivedEstimate, DerivedEstimates, delta
from pcmcnet.evaluation.leaderboard import leaderboard
from pcmcnet.evaluation.model_table import ModelTable, table
from pcmcnet.evaluation.report import Report, evaluate
from pcmcnet.evaluation.scorer import scorer
from pcmcnet.evaluation.standings import Leaderboard
from pcmcnet.imports import lazy_names

if TYPE_CHECKING:
    from pcmcnet.evaluation.hypothesis_tests.hausman_mcfadden import hausman_mcfadden
    from pcmcnet.evaluation.hypothesis_tests.horowitz import horowitz
    from pcmcnet.evaluation.hypothesis_tests.lagrange_multiplier import score_test
    from pcmcnet.evaluation.hypothesis_tests.likelihood_ratio import likelihood_ratio
    from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome
    from pcmcnet.evaluation.hypothesis_tests.swait_louviere import SwaitLouviere, swait_louviere
    from pcmcnet.evaluation.hypothesis_tests.vuong import vuong
    from pcmcnet.evaluation.hypothesis_tests.wald import wald
else:
    _TESTS = (
        *("Outcome", "SwaitLouviere", "hausman_mcfadden", "horowitz", "likelihood_ratio", "score_test"),
        *("swait_louviere", "vuong", "wald"),
    )
    __getattr__ = lazy_names(__name__, dict.fromkeys(_TESTS, "hypothesis_tests"))

__all__ = [
    "BootstrapErrors",
    "Comparison",
    "DerivedEstimate",
    "DerivedEstimates",
    "Leaderboard",
    "ModelTable",
    "Outcome",
    "Report",
    "SwaitLouviere",
    "bootstrap_errors",
    "compare",
    "delta",
    "evaluate",
    "hausman_mcfadden",
    "horowitz",
    "leaderboard",
    "likelihood_ratio",
    "score_test",
    "scorer",
    "swait_louviere",
    "table",
    "vuong",
    "wald",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
