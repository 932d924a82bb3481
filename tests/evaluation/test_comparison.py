import importlib.util
import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pcmcnet.errors import InputError
from pcmcnet.evaluation.comparison import Comparison, ComparisonRow, FoldResult

DESIGN: dict[str, Any] = {"folds": 5, "split": None, "by": None, "valid": 0.0, "seed": 0}


def row(label: str, **facts: Any) -> ComparisonRow:
    return ComparisonRow(**{"label": label, "model": "tilt", "options": {"hidden": (8, 8)}, **facts})


def comparison(**change: Any) -> Comparison:
    cost = {"fit_seconds": 12.34, "predict_seconds": 0.5, "parameters": 4321}
    folds = tuple(FoldResult(n_sets=3, values={"nll": v}) for v in (1.0, 2.0))
    rows = (
        row(
            "MNL|a",
            values={"nll": 1.25, "top_1": 0.5, "brier": 0.6},
            intervals={"nll": (1.0, 1.5), "top_1": (0.25, 0.75), "brier": (0.5, 0.7), "difference": (0.1, 0.4)},
            difference=0.25,
            p_value=0.0123,
            folds=folds,
            **cost,
        ),
        row("best", values={"nll": 1.0, "top_1": 0.75}, difference=0.0, intervals={"nll": (0.9, 1.1)}, **cost),
        row("forest", gives="scores", values={"nll": np.inf, "top_1": 0.5}, difference=np.inf, n_impossible=2, **cost),
        row("cheap", gives="ranking", values={"top_1": 0.25}, intervals={"top_1": (0.0, 0.5)}, **cost),
        row("broken", error="no column 'a|b'. Sorry."),
    )
    facts = {"rows": rows, "n_sets": 6, "best": "best", "top": (1,), "uniform": {"nll": 1.1, "top_1": 0.3}}
    return Comparison(**{**facts, "design": DESIGN, **change})


def test_it_prints_an_aligned_table_with_notes() -> None:
    assert str(comparison()).splitlines() == [
        "5-fold cross-validation: each of 6 choice sets is tested once; seed 0.",
        "",
        "model                       NLL                 TOP 1  fit s  parameters                  NLL - best      p",
        "MNL|a   1.2500 [1.0000, 1.5000]  0.500 [0.250, 0.750]   12.3       4,321  +0.2500 [+0.1000, +0.4000]  0.012",
        "best    1.0000 [0.9000, 1.1000]                 0.750   12.3       4,321                        best      -",
        "forest                     inf*                 0.500   12.3       4,321                       +inf*      -",
        "cheap                         -  0.250 [0.000, 0.500]   12.3       4,321                           -      -",
        "broken  failed: no column 'a|b'. Sorry.",
        "",
        "best is best: 0.25 NLL below MNL|a, p = .012.",
        "",
        "* scores normalised within each set, not probabilities",
        "A ranking gives no probabilities and therefore has no NLL.",
        "forest gives probability 0 to 2 of the observed choices.",
    ]


def test_the_verdict_is_a_sentence() -> None:
    best, other = row("a", values={"nll": 1.0}, difference=0.0), row("b", difference=0.05, p_value=0.2)
    scores = row("c", difference=-0.5, p_value=0.001, gives="scores")

    def verdict(*rows: ComparisonRow, best: str | None = "a") -> str:
        return comparison(rows=rows, best=best).verdict

    assert (
        verdict(best, other, scores)
        == "a has the lowest NLL, 0.05 NLL below b; the difference is not significant, p = .200."
    )
    assert verdict(best, replace(other, p_value=0.01)) == "a is best: 0.05 NLL below b, p = .010."
    assert verdict(best, replace(other, p_value=None)) == "a has the lowest NLL, 0.05 NLL below b."
    assert verdict(best) == "a is the only model with an NLL: 1.0000."
    assert (
        verdict(row("x", error="no"), best=None)
        == "No model is best: no model gives every observed choice a positive probability."
    )


def test_notes_list_caveats_and_different_machines() -> None:
    folds = [FoldResult(n_sets=3, where=where, caveats=caveats) for where, caveats in (("a", ()), ("b", ("odd",)))]
    notes = comparison(rows=(row("net", folds=tuple(folds)), row("other", folds=(folds[0],)))).notes
    assert notes == [
        "net: odd (1 of 2 fits).",
        "Times are not comparable, because the machines or devices differ: a | b.",
    ]
    assert comparison(rows=(row("other", folds=(folds[0],)),)).notes == []


