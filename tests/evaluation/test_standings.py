import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.errors import InputError
from pcmcnet.evaluation.comparison import Comparison, ComparisonRow
from pcmcnet.evaluation.leaderboard_entries import Use
from pcmcnet.evaluation.standings import Leaderboard, TableResult, critical_distance, groups_within_distance, ranks

DESIGN: dict[str, Any] = {"folds": 5, "split": None, "by": None, "valid": 0.0, "seed": 0}
HOW: dict[str, Any] = {"folds": 5, "seed": 0, "sets": 5000, "seconds": 600.0}


def row(label: str, nll: float | None, p: float | None = None, best: float = 0.0, **facts: Any) -> ComparisonRow:
    values = {} if nll is None else {"nll": nll}
    difference = None if nll is None else nll - best
    return ComparisonRow(label=label, model=label, options={}, values=values, difference=difference, p_value=p, **facts)


def result(name: str, rows: list[ComparisonRow], use: Use = "judged", **facts: Any) -> TableResult:
    comparison = Comparison(rows=tuple(rows), n_sets=9, best=rows[0].label, top=(1,), uniform={}, design=DESIGN)
    return TableResult(name=name, use=use, comparison=comparison, **{"absent": {}, "whole": 9, **facts})


@pytest.fixture
def board() -> Leaderboard:
    """Three ranked tables: a wins significantly, ties with b, and loses to b. c is missing once, d always."""
    tables = (
        result("one", [row("a", 0.5), row("b", 0.7, 0.002, 0.5), row("c", 0.9, 0.002, 0.5)], absent={"d": "no labels"}),
        result("two", [row("a", 0.5), row("b", 0.6, 0.3, 0.5), row("c", None, error="no luck")], absent={"d": "no x"}),
        result(
            "three",
            [row("b", 0.4), row("a", 0.6, 0.01, 0.4), row("c", 0.3, 0.02, 0.4, gives="scores")],
            use="simulated",
            floor=0.25,
            absent={"d": "no labels"},
        ),
        result("three-again", [row("c", 0.1), row("a", 0.2, 0.002, 0.1)], absent={"b": "-", "d": "-"}, ranked=False),
    )
    return Leaderboard(models=("a", "b", "c", "d"), tables=tables, skipped={"four": "Run: pip install x"}, design=HOW)


def test_verdicts_are_those_found_by_hand(board: Leaderboard) -> None:
    """The scores of c have a lower NLL than the best model with probabilities, so c is not worse."""
    verdicts = {table.name: [table.verdict(label) for label in board.models] for table in board.tables[:3]}
    assert verdicts == {
        "one": ["best", "worse", "worse", "missing"],
        "two": ["best", "tied", "missing", "missing"],
        "three": ["worse", "best", "tied", "missing"],
    }


def test_ranks_and_standings_are_those_found_by_hand(board: Leaderboard) -> None:
    np.testing.assert_array_equal(board.ranks(), [[1, 2, 3, 4], [1, 2, 3.5, 3.5], [3, 2, 1, 4]])
    a, b, c, d = board.standings()
    assert [s.model for s in (a, b, c, d)] == ["a", "b", "c", "d"]
    assert [s.mean_rank for s in (a, b, c, d)] == pytest.approx([5 / 3, 2, 7.5 / 3, 11.5 / 3])
    assert a.mean_ranks == {"judged": 1.0, "simulated": 3.0}
    assert [s.measured for s in (a, b, c, d)] == [3, 3, 2, 0]
    assert [s.surely_best for s in (a, b, c, d)] == [1, 0, 0, 0]
    assert [s.not_worse for s in (a, b, c, d)] == [2, 2, 1, 0]
    assert [s.mean_rank for s in board.standings("simulated")] == [1.0, 2.0, 3.0, 4.0]


