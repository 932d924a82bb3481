"""The version is told alike everywhere, and the lower bounds of pyproject.toml are versions that are tested."""

import re
import tomllib
from pathlib import Path

import pytest

import pcmcnet as pn

ROOT = Path(__file__).parents[1]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def bounds(extra: str | None = None) -> dict[str, str]:
    """Lower bounds by the name of the package."""
    wanted = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
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


def test_the_version_is_told_by_the_package() -> None:
    assert pn.__version__ in {PROJECT["version"], "not installed as a package"}  # the second for a source tree alone


def test_the_changelog_and_the_citation_tell_of_the_same_release() -> None:
    """Newest first in the changelog, after what is not released yet."""
    changelog, citation = ((ROOT / name).read_text("utf-8") for name in ("CHANGELOG.md", "CITATION.cff"))
    unreleased, *released = re.findall(r"(?m)^## \[(.+?)\](?: - ([\d-]+))?$", changelog)
    assert unreleased == ("Unreleased", "")
    told = [re.search(rf'(?m)^{field}: "?([\d.-]+)"?$', citation) for field in ("version", "date-released")]
    assert [found and found[1] for found in told] == list(released[0])
    assert released[0][0] == PROJECT["version"]
