"""Pages that commands open."""

import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcmcnet.cli.output import open_page


@pytest.mark.parametrize("opens", [True, False])
def test_a_page_is_opened_or_its_path_is_printed(
    opens: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or opens)
    open_page(tmp_path / "a report.html")
    assert asked == [(tmp_path / "a report.html").as_uri()]
    assert ("no browser is available" in capsys.readouterr().err) is not opens


def test_commands_open_the_page_that_they_write(
    cli: Callable[..., Any], table: Path, roles: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or True)
    assert cli("compare", table, *roles, "--models=uniform", "--folds=2", "--open", "-o", tmp_path / "a").status == 0
    board = ["--tables=rock-paper-scissors", "--sets=60", "--models=uniform", "--folds=2"]
    assert cli("leaderboard", *board, "--open", "-o", tmp_path / "b").status == 0
    assert asked == [(tmp_path / page).as_uri() for page in ("a/comparison.html", "b/leaderboard.html")]
