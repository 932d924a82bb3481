"""A terminal of so many columns, and a program that runs in it: what a person would see, row by row.

``Screen`` obeys what programs with a progress bar send: carriage return, new line, cursor up, erase, colours. It keeps
every row, and remembers those that were too long for their line.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_SEQUENCE = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07")


class Screen:
    """Rows of letters, with a cursor."""

    def __init__(self, columns: int) -> None:
        self.columns, self.rows, self.row, self.column = columns, [""], 0, 0
        self.wrapped: list[str] = []  # rows that were too long
        self.colours = False

    def feed(self, text: str) -> None:
        """Take what a program has sent."""
        at = 0
        while at < len(text):
            found = _SEQUENCE.match(text, at)
            if found:
                self._obey(found[3], int(found[2] or 1) if (found[2] or "1").isdigit() else 0)
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def _obey(self, command: str | None, number: int) -> None:
        if command == "A":
            self.row = max(self.row - number, 0)
        elif command == "K":
            self.rows[self.row] = ""
        elif command == "m":
            self.colours = True
        elif command not in ("h", "l", None):
            raise AssertionError(f"a terminal would need to know the sequence {command!r}")

    def _put(self, letter: str) -> None:
        if letter == "\r":
            self.column = 0
        elif letter == "\n":
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append("")
        else:
            if self.column == self.columns:
                self.wrapped.append(self.rows[self.row])
                self._put("\n")
                self.column = 0
            line = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = line[: self.column] + letter + line[self.column + 1 :]
            self.column += 1


def run_in_terminal(
    command: list[str],
    columns: int,
    *,
    watch: Callable[[Screen], None] = lambda screen: None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    start: Callable[..., Any] = subprocess.Popen,
) -> Screen:
    """Start a program in a terminal and let it run until it ends; ``watch`` looks at the screen after each line."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    variables |= {"TERM": "xterm-256color", **(environment or {})}
    process = start(command, stdin=slave, stdout=slave, stderr=slave, env=variables, cwd=folder)
    os.close(slave)
    screen, sent = Screen(columns), b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # how Linux tells that the program has ended
            break
        if not part:
            break
        sent += part
        whole = sent.rfind(b"\n") + 1 or (len(sent) if sent.endswith(b"\r") else 0)  # letters and sequences stay whole
        for line in re.split(r"(?=\r)", sent[:whole].decode()):
            screen.feed(line)
            watch(screen)
        sent = sent[whole:]
    screen.feed(sent.decode())
    os.close(master)
    assert process.wait() == 0, "\n".join(screen.rows)
    return screen
