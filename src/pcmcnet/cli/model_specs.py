"""Parse the list of models to compare: ``uniform,Cheapest=rank-by:price,mnl`` and ``--set mnl.ridge=0.1``.

An entry is ``name`` or, for a model with one required option, ``name:value``. Either form may be preceded by
``Label=``. ``--set NAME.option=value`` applies to the model with the label NAME or, if there is none, to all models
with the registry name NAME.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models import ChoiceModel, model_class
from pcmcnet.models.interface.parse_options import parse_option, parse_options


@dataclass(frozen=True)
class ModelSpec:
    """A model to build: its label, its class and the options read so far."""

    label: str
    kind: type[ChoiceModel]
    options: dict[str, Any] = field(default_factory=dict)


def parse_models(words: str, settings: Sequence[str], *, option: str = "--models") -> dict[str, ChoiceModel]:
    """Return unfitted models by label, from a comma-separated list and ``--set`` settings."""
    specs: dict[str, ModelSpec] = {}
    for word in words.split(","):
        if word.strip():
            spec = _spec(word.strip(), option)
            if spec.label in specs:
                raise ConfigError(f"{option}: {spec.label!r} occurs twice. Give one of them a label: Other={word}.")
            specs[spec.label] = spec
    if not specs:
        raise ConfigError(f"{option}: expected at least one model, such as uniform,mnl,pcmcnet.")
    for setting in settings:
        _set(specs, setting)
    return {label: _build(spec) for label, spec in specs.items()}


def _spec(word: str, option: str) -> ModelSpec:
    label, equals, model = word.partition("=")
    if not equals:
        label, model = word, word
    if not label.strip():
        raise ConfigError(f"{option}, {word!r}: expected a label before '='.")
    name, colon, value = model.strip().partition(":")
    kind = model_class(name)
    if not colon:
        return ModelSpec(label.strip(), kind)
    required = _required_options(kind)
    if len(required) != 1:
        raise ConfigError(f"{option}, {word!r}: {name} takes no value after a colon; use --set {name}.option=value.")
    return ModelSpec(label.strip(), kind, dict([parse_option(kind.config_class, f"{required[0]}={value}")]))


def _required_options(kind: type[ChoiceModel]) -> list[str]:
    """Return the model's options that have no default."""
    return [f.name for f in fields(kind.config_class) if f.default is MISSING and f.default_factory is MISSING]


def _set(specs: dict[str, ModelSpec], setting: str) -> None:
    left, equals, value = setting.partition("=")
    names = {*specs, *(spec.kind.name for spec in specs.values())}
    prefixes = [name for name in names if left.startswith(f"{name}.")]  # labels and options may contain dots
    target = max(prefixes, key=len) if prefixes else left.partition(".")[0]
    option = left[len(target) + 1 :]
    if not equals or not option:
        raise ConfigError(f"--set: expected MODEL.option=value, such as pcmcnet.hidden=64,64; got {setting!r}.")
    targets = [specs[target]] if target in specs else [spec for spec in specs.values() if spec.kind.name == target]
    if not targets:
        raise ConfigError(f"--set {setting}: no model {target!r} in --models." + did_you_mean(target, names))
    for spec in targets:
        parse_options(spec.kind.config_class, [f"{option}={value}"], into=spec.options)


def _build(spec: ModelSpec) -> ChoiceModel:
    missing = [name for name in _required_options(spec.kind) if name not in spec.options]
    if missing:
        name = spec.kind.name
        raise ConfigError(f"{name} requires {missing[0]}: write {name}:VALUE, or --set {name}.{missing[0]}=VALUE.")
    return spec.kind(**spec.options)
