"""All choice models, with a common interface and a registry that maps names to models.

A model is imported when its class is first used: networks need PyTorch, which takes longer to import than many fits of
a logit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.imports import lazy_names

# Each model by its name: the module and the class. Families are the headings of docs/models/index.md.
FAMILIES: dict[str, dict[str, str]] = {
    "Averages": {"stacking": "stacking.Stacking"},
    "Chains": {"pcmcnet": "pcmcnet.PCMCNet", "pcmc": "pcmc.PCMC", "pcmc-linear": "linear_pcmc.LinearPCMC"},
    "Logits with inference": {
        "mnl": "mnl.MNL",
        "nested-mnl": "nested_mnl.NestedMNL",
        "cross-nested-mnl": "cross_nested_mnl.CrossNestedMNL",
        "lc-mnl": "latent_class_mnl.LatentClassMNL",
        "mixed-mnl": "mixed_mnl.MixedMNL",
        "hb-mnl": "hierarchical_mnl.HierarchicalMNL",
    },
    "Networks with utilities": {
        "tastenet": "tastenet.TasteNet",
        "lmnl": "learning_mnl.LearningMNL",
        "reslogit": "reslogit.ResLogit",
        "rumnet": "rumnet.RUMnet",
    },
    "Networks of the whole set": {
        "fate": "fate.FATE",
        "feta": "feta.FETA",
        "tcnet": "tcnet.TCNet",
        "deephalo": "deephalo.DeepHalo",
        "dpn": "pointer_network.PointerNetwork",
    },
    "Context logits": {"lcl": "lcl.LCL", "dlcl": "lcl.DLCL", "cdm": "cdm.CDM"},
    "Strengths of labels": {"bradley-terry": "bradley_terry.BradleyTerry", "thurstone": "thurstone.Thurstone"},
    "Trees": {"boosted": "boosted.Boosted", "rf": "random_forest.RandomForest"},
    "Baselines": {"rank-by": "rules.RankBy", "uniform": "rules.Uniform"},
}
# What other packages call a model.
_OTHER_NAMES = {
    **dict.fromkeys(
        ["logit", "clogit", "cl", "mlogit", "mnlogit", "conditional-logit", "multinomial", "multinomial-logit"], "mnl"
    ),
    **dict.fromkeys(["logistic", "logistic-regression", "softmax", "linear"], "mnl"),
    **dict.fromkeys(["nl", "nested", "nested-logit"], "nested-mnl"),
    **dict.fromkeys(["cnl", "cross-nested", "cross-nested-logit"], "cross-nested-mnl"),
    **dict.fromkeys(["lc", "lcm", "latent-class", "latent-class-logit"], "lc-mnl"),
    **dict.fromkeys(["mixl", "mxl", "mixed", "mixed-logit", "rpl", "random-parameters"], "mixed-mnl"),
    **dict.fromkeys(["random-forest", "forest"], "rf"),
    **dict.fromkeys(["xgboost", "xgb", "lightgbm", "lgbm", "catboost", "gbm", "gradient-boosting", "trees"], "boosted"),
    **dict.fromkeys(["nn", "mlp", "neural", "neural-network", "network", "deep", "pcmc-net"], "pcmcnet"),
    **dict.fromkeys(["stack", "ensemble", "stacked", "best"], "stacking"),
    **dict.fromkeys(["transformer"], "tcnet"),
    **dict.fromkeys(["pointer-network", "pointer"], "dpn"),
    **dict.fromkeys(["random", "chance", "dummy", "baseline"], "uniform"),
    **dict.fromkeys(["probit"], "thurstone"),
}
_PLACES = {name: place for family in FAMILIES.values() for name, place in family.items()}
_WRAPPERS = {
    "calibrated": "calibrated.Calibrated",
    "ensemble": "ensemble.Ensemble",
    "with-constants": "with_constants.WithConstants",
}

if TYPE_CHECKING:
    from pcmcnet.models.boosted import Boosted as Boosted
    from pcmcnet.models.bradley_terry import BradleyTerry as BradleyTerry
    from pcmcnet.models.calibrated import Calibrated as Calibrated
    from pcmcnet.models.cdm import CDM as CDM
    from pcmcnet.models.cross_nested_mnl import CrossNestedMNL as CrossNestedMNL
    from pcmcnet.models.deephalo import DeepHalo as DeepHalo
    from pcmcnet.models.ensemble import Ensemble as Ensemble
    from pcmcnet.models.fate import FATE as FATE
    from pcmcnet.models.feta import FETA as FETA
    from pcmcnet.models.hierarchical_mnl import HierarchicalMNL as HierarchicalMNL
    from pcmcnet.models.interface.chain_model import ChainModel as ChainModel
    from pcmcnet.models.interface.choice_model import ChoiceModel as ChoiceModel
    from pcmcnet.models.interface.parse_options import parse_options as parse_options
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
else:
    __getattr__ = lazy_names(
        __name__,
        {place.partition(".")[2]: place.partition(".")[0] for place in (*_PLACES.values(), *_WRAPPERS.values())}
        | {
            "ChainModel": "interface.chain_model",
            "ChoiceModel": "interface.choice_model",
            "load": "interface.saving",
            "parse_options": "interface.parse_options",
        },
    )


class Registry(Mapping[str, type["ChoiceModel"]]):
    """Model classes by name. A class is imported when it is looked up."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> type[ChoiceModel]:
        if name not in self._places:  # a mapping raises KeyError
            raise KeyError(f"unknown model {name!r}." + did_you_mean(name, self._places, _OTHER_NAMES))
        module, _, kind = self._places[name].partition(".")
        model: type[ChoiceModel] = getattr(import_module(f"{__name__}.{module}"), kind)
        return model

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __repr__(self) -> str:
        return f"Registry({', '.join(self._places)})"


MODELS = Registry(_PLACES)

# Models that can be loaded. The options of a wrapper include the name and the options of the model inside.
KINDS = Registry({**_PLACES, **_WRAPPERS})


def model_class(name: str) -> type[ChoiceModel]:
    """Return the model class with the given name. Raise ConfigError if the name is unknown."""
    if name not in MODELS:
        raise ConfigError(f"unknown model {name!r}." + did_you_mean(name, MODELS, _OTHER_NAMES))
    return MODELS[name]


def model_from_options(name: str, settings: Iterable[str]) -> ChoiceModel:
    """Build a model from its name and from options given as text, such as ``hidden=64,64``."""
    from pcmcnet.models.interface.parse_options import parse_options

    kind = model_class(name)
    return kind(**parse_options(kind.config_class, settings))
