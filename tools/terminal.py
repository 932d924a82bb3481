"""Run a program in a terminal of a given width and read its screen, row by row.

``Screen`` handles the control sequences of progress bars: carriage return, new line, cursor up, erase, colours. It
keeps every row, and records the rows that were too long.
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
    """Rows of characters, with a cursor."""

    def __init__(self, columns: int) -> None:
        self.columns, self.rows, self.row, self.column = columns, [""], 0, 0
        self.wrapped: list[str] = []  # rows that were too long
        self.colours = False

    def feed(self, text: str) -> None:
        """Process the output of a program."""
        at = 0
        while at < len(text):
            sequence = _SEQUENCE.match(text, at)
            if sequence:
                self._control(sequence[3], int(sequence[2] or 1) if (sequence[2] or "1").isdigit() else 0)
                at = sequence.end()
            else:
                self._put(text[at])
                at += 1

    def _control(self, command: str | None, number: int) -> None:
        if command == "A":
            self.row = max(self.row - number, 0)
        elif command == "K":
            self.rows[self.row] = ""
        elif command == "m":
            self.colours = True
        elif command not in ("h", "l", None):
            raise AssertionError(f"the control sequence {command!r} is not supported")

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append("")
        else:
            if self.column == self.columns:
                self.wrapped.append(self.rows[self.row])
                self._put("\n")
                self.column = 0
            line = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = line[: self.column] + character + line[self.column + 1 :]
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
    """Run a program in a terminal until it ends; ``watch`` is called with the screen after each line."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    variables |= {"TERM": "xterm-256color", **(environment or {})}
    process = start(command, stdin=slave, stdout=slave, stderr=slave, env=variables, cwd=folder)
    os.close(slave)
    screen, output = Screen(columns), b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # Linux raises it when the program has ended
            break
        if not chunk:
            break
        output += chunk
        # Only complete lines are decoded, so that no character or control sequence is split.
        complete = output.rfind(b"\n") + 1 or (len(output) if output.endswith(b"\r") else 0)
        for line in re.split(r"(?=\r)", output[:complete].decode()):
            screen.feed(line)
            watch(screen)
        output = output[complete:]
    screen.feed(output.decode())
    os.close(master)
    assert process.wait() == 0, "\n".join(screen.rows)
    return screen
