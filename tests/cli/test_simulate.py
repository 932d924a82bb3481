import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcmcnet.data.files.tabular import read_table
from pcmcnet.datasets import airline, markov, mlba

Run = Callable[..., Any]


LIBRARY = {
    "mlba": mlba.simulate,
    "airline": airline.simulate,
    "rock-paper-scissors": markov.simulate_rock_paper_scissors,
}


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize("process", LIBRARY)
def test_the_table_equals_that_of_the_library(process: str, ending: str, cli: Run, tmp_path: Path) -> None:
    out = tmp_path / f"t{ending}"
    result = cli("simulate", process, "--sets", 40, "--seed", 3, "-o", out)
    assert (result.status, result.err) == (0, "")
    table, expected = read_table(out), LIBRARY[process](40, seed=3)
    assert {name: table[name].to_pylist() for name in table.column_names} == expected.to_pydict()
    first, second = result.out.splitlines()
    assert first == f"wrote 40 choice sets ({expected.num_rows:,} rows) to {out}"
    assert re.fullmatch(r"best possible NLL: \d\.\d{4} expected, \d\.\d{4} on these choices", second)


def test_the_json_result_contains_the_best_loss(cli: Run, tmp_path: Path) -> None:
    result = json.loads(cli("simulate", "airline", "--sets", 4, "-o", tmp_path / "t.csv", "--json").out)
    table = airline.simulate(4, seed=0)
    best = airline.best_possible_nll(table)
    assert result == {
        "output": str(tmp_path / "t.csv"),
        "choice_sets": 4,
        "rows": table.num_rows,
        "best_nll": {"expected": best.expected, "realised": best.realised},
    }


@pytest.mark.parametrize("how", ["cli", pytest.param("program", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mlab", "-o", "{here}/t.csv"], r"unknown process 'mlab'. Did you mean 'mlba'\?"),
        (["mlba", "-o", "{here}/t.xlsx"], r"t.xlsx: unknown file format. Expected a name that ends in"),
        (["mlba", "-o", "{here}/t.csv", "--sets", "0"], r"sets: expected a whole number from 1 to .*, got 0"),
        (["airlines", "-o", "{here}/t.csv"], r"unknown process 'airlines'. Did you mean 'airline'\?"),
        (["airline", "-o", "{here}/t.csv", "--sets", "0"], r"sets: expected a whole number from 1 to .*, got 0"),
        (["mlba", "-o", "{here}/t.csv", "--seed", "-1"], r"seed: expected a whole number, 0 or above, got -1"),
    ],
)
def test_bad_input_gives_one_line_and_writes_nothing(
    words: list[str], message: str, how: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    result = request.getfixturevalue(how)("simulate", *(word.format(here=tmp_path) for word in words))
    assert re.search(message, result.message)
    assert result.status == 2
    assert list(tmp_path.iterdir()) == []
