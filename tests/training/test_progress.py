import io
import logging
import sys

import pytest

from pcmcnet.training.progress import describe, watch

ENTRY = {"epoch": 2, "train_loss": 0.51234, "valid_loss": None, "seconds": 1.26}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_epoch_is_put_into_words() -> None:
    assert describe(ENTRY) == "train 0.5123, 1.3 s"
    assert describe({**ENTRY, "valid_loss": 0.6}) == "train 0.5123, valid 0.6000, 1.3 s"


def test_a_log_gets_one_plain_line_per_epoch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with caplog.at_level(logging.INFO, "pcmcnet"), watch(3, show=True) as report:
        report(ENTRY)
    assert caplog.messages == ["epoch 2/3: train 0.5123, 1.3 s"]
    assert sys.stderr.getvalue() == ""  # type: ignore[union-attr]


def test_a_terminal_gets_a_bar_and_no_lines(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with caplog.at_level(logging.INFO, "pcmcnet"), watch(3, show=True) as report:
        report(ENTRY)
    assert "2/3" in sys.stderr.getvalue()  # type: ignore[union-attr]
    assert "train 0.5123" in sys.stderr.getvalue()  # type: ignore[union-attr]
    assert caplog.messages == []


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_nothing_is_shown_when_nothing_is_wanted(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    with caplog.at_level(logging.INFO, "pcmcnet"), watch(3, show=False) as report:
        report(ENTRY)
    assert caplog.messages == []
    assert sys.stderr.getvalue() == ""  # type: ignore[union-attr]
