"""Options of models, which a dataclass describes once for ``help``, the command line and the documentation.

A model's options are the fields of a dataclass, its ``config_class``. The docstring of that class has a ``Parameters``
section, and inherits the descriptions of the classes that it extends. Fields may share one description
(``lr, schedule``).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache, wraps
from itertools import groupby
from textwrap import fill, indent
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np

from pcmcnet.errors import ArgumentError, ConfigError, did_you_mean

# -- Descriptions -----------------------------------------------------------------------------------------------------

REQUIRED = MISSING  # default of an option that has none
LINE_WIDTH = 100  # of a composed docstring
_SECTION = re.compile(r"^(Parameters|Attributes)\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^([\w, ]+)(?: :[^\n]*)?\n((?:    .+\n?)+)", re.MULTILINE)  # "name, name\n    description"
_HEADING = re.compile(r"^\w+\n-+$", re.MULTILINE)


class OptionDoc(NamedTuple):
    """An option with its name, its default (``REQUIRED`` if there is none) and its one-line description."""

    name: str
    default: Any
    meaning: str


def option_docs(config_class: type) -> list[OptionDoc]:
    """Return the options of a dataclass, in the order of its fields.

    Raises
    ------
    LookupError
        If no docstring describes an option.
    """
    descriptions, defaults = option_descriptions(config_class), _defaults(config_class)
    if missing := [name for name in defaults if name not in descriptions]:
        raise LookupError(f"{config_class.__name__}: no docstring describes {', '.join(missing)}.")
    return [OptionDoc(name, value, descriptions[name]) for name, value in defaults.items()]


def _defaults(config_class: type) -> dict[str, Any]:
    """Return the default of each option, in the order of the fields."""
    return {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(config_class)}


def changed_options(config: Any) -> dict[str, Any]:
    """Return the options of a model that differ from their defaults, in the order of the fields."""
    defaults, values = _defaults(type(config)), {f.name: getattr(config, f.name) for f in fields(config)}
    return {name: value for name, value in values.items() if repr(value) != repr(defaults[name])}


def option_descriptions(config_class: type) -> dict[str, str]:
    """Return a one-line description of each option, with options of the class itself before those of its bases."""
    descriptions: dict[str, str] = {}
    for owner in config_class.__mro__:
        descriptions |= {k: v for k, v in documented_parameters(owner.__doc__ or "").items() if k not in descriptions}
    return descriptions


@cache
def documented_parameters(docstring: str) -> dict[str, str]:
    """Return the parameters and attributes that a docstring describes, each with a one-line description."""
    return {
        name.strip(): " ".join(plain_roles(text).split())
        for _, section in _SECTION.findall(inspect.cleandoc(docstring))
        for names, text in _ENTRY.findall(section)
        for name in names.split(",")
    }


def plain_roles(text: str) -> str:
    """Convert Sphinx references to code: ":meth:`~a.b`" becomes "`a.b`", and double backticks become single."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")


def with_parameters(docstring: str, arguments: type) -> str:
    """Return a docstring that describes all fields of a dataclass in its ``Parameters`` section.

    Descriptions that the docstring already has stay as they are. Missing descriptions are taken from the dataclass and
    then from its bases, each with the default.
    """
    text = inspect.cleandoc(docstring)
    documented = documented_parameters(docstring)
    defaults, descriptions = _defaults(arguments), option_descriptions(arguments)
    # 1. Write an entry for each option that is not documented yet; neighbours with the same description share one.
    names = [name for name in descriptions if name in defaults and name not in documented]
    entries = []
    for description, group in groupby(names, key=descriptions.__getitem__):
        sharing = list(group)
        values = ("required" if defaults[name] is REQUIRED else f"default {defaults[name]!r}" for name in sharing)
        entries.append(f"{', '.join(sharing)} : {', '.join(values)}\n{_indented(description)}")
    if not entries:
        return text
    # 2. Add them at the end of the Parameters section, or as a new section before all others.
    section = next((match for match in _SECTION.finditer(text) if match[1] == "Parameters"), None)
    heading = _HEADING.search(text)
    place = section.end() if section is not None else len(text) if heading is None else heading.start()
    start = "\n" if section is not None else "\n\nParameters\n----------\n"
    rest = f"\n\n{text[place:]}" if text[place:] else ""
    return text[:place].rstrip() + start + "\n".join(entries) + rest


@cache  # most models share the options of the training loop
def _indented(description: str) -> str:
    return indent(fill(description, LINE_WIDTH - 4, break_long_words=False, break_on_hyphens=False), "    ")


# -- Values -----------------------------------------------------------------------------------------------------------

C = TypeVar("C")
P = ParamSpec("P")


