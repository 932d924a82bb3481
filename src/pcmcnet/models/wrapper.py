"""Wrappers: models that contain another model, the inner model.

The options of a wrapper are the name and the options of its inner model, so that they can be saved as JSON. The saved
folder of a wrapper contains the files of the inner model with a prefix, such as ``member-1-weights.safetensors``. The
file ``member-1-kind.json`` contains the name of the inner model and the record of its fit. Custom encoders are passed
on to the inner model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData, Sets
from pcmcnet.data.columns.ragged import ordered_pairs
from pcmcnet.data.kinds.category import UnseenCounts
from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.encoders import require_encoders
from pcmcnet.models.interface.fitted import FittedModel, FittedState, TrainingTable
from pcmcnet.models.interface.saving import fit_entries, restore_model, state_files
from pcmcnet.storage import json_bytes

_KIND_FILE = "kind.json"
_OPTION_PREFIX = "options__"  # of the options of the inner model in get_params and set_params
MAX_DEPTH = 4  # levels of models inside models


def instance_property(value: Callable[[Any], Any]) -> Any:
    """Return a property for a value that depends on the inner model and is a class variable in other models."""
    return property(value)


class Wrapper(ChoiceModel):
    """Base class of models that contain another model."""

    config: Any
    gives = instance_property(lambda wrapper: wrapper._inner().gives)
    order_matters = instance_property(lambda wrapper: wrapper._inner().order_matters)
    reads_contents = instance_property(lambda wrapper: wrapper._inner().reads_contents)
    uses_device = instance_property(lambda wrapper: wrapper._inner().uses_device)
    shares_batches = instance_property(lambda wrapper: wrapper._inner().shares_batches)
    stops_early = instance_property(lambda wrapper: wrapper._inner().stops_early)
    obeys_signs = instance_property(lambda wrapper: wrapper._inner().obeys_signs)

    def __init__(
        self, inner: Any, inner_options: Mapping[str, Any] | None, encoders: Mapping[str, Any] | None, /, **options: Any
    ) -> None:
        super().__init__(**wrapper_options(inner, inner_options), **options)
        if isinstance(inner, ChoiceModel):
            if encoders is not None:
                raise ConfigError(
                    "encoders can only be passed with the name of a model: a model object has its own encoders."
                )
            extras = dict(inner.extras)
        else:
            extras = {"encoders": modules} if (modules := require_encoders(encoders)) else {}
        self._inner_extras: dict[str, Any] = extras  # arguments of the inner model that are not options
        self._inner()  # raises ConfigError if the inner model takes no encoders

    def _inner(self) -> ChoiceModel:
        """Build the unfitted inner model."""
        return build_model(self.config.model, self.config.options, self._inner_extras)

    @property
    def extras(self) -> dict[str, Any]:
        """Arguments of the inner model that are not options, such as custom encoders."""
        return self._inner_extras

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the options by name.

        Parameters
        ----------
        deep
            Whether to include the options of the inner model, as ``options__name``.

        Returns
        -------
        dict
            Mapping from option names to values.
        """
        options = super().get_params(deep)
        return options | ({_OPTION_PREFIX + name: value for name, value in self.config.options.items()} if deep else {})

    def set_params(self, **params: Any) -> Self:
        """Change options and discard the fit.

        Parameters
        ----------
        params
            New values by name. Options of the inner model are passed as ``options__name=value``.

        Returns
        -------
        Self
            The model itself, unfitted.
        """
        inner_options = {
            name.removeprefix(_OPTION_PREFIX): params.pop(name)
            for name in list(params)
            if name.startswith(_OPTION_PREFIX)
        }
        if inner_options or "model" in params:
            current = {} if "model" in params else self.config.options
            params["options"] = {**params.get("options", current), **inner_options}
        return super().set_params(**params)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines a fit except the data: the options, and a description of custom encoders."""
        return {**self._inner().identity, **super().identity}


@dataclass(frozen=True, kw_only=True)
class FittedWrapper(FittedState):
    """A fitted inner model, with its record and history."""

    model: ChoiceModel


class SingleModelWrapper(Wrapper):
    """Base class of wrappers that fit one inner model and learn further values, such as a temperature."""

    record_class = instance_property(lambda wrapper: wrapper._inner().record_class)
    _state: FittedWrapper

    def _fit_inner(self, train: Sets, valid: Sets | None, run: FitRun) -> ChoiceModel:
        """Fit the inner model, with the validation part if the model uses early stopping."""
        inner = self._inner()
        return inner._fit_unchecked(train, valid if inner.stops_early else None, **run.inner_arguments)

    def _refit(self, train: ChoiceData, run: FitRun) -> FittedWrapper:
        return replace(self._state, model=self.model_._replicate(train, run.seed))

    def _training_table(self, train: Sets, valid: Sets | None, run: FitRun, description: Any) -> TrainingTable:
        inner = self._inner()
        return inner._training_table(train, valid if inner.stops_early else None, run, description)

    def _wrap(self, model: ChoiceModel, state: FittedWrapper) -> None:
        """Set the fitted state from a model that is already fitted."""
        self.fitted_ = FittedModel(schema=model.schema, table=model.table_, state=state)

    @property
    def model_(self) -> ChoiceModel:
        """The fitted inner model."""
        return self._state.model

    def _has_kinks(self, column: str) -> bool:
        return self.model_._has_kinks(column)

    @property
    def _is_stepwise(self) -> bool:
        return self.model_._is_stepwise

    def _unseen_categories(self, data: ChoiceData) -> UnseenCounts:
        return self.model_._unseen_categories(data)

    @property
    def fit_caveats(self) -> tuple[str, ...]:
        """Caveats of the inner model."""
        return self.model_.fit_caveats


def centred_slopes(slopes: Floats, log_p: Floats, data: ChoiceData, column: str) -> Floats:
    """Return d log P(i) - sum_j Q(j) d log P(j), given the slopes d log P of ``_slopes`` and log Q (N,)."""
    q, n = np.exp(log_p), len(data.rows)
    i, cause = ordered_pairs(data.offsets) if column in data.features else (np.arange(n), data.set_of_alternative)
    centred: Floats = slopes - np.bincount(cause, q[i] * slopes, n)[cause]
    return centred


def wrapper_options(model: Any, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a wrapper's options ``model`` and ``options``, given a model object or a name with options."""
    if not isinstance(model, ChoiceModel):
        return {"model": model, "options": dict(options or {})}
    if options is not None:
        raise ConfigError("options can only be passed with the name of a model: a model object has its own options.")
    return {"model": model.name, "options": asdict(model.config)}


