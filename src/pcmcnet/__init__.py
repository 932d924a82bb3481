"""Feature-based pairwise choice Markov chains: fit a table, ask for probabilities."""

from pcmcnet.data import ChoiceData, Schema
from pcmcnet.errors import PcmcNetError
from pcmcnet.evaluation import Report, evaluate
from pcmcnet.layers import stationary_distribution
from pcmcnet.models import MODELS, PCMCNet, load

__all__ = [
    "MODELS",
    "ChoiceData",
    "PCMCNet",
    "PcmcNetError",
    "Report",
    "Schema",
    "evaluate",
    "load",
    "stationary_distribution",
]
