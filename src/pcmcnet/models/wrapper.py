"""Models around models: the inner one by its name and options, and its files beside those of the wrapper.

A wrapper's options are the name and the options of the model inside, so that they survive JSON like any others; its
saved folder holds the files of the model inside behind a prefix, ``member-1-weights.safetensors`` for instance, and
``member-1-kind.json`` with its name and how it was trained. Encoders of one's own are handed on to the model inside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData, Sets
from pcmcnet.data.columns.ragged import ordered_pairs
from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.encoders import require_encoders
from pcmcnet.models.interface.fitted import FittedModel, FittedState, TrainingTable
from pcmcnet.models.interface.saving import fit_entries, restore_model, state_files
from pcmcnet.storage import json_bytes

_KIND = "kind.json"
_INSIDE = "options__"  # before the name of an option of the model inside
MAX_LEVELS = 4  # of models around models


def instance_property(value: Callable[[Any], Any]) -> Any:
    """Return a property for what is a class variable of other models, and depends on the model inside a wrapper."""
    return property(value)


class Wrapper(ChoiceModel):
    """A model around another, with the encoders of one's own that the inner one is to have."""

    config: Any
    gives = instance_property(lambda wrapper: wrapper._inner().gives)
    order_matters = instance_property(lambda wrapper: wrapper._inner().order_matters)
    reads_contents = instance_property(lambda wrapper: wrapper._inner().reads_contents)
    stops_early = instance_property(lambda wrapper: wrapper._inner().stops_early)

    def __init__(
        self, inner: Any, inner_options: Mapping[str, Any] | None, encoders: Mapping[str, Any] | None, /, **options: Any
    ) -> None:
        super().__init__(**wrapper_options(inner, inner_options), **options)
        if isinstance(inner, ChoiceModel):
            if encoders is not None:
                raise ConfigError("encoders belong to a model given by its name: a model object has its own.")
            extras = dict(inner.extras)
        else:
            extras = {"encoders": modules} if (modules := require_encoders(encoders)) else {}
        self._inner_extras: dict[str, Any] = extras  # what the model inside is given beside its options
        self._inner()  # refuses encoders that the model inside has no use for

    def _inner(self) -> ChoiceModel:
        """Return the model inside, unfitted."""
        return build_model(self.config.model, self.config.options, self._inner_extras)

    @property
    def extras(self) -> dict[str, Any]:
        """Return what the model inside is given beside its options."""
        return self._inner_extras

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the options by name, with ``deep`` also those of the model inside, as ``options__name``."""
        options = super().get_params(deep)
        return options | ({_INSIDE + name: value for name, value in self.config.options.items()} if deep else {})

    def set_params(self, **params: Any) -> Self:
        """Change options by name, those of the model inside as ``options__name``; the model is then not fitted."""
        inside = {name.removeprefix(_INSIDE): params.pop(name) for name in list(params) if name.startswith(_INSIDE)}
        if inside or "model" in params:
            current = {} if "model" in params else self.config.options
            params["options"] = {**params.get("options", current), **inside}
        return super().set_params(**params)

    @property
    def identity(self) -> dict[str, Any]:
        """Return the options, and what tells encoders of one's own from others."""
        return {**self._inner().identity, **super().identity}


@dataclass(frozen=True, kw_only=True)
class FittedWrapper(FittedState):
    """A fitted model inside another, whose record and history are those of the model inside."""

    model: ChoiceModel


class SingleModelWrapper(Wrapper):
    """A model around one other, fitted first; a subclass adds what it learns on top."""

    record_class = instance_property(lambda wrapper: wrapper._inner().record_class)
    _state: FittedWrapper

    def _fit_inner(self, train: Sets, valid: Sets | None, run: FitRun) -> ChoiceModel:
        """Fit the model inside, with the validation part if it has a use for one."""
        inner = self._inner()
        return inner.fit(train, valid if inner.stops_early else None, **run.inner_arguments)

    def _training_table(self, train: Sets, valid: Sets | None, run: FitRun, description: Any) -> TrainingTable:
        inner = self._inner()
        return inner._training_table(train, valid if inner.stops_early else None, run, description)

    def _wrap(self, model: ChoiceModel, state: FittedWrapper) -> None:
        """Become a fitted model around one that is fitted already."""
        self.fitted_ = FittedModel(schema=model.schema, table=model.table_, state=state)

    @property
    def model_(self) -> ChoiceModel:
        """The fitted model inside."""
        return self._state.model

    @property
    def caveats(self) -> tuple[str, ...]:
        """Those of the model inside."""
        return self.model_.caveats


def centred_slopes(slopes: Floats, log_p: Floats, data: ChoiceData, column: str) -> Floats:
    """Return d log P(i) - sum_j Q(j) d log P(j) from slopes of log P, as ``_slopes`` gives them, and log Q (N,)."""
    q, n = np.exp(log_p), len(data.rows)
    i, cause = ordered_pairs(data.offsets) if column in data.features else (np.arange(n), data.set_of_alternative)
    centred: Floats = slopes - np.bincount(cause, q[i] * slopes, n)[cause]
    return centred


def wrapper_options(model: Any, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Take a model, or the name of one and its options, for the two options of a wrapper."""
    if not isinstance(model, ChoiceModel):
        return {"model": model, "options": dict(options or {})}
    if options is not None:
        raise ConfigError("options belong to a model given by its name: a model object has its own.")
    return {"model": model.name, "options": asdict(model.config)}


def build_model(name: Any, options: Mapping[str, Any], extras: Mapping[str, Any] | None = None) -> ChoiceModel:
    """Build the model inside by its name and options, with encoders of one's own where it has a use for them."""
    from pcmcnet.models import KINDS

    if not isinstance(name, str) or name not in KINDS:
        found = f"{name.__name__}, a class" if isinstance(name, type) else repr(name)
        known = did_you_mean(name, KINDS) if isinstance(name, str) else ""
        raise ConfigError(f"expected a model such as PCMCNet(), or the name of one, got {found}.{known}")
    if extras and not can_take_encoders(KINDS[name]):
        raise ConfigError(f"{KINDS[name].__name__} has no encoders: leave them out.")
    if _levels(options) > MAX_LEVELS:  # each checks those inside it twice
        raise ConfigError(f"models around models go at most {MAX_LEVELS} levels deep, got {_levels(options)}.")
    return KINDS[name](**options, **(extras or {}))


def _levels(options: Any) -> int:
    """Count the models that options name inside each other."""
    levels = 0
    while isinstance(options, Mapping) and "options" in options:
        options, levels = options["options"], levels + 1
    return levels


def can_take_encoders(kind: type[ChoiceModel]) -> bool:
    """Tell whether a model, or one inside it, may have encoders of one's own."""
    return issubclass(kind, Wrapper) or kind.reads_contents


def member_files(model: ChoiceModel, number: int) -> dict[str, bytes]:
    """Return the files of a fitted model inside, by names with its prefix."""
    kind = {"model": model.name, "fit": fit_entries(model)}
    files = {**state_files(model), _KIND: json_bytes(kind)}
    return {f"member-{number}-{name}": content for name, content in files.items()}


def restore_member(files: Mapping[str, bytes], number: int, extras: Mapping[str, Any] | None = None) -> ChoiceModel:
    """Build a fitted model from what :func:`member_files` returned."""
    prefix = f"member-{number}-"
    member = {name.removeprefix(prefix): content for name, content in files.items() if name.startswith(prefix)}
    kind = json.loads(member[_KIND])
    return restore_model(kind["model"], kind["fit"], member, extras)