def takes(arguments: Callable[P, Any]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Declare that a model's constructor takes the fields of a dataclass.

    Type checkers and editors then know the options, and :class:`ChoiceModel` adds their descriptions to the docstring.
    """

    def declare(constructor: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        kinds = [parameter.kind for parameter in inspect.signature(constructor).parameters.values()]
        by_position = sum(kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds)

        @wraps(constructor)
        def construct(model: Any, *args: Any, **options: Any) -> None:
            if 1 + len(args) > by_position:
                raise _options_by_position(type(model).__name__, args[-1], [*inspect.signature(arguments).parameters])
            constructor(model, *args, **options)

        construct.arguments_class = arguments  # type: ignore[attr-defined]
        return cast("Callable[Concatenate[Any, P], None]", construct)

    return declare


def _options_by_position(model: str, value: object, names: Sequence[str]) -> ArgumentError:
    """Return the error for a constructor that is called with an option without its name."""
    option = "formula" if isinstance(value, str) and "formula" in names else names[0]
    return ArgumentError(f"{model} takes its options by name: write {model}({option}=...).")


def unknown_option(name: str, config_class: type) -> ConfigError:
    """Return the error for an unknown option, with the equivalent in pcmcnet.

    Options of other packages have other names here, and some are arguments of ``fit``.
    """
    names, plain = option_names(config_class), name.lower().replace("-", "_")
    if plain in _ELSEWHERE:
        remedy, on_the_command_line = _ELSEWHERE[plain]
        text = f"unknown option {name!r}: "
        return ConfigError(f"{text}{remedy}.", command_line=f"{text}{on_the_command_line}.")
    return ConfigError(f"unknown option {name!r}." + did_you_mean(name, names, _OTHER_NAMES))


_SEED = "the seed is an argument of fit, as in fit(train, seed=0)", "use --seed N"
_PROGRESS = "progress bars are switched off in fit, as in fit(train, progress=False)", "use -v for more output"
_DEVICE = "the device is an argument of fit, as in fit(train, device='cuda')", "use --device cuda"
_THREADS = "set the number of threads with torch.set_num_threads(n)", "set the environment variable OMP_NUM_THREADS"
_VALID = "pass the validation part to fit, as in fit(train, valid)", "use --valid 0.1"
# Options that are not options of a model here: what to write in Python, and on the command line.
_ELSEWHERE = {
    **dict.fromkeys(["seed", "random_state", "random_seed"], _SEED),
    **dict.fromkeys(["verbose", "verbosity", "progress", "disp", "silent"], _PROGRESS),
    **dict.fromkeys(["device", "use_gpu", "gpu", "cuda"], _DEVICE),
    **dict.fromkeys(["n_jobs", "num_threads", "n_threads", "workers"], _THREADS),
    **dict.fromkeys(["valid", "validation_split", "validation_fraction", "validation_data", "eval_set"], _VALID),
}
_OTHER_NAMES = {  # hyphens, as did_you_mean looks them up
    **dict.fromkeys(["learning-rate", "learning-rate-init", "step-size", "eta"], "lr"),
    **dict.fromkeys(["max-epochs", "num-epochs", "n-epochs", "n-iter", "max-iter", "iterations"], "epochs"),
    **dict.fromkeys(["hidden-layer-sizes", "hidden-sizes", "hidden-units", "layers", "hidden-layers"], "hidden"),
    **dict.fromkeys(["batchsize", "minibatch-size"], "batch_size"),
    **dict.fromkeys(["alpha", "l2", "regularization", "regularisation", "penalty"], "weight_decay"),
    **dict.fromkeys(["n-classes", "num-classes", "n-components", "k"], "classes"),
    **dict.fromkeys(["early-stopping", "n-iter-no-change", "early-stopping-rounds"], "patience"),
    **dict.fromkeys(["maxiter", "max-iterations"], "max_iter"),
    **dict.fromkeys(["n-draws", "num-draws"], "draws"),
    **dict.fromkeys(["monotone-constraints", "monotonic-cst"], "monotone"),
    **dict.fromkeys(["n-estimators", "num-trees", "n-trees"], "trees"),
}


def make_config(config_class: type[C], options: Mapping[str, Any]) -> C:
    """Return a config with these options. Raise ConfigError, with the nearest name, if an option is unknown."""
    names = option_names(config_class)
    for name in options:
        if name not in names:
            raise unknown_option(name, config_class)
    numpy_types = (np.generic, np.ndarray)  # their values become Python numbers and lists, which JSON can hold
    return config_class(**{k: v.tolist() if isinstance(v, numpy_types) else v for k, v in options.items()})


def option_names(config_class: type) -> list[str]:
    """Return the names of the options of a config class."""
    return [field.name for field in fields(config_class)]