def test_costs_are_medians_over_ranked_tables() -> None:
    costs = {"one": (1.0, 10), "two": (4.0, 30), "three": (2.0, 20)}
    tables = [
        result(name, [row("a", 0.5, fit_seconds=s, parameters=k), row("b", 0.6, 0.3, 0.5)])
        for name, (s, k) in costs.items()
    ]
    unranked = result("again", [row("a", 0.5, fit_seconds=99.0, parameters=99)], ranked=False)
    a, b = Leaderboard(models=("a", "b"), tables=(*tables, unranked), skipped={}, design=HOW).standings()
    assert (a.fit_seconds, a.parameters, b.fit_seconds, b.parameters) == (2.0, 20.0, None, None)


def test_every_missing_result_has_a_reason(board: Leaderboard) -> None:
    assert board["two"].reason("c") == "no luck"
    assert board["two"].reason("d") == "no x"
    assert board["two"].reason("a") is None
    ranking = result("t", [row("a", 0.5), row("r", None)])
    assert ranking.reason("r") == "a ranking gives no probabilities"
    with pytest.raises(KeyError):
        board["five"]


def test_markdown_shows_standings_verdicts_and_reasons(board: Leaderboard) -> None:
    text = board.to_markdown()
    assert "| a | 1.67 | 1.00 | 3.00 | 3 | 1 | 2 | - | - |" in text
    assert "| three | simulated | 9 | 0.2500 | 0.6000 | 0.4000 best | 0.3000\\* tied | - |" in text
    assert "- d on one, three: no labels" in text
    assert "- c on two: no luck" in text
    assert "- four skipped: Run: pip install x" in text
    assert "- three-again is not ranked" in text
    assert f"more than {board.critical_distance():.2f} apart" in text
    assert "## three" not in text
    assert "## three\n" in board.to_markdown(details=True)
    assert "three-again" in str(board)


def test_results_are_exported_as_rows_and_a_data_frame(board: Leaderboard) -> None:
    rows = board.to_rows()
    assert len(rows) == 4 * 4
    assert rows[1]["difference"] == pytest.approx(0.2)
    assert {key: rows[3][key] for key in ("table", "model", "nll", "verdict", "reason")} == {
        "table": "one",
        "model": "d",
        "nll": None,
        "verdict": "missing",
        "reason": "no labels",
    }
    assert list(board.to_frame()["nll"].isna()) == [row["nll"] is None for row in rows]


