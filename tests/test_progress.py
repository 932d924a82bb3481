"""What a person sees of long work: bars on a terminal, lines in a log, nothing when not wanted."""

import io
import logging
import sys

import pytest

from pcmcnet.progress import describe_epoch, said_once, show_epochs, show_steps

ENTRY = {"epoch": 2, "train_loss": 0.51234, "valid_loss": None, "seconds": 1.26}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_epoch_is_put_into_words() -> None:
    assert describe_epoch(ENTRY) == "train 0.5123, 1.3 s"
    assert describe_epoch({**ENTRY, "valid_loss": 0.6}) == "train 0.5123, valid 0.6000, 1.3 s"


def test_a_log_gets_one_plain_line_per_epoch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with caplog.at_level(logging.INFO, "pcmcnet"), show_epochs(3, show=True) as report:
        report(ENTRY)
    assert caplog.messages == ["epoch 2/3: train 0.5123, 1.3 s"]
    assert sys.stderr.getvalue() == ""  # type: ignore[union-attr]


def test_a_terminal_gets_a_bar_and_no_lines(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with caplog.at_level(logging.INFO, "pcmcnet"), show_epochs(3, show=True) as report:
        report(ENTRY)
    assert "2/3" in sys.stderr.getvalue()  # type: ignore[union-attr]
    assert "train 0.5123" in sys.stderr.getvalue()  # type: ignore[union-attr]
    assert caplog.messages == []


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_nothing_is_shown_when_nothing_is_wanted(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    with caplog.at_level(logging.INFO, "pcmcnet"), show_epochs(3, show=False) as report:
        report(ENTRY)
    assert caplog.messages == []
    assert sys.stderr.getvalue() == ""  # type: ignore[union-attr]


def two_cells(*, show: bool) -> None:
    with show_steps(2, show=show) as report:
        for name, result in (("fold 1/1, a", "NLL 1.0"), ("fold 1/1, [b]", "failed: no [luck]")):
            report.begin(name)
            report.end(name, result)


def test_a_log_gets_a_plain_line_per_cell(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pcmcnet"):
        two_cells(show=True)
    assert caplog.messages == ["fold 1/1, a: NLL 1.0", "fold 1/1, [b]: failed: no [luck]"]


def test_a_terminal_gets_a_bar_and_keeps_the_failures(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with caplog.at_level(logging.INFO, "pcmcnet"):
        two_cells(show=True)
    assert "fold 1/1, [b]: failed: no [luck]" in screen.getvalue()
    assert caplog.messages == []


def test_who_wants_nothing_gets_nothing(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pcmcnet"):
        two_cells(show=False)
    assert (caplog.messages, *capsys.readouterr()) == ([], "", "")


def test_what_is_said_again_of_the_same_column_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("pcmcnet")
    with caplog.at_level(logging.INFO, "pcmcnet"):
        with said_once():
            for name, rows in (("a", 1), ("a", 2), ("b", 3)):
                log.info("column %r: %d rows", name, rows)
            log.warning("column %r: %d rows", "a", 4)  # louder than before
            log.info("done")
        log.info("column %r: %d rows", "a", 5)
    lines = ["column 'a': 1 rows", "column 'b': 3 rows", "column 'a': 4 rows", "done", "column 'a': 5 rows"]
    assert caplog.messages == lines
