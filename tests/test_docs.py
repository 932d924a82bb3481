"""The examples of the documentation run: the blocks of each page in order, in an empty folder."""

import ast
import re
from pathlib import Path

import pytest
import typer
from tools import site_mathematics, site_reference
from tools.site_docstrings import for_the_site
from tools.tutorials import (
    TUTORIALS,
    Block,
    blocks,
    by_shell,
    differences,
    missing_table,
    outdated,
    run,
    run_shell,
    with_outputs,
)

import pcmcnet as pn
from pcmcnet.cli.app import app

ROOT = Path(__file__).parents[1]
FILES = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("README.md"), *ROOT.glob("SECURITY.md")]
PAGES = sorted(page for page in FILES if page.parent != TUTORIALS)  # tutorials have their own test file
# Pages that take more than a second. Quick tests only parse their blocks and look up their names.
SLOW = {"axioms", "cluster", "compare", "context-effects", "decisions", "deephalo", "dpn", "elasticities", "explain"}
SLOW |= {"export", "gallery", "importance", "large-tables", "lcl", "lmnl", "mixed-mnl", "nested-mnl", "pcmc", "pcmcnet"}
SLOW |= {"conjoint", "hb-mnl"}
SLOW |= {"reproduce", "rich-features", "scenarios", "simulators", "tcnet", "tests-and-tables", "tuning", "uncertainty"}
SLOW |= {"designs"}
COMMANDS = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def examples(page: Path) -> list[Block]:
    """Return the blocks of a page that are programs."""
    return blocks(page.read_text("utf-8"))


# a warning of torch at the first use of its forward mode
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=pytest.mark.slow if p.stem in SLOW else ()) for p in PAGES if examples(p)],
    ids=lambda p: p.name,
)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They print the output shown on the page; numbers have a tolerance because machines round differently."""
    if missing := missing_table(page):
        pytest.skip(missing)
    monkeypatch.chdir(tmp_path)
    assert outdated(page) == []


@pytest.mark.parametrize("page", [p for p in FILES if examples(p)], ids=lambda p: p.name)
def test_the_examples_of_a_page_use_only_public_names(page: Path) -> None:
    for block in examples(page):
        if block.language == "python":
            tree = ast.parse(block.code, page.name)
            named = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
            used = {node.attr for node in named if isinstance(node.value, ast.Name) and node.value.id == "pn"}
            assert used <= {*pn.__all__, "plots"}, f"line {block.line}"
        else:
            commands = set(re.findall(r"^pcmcnet ([a-z]\S*)", block.code, re.MULTILINE))
            assert commands <= COMMANDS, f"line {block.line}"


def test_the_pages_with_examples_are_found() -> None:
    with_examples = {p.name for p in PAGES if examples(p)}
    assert {"quick-start.md", "table-format.md"} <= with_examples


def test_a_failing_command_is_detected() -> None:
    with pytest.raises(AssertionError, match="no-such-folder"):
        run_shell("ls no-such-folder\necho reached")
    with pytest.raises(AssertionError, match=r"nowhere\.csv: no such file"):
        run_shell("pcmcnet fit nowhere.csv --choice-set s --chosen c -o model")


def test_commands_print_the_same_with_and_without_a_shell() -> None:
    """Without a shell they run in this process, and the shell receives their output."""
    command = "pcmcnet models \\\n  rank-by"
    printed = run_shell(command)
    assert printed == by_shell(command)
    assert run_shell(f"{command} | head -n 1\n{command} > /dev/null") == printed.splitlines(keepends=True)[0]


# -- outputs on the page ------------------------------------------------------------------------------------------

PAGE = """# A page

```python
n = 2
```

```python
print("twice", n * 1.5)
```

```text title="Output"
old
```

