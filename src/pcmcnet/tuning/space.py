"""Search spaces: the dimensions to search, and the model options for a draw from each dimension.

    (low, high)           a range; it has only whole numbers if the option takes only whole numbers
    (low, high, "log")    the same range on a logarithmic scale
    [a, b, c]             a list of values; the search treats increasing numbers as evenly spaced

The widths of a network's hidden layers, ``hidden = (nodes,) * layers``, are searched as two dimensions, ``layers`` and
``nodes``. This module does not depend on the search algorithm: a draw from a dimension is a number or a label.
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
# For each registered model, the options to search and their ranges.
#
# "default" has the options that matter most for PCMC-Net. One of them is weight decay: with a given value, a fit does
# not have to learn it and is several times as fast. "paper" is the space of the paper's search. "wide" has more options
# than both. Models that the paper does not tune have one space under all three names.


SPACE_NAMES = ("default", "paper", "wide")

_DECAY = (0.03, 64.0, "log")  # from almost unregularised to almost a logit
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


def _all_names(space: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return dict.fromkeys(SPACE_NAMES, space)


SPACES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "pcmcnet": {"default": _DEFAULT, "paper": _PAPER, "wide": _WIDE},
    "dpn": _all_names(_POINTER),
    "lcl": _all_names(_CONTEXT_LOGIT),
    "dlcl": _all_names(_CONTEXT_LOGIT),
    "fate": _all_names(_SET_NETWORK),
    "feta": _all_names(_SET_NETWORK),
    "tcnet": _all_names({**_SET_NETWORK, "layers": [1, 2], "width": [16, 32, 64], "blocks": [1, 2]}),
    "deephalo": _all_names({**_SET_NETWORK, "order": [2, 3, 4], "width": [8, 16, 32], "heads": [2, 4, 8]}),
    "rf": _all_names(_FOREST),
    "cdm": _all_names({**_STRENGTHS, **_RIDGE}),
    "boosted": _all_names(_BOOSTED),
    "lmnl": _all_names({**_UTILITY_NETWORK, "dropout": (0.0, 0.5)}),
    "reslogit": _all_names({"weight_decay": _DECAY, "lr": (1e-3, 2e-2, "log"), "layers": [1, 2, 4, 8, 16]}),
    "rumnet": _all_names({**_UTILITY_NETWORK, "samples": [2, 4, 8]}),
    "tastenet": _all_names({**_UTILITY_NETWORK, "dropout": (0.0, 0.5)}),
    "pcmc": _all_names({**_STRENGTHS, "ridge": (1e-3, 10.0, "log")}),
    "pcmc-linear": _all_names({"l2": (1e-4, 100.0, "log")}),
    "bradley-terry": _all_names(_RIDGE),
    "thurstone": _all_names(_RIDGE),
    "mnl": _all_names(_POOLING),
    "nested-mnl": _all_names(_POOLING),
    "cross-nested-mnl": _all_names(_POOLING),
    "mixed-mnl": _all_names({"prior": (1e-3, 10.0, "log"), **_POOLING}),
    "lc-mnl": _all_names({"classes": [1, 2, 3, 4, 5], "prior": (1e-3, 10.0, "log"), **_POOLING}),
}


# -- Space -------------------------------------------------------------------------------------------------------------


LAYERS, NODES, WIDTHS = "layers", "nodes", "hidden"
_RANGE = re.compile(r"(log:)?([^:,/]+):([^:,/]+)")


@dataclass(frozen=True)
class Range:
    """Dimension that contains all numbers from ``low`` to ``high``, inclusive."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def value(self, drawn: Any) -> Any:
        """Return the option value that corresponds to a draw."""
        return int(drawn) if self.whole else float(drawn)

    def place(self, value: Any) -> float | None:
        """Return the draw that corresponds to a value, or None if the value is outside the range."""
        is_inside = _fits(value, int if self.whole else float) and self.low <= value <= self.high
        return value if is_inside else None

    @property
    def size(self) -> int | None:
        """Number of values in the range, or None if infinite."""
        return int(self.high) - int(self.low) + 1 if self.whole else None

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{' (log)' if self.log else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as plain values for JSON."""
        return {"low": self.low, "high": self.high, "log": self.log, "whole": self.whole}


@dataclass(frozen=True)
class Choice:
    """Dimension with a list of values; a draw is a position if the values are increasing numbers, otherwise a label."""

    values: tuple[Any, ...]

    @property
    def ordered(self) -> bool:
        """Whether the values are increasing numbers."""
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)
        return numbers and all(a < b for a, b in pairwise(self.values))

    @property
    def labels(self) -> tuple[str, ...]:
        """The values, formatted as on the command line."""
        return tuple(in_words(value) for value in self.values)

    def value(self, drawn: Any) -> Any:
        """Return the option value that corresponds to a draw."""
        return self.values[int(drawn)] if self.ordered else self.values[self.labels.index(drawn)]

    def place(self, value: Any) -> int | str | None:
        """Return the draw that corresponds to a value, or None if the value is not in the list."""
        for k, listed in enumerate(self.values):
            if listed == value and isinstance(listed, bool) == isinstance(value, bool):  # True is not 1
                return k if self.ordered else self.labels[k]
        return None

    @property
    def size(self) -> int | None:
        """Number of values in the list."""
        return len(self.values)

    def __str__(self) -> str:
        return ", ".join(self.labels)

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as plain values for JSON."""
        return {"values": list(self.values)}


Dimension = Range | Choice


@dataclass(frozen=True)
class Space:
    """Search space of a model class: dimensions by name.

    Parameters
    ----------
    dimensions
        Mapping from names to ranges and lists of values.
    stacked
        Whether the dimensions ``layers`` and ``nodes`` together define the option ``hidden``. Default False.
    defaults
        Default values of the searched options, used in the first trial. If empty (default), no trial uses default
        values.
    """

    dimensions: Mapping[str, Dimension]
    stacked: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: type[ChoiceModel], space: Space | str | Mapping[str, Any]) -> Space:
        """Return a named space, or a space from a mapping of options to ranges and lists of values.

        Parameters
        ----------
        kind
            Class of the model.
        space
            "default", "paper", "wide", a mapping from options to (low, high), (low, high, "log") or lists of values, or
            a Space, which is returned unchanged.

        Returns
        -------
        The space.

        Raises
        ------
        ConfigError
            If the model has no such space or option, or if a value is not valid for an option.
        """
        if isinstance(space, Space):
            return space
        if isinstance(space, str):
            space = _named(kind, space)
        if not isinstance(space, Mapping) or not space:
            raise ConfigError(
                f"space: expected one of {', '.join(map(repr, SPACE_NAMES))} or a mapping such as "
                f"{{'lr': (1e-4, 1e-1, 'log')}}, got {space!r}."
            )
        hints = _hints(kind)
        for name in space:
            if name not in hints:
                raise ConfigError(f"space: unknown option {name!r} of {kind.name}." + did_you_mean(str(name), hints))
        stacked = _has_widths(kind) and bool({LAYERS, NODES} & set(space))
        if stacked and ({LAYERS, NODES} - set(space) or WIDTHS in space):
            raise ConfigError(f"space: {LAYERS} and {NODES} together define {WIDTHS}: give both, or only {WIDTHS}.")
        return cls({name: _dimension(name, spec, hints[name]) for name, spec in space.items()}, stacked)

    def options(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """Return the model options that correspond to a draw from each dimension.

        >>> widths = {"layers": Choice((1, 2, 3)), "nodes": Choice((32, 64))}
        >>> Space({**widths, "lr": Range(0.001, 0.1, log=True)}, stacked=True).options(
        ...     {"layers": 1, "nodes": 0, "lr": 0.01}
        ... )
        {'lr': 0.01, 'hidden': (32, 32)}
        """
        options = {name: dimension.value(drawn[name]) for name, dimension in self.dimensions.items()}
        if self.stacked:
            options[WIDTHS] = (options.pop(NODES),) * options.pop(LAYERS)
        return options

    def place(self, options: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the draws that correspond to the options, or None if the space does not contain the options.

        >>> Space({"layers": Choice((1, 2)), "nodes": Choice((32, 64))}, stacked=True).place({"hidden": (64, 64)})
        {'layers': 1, 'nodes': 1}
        """
        values = dict(options)
        if self.stacked:
            widths = values.pop(WIDTHS, ())
            values |= {LAYERS: len(widths), NODES: widths[0] if len(set(widths)) == 1 else None}
        draws = {name: dimension.place(values.get(name)) for name, dimension in self.dimensions.items()}
        return None if None in draws.values() else draws

    def with_defaults(self, options: Mapping[str, Any]) -> Space:
        """Return a copy of the space with the options of a model as defaults."""
        return replace(self, defaults={name: options[name] for name in self.option_names})

    @property
    def option_names(self) -> list[str]:
        """Names of the model options that are searched."""
        names = [name for name in self.dimensions if not (self.stacked and name in (LAYERS, NODES))]
        return [*names, *([WIDTHS] if self.stacked else [])]

    def without(self, options: Iterable[str]) -> Space:
        """Return the space without the given options."""
        fixed = set(options)
        if self.stacked and WIDTHS in fixed:
            fixed |= {LAYERS, NODES}
        remaining = {name: d for name, d in self.dimensions.items() if name not in fixed}
        return Space(remaining, self.stacked and NODES in remaining)

    def combined_with(self, other: Space) -> Space:
        """Return the union of this space and another space."""
        return Space({**self.dimensions, **other.dimensions}, self.stacked or other.stacked)

    @property
    def size(self) -> int | None:
        """Number of configurations, including the defaults, or None if infinite."""
        sizes = [dimension.size for dimension in self.dimensions.values()]
        defaults_outside = bool(self.defaults) and self.place(self.defaults) is None
        return None if None in sizes else math.prod(size or 1 for size in sizes) + defaults_outside

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as plain values for JSON."""
        return {name: dimension.to_dict() for name, dimension in self.dimensions.items()}


def parse_search(kind: type[ChoiceModel], word: str) -> tuple[str, Any]:
    """Parse ``lr=log:1e-4:1e-1``, ``dropout=0:0.5``, ``activation=relu,tanh`` or ``hidden=64/64,64``.

    Values are separated by commas, or by slashes if the values are lists.
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
    if name not in option_names(kind.config_class):  # layers or nodes
        return name, [_number(name, part) for part in parts]
    return name, [parse_option(kind.config_class, f"{name}={part}")[1] for part in parts]


def in_words(value: Any) -> str:
    """Format a value as on the command line, such as 64,64 or true or 0.001."""
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
        raise ConfigError(f"{kind.name} has no default space: pass a mapping from options to their values.")
    return SPACES[kind.name][name]


def _hints(kind: type[ChoiceModel]) -> dict[str, Any]:
    """Return option types by name, including ``layers`` and ``nodes`` if the model has hidden-layer widths."""
    types = get_type_hints(kind.config_class)
    hints = {name: types[name] for name in option_names(kind.config_class)}
    return {**hints, LAYERS: int, NODES: int} if _has_widths(kind) else hints


def _has_widths(kind: type[ChoiceModel]) -> bool:
    """Return True if the model has an option ``hidden`` that is a list of layer widths."""
    return get_type_hints(kind.config_class).get(WIDTHS) == tuple[int, ...]


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _dimension(name: str, spec: Any, hint: Any) -> Dimension:
    """Return the dimension for a range or a list of values, after checking the values against the option's type."""
    if isinstance(spec, Range | Choice):
        return spec
    if isinstance(spec, tuple):
        return _range(name, spec, hint)
    if not isinstance(spec, list) or not spec:
        raise ConfigError(f"space, {name}: expected a tuple (low, high) or a list of values, got {spec!r}.")
    for value in spec:
        if not any(_fits(value, kind) for kind in _kinds(hint)):
            words = [word for kind in _kinds(hint) if get_origin(kind) is Literal for word in get_args(kind)]
            raise ConfigError(f"space, {name}: {value!r} is not a valid value." + did_you_mean(str(value), words))
    choice = Choice(tuple(tuple(v) if isinstance(v, list) else v for v in spec))
    if len(set(choice.labels)) < len(spec):
        raise ConfigError(f"space, {name}: {choice} contains a value twice.")
    return choice


def _range(name: str, spec: tuple[Any, ...], hint: Any) -> Range:
    kinds = set(_kinds(hint))
    if not kinds & {int, float}:
        raise ConfigError(
            f"space, {name}: a range is not supported, since the values of the option are not numbers: give a list."
        )
    whole = float not in kinds
    low, high, *scale = spec if len(spec) > 1 else (None, None)
    if scale not in ([], ["log"], [True], [False]) or not (_fits(low, float) and _fits(high, float)):
        raise ConfigError(f"space, {name}: expected (low, high) or (low, high, 'log'), got {spec!r}.")
    log = scale in (["log"], [True])
    if not (-math.inf < low < high < math.inf) or (log and low <= 0):
        order = "0 < low < high" if log else "low < high"
        raise ConfigError(f"space, {name}: expected {order}, got {low!r} and {high!r}.")
    if whole and (low != int(low) or high != int(high)):
        raise ConfigError(f"space, {name}: expected whole numbers, got {low!r} and {high!r}.")
    return Range(int(low), int(high), log, True) if whole else Range(float(low), float(high), log)


def _fits(value: Any, kind: Any) -> bool:
    """Return True if the value is valid for an option of the given type."""
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
