"""The command line: ``pcmcnet --help``. A command parses, delegates and prints.

Results go to standard output, messages and progress to standard error. Bad input ends in one line and a non-zero
exit status.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, NoReturn


def main() -> None:
    """Run the program; this is what the ``pcmcnet`` command calls."""
    try:
        _run()
    except KeyboardInterrupt:  # also while the libraries are being loaded
        _fail("interrupted.", 130)


def _run() -> None:
    import typer

    from pcmcnet.cli.app import app
    from pcmcnet.errors import InputError, PcmcNetError

    usage_error: Any = typer.BadParameter.__mro__[1]  # click's, which typer carries along under a private name
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    try:
        status = app(sys.argv[1:] or ["--help"], prog_name="pcmcnet", standalone_mode=False)
    except PcmcNetError as error:
        _fail(str(error), 2 if isinstance(error, InputError) else 1)
    except usage_error as error:
        command = error.ctx.command_path if error.ctx else "pcmcnet"
        _fail(f"{error.format_message().rstrip('.')}: see {command} --help.", 2)
    except OSError as error:  # a disk that is full, a file that may not be written
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}.", 1)
    sys.exit(status or 0)


def _fail(message: str, status: int) -> NoReturn:
    """End with one line, whatever a library put into its message."""
    print(f"error: {' '.join(message.splitlines())}", file=sys.stderr)  # noqa: T201
    sys.exit(status)
