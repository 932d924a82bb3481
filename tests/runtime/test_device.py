"""Devices by name; models refuse one that is not there (tests/models/networks/test_neural_model.py)."""

import torch

from pcmcnet.runtime.device import resolve_device


def test_devices_are_found_by_name() -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
