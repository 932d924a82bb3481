"""The documentation's examples are programs: each page's blocks run in order, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools import site_reference

import pcmcnet as pn

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("README.md"), *ROOT.glob("SECURITY.md")])
SLOW = {"cluster.md"}  # starts Ray several times; its parts are in tests/cluster
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SET_UP = re.compile(r"(make|git|pip|python|python3) ")  # how a reader gets the project, not an example
# What the console script does, so that the tests also run where the package is not installed.
PCMCNET = f'pcmcnet() {{ "{sys.executable}" -c "from pcmcnet.cli import main; main()" "$@"; }}'


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """Return the language, the code and the line of the page's examples."""
    text = page.read_text("utf-8")
    found = [(m[1], m[2], text.count("\n", 0, m.start(2))) for m in BLOCK.finditer(text)]
    return [block for block in found if not SET_UP.match(block[1])]


def run_shell(code: str) -> None:
    command = ["bash", "-c", f"set -euo pipefail\n{PCMCNET}\n{code}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, f"{code}\n{run.stdout}\n{run.stderr}"


# torch's own, when its forward mode is first used
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=pytest.mark.slow if p.name in SLOW else ()) for p in PAGES if blocks(p)],
    ids=lambda p: p.name,
)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for language, code, line in blocks(page):
        if language == "bash":
            run_shell(code)
        else:
            exec(compile("\n" * line + code, str(page), "exec"), names)


def test_the_pages_with_examples_are_found() -> None:
    with_examples = {p.name for p in PAGES if blocks(p)}
    assert {"quick-start.md", "table-format.md"} <= with_examples


def test_a_failing_command_is_noticed() -> None:
    with pytest.raises(AssertionError, match="no-such-folder"):
        run_shell("ls no-such-folder\necho reached")


# -- the reference ------------------------------------------------------------------------------------------------


def test_the_reference_has_every_public_name() -> None:
    text = "\n".join(page.read_text("utf-8") for page in ROOT.glob("docs/reference/*.md"))
    shown = set(re.findall(r"^::: pcmcnet\.(\w+)$", text, re.MULTILINE)) | {"MODELS"}
    assert "`pn.MODELS`" in text
    assert set(pn.__all__) - {"__version__"} <= shown


def test_the_reference_has_every_command_with_its_options() -> None:
    page = site_reference.on_page_markdown("# Commands\n\n<!-- commands -->\n")
    names = re.findall(r"^## pcmcnet (.+)$", page, re.MULTILINE)
    assert {"fit", "predict", "evaluate", "compare", "tune", "serve", "reproduce table1"} <= set(names)
    fit = page.split("## pcmcnet fit\n")[1].split("\n## ")[0]
    assert "| `TABLE` |" in fit
    assert "| `--output`, `-o` | path | required | Folder for the model. |" in fit
    assert "| `--seed` | whole number from 0 | `0` | Seed of all randomness. |" in fit


def test_the_reference_has_the_options_of_a_model_and_those_it_inherits() -> None:
    page = site_reference.on_page_markdown("<!-- options: NestedMNL -->")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", page, re.MULTILINE)
    assert ("min_chosen", "`10`") in rows
    assert "nests" in dict(rows)


@pytest.mark.parametrize("name", [name for name in pn.__all__ if hasattr(getattr(pn, name), "config_class")])
def test_every_option_of_a_model_is_described(name: str) -> None:
    assert site_reference.options(name)  # which refuses an option without a description


def test_an_option_without_a_description_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_reference, "meanings_of", lambda config: {})
    with pytest.raises(LookupError, match="smoothing"):
        site_reference.options("PCMC")
