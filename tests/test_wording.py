"""Names and sentences that need no second reading: the counts of `tools.wording` may only shrink."""

from collections import Counter
from pathlib import Path

import pytest
from tools.wording import LIMITS, ROOT, TEXTS, rows


def test_names_and_phrases_stay_within_their_limits() -> None:
    places = list(rows(ROOT / name for name in TEXTS))
    counts = Counter(row.rule for row in places)
    over = {
        rule: [row for row in places if row.rule == rule][:5] for rule, limit in LIMITS.items() if counts[rule] > limit
    }
    assert not over


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("vague name", "MOST = 3"),
        ("vague name", "def opened(path): ..."),
        ("vague local", "found = 1"),
        ("opening", 'def f():\n    """Tell whether it is."""'),
        ("phrase", "# the device is not to be had"),
    ],
)
def test_each_rule_finds_its_place(rule: str, code: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(code, "utf-8")
    assert [row.rule for row in rows([file])] == [rule]


def test_a_class_name_of_two_modules_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    for name in ("a.py", "b.py"):
        (folder / name).write_text("class Part: ...", "utf-8")
    assert [row.rule for row in rows([folder])] == ["repeated class"]
    (folder / "b.py").write_text("class Fold:\n    depth_of_cut = 1", "utf-8")
    assert list(rows([folder])) == []
