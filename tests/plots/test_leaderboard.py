"""A leaderboard as a picture and as a page."""

from pathlib import Path
from typing import Any

import pytest

from pcmcnet.errors import InputError
from pcmcnet.evaluation.comparison import Comparison, ComparisonRow
from pcmcnet.evaluation.standings import Leaderboard, TableResult
from pcmcnet.plots import draw_ranks, leaderboard_page, rank_chart, write_leaderboard_page
from pcmcnet.plots.leaderboard import RankBar, RankChart

DESIGN: dict[str, Any] = {"folds": 5, "split": None, "by": None, "valid": 0.0, "seed": 0, "sets": 9, "seconds": 9.0}


def board(*losses: dict[str, float]) -> Leaderboard:
    tables = []
    for k, nll in enumerate(losses):
        rows = tuple(
            ComparisonRow(label=n, model=n, options={}, values={"nll": v}, difference=0.0) for n, v in nll.items()
        )
        comparison = Comparison(rows=rows, n_sets=9, best=None, top=(), uniform={}, design=DESIGN)
        use: Any = "judged" if k else "simulated"
        tables.append(TableResult(name=f"table {k}", use=use, comparison=comparison, absent={}, whole=9))
    return Leaderboard(models=tuple(losses[0]) if losses else ("a",), tables=tuple(tables), skipped={}, design=DESIGN)


THREE = [{"a": 0.3, "b$": 0.1, "c": 0.2}, {"a": 0.3, "b$": 0.2, "c": 0.1}, {"a": 0.3, "b$": 0.1, "c": 0.2}]


def test_the_chart_has_mean_ranks_and_groups_of_similar_models() -> None:
    """Ranks of b are 1, 2, 1. For three models q is 2.343 (Demsar, 2006), and sqrt(3 4 / (6 3)) = 0.816."""
    chart = rank_chart(board(*THREE))
    assert chart.labels == ("b$", "c", "a")
    assert chart.mean_ranks == pytest.approx((4 / 3, 5 / 3, 3))
    assert chart.n_tables == 3
    assert chart.critical_distance == pytest.approx(2.343 * 0.8165, rel=3e-4)
    assert chart.bars == (RankBar(0, 2, 0),)


def test_overlapping_groups_are_on_different_levels() -> None:
    """With 40 tables of ranks 1, 2, 3, 4, the critical distance is 4.690 / sqrt(40) = 0.742: all models differ."""
    assert rank_chart(board(*[{"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}] * 40)).bars == ()
    few = rank_chart(board(*[{"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}] * 14))  # 1.253: neighbours do not differ
    assert few.bars == (RankBar(0, 1, 0), RankBar(1, 2, 1), RankBar(2, 3, 0))


def test_the_tables_of_one_use_may_be_drawn() -> None:
    assert rank_chart(board(*THREE), "judged").n_tables == 2


def test_ranks_need_two_models_and_a_table() -> None:
    with pytest.raises(InputError, match="ranks need at least two models and one table, got 1 and 0"):
        rank_chart(board())


def test_the_figure_names_every_model_with_its_rank() -> None:
    chart = RankChart(("first", "b$", "c", "last"), (1.0, 2.0, 2.5, 4.0), 5, 1.2, (RankBar(0, 1, 0), RankBar(1, 2, 1)))
    (axes,) = draw_ranks(chart).axes
    texts = [text.get_text().strip() for text in axes.texts]
    assert {"first  1.00", r"b\$  2.00", "2.50  c", "4.00  last", "critical distance 1.20"} <= set(texts)


@pytest.mark.parametrize("name", ["ranks.png", "ranks.svg"])
def test_the_method_plot_returns_the_figure_and_writes_it(name: str, tmp_path: Path) -> None:
    figure = board(*THREE).plot(path=tmp_path / name)
    assert [axes.get_title().partition(";")[0] for axes in figure.axes] == ["mean rank over 3 tables"]
    assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(InputError, match=r"ends in .png, .pdf or .svg"):
        board(*THREE).plot(path=tmp_path / "ranks.jpeg")


def page_board(*models: str) -> Leaderboard:
    rows = tuple(
        ComparisonRow(
            label=name, model=name, options={}, values={"nll": 0.1 * (k + 1)}, difference=0.1 * k, p_value=0.01
        )
        for k, name in enumerate(models)
    )
    comparison = Comparison(rows=rows, n_sets=9, best=models[0], top=(), uniform={}, design=DESIGN)
    table = TableResult(name="trips", use="judged", comparison=comparison, absent={}, whole=9)
    return Leaderboard(models=models, tables=(table,), skipped={}, design=DESIGN)


def test_the_page_has_verdicts_picture_and_all_tables() -> None:
    board_ = page_board("a<b", "c")
    page = leaderboard_page(board_)
    assert "a&lt;b has the best mean rank, 1.00 over 1 table; its lead over c is not significant." in page
    assert "a&lt;b is best: 0.1 NLL below c, p = .010." in page
    assert page.count("data:image/png;base64,") == 1
    assert "NLL on every table" in page
    assert 'id="table-trips"' in page


def test_one_model_has_no_picture(tmp_path: Path) -> None:
    file = write_leaderboard_page(page_board("alone"), tmp_path / "board.html", title="One")
    assert "data:image" not in file.read_text("utf-8")
    with pytest.raises(InputError, match=r"ends in \.html"):
        write_leaderboard_page(page_board("alone"), tmp_path / "board.txt")
