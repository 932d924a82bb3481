"""The help of all commands: examples that can be copied, no types of flags, lines that fit the terminal."""

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest
import typer

from pcmcnet.cli.app import app
from pcmcnet.cli.help import blocks, is_example
from pcmcnet.models import FAMILIES, MODELS

Run = Callable[..., Any]

PROGRAM: Any = typer.main.get_command(app)
EXPERIMENTS = PROGRAM.commands["reproduce"].commands
COMMANDS = {name: command for name, command in PROGRAM.commands.items() if name != "reproduce"}
COMMANDS |= {f"reproduce {name}": command for name, command in EXPERIMENTS.items()}


def commands_in_examples(command: Any) -> list[list[str]]:
    """Return the words of each command in the indented blocks of a docstring."""
    text = "\n".join(block for block in blocks(command.help) if is_example(block))
    return [shlex.split(line) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_can_be_copied(name: str, flag: str, cli: Run) -> None:
    status, out, err = cli(*name.split(), flag)
    assert (status, err) == (0, "")
    assert re.search(rf"^    pcmcnet {name} ", f"{out} ".replace("\n", " \n"), re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_in_an_example_exists(name: str) -> None:
    for words in commands_in_examples(COMMANDS[name]):
        assert words[0] == "pcmcnet"
        command = COMMANDS[" ".join(words[1:3]) if words[1] == "reproduce" else words[1]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if re.match("--?[a-z]", word)} <= known


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_the_terminal_and_has_no_types_of_flags(
    name: str, columns: int, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = cli(*name.split(), "--help").out
    assert max(map(len, out.splitlines())) <= min(columns, 100)
    assert not re.search(r"<(bool|str|path|int|float|list)", out)
    assert "`" not in out


def test_flags_have_no_value_and_other_options_do(cli: Run) -> None:
    out = cli("fit", "--help").out
    assert re.search(r"^      --resume +Continue", out, re.MULTILINE)
    assert re.search(r"^  -o, --output PATH +Folder for the model. \[required\]$", out, re.MULTILINE)
    assert re.search(r"^      --choice-set COLUMN +Column with the id", out, re.MULTILINE)
    assert re.search(r"^      --seed N +Random seed. \[default: 0\]$", out, re.MULTILINE)
    assert re.search(r"^Columns:$", out, re.MULTILINE)


def test_the_program_lists_every_command_once(cli: Run) -> None:
    out = cli("--help").out
    for name in PROGRAM.commands:
        assert len(re.findall(rf"^  {name} +[A-Z]", out, re.MULTILINE)) == 1, name
    assert "\nCommands:" not in out  # every command has a topic
    listed = cli("reproduce", "--help").out
    assert all(f"\n  {name} " in listed for name in EXPERIMENTS)


def test_optional_arguments_are_in_brackets(cli: Run) -> None:
    assert "Usage: pcmcnet models [NAME] [OPTIONS]" in cli("models", "--help").out
    assert "environment variable: PCMCNET_TOKEN" in " ".join(cli("serve", "--help").out.split())


def test_every_model_belongs_to_one_family() -> None:
    assert sorted(name for family in FAMILIES.values() for name in family) == sorted(MODELS)
    assert all(MODELS[name].name == name for name in MODELS)
