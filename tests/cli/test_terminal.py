"""Output in terminals of 80 and 120 columns: progress bars, lines above them, tables that fit."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import forked

pytest.importorskip("pty", reason="needs a pseudo-terminal")
from tools.terminal import Screen, run_in_terminal

BAR = re.compile(r"^[━╸╺ ]{10,} +\d+% \d:\d\d:\d\d elapsed +(\d:\d\d:\d\d|-:--:--) left$")
MODELS = "uniform,mnl,A-model-with-quite-a-long-name=pcmcnet,broken=rank-by:nonsense"
QUICK = "--set=pcmcnet.epochs=2 --set=pcmcnet.hidden=4 --set=pcmcnet.weight_decay=0"


def program(roles: list[str]) -> str:
    """Return a program that runs several commands with a progress bar."""
    read = f"trips.csv {' '.join(roles)}"
    every = [
        f"compare {read} --models {MODELS} {QUICK} --folds 2 -o comparison",
        f"fit {read} --set epochs=3 --set hidden=4 --set weight_decay=0 --valid 0.2 -o model",
        f"tune {read} --search hidden=4/8 --set epochs=2 --set weight_decay=0 --trials 2 -o study",
        "explain model trips.csv --sets 5 --skip axioms --skip context --baseline none -o report",
        "leaderboard --tables rock-paper-scissors --models uniform,mnl --sets 60 --folds 2 -o board",
    ]
    return f"""
import sys
from pcmcnet.cli import main
for command in {every!r}:
    print("$", command.split()[0])
    sys.argv = ["pcmcnet", *command.split()]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, command
"""


def start(command: list[str], *, stdin: int, **options: Any) -> forked.Forked:
    return forked.Forked(*command, **options)


@pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.slow)])
def test_bars_and_lines_do_not_mix_and_no_row_wraps(
    columns: int, table: Path, roles: list[str], tmp_path: Path
) -> None:
    rows, bars = set(), set()

    def watch(screen: Screen) -> None:
        for row in screen.rows[-4:]:
            if "━" in row:
                bars.add(row.rstrip())
            rows.add(row.rstrip())

    shutil.copy(table, tmp_path / "trips.csv")
    screen = run_in_terminal([program(roles)], columns, watch=watch, folder=tmp_path, start=start)
    text = "\n".join(row.rstrip() for row in screen.rows)
    strange = [bar for bar in bars if not BAR.match(bar)]
    assert bars
    assert not strange, strange
    assert screen.wrapped == []
    assert "━" not in text, "a bar that stayed"
    assert screen.colours
    for step in ("fold 2/2, mnl", "trial 2/2", "importance", "fold 2/2, uniform"):
        assert any(row.startswith(step) for row in rows), step
    assert re.search(r"^fold 1/2, broken: failed: .*nonsense", text, re.MULTILINE)  # above the bar, and it remains
    for line in ("is best: ", "pseudo-R2", "Kept: ", "has the best mean rank"):
        assert line in text
    heads = [row for row in text.split("written: ")[0].splitlines() if row.startswith("model ")]
    assert len(heads) == {80: 3, 120: 2}[columns]  # columns that do not fit are below


def test_no_color_disables_colours() -> None:
    """The same command runs twice in one program, first with NO_COLOR."""
    code = """
import os, sys
from pcmcnet.cli import main
for value in ("1", ""):
    os.environ["NO_COLOR"] = value
    sys.argv = ["pcmcnet", "models", "rank-by"]
    try:
        main()
    except SystemExit as stop:
        print("ended", stop.code)
"""
    coloured = []

    def watch(screen: Screen) -> None:
        if screen.rows[screen.row - 1].startswith("ended"):
            coloured.append(screen.colours)

    screen = run_in_terminal([code], 80, watch=watch, start=start)
    assert (coloured[0], coloured[-1]) == (False, True)
    rows = [row.rstrip() for row in screen.rows]
    end = rows.index("ended 0") + 1
    assert end > 2
    assert rows[:end] == rows[end : 2 * end]
