"""Models: layers assembled, behind one interface."""

from collections.abc import Iterable

from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.boosted import Boosted
from pcmcnet.models.bradley_terry import BradleyTerry
from pcmcnet.models.calibrated import Calibrated
from pcmcnet.models.cdm import CDM
from pcmcnet.models.cross_nested_mnl import CrossNestedMNL
from pcmcnet.models.deephalo import DeepHalo
from pcmcnet.models.ensemble import Ensemble
from pcmcnet.models.fate import FATE
from pcmcnet.models.feta import FETA
from pcmcnet.models.interface.chain_model import ChainModel
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.parse_options import parse_options
from pcmcnet.models.interface.saving import load
from pcmcnet.models.latent_class_mnl import LatentClassMNL
from pcmcnet.models.lcl import DLCL, LCL
from pcmcnet.models.learning_mnl import LearningMNL
from pcmcnet.models.linear_pcmc import LinearPCMC
from pcmcnet.models.mixed_mnl import MixedMNL
from pcmcnet.models.mnl import MNL
from pcmcnet.models.nested_mnl import NestedMNL
from pcmcnet.models.pcmc import PCMC
from pcmcnet.models.pcmcnet import PCMCNet
from pcmcnet.models.pointer_network import PointerNetwork
from pcmcnet.models.random_forest import RandomForest
from pcmcnet.models.reslogit import ResLogit
from pcmcnet.models.rules import RankBy, Uniform
from pcmcnet.models.rumnet import RUMnet
from pcmcnet.models.tastenet import TasteNet
from pcmcnet.models.tcnet import TCNet
from pcmcnet.models.thurstone import Thurstone
from pcmcnet.models.with_constants import WithConstants

MODELS: dict[str, type[ChoiceModel]] = {
    model.name: model
    for model in (
        Boosted,
        BradleyTerry,
        CDM,
        CrossNestedMNL,
        DLCL,
        LCL,
        DeepHalo,
        FATE,
        FETA,
        TCNet,
        LinearPCMC,
        MNL,
        LatentClassMNL,
        LearningMNL,
        MixedMNL,
        NestedMNL,
        PCMC,
        PCMCNet,
        PointerNetwork,
        RandomForest,
        RankBy,
        ResLogit,
        RUMnet,
        TasteNet,
        Thurstone,
        Uniform,
    )
}

# What may be in a saved folder: a wrapper has the name and the options of another model among its own.
KINDS: dict[str, type[ChoiceModel]] = {**MODELS, **{kind.name: kind for kind in (Calibrated, Ensemble, WithConstants)}}


def model_class(name: str) -> type[ChoiceModel]:
    """Return the class registered under a name."""
    if name not in MODELS:
        raise ConfigError(f"unknown model {name!r}." + did_you_mean(name, MODELS))
    return MODELS[name]


def model_in_words(name: str, settings: Iterable[str]) -> ChoiceModel:
    """Make a model of its name and of options in words, such as ``hidden=64,64``."""
    kind = model_class(name)
    return kind(**parse_options(kind.config_class, settings))


__all__ = [
    "CDM",
    "DLCL",
    "FATE",
    "FETA",
    "KINDS",
    "LCL",
    "MNL",
    "MODELS",
    "PCMC",
    "Boosted",
    "BradleyTerry",
    "Calibrated",
    "ChainModel",
    "ChoiceModel",
    "CrossNestedMNL",
    "DeepHalo",
    "Ensemble",
    "LatentClassMNL",
    "LearningMNL",
    "LinearPCMC",
    "MixedMNL",
    "NestedMNL",
    "PCMCNet",
    "PointerNetwork",
    "RUMnet",
    "RandomForest",
    "RankBy",
    "ResLogit",
    "TCNet",
    "TasteNet",
    "Thurstone",
    "Uniform",
    "WithConstants",
    "load",
    "model_class",
    "model_in_words",
]
