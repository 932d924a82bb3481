import io
import logging
import sys

import pytest

from pcmcnet.evaluation.watch import said_once, watch


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def two_cells(*, show: bool) -> None:
    with watch(2, show=show) as report:
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
