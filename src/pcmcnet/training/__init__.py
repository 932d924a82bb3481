"""The training loop that all networks share, and prediction in batches.

Most names need PyTorch and are imported when they are first used.
"""

from typing import TYPE_CHECKING

from pcmcnet.imports import lazy_names

__all__ = ["Checkpoint", "ChoiceNetwork", "TrainConfig", "TrainingOutcome", "train"]

if TYPE_CHECKING:
    from pcmcnet.training.checkpoint import Checkpoint
    from pcmcnet.training.config import TrainConfig
    from pcmcnet.training.loop import TrainingOutcome, train
    from pcmcnet.training.network import ChoiceNetwork
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "Checkpoint": "checkpoint",
            "ChoiceNetwork": "network",
            "TrainConfig": "config",
            "TrainingOutcome": "loop",
            "train": "loop",
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
