"""What the first kernel waits for is loaded beside other work, with or without a device."""

import threading
from typing import Any

import pytest
import torch

from pcmcnet.layers.gpu import get_ready


def test_getting_ready_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", told.append)

    def broken() -> bool:
        raise RuntimeError("no driver")

    for state in (torch.cuda.is_available, broken):
        monkeypatch.setattr(torch.cuda, "is_available", state)
        before = set(threading.enumerate())
        get_ready()
        for thread in set(threading.enumerate()) - before:
            thread.join()
    assert told == []
