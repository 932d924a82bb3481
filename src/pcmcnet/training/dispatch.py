"""Which steps train a module: the fastest that the module, its data and its device allow."""

from __future__ import annotations

from torch import nn

from pcmcnet.data.batches import Source
from pcmcnet.training import compiled_steps
from pcmcnet.training.compiled_steps import CompiledSteps, SmallNetwork
from pcmcnet.training.config import TrainConfig
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.step import RecordedSteps, SharedSteps, Steps


def steps_for(module: nn.Module, source: Source, config: TrainConfig) -> Steps:
    """Return the steps of a run: shared by a group of processes, recorded on a GPU, compiled for a small network."""
    if (group := current_group()).size > 1:
        return SharedSteps(module, source, config, group)
    if source.device.type == "cuda" and getattr(module, "capturable", False):
        return RecordedSteps(module, source, config)
    form: SmallNetwork | None = getattr(module, "small_network", None)
    if source.device.type == "cpu" and form is not None and compiled_steps.library() is not None:
        return CompiledSteps(module, source, config, form)
    return Steps(module, source, config)
