import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.evaluation import evaluate
from pcmcnet.models import load

Run = Callable[..., Any]


def test_the_report_equals_that_of_the_library(cli: Run, model: Path, table: Path) -> None:
    estimator = load(model)
    expected = evaluate(estimator, ChoiceData.from_schema(table, estimator.schema), (1, 2), 3)
    result = cli("evaluate", model, table, "--top", "1,2", "--seed", 3)
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(f"{expected}\n\nThe model was trained on this table")
    result = cli("evaluate", model, table, "--top", "1,2", "--seed", 3, "--json")
    assert json.loads(result.out) == {**json.loads(json.dumps(expected.to_dict())), "seen_in_training": "all"}
    assert result.err == ""


def test_unused_columns_may_contain_anything(cli: Run, model: Path, table: Path, tmp_path: Path) -> None:
    rows = pyarrow.csv.read_csv(table)
    (tmp_path / "folder").mkdir()
    half = rows.num_rows // 2
    pyarrow.parquet.write_table(rows.slice(0, half), tmp_path / "folder" / "a.parquet")
    more = rows.slice(half).append_column("note", pa.array(["x"] * (rows.num_rows - half)))
    pyarrow.parquet.write_table(more, tmp_path / "folder" / "b.parquet")
    result, expected = cli("evaluate", model, tmp_path / "folder", "--json"), cli("evaluate", model, table, "--json")
    assert json.loads(result.out)["nll"] == json.loads(expected.out)["nll"]


def test_a_partly_held_out_training_table_is_recognised(cli: Run, table: Path, tmp_path: Path) -> None:
    roles = ["--choice-set", "trip", "--chosen", "took", "--features", "price"]
    fitted = cli("fit", table, *roles, "--valid", 0.25, "--set", "epochs=1", "-o", tmp_path / "part")
    assert fitted.status == 0, fitted.err
    assert "The model was trained on 18 of these 24 choice sets" in cli("evaluate", tmp_path / "part", table).out


def test_a_new_table_gets_no_note(cli: Run, model: Path, table: Path, tmp_path: Path) -> None:
    rows = pyarrow.csv.read_csv(table)
    dearer = pa.array(rows["price"].to_numpy() + 1.0)
    pyarrow.csv.write_csv(rows.set_column(rows.column_names.index("price"), "price", dearer), tmp_path / "other.csv")
    assert "trained" not in cli("evaluate", model, tmp_path / "other.csv").out
    assert json.loads(cli("evaluate", model, tmp_path / "other.csv", "--json").out)["seen_in_training"] == "none known"


def test_true_probabilities_add_the_divergence(cli: Run, model: Path, table: Path, tmp_path: Path) -> None:
    """The model has divergence 0 from its own probabilities; the file rounds them to about 1e-16."""
    rows = pyarrow.csv.read_csv(table)
    probabilities = load(model).predict_proba(table)
    probabilities /= np.bincount(rows["trip"].to_numpy(), weights=probabilities)[rows["trip"].to_numpy()]
    pyarrow.csv.write_csv(rows.append_column("truth", pa.array(probabilities)), tmp_path / "known.csv")
    result = cli("evaluate", model, tmp_path / "known.csv", "--truth", "truth", "--json")
    # The probabilities of the model sum to 1 only in float32.
    assert json.loads(result.out)["kl"] == pytest.approx(0, abs=1e-6)
    assert "kl" not in json.loads(cli("evaluate", model, table, "--json").out)


def test_streaming_gives_the_same_report(cli: Run, model: Path, table: Path, tmp_path: Path) -> None:
    words = ["--stream", "--memory", "1 MiB", "--cache", tmp_path / "cache"]
    whole, parts = (cli("evaluate", model, table, *more, "--json") for more in ([], words))
    assert (parts.status, parts.err) == (0, "")
    assert json.loads(parts.out) == {**json.loads(whole.out), "seen_in_training": "some"}


# Bad input by name: the arguments, and the expected message.
CASES = {
    "no model": (["{here}", "{table}"], r"is not a saved model: model.json is missing"),
    "cache alone": (["{model}", "{table}", "--cache", "here"], r"read in chunks: add --stream"),
    "truth in parts": (
        ["{model}", "{table}", "--stream", "--truth", "x"],
        r"--truth cannot be combined with --stream",
    ),
    "missing file": (["{model}", "nowhere.csv"], r"nowhere.csv: no such file or folder"),
    "no choices": (["{model}", "{here}/new.csv"], r"has no column 'took'"),
    "top of words": (
        ["{model}", "{table}", "--top", "one"],
        r"--top: expected .* integers such as 1,5; got 'one'",
    ),
    "top of nothing": (["{model}", "{table}", "--top", "0"], r"top must be distinct whole numbers of at least 1"),
    "seed below 0": (["{model}", "{table}", "--seed", "-1"], r"seed must be a whole number of at least 0, got -1"),
    "missing truth": (["{model}", "{table}", "--truth", "incom"], r"has no column 'incom'. Did you mean 'income'\?"),
    "truth of text": (["{model}", "{table}", "--truth", "comfort"], r"column 'comfort': expected numbers, got "),
    "truth of prices": (
        ["{model}", "{table}", "--truth", "price"],
        r"truth, .*expected probabilities that add up to 1",
    ),
}


@pytest.mark.parametrize("how", ["cli", pytest.param("program", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_bad_input_gives_a_one_line_error(
    case: str, how: str, model: Path, table: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    words, message = CASES[case]
    pyarrow.csv.write_csv(pyarrow.csv.read_csv(table).drop_columns(["took"]), tmp_path / "new.csv")
    filled = [word.format(model=model, table=table, here=tmp_path) for word in words]
    result = request.getfixturevalue(how)("evaluate", *filled)
    assert re.search(message, result.message)
    assert result.status == 2


def test_a_ranking_has_only_accuracies(cli: Run, table: Path, roles: list[str], tmp_path: Path) -> None:
    fit = cli("fit", table, *roles, "--model", "rank-by", "--set", "column=price", "-o", tmp_path / "model")
    assert fit.status == 0, fit.err
    result = json.loads(cli("evaluate", tmp_path / "model", table, "--json").out)
    assert (result["gives"], result["nll"], result["brier"], result["top"]["1"]) == ("ranking", None, None, 1.0)
    assert re.search(r"^NLL +- +- ", cli("evaluate", tmp_path / "model", table).out, re.MULTILINE)
