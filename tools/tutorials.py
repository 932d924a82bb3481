"""Run the code of a page and write what it prints below each block: ``python -m tools.tutorials [PAGE ...]``.

The blocks of a page are one program. What a block of Python or of a shell prints stands below it, in a block

    ```text title="Output"

that is written anew each time; pictures that the program leaves go to a folder beside the page, with its name. The
tests run the same code by :func:`run` and compare what it prints with the page, numbers within a tolerance.
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
_SET_UP = re.compile(r"(make|git|pip|python|python3) ")  # how a reader gets the project, not an example
_TABLE = re.compile(r'packaged\.(?:load|long_form)\("([\w-]+)"\)|pcmcnet datasets ([\w-]+) -o')
_NUMBER = re.compile(r"[-+−]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?")
_HERE = re.compile(r"pcmcnet ([^|&;<>$`*?~(){}]*)([|>][^|&].*)?")  # words without a shell, and where the output goes
# What the console script does, so that this also runs where the package is not installed.
_PCMCNET = f'pcmcnet() {{ "{sys.executable}" -c "from pcmcnet.cli import main; main()" "$@"; }}'


class Block(NamedTuple):
    """A block of code: its language, the code, the line it begins at, the output on the page, and where it ends."""

    language: str
    code: str
    line: int
    output: str | None
    start: int
    end: int


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page that are examples, in their order."""
    found = [
        Block(m["language"], m["code"], text.count("\n", 0, m.start("code")), m["output"], m.start(), m.end())
        for m in _BLOCK.finditer(text)
    ]
    return [block for block in found if not _SET_UP.match(block.code)]


def run(page: Path) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page in the working folder; yield each with what it printed."""
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
    """Run a page in the working folder; say where what it prints differs from what it shows."""
    shown = [(block, printed) for block, printed in run(page) if block.output is not None]
    return [f"{page.name}, line {b.line}: {d}" for b, printed in shown for d in differences(b.output or "", printed)]


def missing_table(page: Path) -> str | None:
    """Return how to install a packaged table that a page reads, if it is not there."""
    for names in _TABLE.findall(page.read_text("utf-8")):
        try:
            packaged.path("".join(names))
        except DatasetError as error:
            return str(error)
    return None


def run_shell(code: str) -> str:
    """Run commands; a failing one is an error with all that was printed.

    Those of pcmcnet run in this process, which spares the start of another one for each; a shell gets what they print.
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


def by_shell(code: str, given: str = "") -> str:
    """Run commands by bash, which reads what is given; return what they print."""
    command = ["bash", "-c", f"set -euo pipefail\n{_PCMCNET}\n{code}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_here(words: list[str]) -> str:
    """Run a command of pcmcnet in this process."""
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


def differences(expected: str, found: str, *, relative: float = 0.05, absolute: float = 0.02) -> list[str]:
    """Say where two outputs differ: in their words, or in numbers by more than a tolerance.

    >>> differences("NLL 0.80 of 3", "NLL  0.81 of 3")
    []
    >>> differences("NLL 0.80", "NLL 0.90")
    ['0.80 on the page, 0.90 now']
    """
    if _words(expected) != _words(found):
        return [f"expected\n{expected}\ngot\n{found}"]
    pairs = zip(_NUMBER.findall(expected), _NUMBER.findall(found), strict=True)
    return [f"{a} on the page, {b} now" for a, b in pairs if not _close(_value(a), _value(b), relative, absolute)]


def _words(text: str) -> list[str]:
    return re.sub(r"-{2,}", "-", _NUMBER.sub("#", text)).split()


def _value(number: str) -> float:
    return float(number.replace(",", "").replace("−", "-").rstrip("."))


def _close(a: float, b: float, relative: float, absolute: float) -> bool:
    return abs(a - b) <= max(absolute, relative * max(abs(a), abs(b)))


def with_outputs(text: str, outputs: list[str]) -> str:
    """Return a page with these outputs below its blocks; a block that prints nothing has none."""
    parts, last = [], 0
    for block, output in zip(blocks(text), outputs, strict=True):
        parts += [text[last : block.start], f"```{block.language}\n{block.code}```"]
        if output.strip():
            kept = "\n".join(line.rstrip() for line in output.strip("\n").splitlines())
            parts.append(f"\n\n{TITLE}{kept}\n```")
        last = block.end
    return "".join([*parts, text[last:]])


def write(page: Path) -> None:
    """Run a page in an empty folder, write the outputs into it, and take its pictures."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        text, outputs = page.read_text("utf-8"), [output for _, output in run(page)]
        pictures = sorted(Path(folder).glob("*.png"))
        shown = page.parent / page.stem
        for picture in pictures:
            shown.mkdir(exist_ok=True)
            shutil.copyfile(picture, shown / picture.name)
    page.write_text(with_outputs(text, outputs), "utf-8")


def main() -> None:
    """Write the outputs of the pages named, or of all tutorials."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for page in [Path(word).resolve() for word in sys.argv[1:]] or sorted(TUTORIALS.glob("*.md")):
        log.info("running %s", page.name)
        write(page)


if __name__ == "__main__":
    main()
