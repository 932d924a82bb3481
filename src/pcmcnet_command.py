"""The command ``pcmcnet``, beside the package: Ctrl-C may come while the package is being loaded."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Load the package and run its command line."""
    listening = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in the background of a shell
    if listening:
        signal.signal(signal.SIGINT, stop)
    from pcmcnet.cli import main as run
    from pcmcnet.interrupts import listen

    if listening:
        listen()
    run()


def stop(number: int, frame: object) -> None:
    """End at once: nothing is under way, and an exception might be lost in the middle of an import."""
    os.write(2, b"error: interrupted.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