def test_a_saved_leaderboard_is_three_files(board: Leaderboard, tmp_path: Path) -> None:
    files = board.save(tmp_path / "new")
    assert [file.name for file in files] == ["leaderboard.json", "leaderboard.md", "leaderboard.png"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [file.name for file in files]
    outcome = json.loads(files[0].read_text())
    assert outcome == json.loads(json.dumps(board.to_dict()))
    assert [standing["model"] for standing in outcome["standings"]] == ["a", "b", "c", "d"]
    assert files[1].read_text().startswith("# Leaderboard\n")
    assert files[2].read_bytes()[:4] == b"\x89PNG"


def test_a_leaderboard_without_tables_has_no_picture(tmp_path: Path) -> None:
    (tmp_path / "leaderboard.png").touch()
    empty = Leaderboard(models=("a", "b"), tables=(), skipped={"t": "not installed"}, design=HOW)
    assert [file.name for file in empty.save(tmp_path)] == ["leaderboard.json", "leaderboard.md"]
    assert not (tmp_path / "leaderboard.png").exists()
    assert empty.standings() == ()
    assert empty.to_dict()["critical_distance"] is None


def test_control_characters_are_escaped() -> None:
    tables = (result("one", [row("a", 0.5), row("b", None, error="odd\x1b[2J")], absent={}),)
    board = Leaderboard(models=("a", "b"), tables=tables, skipped={"two": "no\x9b2J"}, design=HOW)
    for text in (str(board), board.to_markdown(details=True)):
        assert "x1b[2J" in text
        assert "x9b2J" in text
        assert not {"\x1b", "\x9b"} & set(text)


def test_the_critical_distance_is_noted_for_two_or_more_models() -> None:
    """By Nemenyi's test, the critical distance of two models on one table is 1.96 sqrt(2 3 / 6) = 1.96."""

    def notes(models: tuple[str, ...]) -> str:
        tables = (result("one", [row(model, 0.5) for model in models]),)
        return " ".join(Leaderboard(models=models, tables=tables, skipped={}, design=HOW).notes)

    assert "more than 1.96 apart" in notes(("a", "b"))
    assert "apart" not in notes(("a",))


def test_the_verdict_names_the_best_mean_rank_and_its_ties() -> None:
    """For 40 tables of ranks 1, 2, 3 the critical distance is 2.343 sqrt(3 4 / (6 40)) = 0.52: all differ."""

    def verdict(tables: int) -> str:
        rows = [row("a", 0.1), row("b", 0.2), row("c", 0.3)]
        tables_ = tuple(result(f"table {k}", rows, absent={}) for k in range(tables))
        return Leaderboard(models=("a", "b", "c"), tables=tables_, skipped={}, design=HOW).verdict

    assert verdict(40).endswith("1.00 over 40 tables; its lead over every other model is significant.")
    assert verdict(1) == "a has the best mean rank, 1.00 over 1 table; its lead over b, c is not significant."
    assert verdict(0) == "No model is ranked: there are no results."


# -- Ranks -------------------------------------------------------------------------------------------------------------


def test_ranks_are_those_found_by_hand() -> None:
    """Equal losses share their mean rank. Models without a loss share the last ranks."""
    losses = [[0.3, 0.1, 0.2], [0.5, 0.5, 0.1], [np.inf, 0.4, np.inf], [1.0, 1.0 + 1e-12, 1.0]]
    expected = [[3, 1, 2], [2.5, 2.5, 1], [2.5, 1, 2.5], [2, 2, 2]]
    np.testing.assert_array_equal(ranks(losses), expected)


@given(st.lists(st.lists(st.sampled_from([0.1, 0.2, 0.7, np.inf]), min_size=4, max_size=4), max_size=5))
def test_the_ranks_of_a_table_have_a_fixed_sum(losses: list[list[float]]) -> None:
    outcome = ranks(np.array(losses).reshape(-1, 4))
    np.testing.assert_array_equal(outcome.sum(axis=1), np.full(len(losses), 10.0))


@pytest.mark.parametrize("losses", [[0.1, 0.2], [[0.1, np.nan]]])
def test_invalid_losses_are_refused(losses: list[object]) -> None:
    with pytest.raises(InputError, match=r"shape \(tables, models\) without NaN"):
        ranks(losses)  # type: ignore[arg-type]


@pytest.mark.parametrize(("models", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_critical_distance_has_the_published_quantiles(models: int, q: float) -> None:
    """Demsar (2006), table 5(a), to the three decimals given there: CD = q sqrt(k (k + 1) / 6 N)."""
    assert critical_distance(models, 14) == pytest.approx(q * np.sqrt(models * (models + 1) / (6 * 14)), rel=3e-4)


def test_the_critical_distance_needs_two_models() -> None:
    with pytest.raises(InputError, match="at least 2 models and 1 table to compare ranks, got 1 and 3"):
        critical_distance(1, 3)


@pytest.mark.parametrize(
    ("means", "groups"),
    [
        ([1.0, 1.5, 3.0, 3.2], [(0, 1), (2, 3)]),
        ([1.0, 1.9, 2.8, 3.7], [(0, 1), (1, 2), (2, 3)]),
        ([1.0, 1.2, 1.4, 5.0], [(0, 2)]),  # contains (1, 2)
        ([1.0, 2.5, 4.0], []),
        ([2.0, 2.0], [(0, 1)]),
    ],
)
def test_groups_extend_to_the_critical_distance(means: list[float], groups: list[tuple[int, int]]) -> None:
    assert groups_within_distance(means, 1.0) == groups
