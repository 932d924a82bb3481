"""The command ``pcmcnet``, beside the package: Ctrl-C may come while the package is being loaded."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def command() -> None:
    """Run the program and end the process; one that used a GPU ends at once.

    To give the GPU's memory back block by block takes a second, and the system does so by itself. All files are written
    and closed by then.
    """
    try:
        main()
    except SystemExit as end:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said, and what is still to be ended takes a moment
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized() and isinstance(end.code, int):
            with suppress(OSError, ValueError):  # Python tells of output that cannot be written, in the usual way
                print(end="", flush=True)  # noqa: T201
                sys.stderr.flush()
                os._exit(end.code)
        raise


def main() -> None:
    """Load the package and run its command line."""
    listening = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in the background of a shell
    if listening:
        signal.signal(signal.SIGINT, exit_interrupted)
    from pcmcnet.cli import main as run
    from pcmcnet.concurrency import remember_interrupts

    if listening:
        remember_interrupts()
    run()


def exit_interrupted(number: int, frame: object) -> None:
    """End at once: nothing is under way, and an exception might be lost in the middle of an import."""
    os.write(2, b"error: interrupted.\n")
    os._exit(130)


if __name__ == "__main__":
    command()
