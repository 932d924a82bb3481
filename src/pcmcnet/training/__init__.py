"""One training loop for every network."""

from pcmcnet.training.checkpoint import Checkpoint
from pcmcnet.training.config import TrainConfig
from pcmcnet.training.loop import Outcome, train

__all__ = ["Checkpoint", "Outcome", "TrainConfig", "train"]
