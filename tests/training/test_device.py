"""Devices by name; models refuse an unavailable one (tests/models/networks/test_neural_model.py)."""

import threading
from typing import Any

import pytest
import torch

from pcmcnet.training.device import resolve_device, start_preloading, wait_for_preloading


def test_devices_are_found_by_name() -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_preparing_a_device_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)

    def broken() -> bool:
        raise RuntimeError("no driver")

    for state in (torch.cuda.is_available, broken):
        monkeypatch.setattr(torch.cuda, "is_available", state)
        before = set(threading.enumerate())
        start_preloading("auto")
        for thread in set(threading.enumerate()) - before:
            thread.join()
    assert errors == []


def test_preloading_is_left_out_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    start_preloading("auto")
    wait_for_preloading()
