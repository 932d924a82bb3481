"""Ctrl-C that is never lost: its exception may come where a library drops all of them, such as within an import."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pcmcnet_command import stop

_heard = False


def listen() -> None:
    """Remember Ctrl-C from now on, beside raising its exception; for the command line, which ends after it."""
    signal.signal(signal.SIGINT, _interrupt)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end the program on the spot where it is listened for: nothing is under way but imports."""
    listening = signal.getsignal(signal.SIGINT) is _interrupt
    if listening:
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        if listening:
            listen()


def heard() -> bool:
    """Tell whether Ctrl-C was pressed."""
    return _heard


def raise_if_heard() -> None:
    """Raise the exception of a Ctrl-C again; long work calls this now and then."""
    if _heard:
        raise KeyboardInterrupt


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _heard  # noqa: PLW0603 - a signal is the process's
    _heard = True
    signal.default_int_handler(number, frame)
