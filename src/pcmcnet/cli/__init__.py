"""The command line: ``pcmcnet --help``. Each command parses its options, calls the library and prints the result.

Results go to standard output, messages and progress to standard error. An error prints one line and sets the exit
status: 2 for bad input, 1 for a system failure (memory, disk), 130 for Ctrl-C. If the reading end of a pipe is closed,
the program exits silently with status 141.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, NoReturn

from pcmcnet.concurrency import was_interrupted

PIPE_CLOSED = 141  # 128 + SIGPIPE, the exit status that a shell reports
_MAX_MESSAGE_LENGTH = 4_000  # characters; the middle of a longer message is cut, since it only repeats the input


def main() -> None:
    """Run the program: the entry point of the ``pcmcnet`` command."""
    for stream in (sys.stdout, sys.stderr):  # do not crash on characters the terminal cannot encode
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # A stream is None if the parent process closed it.
    output = sys.stdout and NamedStream(sys.stdout, "standard output")
    error = sys.stderr and NamedStream(sys.stderr, "standard error")
    try:
        with redirect_stdout(output), redirect_stderr(error):
            _run()
    except KeyboardInterrupt:  # also raised while libraries are being imported
        _fail("interrupted.", 130)
    except Exception:
        if not was_interrupted():  # an interrupted library may raise its own exception
            raise
        _fail("interrupted.", 130)


def _run() -> None:
    """Run the command given in ``sys.argv``. On an error, print one line and exit."""
    import typer

    from pcmcnet.cli.app import app
    from pcmcnet.cli.usage import usage_message, with_options
    from pcmcnet.errors import InputError, PcmcNetError, is_lack_of_resources

    usage_error: Any = typer.BadParameter.__mro__[1]  # click.UsageError, which typer vendors under a private name
    messages = logging.StreamHandler(sys.stderr)
    messages.setFormatter(MessageFormatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[messages])
    try:
        status = app(sys.argv[1:] or ["--help"], prog_name="pcmcnet", standalone_mode=False)
    except PcmcNetError as error:
        _fail(error.command_line or with_options(str(error)), 2 if isinstance(error, InputError) else 1)
    except usage_error as error:
        _fail(usage_message(error, sys.argv[1:]), 2)
    except UnicodeEncodeError as error:  # a library was passed a file name that is not UTF-8
        line = error.object[: error.end].rpartition("\n")[2] + error.object[error.end :].partition("\n")[0]
        _fail(f"{line}: the file name is not valid UTF-8. Rename the file.", 2)
    except RecursionError:
        _fail("the input is nested too deeply.", 2)
    except (MemoryError, RuntimeError, ImportError, OSError) as error:
        if is_lack_of_resources(error):
            reason = f" ({str(error).splitlines()[0].rstrip('.')})" if str(error) else ""
            remedy = "Read the table in chunks (--stream), use a smaller table, or raise the limits (ulimit -v, -u)."
            _fail(f"not enough memory or threads{reason}. {remedy}", 1)
        if isinstance(error, OSError):  # full disk, missing write permission
            _fail(f"{error.filename or 'a file'}: {error.strerror or error}.", 1)
        raise
    if status == 130:  # typer's status for Ctrl-C; commands that can be resumed print their own message
        _fail("interrupted.", 130)
    sys.exit(status or 0)


def _fail(message: str, status: int) -> NoReturn:
    """Print a message as one line on standard error, and exit with ``status``."""
    from pcmcnet.cli.output import supports_colour
    from pcmcnet.errors import printable

    line = printable(" ".join(message.splitlines()))
    if len(line) > _MAX_MESSAGE_LENGTH:
        line = f"{line[: _MAX_MESSAGE_LENGTH // 2]} … {line[-_MAX_MESSAGE_LENGTH // 2 :]}"
    if sys.stderr is not None:
        with suppress(OSError):  # if standard error cannot be written, the exit status still reports the error
            word = "\x1b[1;31merror:\x1b[0m" if supports_colour(sys.stderr) else "error:"
            print(f"{word} {line}", file=sys.stderr)  # noqa: T201
    sys.exit(status)


class NamedStream:
    """Wrapper around standard output or standard error that adds the stream's name to write errors.

    If the reading end of a pipe is closed, as in ``pcmcnet ... | head``, the program exits as if terminated by SIGPIPE.
    """

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._stream, attribute)

    def write(self, text: str) -> int:
        """Write text to the stream."""
        with self._named_errors():
            count: int = self._stream.write(text)
        return count

    def flush(self) -> None:
        """Flush the buffer of the stream."""
        with self._named_errors():
            self._stream.flush()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Exit if the pipe is closed. Add the stream's name to any other error."""
        try:
            yield
        except BrokenPipeError:
            raise SystemExit(PIPE_CLOSED) from None
        except OSError as error:
            error.filename = self._name
            raise


class MessageFormatter(logging.Formatter):
    """Log formatter that escapes control characters and wraps lines for the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message without level or time."""
        from pcmcnet.cli.output import format_message
        from pcmcnet.cli.usage import with_options

        return format_message(with_options(super().format(record)))
