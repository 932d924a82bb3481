"""Models: layers assembled, behind one interface."""

from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.artifact import load
from pcmcnet.models.base import ChoiceModel
from pcmcnet.models.bradley_terry import BradleyTerry
from pcmcnet.models.calibrated import Calibrated
from pcmcnet.models.chains import ChainModel
from pcmcnet.models.ensemble import Ensemble
from pcmcnet.models.latent_class_mnl import LatentClassMNL
from pcmcnet.models.linear_pcmc import LinearPCMC
from pcmcnet.models.mnl import MNL
from pcmcnet.models.nested_mnl import NestedMNL
from pcmcnet.models.pcmc import PCMC
from pcmcnet.models.pcmcnet import PCMCNet
from pcmcnet.models.pointer_network import PointerNetwork
from pcmcnet.models.random_forest import RandomForest
from pcmcnet.models.rank_by import RankBy
from pcmcnet.models.thurstone import Thurstone
from pcmcnet.models.uniform import Uniform

MODELS: dict[str, type[ChoiceModel]] = {
    model.name: model
    for model in (
        BradleyTerry,
        LinearPCMC,
        MNL,
        LatentClassMNL,
        NestedMNL,
        PCMC,
        PCMCNet,
        PointerNetwork,
        RandomForest,
        RankBy,
        Thurstone,
        Uniform,
    )
}

# What may be in a saved folder: a wrapper has the name and the options of another model among its own.
KINDS: dict[str, type[ChoiceModel]] = {**MODELS, Calibrated.name: Calibrated, Ensemble.name: Ensemble}


def model_class(name: str) -> type[ChoiceModel]:
    """Return the class registered under a name."""
    if name not in MODELS:
        raise ConfigError(f"unknown model {name!r}." + did_you_mean(name, MODELS))
    return MODELS[name]


__all__ = [
    "KINDS",
    "MNL",
    "MODELS",
    "PCMC",
    "BradleyTerry",
    "Calibrated",
    "ChainModel",
    "ChoiceModel",
    "Ensemble",
    "LatentClassMNL",
    "LinearPCMC",
    "NestedMNL",
    "PCMCNet",
    "PointerNetwork",
    "RandomForest",
    "RankBy",
    "Thurstone",
    "Uniform",
    "load",
    "model_class",
]
