"""The lower bounds of pyproject.toml are versions that are tested."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def bounds(extra: str | None = None) -> dict[str, str]:
    """Lower bounds by the name of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    return dict(re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", line).groups() for line in wanted)  # type: ignore[union-attr]


def pins(file: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^([\w-]+)==([\d.]+)$", (ROOT / file).read_text("utf-8")))


@pytest.mark.parametrize("extra", [None, "tune", "serve", "export", "ray"])
def test_the_lowest_versions_that_are_tested_are_the_lower_bounds(extra: str | None) -> None:
    lowest = pins("constraints-lowest.txt")
    for name, bound in bounds(extra).items():
        if name != "torch":  # see the head of that file
            assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", lowest[name]), name


def test_the_versions_that_are_tested_lie_above_the_lower_bounds() -> None:
    tested = pins("constraints.txt")
    for name, bound in bounds().items():
        found, least = (tuple(map(int, version.split("."))) for version in (tested[name], bound))
        assert found >= least, name
