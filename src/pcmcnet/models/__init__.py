"""All choice models, with a common interface and a registry that maps names to models."""

from collections.abc import Iterable

from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.boosted import Boosted as Boosted
from pcmcnet.models.bradley_terry import BradleyTerry as BradleyTerry
from pcmcnet.models.calibrated import Calibrated as Calibrated
from pcmcnet.models.cdm import CDM as CDM
from pcmcnet.models.cross_nested_mnl import CrossNestedMNL as CrossNestedMNL
from pcmcnet.models.deephalo import DeepHalo as DeepHalo
from pcmcnet.models.ensemble import Ensemble as Ensemble
from pcmcnet.models.fate import FATE as FATE
from pcmcnet.models.feta import FETA as FETA
from pcmcnet.models.interface.chain_model import ChainModel as ChainModel
from pcmcnet.models.interface.choice_model import ChoiceModel as ChoiceModel
from pcmcnet.models.interface.parse_options import parse_options
from pcmcnet.models.interface.saving import load as load
from pcmcnet.models.latent_class_mnl import LatentClassMNL as LatentClassMNL
from pcmcnet.models.lcl import DLCL as DLCL
from pcmcnet.models.lcl import LCL as LCL
from pcmcnet.models.learning_mnl import LearningMNL as LearningMNL
from pcmcnet.models.linear_pcmc import LinearPCMC as LinearPCMC
from pcmcnet.models.mixed_mnl import MixedMNL as MixedMNL
from pcmcnet.models.mnl import MNL as MNL
from pcmcnet.models.nested_mnl import NestedMNL as NestedMNL
from pcmcnet.models.pcmc import PCMC as PCMC
from pcmcnet.models.pcmcnet import PCMCNet as PCMCNet
from pcmcnet.models.pointer_network import PointerNetwork as PointerNetwork
from pcmcnet.models.random_forest import RandomForest as RandomForest
from pcmcnet.models.reslogit import ResLogit as ResLogit
from pcmcnet.models.rules import RankBy as RankBy
from pcmcnet.models.rules import Uniform as Uniform
from pcmcnet.models.rumnet import RUMnet as RUMnet
from pcmcnet.models.stacking import Stacking as Stacking
from pcmcnet.models.tastenet import TasteNet as TasteNet
from pcmcnet.models.tcnet import TCNet as TCNet
from pcmcnet.models.thurstone import Thurstone as Thurstone
from pcmcnet.models.with_constants import WithConstants as WithConstants

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
        Stacking,
        TasteNet,
        Thurstone,
        Uniform,
    )
}

# Models that can be loaded. The options of a wrapper include the name and the options of the model inside.
KINDS: dict[str, type[ChoiceModel]] = {**MODELS, **{kind.name: kind for kind in (Calibrated, Ensemble, WithConstants)}}


def model_class(name: str) -> type[ChoiceModel]:
    """Return the model class with the given name. Raise ConfigError if the name is unknown."""
    if name not in MODELS:
        raise ConfigError(f"unknown model {name!r}." + did_you_mean(name, MODELS))
    return MODELS[name]


def model_from_options(name: str, settings: Iterable[str]) -> ChoiceModel:
    """Build a model from its name and from options given as text, such as ``hidden=64,64``."""
    kind = model_class(name)
    return kind(**parse_options(kind.config_class, settings))