def build_model(name: Any, options: Mapping[str, Any], extras: Mapping[str, Any] | None = None) -> ChoiceModel:
    """Build an unfitted model from its registry name, options and other arguments, such as custom encoders."""
    from pcmcnet.models import KINDS

    if not isinstance(name, str) or name not in KINDS:
        got = f"the class {name.__name__}" if isinstance(name, type) else repr(name)
        hint = did_you_mean(name, KINDS) if isinstance(name, str) else ""
        raise ConfigError(f"expected a model such as PCMCNet(), or the name of a model, got {got}.{hint}")
    if extras and not can_take_encoders(KINDS[name]):
        raise ConfigError(f"{KINDS[name].__name__} does not accept custom encoders: leave them out.")
    if _nesting_depth(options) > MAX_DEPTH:  # each level checks its inner model twice, so the cost is exponential
        raise ConfigError(f"expected at most {MAX_DEPTH} nested models, got {_nesting_depth(options)}.")
    return KINDS[name](**options, **(extras or {}))


def _nesting_depth(options: Any) -> int:
    """Return the number of nested models that the options describe."""
    levels, level = 0, [options]
    while level := [entries for entries in level if isinstance(entries, Mapping) and "options" in entries]:
        levels += 1
        inner = [entries["options"] for entries in level]  # those of a stack are a list
        level = [each for entries in inner for each in (entries if isinstance(entries, list | tuple) else (entries,))]
    return levels


def can_take_encoders(kind: type[ChoiceModel]) -> bool:
    """Return True if a model of this class, or its inner model, may take custom encoders."""
    return issubclass(kind, Wrapper) or kind.reads_contents


def member_files(model: ChoiceModel, number: int) -> dict[str, bytes]:
    """Return the files of a fitted inner model. The file names have the prefix ``member-<number>-``."""
    kind = {"model": model.name, "fit": fit_entries(model)}
    files = {**state_files(model), _KIND_FILE: json_bytes(kind)}
    return {f"member-{number}-{name}": content for name, content in files.items()}


def restore_member(files: Mapping[str, bytes], number: int, extras: Mapping[str, Any] | None = None) -> ChoiceModel:
    """Build a fitted model from the output of :func:`member_files`."""
    prefix = f"member-{number}-"
    member = {name.removeprefix(prefix): content for name, content in files.items() if name.startswith(prefix)}
    kind = json.loads(member[_KIND_FILE])
    return restore_model(kind["model"], kind["fit"], member, extras)
