"""What all commands have in common: help, one line for bad input, and where output goes."""

import errno
import os
import re
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import NoReturn

import pytest

from pcmcnet.cli.app import app
from pcmcnet.data import files
from pcmcnet.models import artifact

Run = Callable[..., tuple[int, str, str]]

COMMANDS = [command.callback.__name__ for command in app.registered_commands if command.callback]
IN_PROCESS = ["cli", pytest.param("program", marks=pytest.mark.slow)]


def plain(text: str) -> str:
    """Without colours, frames and the line breaks that they bring."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("how", IN_PROCESS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(
    command: str, flag: str, how: str, request: pytest.FixtureRequest
) -> None:
    status, out, err = request.getfixturevalue(how)(command, flag)
    assert (status, err) == (0, "")
    assert f"pcmcnet {command}" in plain(out)
    assert f"Example: pcmcnet {command} " in plain(out)


def test_the_program_lists_its_commands(program: Run) -> None:
    status, out, err = program("--help")
    assert (status, err) == (0, "")
    assert {"fit", "predict", "evaluate", "simulate", "datasets"} <= set(COMMANDS)
    for command in COMMANDS:
        assert f" {command} " in plain(out)


def test_without_a_word_the_program_shows_its_help(cli: Run) -> None:
    status, out, err = cli()
    assert (status, err) == (0, "")
    assert "Usage: pcmcnet" in plain(out)


def test_the_version_is_told_also_for_a_source_tree_that_is_not_installed(
    cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> NoReturn:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(artifact, "version", lambda name: "1.2.3")
    assert cli("--version") == (0, "pcmcnet 1.2.3\n", "")
    monkeypatch.setattr(artifact, "version", missing)
    assert cli("--version") == (0, "pcmcnet not installed as a package\n", "")


@pytest.mark.parametrize("how", IN_PROCESS)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["frobnicate"], r"No such command 'frobnicate'.*: see pcmcnet --help\."),
        (["fit"], r"Missing argument.*: see pcmcnet fit --help\."),
        (["fit", "t.csv"], r"Missing option '(-o|--output)'.*: see pcmcnet fit --help\."),
        (["fit", "t.csv", "-o", "m", "--modle", "x"], r"No such option: --modle.*: see pcmcnet fit --help\."),
        (["fit", "t.csv", "-o", "m", "--seed", "-1"], r"Invalid value for '--seed': .*: see pcmcnet fit --help\."),
        (["simulate", "mlba", "-o", "t.csv", "--sets", "many"], r"Invalid value for '--sets': .*simulate --help\."),
    ],
)
def test_a_wrong_word_on_the_command_line_ends_in_one_line(
    words: list[str], message: str, how: str, request: pytest.FixtureRequest
) -> None:
    status, out, err = request.getfixturevalue(how)(*words)
    assert (status, out) == (2, "")
    assert re.fullmatch(rf"error: {message}\n", err)


def test_what_the_system_refuses_ends_in_one_line_and_status_1(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(table: object, path: Path) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(files, "write_table", full)
    status, out, err = cli("simulate", "mlba", "--sets", 1, "-o", tmp_path / "t.csv")
    assert (status, out) == (1, "")
    assert err == f"error: {tmp_path / 't.csv'}: No space left on device.\n"
