"""Generate parts of the reference while mkdocs builds the site: a hook of mkdocs.yml.

Every public class gets a page, reference/NAME.md. Other pages include generated parts with a comment:

    <!-- commands -->              every command of the program with its arguments and options
    <!-- classes: NAME, NAME -->   links to the pages of these classes, with the first sentence of their docstrings
    <!-- file: NAME -->            a file of the repository, such as CONTRIBUTING.md
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import EnumMeta
from pathlib import Path
from typing import Any, get_args

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.main import get_command

import pcmcnet as pn
from pcmcnet.cli.app import app
from pcmcnet.models import ChoiceModel
from pcmcnet.models.interface.options import REQUIRED, OptionDoc, option_docs

ROOT = Path(__file__).parents[1]
_MARK = re.compile(r"^<!-- (commands|classes|file)(?:: ([\w., ]+))? -->$", re.MULTILINE)
# Inherited methods that the page of a class also lists, because users look for them there.
_INHERITED = {
    "ChoiceData": "true",
    "PCMCNet": "[rates]",
    "MNL": "[coefficients, standard_errors, covariance, willingness_to_pay, elasticities, summary]",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every public class; mkdocs calls this before it reads the pages."""
    for name in public_classes():
        files.append(File.generated(config, f"reference/{name}.md", content=class_page(name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each comment by its generated part; mkdocs calls this for every page."""
    return _MARK.sub(lambda match: _PARTS[match[1]](*match.groups()[1:]), markdown)


# -- classes ------------------------------------------------------------------------------------------------------


def public_classes() -> list[str]:
    """Return the names of the classes that ``pcmcnet`` exports, and of the base class of all models."""
    return [*sorted(name for name in pn.__all__ if isinstance(getattr(pn, name), type)), "ChoiceModel"]


def class_page(name: str) -> str:
    """Return the page of a class: its docstring and methods, then the options of a model."""
    path = "pcmcnet.models.ChoiceModel" if name == "ChoiceModel" else f"pcmcnet.{name}"
    inherited = _INHERITED.get(name, "false")
    parts = [f"# {name}", f"::: {path}\n    options:\n      inherited_members: {inherited}"]
    if hasattr(getattr(pn, name, None), "config_class"):
        parts.append(f"## Options\n\n{options(name)}")
    return "---\nsearch:\n  boost: 2\n---\n\n" + "\n\n".join(parts) + "\n"


def classes(names: str) -> str:
    """Return a table of links to the pages of classes."""
    lines = []
    for name in names.split(", "):
        kind = ChoiceModel if name == "ChoiceModel" else getattr(pn, name)
        lines.append(f"| [`{name}`]({name}.md) | {_cell(inspect.getdoc(kind).split(chr(10) * 2)[0])} |")
    return "\n".join(["| class | description |", "|---|---|", *lines])


# -- commands -----------------------------------------------------------------------------------------------------


def commands(_: None = None) -> str:
    """Return a section for each command of the program."""
    return "\n\n".join(_command(name, command) for name, command in list_commands(get_command(app), "pcmcnet"))


def list_commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands below a group with their full names."""
    for word, child in getattr(command, "commands", {}).items():
        if getattr(child, "commands", None):
            yield from list_commands(child, f"{name} {word}")
        else:
            yield f"{name} {word}", child


def _command(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    panels: dict[str, list[Any]] = {}
    for parameter in command.params:
        if parameter.param_type_name == "option" and not parameter.hidden:
            panels.setdefault(parameter.rich_help_panel or "Options", []).append(parameter)
    usage = " ".join([name, *(p.name.upper() for p in arguments), "[OPTIONS]"])
    parts = [f"## {name}", f"```text\n{usage}\n```", inspect.cleandoc(command.help or "")]
    if arguments:
        lines = [f"| `{p.name.upper()}` | {_cell(p.help)} |" for p in arguments]
        parts.append("\n".join(["| argument | meaning |", "|---|---|", *lines]))
    for title, members in panels.items():
        lines = [f"| {_names(p)} | {_type(p)} | {_default(p)} | {_cell(p.help)} |" for p in members]
        parts.append("\n".join([f"| {title.lower()} | value | default | meaning |", "|---|---|---|---|", *lines]))
    return "\n\n".join(parts)


def _names(option: Any) -> str:
    names = sorted([*option.opts, *option.secondary_opts], key=len, reverse=True)
    return ", ".join(f"`{name}`" for name in names)


def _type(option: Any) -> str:
    """Return a description of the values of an option; empty for a flag."""
    kind = option.type_descriptor.annotation
    if option.is_flag or kind is bool:
        return ""
    words = {str: "text", int: "whole number", float: "number", Path: "path"}.get(kind)
    if words is None:
        inner = get_args(kind)
        values = [member.value for member in kind] if isinstance(kind, EnumMeta) else inner
        words = "text" if kind is list or str in inner else ", ".join(f"`{value}`" for value in values)
    bounds = [f"{word} {bound}" for word, bound in (("from", option.min), ("to", option.max)) if bound is not None]
    return _cell(" ".join([words, *bounds])) + (", repeatable" if option.multiple else "")


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if option.default is None or option.default is False or option.default in ((), [], ""):
        return ""
    return f"`{_cell(getattr(option.default, 'value', option.default))}`"


def _cell(text: Any) -> str:
    return " ".join(("" if text is None else str(text)).split()).replace("|", "\\|")


# -- options of models --------------------------------------------------------------------------------------------


def options(name: str) -> str:
    """Return the options of a model as a table: name, default, meaning."""
    lines = [
        f"| `{o.name}` | {_option_default(o)} | {_cell(o.meaning)} |"
        for o in option_docs(getattr(pn, name).config_class)
    ]
    if not lines:
        return "No options."
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *lines])


def _option_default(option: OptionDoc) -> str:
    return "required" if option.default is REQUIRED else f"`{_cell(repr(option.default))}`"


# -- files of the repository --------------------------------------------------------------------------------------


def file(name: str) -> str:
    """Return a file of the repository as a page, with links into docs/ adapted to the site."""
    return (ROOT / name).read_text("utf-8").replace("](docs/", "](")


_PARTS: dict[str, Any] = {"commands": commands, "classes": classes, "file": file}
