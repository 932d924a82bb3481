"""The command line: ``pcmcnet --help``. A command parses, delegates and prints.

Results go to standard output, messages and progress to standard error. Bad input ends in one line and a non-zero
exit status: 2 for what was given, 1 for what the machine lacks, 130 for Ctrl-C. A closed pipe ends quietly, with 141.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, NoReturn

from pcmcnet.concurrency import was_interrupted

PIPE_CLOSED = 141  # 128 + SIGPIPE, as a shell tells it
_LONGEST = 4_000  # letters of a message: beyond, its middle is what somebody put in
_NO_MEMORY = ("out of memory", "allocate memory", "not enough memory")  # PyTorch has no class for it on a CPU


def main() -> None:
    """Run the program; this is what the ``pcmcnet`` command calls."""
    for stream in (sys.stdout, sys.stderr):  # a character that the terminal has not is no reason to end
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with redirect_stdout(_named(sys.stdout, "output")), redirect_stderr(_named(sys.stderr, "error")):
            _run()
    except KeyboardInterrupt:  # also while the libraries are being loaded
        _fail("interrupted.", 130)
    except Exception:
        if not was_interrupted():  # a library that was cut short has its own words for it
            raise
        _fail("interrupted.", 130)


def _named(stream: Any, name: str) -> Any:
    return stream and NamedStream(stream, f"standard {name}")  # there is none where it was closed


def _run() -> None:
    import typer

    from pcmcnet.cli.app import app
    from pcmcnet.errors import InputError, PcmcNetError

    usage_error: Any = typer.BadParameter.__mro__[1]  # click's, which typer carries along under a private name
    messages = logging.StreamHandler(sys.stderr)
    messages.setFormatter(Visible("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[messages])
    try:
        status = app(sys.argv[1:] or ["--help"], prog_name="pcmcnet", standalone_mode=False)
    except PcmcNetError as error:
        _fail(str(error), 2 if isinstance(error, InputError) else 1)
    except usage_error as error:
        command = error.ctx.command_path if error.ctx else "pcmcnet"
        _fail(f"{error.format_message().rstrip('.')}: see {command} --help.", 2)
    except OSError as error:  # a disk that is full, a file that may not be written
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}.", 1)
    except UnicodeEncodeError as error:  # of a library that reads files by their names
        line = error.object[: error.end].rpartition("\n")[2] + error.object[error.end :].partition("\n")[0]
        _fail(f"{line}: the name has bytes that are no UTF-8. Rename it.", 2)
    except RecursionError:
        _fail("something that was given is nested too deeply.", 2)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in _NO_MEMORY):
            raise
        reason = f" ({str(error).splitlines()[0]})" if str(error) else ""
        _fail(f"not enough memory{reason}. Read the table part by part (--stream), or take a smaller one.", 1)
    if status == 130:  # typer's for a Ctrl-C; commands that tell how to go on end by themselves
        _fail("interrupted.", 130)
    sys.exit(status or 0)


def _fail(message: str, status: int) -> NoReturn:
    """End with one line, whatever a library or a person put into its message."""
    from pcmcnet.cli.output import in_colour
    from pcmcnet.errors import printable

    line = printable(" ".join(message.splitlines()))
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"
    if sys.stderr is not None:
        with suppress(OSError):  # nowhere to say it: the status does
            word = "\x1b[1;31merror:\x1b[0m" if in_colour(sys.stderr) else "error:"
            print(f"{word} {line}", file=sys.stderr)  # noqa: T201
    sys.exit(status)


class NamedStream:
    """Standard output or error, that names itself where it cannot be written, and ends with the pipe it goes to.

    ``pcmcnet ... | head`` has read enough: that is no error, and the status is that of a program ended by SIGPIPE.
    """

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._stream, attribute)

    def write(self, text: str) -> int:
        """Write a text."""
        with self._named():
            count: int = self._stream.write(text)
        return count

    def flush(self) -> None:
        """Write what was held back."""
        with self._named():
            self._stream.flush()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise SystemExit(PIPE_CLOSED) from None
        except OSError as error:
            error.filename = self._name
            raise


class Visible(logging.Formatter):
    """The form of messages that the library logs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message alone."""
        from pcmcnet.cli.output import as_message

        return as_message(super().format(record))
