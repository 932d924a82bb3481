"""Which steps train a module: the fastest that the module, its data and its device allow."""

from __future__ import annotations

from torch import nn

from pcmcnet.data.batches import Source
from pcmcnet.layers import settings
from pcmcnet.layers.gpu import has_triton
from pcmcnet.training import compiled_steps
from pcmcnet.training.compiled_steps import CompiledSteps, SmallNetwork
from pcmcnet.training.config import TrainConfig
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.device import device_of
from pcmcnet.training.step import RecordedSteps, SharedSteps, Steps


def steps_for(module: nn.Module, source: Source, config: TrainConfig) -> Steps:
    """Return the steps of a run: shared by a group of processes, recorded on a GPU, compiled for a small network."""
    if (group := current_group()).size > 1:
        return SharedSteps(module, source, config, group)
    if source.device.type == "cuda" and has_triton() and getattr(module, "capturable", False):
        return RecordedSteps(module, source, config)
    form: SmallNetwork | None = getattr(module, "small_network", None)
    if form is not None and _compiled(module, source):
        return CompiledSteps(module, source, config, form)
    return Steps(module, source, config)


def _compiled(module: nn.Module, source: Source) -> bool:
    """Tell whether there is compiled code, weights and sets are in the host's memory, and sets of moderate size."""
    on_host = source.device.type == "cpu" and device_of(module).type == "cpu"
    return on_host and source.largest <= settings.COMPILED_UP_TO_ALTERNATIVES and compiled_steps.library() is not None
