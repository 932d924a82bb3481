"""The command line: ``pcmcnet --help``. A command parses, delegates and prints.

Results go to standard output, messages and progress to standard error. Bad input ends in one line and a non-zero
exit status.
"""

from __future__ import annotations

import logging
import sys


def main() -> None:
    """Run the program; this is what the ``pcmcnet`` command calls."""
    from pcmcnet.cli.app import app
    from pcmcnet.errors import InputError, PcmcNetError

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    try:
        app()
    except PcmcNetError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2 if isinstance(error, InputError) else 1)
