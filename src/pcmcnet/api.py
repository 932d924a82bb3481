"""The public names of pcmcnet, under which ``import pcmcnet`` gives them: the one module that takes from anywhere."""

from pcmcnet.data import ChoiceData, ScannedData, Schema
from pcmcnet.data.contents import Frozen
from pcmcnet.errors import PcmcNetError, StopFit
from pcmcnet.evaluation import (
    BootstrapErrors,
    Comparison,
    Leaderboard,
    ModelTable,
    Outcome,
    Report,
    bootstrap_errors,
    compare,
    evaluate,
    hausman_mcfadden,
    leaderboard,
    likelihood_ratio,
    table,
    vuong,
)
from pcmcnet.insight.explanation import Explanation, explain
from pcmcnet.layers import stationary_distribution
from pcmcnet.models import (
    MNL,
    MODELS,
    PCMC,
    BradleyTerry,
    Calibrated,
    CrossNestedMNL,
    Ensemble,
    LatentClassMNL,
    LinearPCMC,
    NestedMNL,
    PCMCNet,
    PointerNetwork,
    RandomForest,
    RankBy,
    Thurstone,
    Uniform,
    load,
)
from pcmcnet.storage.versions import package_version
from pcmcnet.tuning import Tuning, tune

__version__ = package_version("pcmcnet")

__all__ = [
    "MNL",
    "MODELS",
    "PCMC",
    "BootstrapErrors",
    "BradleyTerry",
    "Calibrated",
    "ChoiceData",
    "Comparison",
    "CrossNestedMNL",
    "Ensemble",
    "Explanation",
    "Frozen",
    "LatentClassMNL",
    "Leaderboard",
    "LinearPCMC",
    "ModelTable",
    "NestedMNL",
    "Outcome",
    "PCMCNet",
    "PcmcNetError",
    "PointerNetwork",
    "RandomForest",
    "RankBy",
    "Report",
    "ScannedData",
    "Schema",
    "StopFit",
    "Thurstone",
    "Tuning",
    "Uniform",
    "bootstrap_errors",
    "compare",
    "evaluate",
    "explain",
    "hausman_mcfadden",
    "leaderboard",
    "likelihood_ratio",
    "load",
    "stationary_distribution",
    "table",
    "tune",
    "vuong",
]
