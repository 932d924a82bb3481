"""The models of a comparison in words: ``uniform,Cheapest=rank-by:price,mnl`` and ``--set mnl.ridge=0.1``.

A word is ``name``, ``name:value`` with the value of the model's one indispensable option, or either behind
``Label=``. An option goes to the row with that label, else to every row of the model with that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models import ChoiceModel, model_class
from pcmcnet.models.interface.parse_options import parse_option, parse_options


@dataclass(frozen=True)
class Spec:
    """One row to be: its label, the kind of model and the options given so far."""

    label: str
    kind: type[ChoiceModel]
    options: dict[str, Any] = field(default_factory=dict)


def read_models(words: str, settings: Sequence[str], *, option: str = "--models") -> dict[str, ChoiceModel]:
    """Build the models that the words of an option name, by label; nothing is fitted."""
    specs: dict[str, Spec] = {}
    for word in words.split(","):
        if word.strip():
            spec = _spec(word.strip(), option)
            if spec.label in specs:
                raise ConfigError(f"{option} names {spec.label!r} twice: give one of them a label, as in Other={word}.")
            specs[spec.label] = spec
    if not specs:
        raise ConfigError(f"{option} names no model: give some, as in uniform,mnl,pcmcnet.")
    for setting in settings:
        _set(specs, setting)
    return {label: _build(spec) for label, spec in specs.items()}


def _spec(word: str, option: str) -> Spec:
    label, equals, model = word.partition("=")
    if not equals:
        label, model = word, word
    if not label.strip():
        raise ConfigError(f"{option}, {word!r}: expected a label before the sign =.")
    name, colon, value = model.strip().partition(":")
    kind = model_class(name)
    if not colon:
        return Spec(label.strip(), kind)
    needed = _needed(kind)
    if len(needed) != 1:
        raise ConfigError(f"{option}, {word!r}: {name} takes no value after a colon; use --set {name}.option=value.")
    return Spec(label.strip(), kind, dict([parse_option(kind.config_class, f"{needed[0]}={value}")]))


def _needed(kind: type[ChoiceModel]) -> list[str]:
    """Return the options that a model cannot do without."""
    return [f.name for f in fields(kind.config_class) if f.default is MISSING and f.default_factory is MISSING]


def _set(specs: dict[str, Spec], setting: str) -> None:
    left, equals, value = setting.partition("=")
    known = {*specs, *(spec.kind.name for spec in specs.values())}
    named = [name for name in known if left.startswith(f"{name}.")]  # a label may hold dots, and so may an option
    target = max(named, key=len) if named else left.partition(".")[0]
    option = left[len(target) + 1 :]
    if not equals or not option:
        raise ConfigError(f"--set: expected MODEL.option=value, such as pcmcnet.hidden=64,64; got {setting!r}.")
    found = [specs[target]] if target in specs else [spec for spec in specs.values() if spec.kind.name == target]
    if not found:
        raise ConfigError(f"--set {setting}: no model {target!r} in --models." + did_you_mean(target, known))
    for spec in found:
        parse_options(spec.kind.config_class, [f"{option}={value}"], into=spec.options)


def _build(spec: Spec) -> ChoiceModel:
    lacking = [name for name in _needed(spec.kind) if name not in spec.options]
    if lacking:
        name = spec.kind.name
        raise ConfigError(f"{name} needs its option {lacking[0]}: {name}:VALUE, or --set {name}.{lacking[0]}=VALUE.")
    return spec.kind(**spec.options)
