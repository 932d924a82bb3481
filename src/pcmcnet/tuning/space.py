"""What a search may vary: a model's options -> dimensions -> options again.

    (low, high)           a range, of whole numbers where the option takes only those
    (low, high, "log")    the same on a logarithmic scale
    [a, b, c]             a choice; numbers that rise are rungs of a ladder, evenly spaced for the search

The widths of a network's hidden layers, ``hidden = (nodes,) * layers``, are searched as two dimensions, ``layers`` and
``nodes``. Nothing here knows how the search is done: a dimension is drawn as a number, or as the label of a choice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.options import option_names
from pcmcnet.models.interface.parse_options import parse_option
from pcmcnet.training.config import TrainConfig

# -- Default spaces ----------------------------------------------------------------------------------------------------
# The default spaces: for each registered model, the options worth a search and how far to go.
#
# "default" has what matters most for PCMC-Net, weight decay first: with a number there, a fit has none to learn and is
# several times as fast. "paper" is the space of the paper's search. "wide" has more than both. Models that the paper
# does not tune have one space under all names. The forms are those of `pcmcnet.tuning.space`.


SPACE_NAMES = ("default", "paper", "wide")

_DECAY = (0.03, 64.0, "log")  # from a network left to itself to a logit
_DEFAULT = {
    "weight_decay": _DECAY,
    "lr": (1e-3, 2e-2, "log"),
    "layers": [1, 2, 3],
    "nodes": [16, 32, 64, 128],
    "dropout": (0.0, 0.5),
}
_PAPER = {
    "lr": [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1],
    "batch_size": [1, 2, 4, 8, 16],
    "layers": [1, 2, 3],
    "nodes": [32, 64, 128, 256, 512],
    "activation": ["relu", "sigmoid", "tanh", "leaky_relu"],
}
_WIDE = {
    "lr": (1e-4, 1e-1, "log"),
    "batch_size": [1, 2, 4, 8, 16, 32, 64, 128],
    "layers": [1, 2, 3],
    "nodes": [16, 32, 64, 128, 256, 512],
    "activation": ["relu", "sigmoid", "tanh", "leaky_relu", "silu", "gelu"],
    "dropout": (0.0, 0.5),
    "weight_decay": _DECAY,
    "rate": ["exp", "softplus"],
    "tails": ["bend", "keep"],
}
_POINTER = {
    "lr": (1e-4, 1e-1, "log"),
    "batch_size": [16, 32, 64, 128],
    "hidden": [8, 16, 32, 64, 128, 256],
    "layers": [1, 2],
    "bidirectional": [False, True],
    "dropout": (0.0, 0.5),
    "weight_decay": _DECAY,
}
_CONTEXT_LOGIT = {"weight_decay": _DECAY, "lr": (1e-3, 2e-2, "log")}
_SET_NETWORK = {**_DEFAULT, "activation": ["leaky_relu", "tanh", "silu"]}
_FOREST = {
    "min_samples_leaf": [1, 2, 5, 10, 20, 50],
    "max_features": ["sqrt", 0.25, 0.5, 0.75, 1.0],
    "max_depth": [None, 4, 8, 16],
    "floor": (1e-6, 1e-2, "log"),
}
_BOOSTED = {
    "lr": (0.02, 0.2, "log"),
    "leaves": [4, 8, 16, 32],
    "min_samples_leaf": [5, 10, 20, 50],
    "l2": (0.1, 30.0, "log"),
    "max_features": [0.25, 0.5, 0.75, 1.0],
}
_UTILITY_NETWORK = {"weight_decay": _DECAY, "lr": (1e-3, 2e-2, "log"), "layers": [1, 2, 3], "nodes": [16, 32, 64, 128]}
_STRENGTHS = {"smoothing": (1e-3, 10.0, "log")}
_RIDGE = {"ridge": (1e-2, 1e3, "log")}
_POOLING = {"min_chosen": [1, 3, 10, 30, 100]}


def _same(space: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return dict.fromkeys(SPACE_NAMES, space)


SPACES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "pcmcnet": {"default": _DEFAULT, "paper": _PAPER, "wide": _WIDE},
    "dpn": _same(_POINTER),
    "lcl": _same(_CONTEXT_LOGIT),
    "dlcl": _same(_CONTEXT_LOGIT),
    "fate": _same(_SET_NETWORK),
    "feta": _same(_SET_NETWORK),
    "tcnet": _same({**_SET_NETWORK, "layers": [1, 2], "width": [16, 32, 64], "blocks": [1, 2]}),
    "deephalo": _same({**_SET_NETWORK, "order": [2, 3, 4], "width": [8, 16, 32], "heads": [2, 4, 8]}),
    "rf": _same(_FOREST),
    "cdm": _same({**_STRENGTHS, **_RIDGE}),
    "boosted": _same(_BOOSTED),
    "lmnl": _same({**_UTILITY_NETWORK, "dropout": (0.0, 0.5)}),
    "reslogit": _same({"weight_decay": _DECAY, "lr": (1e-3, 2e-2, "log"), "layers": [1, 2, 4, 8, 16]}),
    "rumnet": _same({**_UTILITY_NETWORK, "samples": [2, 4, 8]}),
    "tastenet": _same({**_UTILITY_NETWORK, "dropout": (0.0, 0.5)}),
    "pcmc": _same({**_STRENGTHS, "ridge": (1e-3, 10.0, "log")}),
    "pcmc-linear": _same({"l2": (1e-4, 100.0, "log")}),
    "bradley-terry": _same(_RIDGE),
    "thurstone": _same(_RIDGE),
    "mnl": _same(_POOLING),
    "nested-mnl": _same(_POOLING),
    "cross-nested-mnl": _same(_POOLING),
    "mixed-mnl": _same({"prior": (1e-3, 10.0, "log"), **_POOLING}),
    "lc-mnl": _same({"classes": [1, 2, 3, 4, 5], "prior": (1e-3, 10.0, "log"), **_POOLING}),
}


# -- Space -------------------------------------------------------------------------------------------------------------


LAYERS, NODES, WIDTHS = "layers", "nodes", "hidden"
_RANGE = re.compile(r"(log:)?([^:,/]+):([^:,/]+)")


@dataclass(frozen=True)
class Range:
    """All numbers between two ends, which are part of it."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def value(self, drawn: Any) -> Any:
        """Return the value of an option that was drawn."""
        return int(drawn) if self.whole else float(drawn)

    def place(self, value: Any) -> float | None:
        """Return what would have to be drawn for a value; None where it lies outside."""
        fits = _fits(value, int if self.whole else float) and self.low <= value <= self.high
        return value if fits else None

    @property
    def size(self) -> int | None:
        """Number of values; None where there is no end of them."""
        return int(self.high) - int(self.low) + 1 if self.whole else None

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{' (log)' if self.log else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Return what defines it; survives JSON."""
        return {"low": self.low, "high": self.high, "log": self.log, "whole": self.whole}


@dataclass(frozen=True)
class Choice:
    """Some values: drawn by position where they are numbers that rise, else by label."""

    values: tuple[Any, ...]

    @property
    def ordered(self) -> bool:
        """Whether the values are rungs of a ladder."""
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)
        return numbers and all(a < b for a, b in pairwise(self.values))

    @property
    def labels(self) -> tuple[str, ...]:
        """The values in words, as on a command line."""
        return tuple(in_words(value) for value in self.values)

    def value(self, drawn: Any) -> Any:
        """Return the value of an option that was drawn."""
        return self.values[int(drawn)] if self.ordered else self.values[self.labels.index(drawn)]

    def place(self, value: Any) -> int | str | None:
        """Return what would have to be drawn for a value; None where it is none of them."""
        same = [k for k, v in enumerate(self.values) if v == value and isinstance(v, bool) == isinstance(value, bool)]
        if not same:
            return None
        return same[0] if self.ordered else self.labels[same[0]]

    @property
    def size(self) -> int | None:
        """Number of values."""
        return len(self.values)

    def __str__(self) -> str:
        return ", ".join(self.labels)

    def to_dict(self) -> dict[str, Any]:
        """Return what defines it; survives JSON."""
        return {"values": list(self.values)}


Dimension = Range | Choice


@dataclass(frozen=True)
class Space:
    """Dimensions by name, for one kind of model; ``stacked`` where layers and nodes stand for hidden.

    ``defaults`` are the options of the model given, of those that the space decides: the first trial.
    """

    dimensions: Mapping[str, Dimension]
    stacked: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: type[ChoiceModel], given: Space | str | Mapping[str, Any]) -> Space:
        """Take a space by its name, or from a mapping of options to ranges and choices.

        Parameters
        ----------
        kind
            The class of the model.
        given
            "default", "paper" or "wide"; or option -> (low, high), (low, high, "log") or a list of values.

        Raises
        ------
        ConfigError
            When the model has no such space or option, or an option cannot take such a value.
        """
        if isinstance(given, Space):
            return given
        if isinstance(given, str):
            given = _named(kind, given)
        if not isinstance(given, Mapping) or not given:
            raise ConfigError(
                f"space: expected one of {', '.join(map(repr, SPACE_NAMES))} or a mapping such as "
                f"{{'lr': (1e-4, 1e-1, 'log')}}, got {given!r}."
            )
        hints = _hints(kind)
        for name in given:
            if name not in hints:
                raise ConfigError(f"space: unknown option {name!r} of {kind.name}." + did_you_mean(str(name), hints))
        stacked = _has_widths(kind) and bool({LAYERS, NODES} & set(given))
        if stacked and ({LAYERS, NODES} - set(given) or WIDTHS in given):
            raise ConfigError(
                f"space: {LAYERS} and {NODES} together make up {WIDTHS}: give both of them, or {WIDTHS} itself."
            )
        return cls({name: _dimension(name, spec, hints[name]) for name, spec in given.items()}, stacked)

    def options(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """Turn what was drawn, by dimension, into options of the model.

        >>> widths = {"layers": Choice((1, 2, 3)), "nodes": Choice((32, 64))}
        >>> Space({**widths, "lr": Range(0.001, 0.1, log=True)}, stacked=True).options(
        ...     {"layers": 1, "nodes": 0, "lr": 0.01}
        ... )
        {'lr': 0.01, 'hidden': (32, 32)}
        """
        found = {name: dimension.value(drawn[name]) for name, dimension in self.dimensions.items()}
        if self.stacked:
            found[WIDTHS] = (found.pop(NODES),) * found.pop(LAYERS)
        return found

    def place(self, options: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what would have to be drawn for these options; None where the space has no such place.

        >>> Space({"layers": Choice((1, 2)), "nodes": Choice((32, 64))}, stacked=True).place({"hidden": (64, 64)})
        {'layers': 1, 'nodes': 1}
        """
        known = dict(options)
        if self.stacked:
            widths = known.pop(WIDTHS, ())
            known |= {LAYERS: len(widths), NODES: widths[0] if len(set(widths)) == 1 else None}
        places = {name: dimension.place(known.get(name)) for name, dimension in self.dimensions.items()}
        return None if None in places.values() else places

    def with_defaults(self, options: Mapping[str, Any]) -> Space:
        """Take the values of a model's options for the defaults."""
        return replace(self, defaults={name: options[name] for name in self.option_names})

    @property
    def option_names(self) -> list[str]:
        """The options of the model that the space decides."""
        names = [name for name in self.dimensions if not (self.stacked and name in (LAYERS, NODES))]
        return [*names, *([WIDTHS] if self.stacked else [])]

    def without(self, options: Iterable[str]) -> Space:
        """Leave out what is fixed."""
        fixed = set(options)
        if self.stacked and WIDTHS in fixed:
            fixed |= {LAYERS, NODES}
        left = {name: d for name, d in self.dimensions.items() if name not in fixed}
        return Space(left, self.stacked and NODES in left)

    def combined_with(self, other: Space) -> Space:
        """Add the dimensions of another space, of other options."""
        return Space({**self.dimensions, **other.dimensions}, self.stacked or other.stacked)

    @property
    def size(self) -> int | None:
        """Number of configurations, the defaults among them where there are any; None where there is no end."""
        sizes = [dimension.size for dimension in self.dimensions.values()]
        beside = bool(self.defaults) and self.place(self.defaults) is None
        return None if None in sizes else math.prod(size or 1 for size in sizes) + beside

    def to_dict(self) -> dict[str, Any]:
        """Return what defines it; survives JSON."""
        return {name: dimension.to_dict() for name, dimension in self.dimensions.items()}


def parse_search(kind: type[ChoiceModel], word: str) -> tuple[str, Any]:
    """Read ``lr=log:1e-4:1e-1``, ``dropout=0:0.5``, ``activation=relu,tanh`` or ``hidden=64/64,64``.

    Choices are separated by commas; those that are lists themselves by slashes.
    """
    name, equals, text = word.partition("=")
    hints = _hints(kind)
    if not equals or not text.strip():
        raise ConfigError(f"--search: expected name=low:high, name=log:low:high or name=a,b,c; got {word!r}.")
    if name not in hints:
        raise ConfigError(f"--search: unknown option {name!r} of {kind.name}." + did_you_mean(name, hints))
    span = _RANGE.fullmatch(text.strip())
    if span and {int, float} & set(_kinds(hints[name])):
        return name, (_number(name, span[2]), _number(name, span[3]), *(["log"] if span[1] else []))
    lists = any(get_origin(k) in (tuple, Mapping) for k in _kinds(hints[name]))
    parts = [part.strip() for part in text.split("/" if lists else ",") if part.strip()]
    if name not in option_names(kind.config_class):  # a width or a number of layers
        return name, [_number(name, part) for part in parts]
    return name, [parse_option(kind.config_class, f"{name}={part}")[1] for part in parts]


def in_words(value: Any) -> str:
    """Write a value as on a command line: 64,64 or true or 0.001."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{in_words(entry)}" for key, entry in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(in_words(entry) for entry in value)
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _named(kind: type[ChoiceModel], name: str) -> Mapping[str, Any]:
    if name not in SPACE_NAMES:
        raise ConfigError(f"unknown space {name!r}." + did_you_mean(name, SPACE_NAMES))
    if kind.name not in SPACES:
        if issubclass(kind.config_class, TrainConfig):
            return _CONTEXT_LOGIT  # weight decay and learning rate, which every network has
        if not option_names(kind.config_class):
            raise ConfigError(f"{kind.name} has no options: there is nothing to tune.")
        raise ConfigError(f"{kind.name} has no space of its own: name the options to search and their values.")
    return SPACES[kind.name][name]


def _hints(kind: type[ChoiceModel]) -> dict[str, Any]:
    """Kinds of the options by name, with the two that stand for the widths of the layers."""
    every = get_type_hints(kind.config_class)
    hints = {name: every[name] for name in option_names(kind.config_class)}
    return {**hints, LAYERS: int, NODES: int} if _has_widths(kind) else hints


def _has_widths(kind: type[ChoiceModel]) -> bool:
    """Tell a model whose layers may differ in width: its ``hidden`` is a list."""
    return get_type_hints(kind.config_class).get(WIDTHS) == tuple[int, ...]


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _dimension(name: str, spec: Any, hint: Any) -> Dimension:
    """Make a dimension of a range or a choice, checked against the kind of the option."""
    if isinstance(spec, Range | Choice):
        return spec
    if isinstance(spec, tuple):
        return _range(name, spec, hint)
    if not isinstance(spec, list) or not spec:
        raise ConfigError(f"space, {name}: expected a tuple (low, high) or a list of values, got {spec!r}.")
    for value in spec:
        if not any(_fits(value, kind) for kind in _kinds(hint)):
            known = [word for kind in _kinds(hint) if get_origin(kind) is Literal for word in get_args(kind)]
            raise ConfigError(f"space, {name}: {value!r} is no value of it." + did_you_mean(str(value), known))
    choice = Choice(tuple(tuple(v) if isinstance(v, list) else v for v in spec))
    if len(set(choice.labels)) < len(spec):
        raise ConfigError(f"space, {name}: {choice} names a value twice.")
    return choice


def _range(name: str, spec: tuple[Any, ...], hint: Any) -> Range:
    kinds = set(_kinds(hint))
    if not kinds & {int, float}:
        raise ConfigError(f"space, {name}: it takes no numbers, so there is no range of them; give a list of values.")
    whole = float not in kinds
    low, high, *scale = spec if len(spec) > 1 else (None, None)
    if scale not in ([], ["log"], [True], [False]) or not (_fits(low, float) and _fits(high, float)):
        raise ConfigError(f"space, {name}: expected (low, high) or (low, high, 'log'), got {spec!r}.")
    log = scale in (["log"], [True])
    if not (-math.inf < low < high < math.inf) or (log and low <= 0):
        above = "0 < low < high" if log else "low < high"
        raise ConfigError(f"space, {name}: expected {above}, got {low!r} and {high!r}.")
    if whole and (low != int(low) or high != int(high)):
        raise ConfigError(f"space, {name}: expected whole numbers, got {low!r} and {high!r}.")
    return Range(int(low), int(high), log, True) if whole else Range(float(low), float(high), log)


def _fits(value: Any, kind: Any) -> bool:
    """Tell whether an option of that kind can take the value."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        sequence = isinstance(value, Sequence) and not isinstance(value, str)
        return sequence and all(_fits(entry, get_args(kind)[0]) for entry in value)
    if get_origin(kind) is Mapping:
        return isinstance(value, Mapping)
    if kind in (int, float):
        return isinstance(value, (int,) if kind is int else (int, float)) and not isinstance(value, bool)
    return isinstance(value, kind) if kind in (str, bool, NoneType) else True


def _number(name: str, text: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ConfigError(f"--search {name}: cannot read {text!r} as a number.")
