"""The training loop that all networks share, and prediction in batches."""

from pcmcnet.training.checkpoint import Checkpoint
from pcmcnet.training.config import TrainConfig
from pcmcnet.training.loop import TrainingOutcome, train
from pcmcnet.training.network import ChoiceNetwork

__all__ = ["Checkpoint", "ChoiceNetwork", "TrainConfig", "TrainingOutcome", "train"]
