"""The sample of small faults: what is mutated, what is not, and that the sample is fixed."""

from pathlib import Path

import pytest
from tools.mutation_sample import ROOT, concerns, mirror, mutations, sample

SOURCE = """
def share(x: int | None = None) -> float:
    if not x or x >= 3 and x is not None:
        raise ValueError("x must be below " + "3")
    log.append(x)
    return min(x, 2) / 5000 - float(True)
"""


def changed(source: str) -> set[str]:
    """Return the lines that mutations produce."""
    content, lines = source.encode(), source.splitlines()
    mutants = [content[: m.begin] + m.after.encode() + content[m.end :] for m in mutations("layers/x.py", source)]
    return {line.strip() for text in mutants for line in text.decode().splitlines() if line not in lines}


def test_types_messages_and_limits_are_not_mutated() -> None:
    assert changed(SOURCE) == {
        "if x or x >= 3 and x is not None:",
        "if not x and x >= 3 and x is not None:",
        "if not x or x > 3 and x is not None:",
        "if not x or x >= 4 and x is not None:",
        "if not x or x >= 3 or x is not None:",
        "pass",
        "return max(x, 2) / 5000 - float(True)",
        "return min(x, 3) / 5000 - float(True)",
        "return min(x, 2) * 5000 - float(True)",
        "return min(x, 2) / 5000 + float(True)",
        "return min(x, 2) / 5000 - float(False)",
    }


def test_earlier_lines_do_not_change_the_sample() -> None:
    one = {m.key: m.rank() for m in mutations("layers/x.py", SOURCE)}
    assert one == {m.key: m.rank() for m in mutations("layers/x.py", f"# moved down\n{SOURCE}")}
    assert one != {m.key: m.rank() for m in mutations("models/x.py", SOURCE)}


@pytest.mark.slow
def test_each_mutation_is_valid_and_has_tests() -> None:
    drawn = sample()
    assert len({m.key for m in drawn}) == 60
    for m in drawn:
        content = (ROOT / "src" / "pcmcnet" / m.file).read_bytes()
        compile(content[: m.begin] + m.after.encode() + content[m.end :], m.file, "exec")
        assert mirror(m.file, ROOT), m.file


def test_a_file_is_tested_by_its_mirror_or_folder(tmp_path: Path) -> None:
    (tmp_path / "tests" / "layers").mkdir(parents=True)
    (tmp_path / "tests" / "layers" / "test_perceptron.py").touch()
    assert mirror("layers/perceptron.py", tmp_path) == ["tests/layers/test_perceptron.py"]
    assert mirror("layers/pairwise/cpu.py", tmp_path) == ["tests/layers"]
    assert mirror("errors.py", tmp_path) == []


def test_a_changed_test_selects_its_file_and_a_contract_all(tmp_path: Path) -> None:
    (tmp_path / "tests" / "layers").mkdir(parents=True)
    (tmp_path / "tests" / "layers" / "test_perceptron.py").touch()
    for file, known in (("layers/perceptron.py", False), ("layers/threads.py", True)):  # the second one by its folder
        assert concerns(["tests/layers/test_inner_logit.py"], file, tmp_path) == known
        assert concerns(["tests/layers/test_perceptron.py"], file, tmp_path)
        assert concerns(["tests/test_contract.py"], file, tmp_path)
        assert not concerns(["tests/test_docs.py"], file, tmp_path)
