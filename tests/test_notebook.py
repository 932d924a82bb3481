"""A real notebook: how its kernel shows results, bars and figures."""

import os
from pathlib import Path
from typing import Any

import pytest

import pcmcnet as pn

nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel, as `make test` installs them")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

SET_UP = """
import logging
import pcmcnet as pn
logging.getLogger("pcmcnet").setLevel(logging.ERROR)
cost = [1.0, 2.0, 3.0, 1.5] * 30
table = {"trip": [k // 2 for k in range(120)], "took": [1, 0, 0, 1] * 30, "cost": cost, "mode": ["car", "bus"] * 60}
data = pn.ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["cost"])
"""
PARTS = ("table", "model", "fit", "calibration", "importance", "elasticities")
CELLS = [
    SET_UP,
    "data",
    "model = pn.PCMCNet(hidden=(4,), epochs=3, weight_decay=1.0).fit(data)",
    "model.summary()",
    "pn.evaluate(model, data)",
    "comparison = pn.compare({'uniform': pn.Uniform(), 'mnl': pn.MNL()}, data, folds=2)\ncomparison",
    "comparison.plot()",
    "explanation = pn.explain(model, data, sets=5, skip=['axioms'], baselines={}, progress=False)\nexplanation",
    "explanation.importance",
    f"[(name, repr(part)) for name in {PARTS} if (part := getattr(explanation, name))._repr_html_()]",
    "explanation.plot.demand()",
    "board = pn.leaderboard({'trips': data}, ['uniform', 'bradley-terry'], folds=2, progress=False)\nboard",
    "board.plot()",
    "found = pn.tune('pcmc-linear', data, space={'l2': [0.01, 100.0]}, trials=2)\nfound",
    "found.plot()",
]


@pytest.fixture(scope="module")
def outputs() -> list[list[Any]]:
    """Return the outputs of each cell; an error in a cell ends the test."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    variables = {"PYTHONPATH": str(Path(pn.__file__).parents[1]), "OMP_NUM_THREADS": "1", "MPLBACKEND": ""}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return [cell.outputs for cell in book.cells]


def of(outputs: list[list[Any]], cell: str) -> list[Any]:
    return next(cell_outputs for source, cell_outputs in zip(CELLS, outputs, strict=True) if source.startswith(cell))


@pytest.mark.parametrize(
    ("cell", "line", "html"),
    [
        ("data", "ChoiceData(60 choice sets", '<th scope="row">cost</th>'),
        ("model.summary", "PCMCNet\n", "<strong>PCMCNet</strong>"),
        ("pn.evaluate", "Report(60 choice sets, NLL", "<td>0.6931</td>"),
        ("comparison =", "Comparison(2 models, 60 choice sets; mnl", '<th scope="row">mnl</th>'),
        ("explanation = ", "Explanation(PCMCNet; table, model", "most important"),
        ("explanation.importance", "Importance(2 rows", '<th scope="row">cost</th>'),
        ("board = ", "Leaderboard(2 models, 1 tables", '<th scope="row">trips</th>'),
        ("found = ", "Tuning(2 trials, best NLL", '<th scope="row">1'),
    ],
)
def test_a_result_is_a_table_and_one_line_of_text(cell: str, line: str, html: str, outputs: list[list[Any]]) -> None:
    shown = [output for output in of(outputs, cell) if output.output_type == "execute_result"][-1].data
    assert shown["text/plain"].startswith(line)
    assert len(shown["text/plain"]) < 300 or cell == "model.summary"
    assert html in shown["text/html"]
    assert "<script" not in shown["text/html"]


@pytest.mark.parametrize("cell", ["model = ", "comparison =", "found = "])
def test_long_work_shows_a_bar_in_its_cell(cell: str, outputs: list[list[Any]]) -> None:
    shown = [output.data["text/html"] for output in of(outputs, cell) if output.output_type == "display_data"]
    assert len(shown) == 1
    assert shown[0].startswith("<progress max=")
    assert "100%" in shown[0]


@pytest.mark.parametrize("cell", ["comparison.plot", "explanation.plot", "board.plot", "found.plot"])
def test_a_figure_is_shown_once(cell: str, outputs: list[list[Any]]) -> None:
    pictures = [output for output in of(outputs, cell) if "image/png" in output.get("data", {})]
    assert len(pictures) == 1


def test_parts_of_an_explanation_are_one_line_in_a_list(outputs: list[list[Any]]) -> None:
    (result,) = of(outputs, "[(name, repr")
    assert len(result.data["text/plain"]) < 1200
