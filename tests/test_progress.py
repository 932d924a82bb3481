"""Progress of long work: bars on a terminal, lines in a log, nothing if turned off."""

import io
import logging
import re
import sys

import pytest

from pcmcnet import progress
from pcmcnet.progress import describe_epoch, format_duration, log_once, show_epochs, show_steps

ENTRY = {"epoch": 2, "train_loss": 0.51234, "valid_loss": None, "seconds": 1.26}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_epoch_is_formatted_as_text() -> None:
    assert describe_epoch(ENTRY) == "train 0.5123, 1.3 s"
    assert describe_epoch({**ENTRY, "valid_loss": 0.6}) == "train 0.5123, valid 0.6000, 1.3 s"


def test_a_log_gets_one_plain_line_per_epoch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with caplog.at_level(logging.INFO, "pcmcnet"), show_epochs(3, show=True) as report:
        report(ENTRY)
    assert caplog.messages == ["epoch 2/3: train 0.5123, 1.3 s"]
    assert sys.stderr.getvalue() == ""  # type: ignore[union-attr]


def test_a_script_without_a_log_gets_lines_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with show_epochs(3, show=True) as report:
        report(ENTRY)
    two_cells(show=True)
    assert sys.stderr.getvalue().splitlines() == [  # type: ignore[union-attr]
        "epoch 2/3: train 0.5123, 1.3 s",
        "fold 1/1, a: NLL 1.0",
        "fold 1/1, [b]: failed: no [luck]",
    ]


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace standard error by a terminal."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    return stream


def test_a_terminal_gets_a_bar_and_no_lines(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    screen = terminal(monkeypatch)
    with caplog.at_level(logging.INFO, "pcmcnet"), show_epochs(3, show=True) as report:
        report(ENTRY)
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.getvalue())
    assert re.search(r"━.* 67% 0:00:00 elapsed .* left", shown)
    assert "epoch 2/3: train 0.5123, 1.3 s" in shown
    assert caplog.messages == []


def test_log_lines_appear_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler writes to the stream it was created with, not through the bar."""
    screen = terminal(monkeypatch)
    handler, log = logging.StreamHandler(screen), logging.getLogger("pcmcnet")
    log.addHandler(handler)
    try:
        with show_steps(2, show=True) as report:
            report.begin("first")
            before = len(screen.getvalue())
            log.warning("a line of the log")
            written = screen.getvalue()[before:]
        assert handler.stream is screen
    finally:
        log.removeHandler(handler)
    erased, line = written.split("a line of the log")[0], written.index("a line of the log")
    assert "\x1b[2K" in erased  # the bar is erased first
    assert "━" in written[line:]  # and drawn again below the line


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_nothing_is_shown_if_turned_off(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    with caplog.at_level(logging.INFO, "pcmcnet"), show_epochs(3, show=False) as report:
        report(ENTRY)
    two_cells(show=False)
    assert caplog.messages == []
    assert sys.stderr.getvalue() == ""  # type: ignore[union-attr]


def two_cells(*, show: bool) -> None:
    with show_steps(2, show=show) as report:
        for name, result in (("fold 1/1, a", "NLL 1.0"), ("fold 1/1, [b]", "failed: no [luck]")):
            report.begin(name)
            report.note("half way")
            report.end(name, result)


def test_a_log_gets_a_plain_line_per_cell(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pcmcnet"):
        two_cells(show=True)
    assert caplog.messages == ["fold 1/1, a: NLL 1.0", "fold 1/1, [b]: failed: no [luck]"]


def test_a_terminal_gets_a_bar_and_keeps_the_failures(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    screen = terminal(monkeypatch)
    with caplog.at_level(logging.INFO, "pcmcnet"):
        two_cells(show=True)
    assert "fold 1/1, [b]: failed: no [luck]" in screen.getvalue()
    assert caplog.messages == []


def test_a_notebook_gets_a_bar_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses a stand-in for IPython; tests/test_notebook.py uses a real kernel."""
    drawn: list[str] = []

    class Browser:
        HTML = str

        def display(self, content: str, display_id: bool) -> "Browser":
            assert display_id
            return self.update(content)

        def update(self, content: str) -> "Browser":
            drawn.append(content)
            return self

    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    monkeypatch.setattr(progress, "import_module", lambda name: Browser())
    monkeypatch.setattr(progress, "_REDRAW_SECONDS", 0.0)
    with show_steps(2, show=True) as report:
        report.begin("<first>")
        report.end("<first>", "done")
    assert drawn[0] == '<progress max="2" value="0"></progress> 0%, 0:00:00 elapsed, -:--:-- left<br><small></small>'
    assert "&lt;first&gt;" in drawn[1]
    assert '<progress max="2" value="1"></progress> 50%' in drawn[-1]
    assert "0:00:00 left" in drawn[-1]


def test_durations_are_written_as_on_a_clock() -> None:
    assert [format_duration(seconds) for seconds in (0.4, 61, 7325)] == ["0:00:00", "0:01:01", "2:02:05"]


def test_repeated_messages_about_a_column_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("pcmcnet")
    with caplog.at_level(logging.INFO, "pcmcnet"):
        with log_once():
            for name, rows in (("a", 1), ("a", 2), ("b", 3)):
                log.info("column %r: %d rows", name, rows)
            log.warning("column %r: %d rows", "a", 4)  # a higher level than before
            log.info("done")
        log.info("column %r: %d rows", "a", 5)
    lines = ["column 'a': 1 rows", "column 'b': 3 rows", "column 'a': 4 rows", "done", "column 'a': 5 rows"]
    assert caplog.messages == lines