The end.
"""


def test_outputs_are_written_below_the_blocks_that_print() -> None:
    page = with_outputs(PAGE, ["", "twice 3.0\n"])
    assert page == PAGE.replace("old\n", "twice 3.0\n")
    assert [block.output for block in blocks(page)] == [None, "twice 3.0\n"]


def test_a_page_runs_as_one_program(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, "utf-8")
    assert [printed for _, printed in run(page)] == ["", "twice 3.0\n"]


def test_outputs_differ_in_words_or_beyond_the_tolerance() -> None:
    assert not differences("a 1.00\n-----\nb -5,331.2", "a   1.01\n------\nb   -5,330.9")
    assert differences("a 1.00", "b 1.00")
    assert differences("p 1.00", "p 1.20") == ["1.00 on the page, 1.20 now"]
    assert differences("p 1.00", "p 1.00 2.00")


# -- the reference ------------------------------------------------------------------------------------------------


def test_the_reference_has_every_public_name() -> None:
    text = "\n".join(page.read_text("utf-8") for page in ROOT.glob("docs/reference/*.md"))
    lists = re.findall(r"^<!-- classes: (.+) -->$", text, re.MULTILINE)
    linked = {name for names in lists for name in names.split(", ")}
    described = set(re.findall(r"^::: pcmcnet\.(\w+)$", text, re.MULTILINE)) | linked | {"MODELS"}
    assert "`pn.MODELS`" in text
    assert linked == set(site_reference.public_classes())
    assert set(pn.__all__) - {"__version__"} <= described


def test_every_public_class_has_its_own_page() -> None:
    assert {"PCMCNet", "ChoiceData", "ChoiceModel"} <= set(site_reference.public_classes())
    page = site_reference.class_page("PCMCNet")
    assert "::: pcmcnet.PCMCNet\n" in page
    assert "| `hidden` | `(64, 64)` |" in page
    links = site_reference.on_page_markdown("<!-- classes: MNL, ChoiceModel -->")
    assert re.search(r"^\| \[`MNL`\]\(MNL\.md\) \| .{20,} \|$", links, re.MULTILINE)


def test_formulas_become_mathml() -> None:
    page = site_mathematics.on_page_content('<p><span class="arithmatex">\\(q_{ij} &lt; 1\\)</span></p>')
    assert page.startswith('<p><math xmlns="http://www.w3.org/1998/Math/MathML" display="inline">')
    assert "<msub><mi>q</mi>" in page
    block = site_mathematics.on_page_content('<div class="arithmatex">\\[\n\\pi Q = 0\n\\]</div>')
    assert 'display="block"' in block
    assert "arithmatex" not in page + block


def test_the_reference_has_every_command_with_its_options() -> None:
    page = site_reference.on_page_markdown("# Commands\n\n<!-- commands -->\n")
    names = re.findall(r"^## pcmcnet (.+)$", page, re.MULTILINE)
    assert {"fit", "predict", "evaluate", "compare", "tune", "serve", "reproduce table1"} <= set(names)
    fit = page.split("## pcmcnet fit\n")[1].split("\n## ")[0]
    assert "| `TABLE` |" in fit
    assert "| `--output`, `-o` | path | required | Folder for the model. |" in fit
    assert "| `--seed` | whole number from 0 | `0` | Random seed. |" in fit


def test_the_reference_has_the_options_of_a_model_and_those_it_inherits() -> None:
    page = site_reference.options("NestedMNL")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", page, re.MULTILINE)
    assert ("min_chosen", "`10`") in rows
    assert "nests" in dict(rows)


@pytest.mark.parametrize("name", [name for name in pn.__all__ if hasattr(getattr(pn, name), "config_class")])
def test_every_option_of_a_model_is_described(name: str) -> None:
    assert site_reference.options(name)  # raises an error for an option without description


def test_repository_files_become_pages_with_valid_links() -> None:
    page = site_reference.on_page_markdown("<!-- file: CONTRIBUTING.md -->\n")
    assert page.startswith("# Contributing")
    assert "](architecture.md)" in page


DOCSTRING = """Fit to choices.

Parameters
----------
train, valid
    Choice data: see :meth:`ChoiceData.from_long`.

    In any order.
seed
    Of all randomness.

Returns
-------
The model itself,
fitted.

Raises
------
InputError
    Otherwise.
"""


def test_docstrings_list_each_parameter_and_the_return_type() -> None:
    shown = for_the_site(DOCSTRING, "Self")
    shared_text = "    Choice data: see `ChoiceData.from_long`.\n\n    In any order.\n"
    assert f"train\n{shared_text}valid\n{shared_text}seed\n" in shown
    assert "Returns\n-------\nSelf\n    The model itself, fitted.\n\nRaises" in shown
    assert for_the_site("Returns\n-------\nReport", "Report") == "Returns\n-------\nReport"
