"""Run the code blocks of a page and write their outputs into the page: ``python -m tools.tutorials [PAGE ...]``.

The blocks of a page are one program. The output of a Python or shell block is written below it, in a block

    ```text title="Output"

Pictures that the program writes go to a folder next to the page, with the name of the page. The tests run the same code
with :func:`run` and compare the outputs with the page; numbers may differ within a tolerance.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pcmcnet.cli import main as main_of_pcmcnet
from pcmcnet.datasets import packaged
from pcmcnet.errors import DatasetError

log = logging.getLogger(__name__)
ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
TITLE = '```text title="Output"\n'
_BLOCK = re.compile(
    rf"^```(?P<language>python|bash)\n(?P<code>.*?)^```$(?:\n\n{TITLE}(?P<output>.*?)^```$)?", re.MULTILINE | re.DOTALL
)
_SET_UP = re.compile(r"(make|git|pip|python|python3) ")  # installation commands are not run
_TABLE = re.compile(r'packaged\.(?:load|long_form)\("([\w-]+)"\)|pcmcnet datasets ([\w-]+) -o')
_NUMBER = re.compile(r"[-+−]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?")
# Arguments without shell syntax; then a pipe or a redirection.
_HERE = re.compile(r"pcmcnet ([^|&;<>$`*?~(){}]*)([|>][^|&].*)?")
# A replacement of the console script, for environments in which the package is not installed.
_PCMCNET = f'pcmcnet() {{ "{sys.executable}" -c "from pcmcnet.cli import main; main()" "$@"; }}'


class Block(NamedTuple):
    """A block of code: its language, code and first line, the output on the page, and its position in the text."""

    language: str
    code: str
    line: int
    output: str | None
    start: int
    end: int


def blocks(text: str) -> list[Block]:
    """Return the example blocks of a page, in order."""
    all_blocks = [
        Block(m["language"], m["code"], text.count("\n", 0, m.start("code")), m["output"], m.start(), m.end())
        for m in _BLOCK.finditer(text)
    ]
    return [block for block in all_blocks if not _SET_UP.match(block.code)]


def run(page: Path) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page in the working folder; yield each block with its output."""
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks(page.read_text("utf-8")):
        if block.language == "bash":
            yield block, run_shell(block.code)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + block.code, str(page), "exec"), names)
        yield block, printed.getvalue()


def outdated(page: Path) -> list[str]:
    """Run a page in the working folder; return the differences between its outputs and the page."""
    shown = [(block, printed) for block, printed in run(page) if block.output is not None]
    return [f"{page.name}, line {b.line}: {d}" for b, printed in shown for d in differences(b.output or "", printed)]


def missing_table(page: Path) -> str | None:
    """Return the message of a missing packaged table that a page reads, or None."""
    for names in _TABLE.findall(page.read_text("utf-8")):
        try:
            packaged.path("".join(names))
        except DatasetError as error:
            return str(error)
    return None


def run_shell(code: str) -> str:
    """Run commands and return their output; a failing command raises with all output.

    pcmcnet commands run in this process, which is faster than starting a new one. A shell handles pipes.
    """
    lines = [line for line in code.replace("\\\n", " ").splitlines() if line.strip()]
    commands = [_HERE.fullmatch(line) for line in lines]
    if not all(commands):
        return by_shell(code)
    printed = ""
    for words, rest in (command.groups() for command in commands if command):
        out = run_here(shlex.split(words, comments=True))
        printed += by_shell(f"cat {rest}", out) if rest else out
    return printed


def by_shell(code: str, stdin: str = "") -> str:
    """Run commands in bash with this standard input; return their output."""
    command = ["bash", "-c", f"set -euo pipefail\n{_PCMCNET}\n{code}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_here(words: list[str]) -> str:
    """Run a pcmcnet command in this process and return its output."""
    out, err, before, status = io.StringIO(), io.StringIO(), sys.argv, None
    sys.argv = ["pcmcnet", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main_of_pcmcnet()
    except SystemExit as stop:
        status = stop.code
    finally:
        sys.argv = before
    assert not status, f"{shlex.join(words)}\n{out.getvalue()}\n{err.getvalue()}"
    return out.getvalue()


def differences(expected: str, actual: str, *, relative: float = 0.05, absolute: float = 0.02) -> list[str]:
    """Return the differences of two outputs: other words, or numbers that differ by more than a tolerance.

    >>> differences("NLL 0.80 of 3", "NLL  0.81 of 3")
    []
    >>> differences("NLL 0.80", "NLL 0.90")
    ['0.80 on the page, 0.90 now']
    """
    if _words(expected) != _words(actual):
        return [f"expected\n{expected}\ngot\n{actual}"]
    pairs = zip(_NUMBER.findall(expected), _NUMBER.findall(actual), strict=True)
    return [f"{a} on the page, {b} now" for a, b in pairs if not _close(_value(a), _value(b), relative, absolute)]


def _words(text: str) -> list[str]:
    return re.sub(r"-{2,}", "-", _NUMBER.sub("#", text)).split()


def _value(number: str) -> float:
    return float(number.replace(",", "").replace("−", "-").rstrip("."))


def _close(a: float, b: float, relative: float, absolute: float) -> bool:
    return abs(a - b) <= max(absolute, relative * max(abs(a), abs(b)))


def with_outputs(text: str, outputs: list[str]) -> str:
    """Return a page with these outputs below its blocks; empty outputs are left out."""
    parts, last = [], 0
    for block, output in zip(blocks(text), outputs, strict=True):
        parts += [text[last : block.start], f"```{block.language}\n{block.code}```"]
        if output.strip():
            lines = "\n".join(line.rstrip() for line in output.strip("\n").splitlines())
            parts.append(f"\n\n{TITLE}{lines}\n```")
        last = block.end
    return "".join([*parts, text[last:]])


def write(page: Path) -> None:
    """Run a page in an empty folder, write the outputs into the page, and copy the pictures."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        text, outputs = page.read_text("utf-8"), [output for _, output in run(page)]
        pictures = sorted(Path(folder).glob("*.png"))
        target = page.parent / page.stem
        for picture in pictures:
            target.mkdir(exist_ok=True)
            shutil.copyfile(picture, target / picture.name)
    page.write_text(with_outputs(text, outputs), "utf-8")


def main() -> None:
    """Update the pages given as arguments, or all tutorials."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for page in [Path(word).resolve() for word in sys.argv[1:]] or sorted(TUTORIALS.glob("*.md")):
        log.info("running %s", page.name)
        write(page)


if __name__ == "__main__":
    main()
