"""The version is the same everywhere, and the lower bounds of pyproject.toml are tested."""

import re
import tomllib
from pathlib import Path

import pytest

import pcmcnet as pn

ROOT = Path(__file__).parents[1]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def bounds(extra: str | None = None) -> dict[str, str]:
    """Return lower bounds by package name."""
    requirements = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    return dict(re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", line).groups() for line in requirements)  # type: ignore[union-attr]


def pins(file: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^([\w-]+)==([\d.]+)$", (ROOT / file).read_text("utf-8")))


@pytest.mark.parametrize("extra", [None, "tune", "serve", "export", "ray"])
def test_the_lowest_tested_versions_are_the_lower_bounds(extra: str | None) -> None:
    lowest = pins("constraints-lowest.txt")
    for name, bound in bounds(extra).items():
        if name != "torch":  # see the head of that file
            assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", lowest[name]), name


def test_tested_versions_satisfy_the_lower_bounds() -> None:
    tested = pins("constraints.txt")
    for name, bound in bounds().items():
        version_tested, least = (tuple(map(int, version.split("."))) for version in (tested[name], bound))
        assert version_tested >= least, name


def test_the_package_has_the_project_version() -> None:
    assert pn.__version__ in {PROJECT["version"], "not installed as a package"}  # the second in a source tree


def test_changelog_and_citation_name_the_same_release() -> None:
    """The changelog lists the newest release first, after unreleased changes."""
    changelog, citation = ((ROOT / name).read_text("utf-8") for name in ("CHANGELOG.md", "CITATION.cff"))
    unreleased, *released = re.findall(r"(?m)^## \[(.+?)\](?: - ([\d-]+))?$", changelog)
    assert unreleased == ("Unreleased", "")
    matches = [re.search(rf'(?m)^{field}: "?([\d.-]+)"?$', citation) for field in ("version", "date-released")]
    assert [match and match[1] for match in matches] == list(released[0])
    assert released[0][0] == PROJECT["version"]
