"""Entry point of the command ``pcmcnet``, outside the package so that Ctrl-C is handled during imports."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def command() -> None:
    """Run the command line and end the process. A process that used a GPU exits without clean-up.

    PyTorch needs a second to free GPU memory block by block, but the operating system frees it as soon as the process
    exits. All files are already closed.
    """
    try:
        main()
    except SystemExit as end:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program has finished: Ctrl-C must not change its exit code
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized() and isinstance(end.code, int):
            with suppress(OSError, ValueError):  # if output cannot be flushed, Python reports it during a normal exit
                print(end="", flush=True)  # noqa: T201
                sys.stderr.flush()
                os._exit(end.code)
        raise


def main() -> None:
    """Import the package and run its command line."""
    # A shell starts background jobs with SIGINT ignored: leave that as it is.
    handles_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_interrupts:
        signal.signal(signal.SIGINT, exit_interrupted)
    from pcmcnet.cli import main as run
    from pcmcnet.concurrency import remember_interrupts

    if handles_interrupts:
        remember_interrupts()
    run()


def exit_interrupted(number: int, frame: object) -> None:
    """Exit with status 130. Handles SIGINT during imports, because a library could swallow KeyboardInterrupt."""
    os.write(2, b"error: interrupted.\n")
    os._exit(130)


if __name__ == "__main__":
    command()
