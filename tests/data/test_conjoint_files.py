"""Choice experiments of survey software: CHO files, and designs with answers in wide form."""

from pathlib import Path
from typing import Any

import pytest

import pcmcnet as pn
from pcmcnet.errors import InputError, SchemaError

# Respondent 8960 has two extra variables and two tasks; the second was answered by "none" (concept 3 of 2). The first
# task of 8961 has no answer.
CHO = """8960 2 3 2 1
6 1
3 1
2 1 2
3 3 1
4 2 2
2 32
2 1
1 1 1
2 2 0
3 5
8961 0 3 2 1
2 1
1 1 1
2 2 2
0 5
2 1
1 1 1
2 2 2
1 7
"""


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "study.cho"
    file.write_text(text)
    return file


def test_a_cho_file_becomes_a_long_table(tmp_path: Path) -> None:
    table = pn.read_cho(write(tmp_path, CHO))
    assert table.column_names == [
        "respondent",
        "task",
        "concept",
        "chosen",
        "attribute 1",
        "attribute 2",
        "attribute 3",
    ]
    assert table["task"].to_pylist() == ["8960/1"] * 3 + ["8960/2"] * 2 + ["8961/2"] * 2
    assert table["chosen"].to_pylist() == [0, 1, 0, 0, 0, 1, 0]
    assert table["attribute 1"].to_pylist() == ["2", "3", "4", "1", "2", "1", "2"]
    assert table["attribute 3"].to_pylist() == ["2", "1", "2", "1", "not shown", "1", "2"]


def test_levels_have_labels_and_none_is_the_outside_option(tmp_path: Path) -> None:
    levels = {"brand": ["A", "B", "C", "D"], "size": ["S", "M", "L"], "colour": ["red", "blue"]}
    table = pn.read_cho(write(tmp_path, CHO), levels)
    assert table["brand"].to_pylist()[:3] == ["B", "C", "D"]
    data = pn.ChoiceData.from_long(
        table, choice_set="task", chosen="chosen", person="respondent", features=["brand", "size"], outside="none"
    )
    assert data.sizes.tolist() == [4, 3, 3]
    assert data.chosen is not None
    assert data.chosen.tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("8960 2 3 2 1", "8960 2 3 2"), "line 1: expected 5 numbers of a respondent, got 4"),
        (("8960 2 3 2 1", "8960 2 3 2 2"), "expected 0 or 1 for the none option, got 2"),
        (("2 32", "5 32"), "line 7: expected a choice from 0 to 4, got 5"),
        (("3 3 1\n", "3 3\n"), "line 5: expected 3 numbers of a concept, got 2"),
        (("6 1", "six"), "line 2: expected whole numbers, got 'six'"),
        (("1 7\n", ""), "ends within a respondent"),
        (("8961 0 3", "8961 0 2"), "expected 3 attributes, got 2"),
        ((CHO, ""), "has no answered task"),
    ],
)
def test_a_damaged_cho_file_is_refused_with_its_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pn.read_cho(write(tmp_path, CHO.replace(*change, 1)))


def test_wrong_names_and_labels_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path, CHO)
    with pytest.raises(InputError, match="expected 3 names, as in the file, got 2"):
        pn.read_cho(file, ["brand", "size"])
    with pytest.raises(InputError, match="expected 4 or more labels of 'brand', got 1"):
        pn.read_cho(file, {"brand": ["A"], "size": ["S", "M", "L"], "colour": ["red", "blue"]})
    with pytest.raises(InputError, match="does not exist"):
        pn.read_cho(tmp_path / "no.cho")


DESIGN = {"version": [1, 1, 1, 1], "task": [1, 1, 2, 2], "concept": [1, 2, 1, 2], "price": [1.0, 2.0, 3.0, 4.0]}
ANSWERS: dict[str, Any] = {"id": [7, 8], "version": [1, 1], "q1": [1, 0], "q2": [2, None], "age": [30, 40]}


def test_a_design_and_wide_answers_become_a_long_table() -> None:
    table = pn.join_survey(DESIGN, ANSWERS, respondent="id", tasks=["q1", "q2"], version="version", keep=["age"])
    assert table.to_pydict() == {
        "respondent": ["7", "7", "7", "7", "8", "8"],
        "task": ["7/1", "7/1", "7/2", "7/2", "8/1", "8/1"],
        "concept": ["1", "2", "1", "2", "1", "2"],
        "chosen": [1, 0, 0, 1, 0, 0],
        "price": [1.0, 2.0, 3.0, 4.0, 1.0, 2.0],
        "age": [30, 30, 30, 30, 40, 40],
    }


def test_answers_that_do_not_fit_the_design_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"answers: the table has no column 'q3'. Known: age, id, q1"):
        pn.join_survey(DESIGN, ANSWERS, respondent="id", tasks=["q1", "q3"], version="version")
    with pytest.raises(InputError, match=r"respondent 7, column 'q1': expected one of \[1, 2\] or 0, got concept 5"):
        pn.join_survey(DESIGN, {**ANSWERS, "q1": [5, 1]}, respondent="id", tasks=["q1"], version="version")
    with pytest.raises(InputError, match="a task 1 in the design, got concept 1 of version 9"):
        pn.join_survey(DESIGN, {**ANSWERS, "version": [9, 1]}, respondent="id", tasks=["q1"], version="version")
    with pytest.raises(InputError, match="column 'q1': expected a whole number, got 'yes'"):
        pn.join_survey(DESIGN, {**ANSWERS, "q1": ["yes", "1"]}, respondent="id", tasks=["q1"], version="version")


def test_versions_are_not_mixed_up() -> None:
    """Without version, the concepts of two versions would overwrite each other."""
    design = {"version": [1, 1, 2, 2], "task": [1, 1, 1, 1], "concept": [1, 2, 1, 2], "price": [1.0, 2.0, 3.0, 4.0]}
    with pytest.raises(InputError, match=r"row 2: task 1 has concept 1 more than once. .* pass version=<column>"):
        pn.join_survey(design, {"id": [1], "q1": [1]}, respondent="id", tasks=["q1"])


@pytest.mark.parametrize(
    ("ids", "message"), [(["x", "x"], "row 1, column 'id': x has more than one row"), (["x", None], "is missing")]
)
def test_respondents_need_one_row_each(ids: list[Any], message: str) -> None:
    answers = {"id": ids, "q1": [1, 2], "version": [1, 1]}
    with pytest.raises(InputError, match=message):
        pn.join_survey(DESIGN, answers, respondent="id", tasks=["q1"], version="version")
    with pytest.raises(InputError, match=r"tasks: expected a list of columns, got 'q1': write \['q1'\]"):
        pn.join_survey(DESIGN, ANSWERS, respondent="id", tasks="q1", version="version")


def test_none_rows_of_a_design_are_left_out() -> None:
    design = {"task": [1, 1, 1], "alternative": ["1", "2", "none"], "price": [1.0, 2.0, None]}
    answers = {"id": ["x"], "q1": [0]}
    table = pn.join_survey(design, answers, respondent="id", tasks=["q1"], concept="alternative")
    assert table["concept"].to_pylist() == ["1", "2"]
    assert table["chosen"].to_pylist() == [0, 0]
