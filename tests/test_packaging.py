"""What a release needs: links that work on PyPI, the same address everywhere, compilers for every platform."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from pcmcnet.models import tree_growth
from pcmcnet.training import compiled_steps

MODULES = (compiled_steps, tree_growth)
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return hatch_build.py as a module. Its base classes are replaced: hatchling is installed for builds only."""
    for name, base in (("builders.hooks", "BuildHookInterface"), ("metadata", "MetadataHookInterface")):
        interface = ModuleType("interface")
        setattr(interface, base, object)
        monkeypatch.setitem(sys.modules, f"hatchling.{name}.plugin.interface", interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_of_the_readme_work_outside_the_repository(build: ModuleType) -> None:
    text = "[a](docs/a.md#b) ![p](docs/p.png) [web](https://x.org/y) [here](#z)"
    assert build.with_absolute_links(text, "https://h/r") == (
        "[a](https://h/r/blob/main/docs/a.md#b) ![p](https://h/r/raw/main/docs/p.png) [web](https://x.org/y) [here](#z)"
    )


def test_files_linked_from_the_readme_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text("utf-8"))
    assert len(links) > 20
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []


def test_the_repository_has_one_address() -> None:
    site = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert f"repo_url: {PROJECT['urls']['Repository']}\n" in site
    assert all(
        url.startswith(PROJECT["urls"]["Repository"]) for name, url in PROJECT["urls"].items() if name != "Paper"
    )


def test_every_supported_python_has_a_classifier() -> None:
    versions = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", c)]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]


@pytest.mark.parametrize(
    ("platform", "compiler", "expected"),
    [
        ("linux", "gcc", ["-shared", "-fPIC", "-o", "lib.so", "code.c", "-lm"]),
        ("darwin", "clang", ["-shared", "-fPIC", "-arch", "arm64", "-mmacosx-version-min=11.0", "-o", "lib.so"]),
        ("win32", "clang", ["-shared", "-o", "lib.so", "code.c"]),
        ("win32", "cl", ["/O2", "/std:c11", "/LD", "code.c", "/Fe:lib.so"]),
    ],
)
def test_each_platform_has_its_compiler_options(
    platform: str, compiler: str, expected: list[str], build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(build.sysconfig, "get_platform", lambda: "macosx-11.0-arm64")
    monkeypatch.setenv("ARCHFLAGS", "-arch arm64")
    command = build.compile_command([compiler], Path("code.c"), Path("lib.so"))
    remaining = iter(command)
    assert all(word in remaining for word in expected), command  # in this order


def test_a_compiler_that_fails_is_reported(build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "code.c"
    source.write_text("int f(void) { return ; x }")
    monkeypatch.delenv("CC", raising=False)
    if build.find_compiler() is None:
        pytest.skip("needs a C compiler")
    assert "error" in str(build.compile_library(source, tmp_path / "lib.so"))
    assert not (tmp_path / "lib.so").exists()
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    assert build.compile_library(source, tmp_path / "lib.so") == "no C compiler was found."


def test_c_sources_use_no_extensions_outside_of_guards(build: ModuleType) -> None:
    """MSVC has no __attribute__, vector types or target clones: they are used in guarded lines only."""
    sources = sorted((ROOT / build.PACKAGE).rglob("*.c"))
    assert sources == sorted(ROOT / build.PACKAGE / name for name in build.LIBRARIES)
    for source in sources:
        guards, unguarded = [], []
        for line in source.read_text("utf-8").splitlines():
            if re.match(r"#if", line):
                guards.append(line)
            elif line.startswith("#endif"):
                guards.pop()
            elif "__attribute__" in line and not guards:
                unguarded.append(line)
        assert unguarded == []
        assert guards == []