def test_markdown_has_the_same_cells_and_escapes_bars() -> None:
    lines, difference = comparison().to_markdown().splitlines(), "+0.2500 [+0.1000, +0.4000]"
    assert lines[:4] == [
        "| model | NLL | TOP 1 | fit s | parameters | NLL - best | p |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        rf"| MNL\|a | 1.2500 [1.0000, 1.5000] | 0.500 [0.250, 0.750] | 12.3 | 4,321 | {difference} | 0.012 |",
        "| best | 1.0000 [0.9000, 1.1000] | 0.750 | 12.3 | 4,321 | best | - |",
    ]
    assert lines[6] == "| broken | failed: no column 'a\\|b'. Sorry. |  |  |  |  |  |"
    assert "\\* scores normalised within each set, not probabilities" in lines


def test_one_sentence_describes_the_protocol() -> None:
    design = {"folds": 1, "split": [0.75, 0.25], "by": "person", "valid": 0.1, "seed": 7}
    assert comparison(design=design, n_sets=1).how == (
        "one split, 75% for training and 25% for testing: 1 choice set tested; sets are grouped by person for "
        "splitting and resampling; 10% of each training part is held out for early stopping; seed 7."
    )


def test_the_dict_survives_strict_json() -> None:
    result = comparison().to_dict()
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    first, _, forest, cheap, broken = result["rows"]
    assert (first["values"]["nll"], first["intervals"]["difference"], first["p_value"]) == (1.25, [0.1, 0.4], 0.0123)
    assert first["spread"]["nll"] == pytest.approx(np.sqrt(0.5))
    assert first["folds"][1]["values"] == {"nll": 2.0}
    assert first["options"] == {"hidden": [8, 8]}
    assert (forest["values"]["nll"], forest["difference"], forest["n_impossible"]) == (None, None, 2)
    assert (cheap["values"], cheap["gives"]) == ({"top_1": 0.25}, "ranking")
    assert broken["error"] == "no column 'a|b'. Sorry."


def test_the_arrow_table_has_numbers_and_nulls() -> None:
    table = comparison().to_arrow()
    assert table.num_rows == 5
    assert table["model"].to_pylist() == ["MNL|a", "best", "forest", "cheap", "broken"]
    assert table["nll"].to_pylist() == [1.25, 1.0, np.inf, None, None]
    assert table["top_1_low"].to_pylist() == [0.25, None, None, 0.0, None]
    assert table["difference_high"].to_pylist() == [0.4, None, None, None, None]
    assert table["parameters"].to_pylist() == [4321] * 4 + [None]
    assert table["gives"].to_pylist()[2:4] == ["scores", "ranking"]
    assert table.schema.field("error").type == pa.string()


def test_the_data_frame_is_indexed_by_model() -> None:
    pytest.importorskip("pandas")
    frame = comparison().to_frame()
    assert frame.loc["MNL|a", "nll"] == 1.25
    assert list(frame.columns) == comparison().to_arrow().column_names[1:]


def test_without_pandas_the_frame_names_the_arrow_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> object:
        return None if name == "pandas" else importlib.util.find_spec(name)

    monkeypatch.setattr(sys.modules["pcmcnet.reports.frames"], "find_spec", find)
    with pytest.raises(InputError, match=r"to_frame needs pandas, .* or use to_arrow\(\)"):
        comparison().to_frame()


def test_rows_are_indexed_by_label_and_immutable() -> None:
    result = comparison()
    assert result["cheap"].gives == "ranking"
    with pytest.raises(KeyError, match="Cheap"):
        result["Cheap"]
    with pytest.raises(AttributeError):
        result.best = "cheap"  # type: ignore[misc]


def test_control_characters_are_escaped() -> None:
    """Errors quote values of the table, and groups are named after one of its columns."""
    result = comparison(rows=(row("net", error="a\x1b[2J"),), best=None, design={**DESIGN, "by": "b\x9b2J"})
    for text in (str(result), result.to_markdown()):
        assert r"b\x9b2J" in text
        assert "x1b[2J" in text
        assert not {"\x1b", "\x9b"} & set(text)
