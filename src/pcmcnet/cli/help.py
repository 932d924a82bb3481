"""The help of the program and of its commands, as plain text with examples that can be copied.

A docstring consists of paragraphs, which are wrapped, and of indented blocks, which are printed as they are. Options
show no type if they are flags, and otherwise the kind of value that they take.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from shutil import get_terminal_size
from textwrap import dedent, fill, indent
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from pcmcnet.cli.output import supports_colour

MAX_WIDTH = 100  # longer lines are hard to read
_UNBREAKABLE_SPACE = "\xa0"
_MAX_NAMES = 28  # characters of the names in a row, whose meaning otherwise starts on the next line
_VALUES = {"Path": "PATH", "int": "N", "float": "NUMBER", "path": "PATH", "integer": "N", "integer range": "N"}

Row = tuple[str, str]  # the names of an option, and its meaning

logger = logging.getLogger(__name__)
_LIST_OPTIONS = {"--features", "--individual", "--categorical", "--keep", "--signs", "--kinds"}  # comma-separated


def _values_of(option: str, words: Sequence[str]) -> list[str]:
    """Return the values that a command line gives to an option, as OPTION VALUE or OPTION=VALUE."""
    after = [value for word, value in pairwise(words) if word == option]
    return after + [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]


class HelpfulCommand(TyperCommand):
    """A command whose help has copyable examples and no types of flags."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for parameter in self.params:  # the usage, the help and messages name an argument in the same way
            if parameter.param_type_name == "argument" and parameter.metavar is None:
                parameter.metavar = str(parameter.name).upper()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command line. Warn about a list that is given twice: only the last one counts."""
        for option in _LIST_OPTIONS & {name for parameter in self.params for name in parameter.opts}:
            values = _values_of(option, args)
            if len(values) > 1:
                logger.warning(
                    "%s occurs %d times, and only the last one counts. To use all, write one list: %s %s",
                    option,
                    len(values),
                    option,
                    ",".join(values),
                )
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        arguments = [p for p in self.params if p.param_type_name == "argument"]
        usage = [ctx.command_path, *(_usage_name(p) for p in arguments), "[OPTIONS]"]
        first, *rest = blocks(self.help or "")
        parts = [*_wrapped([first]), f"{_heading('Usage:')} {' '.join(usage)}", *_wrapped(rest)]
        panels: dict[str, list[Row]] = {"Arguments": [(str(p.metavar), _meaning(p)) for p in arguments]}
        for option in self.get_params(ctx):
            if option.param_type_name == "option" and not getattr(option, "hidden", False):
                rows = panels.setdefault(getattr(option, "rich_help_panel", None) or "Options", [])
                rows.append((option_names(option), _meaning(option)))
        parts += [_panel(title, rows) for title, rows in panels.items() if rows]
        formatter.write("\n\n".join(parts) + "\n")


class HelpfulGroup(TyperGroup):
    """A group whose help lists its commands by topic."""

    topics: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # names of commands; others are listed at the end

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        first, *rest = blocks(self.help or "")
        usage = f"{_heading('Usage:')} {ctx.command_path} COMMAND [OPTIONS]"
        parts = [*_wrapped([first]), usage, *_wrapped(rest)]
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        listed = {name for names in self.topics.values() for name in names}
        unlisted = tuple(name for name in commands if name not in listed)
        for title, names in (*self.topics.items(), ("Commands", unlisted)):
            rows = [(name, _first_sentence(commands[name])) for name in names if name in commands]
            parts += [_panel(title, rows)] if rows else []
        options = [p for p in self.get_params(ctx) if p.param_type_name == "option"]
        parts.append(_panel("Options", [(option_names(p), _meaning(p)) for p in options]))
        parts.append(f"The options of a command: {ctx.command_path} COMMAND --help")
        formatter.write("\n\n".join(parts) + "\n")


def blocks(text: str) -> list[str]:
    """Return the paragraphs and the indented blocks of a docstring."""
    return inspect.cleandoc(text).split("\n\n")


def is_example(block: str) -> bool:
    """Return True for an indented block, which is printed as it is."""
    return block.startswith("    ")


def _wrapped(parts: Iterable[str]) -> Iterator[str]:
    """Yield blocks with their paragraphs wrapped. Names of options and commands lose their backticks."""
    for block in parts:
        yield indent(dedent(block), "    ") if is_example(block) else fill(_plain(block), _width(), **_UNBROKEN)


def _plain(text: str) -> str:
    return " ".join(text.replace("`", "").split())


_UNBROKEN: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}  # keep --names of options whole


def _width() -> int:
    return min(get_terminal_size((MAX_WIDTH, 24)).columns, MAX_WIDTH)


def _heading(text: str) -> str:
    return typer.style(text, bold=True) if supports_colour(sys.stdout) else text


def _panel(title: str, rows: list[Row]) -> str:
    """Return rows of names and meanings in two columns. Long names have a line of their own."""
    margin = min(max(len(names) for names, _ in rows), _MAX_NAMES) + 4
    lines = [_heading(f"{title}:")]
    for names, meaning in rows:
        text = fill(meaning, _width(), initial_indent=" " * margin, subsequent_indent=" " * margin, **_UNBROKEN)
        if len(names) > margin - 4:
            lines += [f"  {names}", text]
        else:
            lines.append(f"  {names:<{margin - 2}}{text.lstrip()}".rstrip())
    return "\n".join(lines).replace(_UNBREAKABLE_SPACE, " ")


def _usage_name(argument: Any) -> str:
    return str(argument.metavar) if argument.required else f"[{argument.metavar}]"


def option_names(option: Any) -> str:
    """Return the names of an option and the kind of its value, such as ``-o, --output PATH``."""
    names = ", ".join(sorted([*option.opts, *option.secondary_opts], key=len))
    names = names if len(option.opts) > 1 else f"    {names}"  # long names are aligned
    if option.is_flag or option.count or option.name == "help":
        return names
    return f"{names} {option.metavar or _value_kind(option)}"


def _value_kind(option: Any) -> str:
    """Return the kind of value of an option, such as PATH."""
    descriptor = getattr(option, "type_descriptor", None)  # of recent versions of typer
    kind = option.type.name if descriptor is None else getattr(descriptor.annotation, "__name__", "")
    return _VALUES.get(kind, "TEXT")


def _meaning(parameter: Any) -> str:
    """Return the help of a parameter with its default value, or with a note that it is required."""
    meaning, default = _plain(parameter.help or ""), parameter.default
    if parameter.required:
        is_option = parameter.param_type_name == "option"
        return f"{meaning} [required]" if is_option else meaning
    if getattr(parameter, "envvar", None):
        meaning += f" [environment variable: {parameter.envvar}]"
    if isinstance(parameter.show_default, str):
        default = parameter.show_default
    is_shown = parameter.show_default and default not in (None, "") and default is not False and not callable(default)
    return f"{meaning} [default:{_UNBREAKABLE_SPACE}{default}]" if is_shown else meaning


def _first_sentence(command: Any) -> str:
    first = _plain(blocks(command.help or "")[0])
    return f"{first.partition('. ')[0].rstrip('.')}."
