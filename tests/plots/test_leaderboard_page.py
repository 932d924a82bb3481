"""The page of a leaderboard."""

from pathlib import Path
from typing import Any

import pytest

from pcmcnet.errors import InputError
from pcmcnet.evaluation.comparison import Comparison, Row
from pcmcnet.evaluation.standings import Leaderboard
from pcmcnet.evaluation.table_result import TableResult
from pcmcnet.plots import leaderboard_page, write_leaderboard_page

DESIGN: dict[str, Any] = {"folds": 5, "split": None, "by": None, "valid": 0.0, "seed": 0, "sets": 9, "seconds": 9.0}


def board(*models: str) -> Leaderboard:
    rows = tuple(
        Row(label=name, model=name, options={}, values={"nll": 0.1 * (k + 1)}, difference=0.1 * k, p_value=0.01)
        for k, name in enumerate(models)
    )
    comparison = Comparison(rows=rows, n_sets=9, best=models[0], top=(), uniform={}, design=DESIGN)
    table = TableResult(name="trips", use="judged", comparison=comparison, absent={}, whole=9)
    return Leaderboard(models=models, tables=(table,), skipped={}, design=DESIGN)


def test_the_page_has_the_verdicts_the_picture_and_every_table() -> None:
    found = board("a<b", "c")
    page = leaderboard_page(found)
    assert "a&lt;b has the best mean rank, 1.00 over 1 table; not told apart from it: c." in page
    assert "a&lt;b is best: 0.1 NLL below c, p = .010." in page
    assert page.count("data:image/png;base64,") == 1
    assert "NLL on every table" in page
    assert 'id="table-trips"' in page


def test_one_model_has_no_picture(tmp_path: Path) -> None:
    file = write_leaderboard_page(board("alone"), tmp_path / "board.html", title="One")
    assert "data:image" not in file.read_text("utf-8")
    with pytest.raises(InputError, match=r"ends in \.html"):
        write_leaderboard_page(board("alone"), tmp_path / "board.txt")
