"""A fit that takes too long ends with an error, so that one slow model does not hold up the others.

The system's alarm clock interrupts the fit between two steps of Python. It rings in the main thread alone: elsewhere,
and on systems without one, there is no limit.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from pcmcnet.errors import PcmcNetError
from pcmcnet.models.interface.choice_model import ChoiceModel


class TooSlowError(PcmcNetError):
    """A fit took longer than it may."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``TooSlowError`` in the block once so many seconds have passed."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: Any) -> None:
        raise TooSlowError(f"not fitted within {seconds:g} s: allow more seconds, or fewer choice sets.")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def limited(model: ChoiceModel, seconds: float) -> ChoiceModel:
    """Return an unfitted model with the same class name, options and identity whose fits are limited in time."""
    kind = type(model)

    def fit(self: Any, *args: Any, **options: Any) -> Any:
        with time_limit(seconds):
            return kind.fit(self, *args, **options)

    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "fit": fit}
    timed: type[ChoiceModel] = type(kind.__name__, (kind,), names)
    return timed(**asdict(model.config), **model.extras)
