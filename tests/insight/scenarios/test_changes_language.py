"""Changes as people write them: columns, removals, additions."""

import pytest

from pcmcnet.errors import InputError
from pcmcnet.insight.scenarios.changes_language import Add, Assign, Remove, columns_of, read_change


@pytest.mark.parametrize(
    ("text", "value", "where"),
    [
        ("price *= 1.1 where mode == 'car'", "(price * 1.1)", "(mode == 'car')"),
        ("price = price - 5", "(price - 5)", "None"),
        ("price += 2 where a == 'b' and c > 1", "(price + 2)", "((a == 'b') and (c > 1))"),
        ("price /= 1 + 1", "(price / (1 + 1))", "None"),
    ],
)
def test_a_column_gets_a_value(text: str, value: str, where: str) -> None:
    found = read_change(text)
    assert isinstance(found, Assign)
    assert (found.column, str(found.value), str(found.where)) == ("price", value, where)


def test_alternatives_are_removed_and_added() -> None:
    assert read_change("remove air") == read_change("remove 'air'") == Remove("air", None)
    assert str(read_change("remove where mode == 'air'").where) == "(mode == 'air')"
    found = read_change("add 'night tram' like bus with price *= 2, minutes = 10 where urban == 1")
    assert isinstance(found, Add)
    assert (found.label, found.like, str(found.where)) == ("night tram", "bus", "(urban == 1)")
    assert [(c.column, str(c.value)) for c in found.changes] == [("price", "(price * 2)"), ("minutes", "10")]
    assert read_change("copy with price = 1") == Add(None, None, (read_change("price = 1"),), None)  # type: ignore[arg-type]


def test_a_column_may_be_called_like_a_verb() -> None:
    found = read_change("add = add + 1")
    assert isinstance(found, Assign)
    assert found.column == "add"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (" ", "a change is empty: expected one such as"),
        (
            "price *= 1.1 wher mode == 'car'",
            "expected 'where' or the end, found 'wher' at character 14. Did you mean 'where'",
        ),
        ("price 1.1", r"expected one of = \*= \+= -= /= after 'price', found '1.1' at character 7"),
        ("rmove where a == 1", "after 'rmove', found 'where' at character 7. Did you mean 'remove'"),
        ("1 = price", "expected a column, or one of the words add, copy and remove, found '1'"),
        ("remove bus, air", r"several are a condition, such as remove where mode in \('bus', 'train'\), found ','"),
        ("remove", "expected a label, or 'where' and a condition, found the end"),
        ("add tram lik bus", "expected 'like', found 'lik' at character 10. Did you mean 'like'"),
        ("add like bus", "expected the label of the new alternative, found 'like'"),
        ("add tram like", "expected the label of the alternative that it is like, found the end"),
        ("add tram like bus with where a == 1", "expected a column"),
    ],
)
def test_what_is_no_change_is_named(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_change(text)


def test_the_columns_that_a_change_names() -> None:
    assert list(columns_of(read_change("a = b + 1 where c == 'x'"))) == ["a", "b", "c"]
    assert list(columns_of(read_change("remove where c in (d, 2)"))) == ["c", "d"]
    assert list(columns_of(read_change("add x like y with a = 1, b = e where c == 1"))) == ["a", "b", "e", "c"]
