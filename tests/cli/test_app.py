"""What all commands have in common: help, one line for bad input, and standard output."""

import contextlib
import errno
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import pytest

import forked
import pcmcnet_command
from pcmcnet import storage
from pcmcnet.cli import MessageFormatter, main
from pcmcnet.cli.app import app
from pcmcnet.cli.output import print_message, print_result
from pcmcnet.data.files import write_files
from pcmcnet.errors import ResourceError

Run = Callable[..., tuple[int, str, str]]

COMMANDS = [command.callback.__name__ for command in app.registered_commands if command.callback]
IN_PROCESS = ["cli", pytest.param("program", marks=pytest.mark.slow)]


def plain(text: str) -> str:
    """Return the text without colours, frames and line breaks."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


def test_the_program_lists_its_commands(program: Run) -> None:
    status, out, err = program("--help")
    assert (status, err) == (0, "")
    assert {"fit", "predict", "evaluate", "simulate", "datasets"} <= set(COMMANDS)
    for command in COMMANDS:
        assert f" {command} " in plain(out)


def test_without_arguments_the_program_shows_its_help(cli: Run) -> None:
    status, out, err = cli()
    assert (status, err) == (0, "")
    assert "Usage: pcmcnet" in plain(out)


def test_the_version_is_shown_even_if_not_installed(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> NoReturn:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(storage, "version", lambda name: "1.2.3")
    assert cli("--version") == (0, "pcmcnet 1.2.3\n", "")
    monkeypatch.setattr(storage, "version", missing)
    assert cli("--version") == (0, "pcmcnet not installed as a package\n", "")


@pytest.mark.parametrize("how", IN_PROCESS)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["frobnicate"], r"pcmcnet has no command 'frobnicate'.* See pcmcnet --help\."),
        (["fit"], r"pcmcnet fit needs TABLE \(CSV.* See pcmcnet fit --help\."),
        (["fit", "t.csv"], r"pcmcnet fit needs -o, --output PATH .* See pcmcnet fit --help\."),
        (
            ["fit", "t.csv", "-o", "m", "--modle", "x"],
            r"pcmcnet fit has no option --modle\. Did you mean --model\? See .*",
        ),
        (["fit", "t.csv", "-o", "m", "--seed", "-1"], r"Invalid value for '--seed': .* See pcmcnet fit --help\."),
        (
            ["simulate", "mlba", "-o", "t.csv", "--sets", "many"],
            r"--sets: expected a whole number, got 'many'. See pcmcnet simulate --help\.",
        ),
    ],
)
def test_wrong_arguments_give_a_one_line_error(
    words: list[str], message: str, how: str, request: pytest.FixtureRequest
) -> None:
    status, out, err = request.getfixturevalue(how)(*words)
    assert (status, out) == (2, "")
    assert re.fullmatch(rf"error: {message}\n", err)


def test_system_errors_give_one_line_and_status_1(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(table: object, path: Path) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(write_files, "write_table", full)
    status, out, err = cli("simulate", "mlba", "--sets", 1, "-o", tmp_path / "t.csv")
    assert (status, out) == (1, "")
    assert err == f"error: {tmp_path / 't.csv'}: No space left on device.\n"


def test_escape_sequences_in_names_are_escaped(cli: Callable[..., Any], tmp_path: Path) -> None:
    """Ids and names come from tables of other people. These would set a title and clear the screen."""
    table = tmp_path / "t.csv"
    table.write_text("trip,took,x\n\x1b]0;mine\x07a,1,1\n\x1b]0;mine\x07a,1,2\n", "utf-8")
    words = ("--choice-set", "trip", "--chosen", "took", "--features", "x", "--model", "mnl", "-o", tmp_path / "model")
    assert r"choice set \x1b]0;mine\x07a: " in cli("fit", table, *words).message
    assert r"no\x1b[2J.csv: no such file" in cli("fit", tmp_path / "no\x1b[2J.csv", *words).message
    assert r"--\x1b[2J" in cli("fit", table, "--\x1b[2J", *words).message


def test_messages_about_long_input_are_short(cli: Callable[..., Any], table: Path, roles: list[str]) -> None:
    result = cli("fit", table, *roles, "--model", "mnl", "--set", "formula=" + "(" * 50_000, "-o", "model").message
    assert "expected the name of a column" in result[-60:]
    assert len(result) < 5_000


def test_results_and_messages_show_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_result("a\tb\x1b[2J\r\u202e\udcff é\nc", {}, as_json=False)
    print_message("read \x9b31m")
    assert capsys.readouterr() == ("a\tb\\x1b[2J\\r\\u202e\\udcff é\nc\n", "read \\x9b31m\n")
    record = logging.LogRecord("pcmcnet", logging.INFO, "", 0, "column %s", ("x\x1b[2J",), None)
    assert MessageFormatter("%(message)s").format(record) == r"column x\x1b[2J"


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (
            MemoryError(),
            1,
            "not enough memory or threads. Read the table in chunks (--stream), use a smaller",
        ),
        (
            RuntimeError("CUDA out of memory. Tried\nand failed"),
            1,
            "not enough memory or threads (CUDA out of",
        ),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"),
            1,
            "not enough memory or threads (Def",
        ),
        (RuntimeError("can't start new thread"), 1, "not enough memory or threads (can't start new thread). Read"),
        (
            ImportError("x.so: failed to map segment from shared object"),
            1,
            "not enough memory or threads (x.so: f",
        ),
        (ResourceError("t.csv: not enough memory or threads."), 1, "t.csv: not enough memory or threads."),
        (RecursionError(), 2, "the input is nested too deeply."),
    ],
)
def test_memory_and_recursion_errors_give_a_one_line_error(
    error: Exception, status: int, message: str, cli: Callable[..., Any], tmp_path: Path
) -> None:
    with mock.patch.object(write_files, "write_table", side_effect=error):
        result = cli("simulate", "mlba", "--sets", 1, "-o", tmp_path / "t.csv")
    assert result.status == status
    assert result.message.startswith(message)


def test_unexpected_errors_keep_their_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pcmcnet", "simulate", "mlba", "--sets", "1", "-o", str(tmp_path / "t.csv")])
    bug = mock.patch.object(write_files, "write_table", side_effect=RuntimeError("a bug"))
    with bug, pytest.raises(RuntimeError, match="a bug"):
        main()


def test_characters_that_the_terminal_lacks_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes names of files that are not valid UTF-8."""
    place = tmp_path / os.fsdecode(b"caf\xe9 \xff.csv")
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "argv", ["pcmcnet", "simulate", "mlba", "--sets", "2", "-o", str(place)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert place.exists()
    assert rb"caf\udce9 \udcff.csv" in out.buffer.getvalue()


def test_file_names_that_are_not_utf_8_are_rejected(cli: Callable[..., Any], roles: list[str], tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"\xff.csv")
    place.write_text("trip,took,income,price,comfort\n1,1,1,1,1\n")
    result = cli("fit", place, *roles, "-o", tmp_path / "model")
    assert result.status == 2
    assert result.message.endswith(r"\udcff.csv: the file name is not valid UTF-8. Rename the file.")


ENDS = pytest.mark.parametrize("words", [["--help"], ["fit", "--help"], ["--version"], ["datasets", "--json"]])


def call_into(file: int, words: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """Run the program with a file as standard output, and return its status."""
    out = os.fdopen(file, "w", buffering=1)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "argv", ["pcmcnet", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert sys.stdout is out
    with contextlib.suppress(OSError):  # flushes the remaining output
        out.close()
    return stop.value.code


@ENDS
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_standard_output_is_reported(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call_into(os.open("/dev/full", os.O_WRONLY), words, monkeypatch) == 1
    assert capsys.readouterr().err == "error: standard output: No space left on device.\n"


@ENDS
@pytest.mark.skipif(sys.platform == "win32", reason="pipes close differently on Windows")
def test_a_closed_pipe_ends_the_program_quietly(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read, write = os.pipe()
    os.close(read)
    assert call_into(write, words, monkeypatch) == 141
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_without_standard_streams_the_status_is_correct(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service manager may close the streams."""
    monkeypatch.setattr(sys, "argv", ["pcmcnet", "frobnicate"])
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_ctrl_c_during_imports_gives_a_one_line_message(tmp_path: Path) -> None:
    """The interrupt comes during the import of the package."""
    package = tmp_path / "pcmcnet"
    package.mkdir()
    code = "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept BaseException:\n    pass\n"
    (package / "__init__.py").write_text(code)
    path = os.pathsep.join([str(tmp_path), str(Path(pcmcnet_command.__file__).parent)])
    run = subprocess.run(
        [sys.executable, "-c", "from pcmcnet_command import main; main()"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "error: interrupted.\n")


def test_the_entry_point_runs_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pcmcnet", "--version"])
    with pytest.raises(SystemExit) as stop:
        pcmcnet_command.main()
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("pcmcnet ")


@pytest.mark.parametrize("used", [True, False], ids=["with a GPU", "without"])
def test_a_command_that_used_a_gpu_exits_immediately(used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: used)
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(pcmcnet_command, "main", lambda: sys.exit(2))
    with pytest.raises(SystemExit) as stop:
        pcmcnet_command.command()
    assert (stop.value.code, ended) == (2, [2] if used else [])


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_a_ctrl_c_swallowed_by_a_library_still_ends_the_command(tmp_path: Path) -> None:
    """The interrupt may come in an import that catches all errors, or that fails because it was interrupted."""
    table = tmp_path / "t.csv"
    table.write_text("s,c,x\n" + "".join(f"{k},1,{k % 3}\n{k},0,1.5\n" for k in range(30)))
    code = f"""
import os, signal, sys
import pcmcnet_command
from pcmcnet.training import loop
real = loop.steps_for

def drops(*given):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        pass
    if then == "error":
        raise AttributeError("partially initialised")
    return real(*given)

loop.steps_for = drops
roles = ["--choice-set", "s", "--chosen", "c", "--features", "x"]
for then in ("nothing", "error"):
    sys.argv = ["pcmcnet", "fit", {str(table)!r}, *roles, "-o", os.path.join({str(tmp_path)!r}, then)]
    try:
        pcmcnet_command.main()
    except SystemExit as stop:
        print(then, stop.code, file=sys.stderr)
"""
    lines = forked.run(code).stderr.splitlines()
    for then in ("nothing", "error"):
        assert "interrupted" in lines[lines.index(f"{then} 130") - 1]


def test_ctrl_c_during_a_command_gives_a_one_line_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pcmcnet.cli.app.package_version", interrupted)
    monkeypatch.setattr(sys, "argv", ["pcmcnet", "--version"])
    with pytest.raises(SystemExit) as stop:
        pcmcnet_command.main()
    assert (stop.value.code, capsys.readouterr().err) == (130, "error: interrupted.\n")
