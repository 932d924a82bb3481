"""Models: layers assembled, behind one interface."""

from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.artifact import load
from pcmcnet.models.base import ChoiceModel
from pcmcnet.models.pcmcnet import PCMCNet

MODELS: dict[str, type[ChoiceModel]] = {model.name: model for model in (PCMCNet,)}


def model_class(name: str) -> type[ChoiceModel]:
    """Return the class registered under a name."""
    if name not in MODELS:
        raise ConfigError(f"unknown model {name!r}." + did_you_mean(name, MODELS))
    return MODELS[name]


__all__ = ["MODELS", "ChoiceModel", "PCMCNet", "load", "model_class"]
