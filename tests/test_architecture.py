"""The import rule: a stage imports only stages to its left, and imports are cheap."""

import ast
import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet
import pytest

import forked
import pcmcnet as pn
from choice_tables import picture
from pcmcnet import api, data
from pcmcnet.data.kinds import KINDS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "pcmcnet"
STAGES = [
    *(
        "errors",
        "imports",
        "arrays",
        "checks",
        "compiled",
        "concurrency",
        "progress",
        "storage",
        "reports",
        "data",
        "datasets",
        "layers",
        "training",
        "selection",
        "models",
        "evaluation",
    ),
    *("tuning", "insight", "decisions", "designs", "plots", "experiments", "serving", "cluster", "cli"),
]
EXTRAS = {
    "optuna",
    "fastapi",
    "uvicorn",
    "pydantic",
    "plotly",
    "ray",
    "pandas",
    "polars",
    "skops",
    "matplotlib",
    "jinja2",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "onnxscript",
}


DRAWS = "plots"  # functions of any stage may import this stage


class Import(NamedTuple):
    """One import: its line, the module, the imported name, if any, and whether it is inside a function."""

    line: int
    module: str
    name: str | None = None
    in_function: bool = False


@pytest.fixture(scope="module", autouse=True)
def no_search_for_garbage() -> Iterator[None]:
    """Disable garbage collection: half a million nodes are cached, and scanning them takes longer than parsing."""
    gc.disable()
    yield
    gc.enable()


@cache
def nodes(source: str) -> list[ast.AST]:
    """Return all nodes of a file; the result is cached for all tests."""
    return list(ast.walk(ast.parse(source)))


def imports(source: str, package: str) -> Iterator[Import]:
    """Yield every import of a file; relative ones are resolved against ``package``."""
    functions = [node for node in nodes(source) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(part) for function in functions for part in ast.walk(function) if isinstance(part, ast.ImportFrom)}
    for node in nodes(source):
        match node:
            case ast.Import(names=names):
                yield from (Import(node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parents = package.split(".")[: package.count(".") + 2 - level] if level else []
                base = ".".join([*parents, *([module] if module else [])])
                yield from (Import(node.lineno, base, alias.name, id(node) in inside) for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield Import(node.lineno, module)


def violations(source: str, file: str) -> list[str]:
    """Return how a file, given by its path from src such as pcmcnet/data/files/tabular.py, breaks the rule.

    There is one exception. A method such as ``comparison.plot()`` imports the function that draws it when it is called,
    ``from pcmcnet.plots.comparison import plot_comparison``: importing its own stage loads no picture.
    """
    parts = Path(file).with_suffix("").parts
    if parts in (("pcmcnet", "api"), ("pcmcnet", "__init__")):  # the list of public names may import anything
        return []
    stage = "cli" if parts[1] == "__main__" else parts[1]
    if stage not in STAGES:
        return [f"{file}: {stage!r} is not a stage; the stages are {', '.join(STAGES)}"]
    problems = []
    for line, module, name, in_function in imports(source, package=".".join(parts[:-1])):
        root, target = (*module.split("."), None)[:2]
        full = module if name is None else f"{module}.{name}"
        if root != "pcmcnet":
            continue
        if target is None and name in STAGES:
            problems.append(f"{file}:{line}: takes {name} out of pcmcnet; write pcmcnet.{name}")
        elif target not in STAGES:
            problems.append(f"{file}:{line}: imports {full}; name the stage, as in pcmcnet.errors")
        elif STAGES.index(target) > STAGES.index(stage) and not (in_function and target == DRAWS):
            problems.append(f"{file}:{line}: {stage} imports {full}, a stage to its right")
    return problems


def test_a_stage_imports_only_stages_to_its_left() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert files
    problems = []
    for file in files:
        problems += violations(file.read_text("utf-8"), file.relative_to(PACKAGE.parent).as_posix())
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            "from pcmcnet.models.base import Model",
            "1: data imports pcmcnet.models.base.Model, a stage to its right",
        ),
        ("import pcmcnet.cli", "1: data imports pcmcnet.cli, a stage to its right"),
        (
            "def f():\n    from pcmcnet.layers import rates",
            "2: data imports pcmcnet.layers.rates, a stage to",
        ),
        ("from ..training import loop", "1: data imports pcmcnet.training.loop, a stage to its right"),
        (
            "from importlib import import_module\nimport_module('pcmcnet.plots')",
            "2: data imports pcmcnet.plots, a",
        ),
        (
            "import importlib as i\ni.import_module('pcmcnet.plots')",
            "2: data imports pcmcnet.plots, a stage to",
        ),
        (
            "from pcmcnet.plots.comparison import plot_comparison",
            "1: data imports pcmcnet.plots.comparison.plot_comparison, a stage to its right",
        ),
        (
            "class A:\n    from pcmcnet.plots.comparison import plot_comparison",
            "2: data imports pcmcnet.plots.comparison.plot_comparison, a stage to its right",
        ),
        ("import pcmcnet", "1: imports pcmcnet; name the stage"),
        ("import pcmcnet as pn", "1: imports pcmcnet; name the stage"),
        ("from pcmcnet import ChoiceData", "1: imports pcmcnet.ChoiceData; name the stage"),
        ("from pcmcnet import errors", "1: takes errors out of pcmcnet; write pcmcnet.errors"),
        ("from .. import errors", "1: takes errors out of pcmcnet; write pcmcnet.errors"),
    ],
)
def test_the_rule_detects_violations(source: str, problem: str) -> None:
    (violation,) = violations(source, "pcmcnet/data/a.py")
    assert f"pcmcnet/data/a.py:{problem}" in violation


@pytest.mark.parametrize(
    "source",
    [
        "from pcmcnet.errors import SchemaError",
        "from pcmcnet.data.columns.arrays import Column",
        "from .columns import Column",
        "from . import columns",
        "import pcmcnet.errors",
        "import numpy.models",
        "class A:\n    def plot(self):\n        from pcmcnet.plots.comparison import plot_comparison",
    ],
)
def test_the_rule_allows_valid_imports(source: str) -> None:
    assert violations(source, "pcmcnet/data/a.py") == []


def test_the_rule_covers_every_folder_but_the_public_list() -> None:
    (violation,) = violations("", "pcmcnet/utils/a.py")
    assert "'utils' is not a stage" in violation
    assert violations("from pcmcnet.cli import main", "pcmcnet/api.py") == []
    assert violations("from pcmcnet.cli import main", "pcmcnet/__main__.py") == []


def imports_at_load(source: str) -> Iterator[ast.ImportFrom]:
    """Yield the imports that run when a module is loaded: not those in functions or only for annotations."""
    body: list[ast.stmt] = list(ast.parse(source).body)
    while body:
        node = body.pop()
        if isinstance(node, ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            body += [*node.body, *node.orelse]


def folder_imports(stage: Path) -> dict[str, set[str]]:
    """Return which folders of a stage import which; the files at its root count as one folder.

    An ``__init__.py`` only collects names and may import anything.
    """
    modules = {".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts): file for file in stage.rglob("*.py")}
    edges: dict[str, set[str]] = {}
    for file in modules.values():
        if file.name == "__init__.py":
            continue
        folder = file.parent.relative_to(PACKAGE).as_posix()
        for node in imports_at_load(file.read_text("utf-8")):
            for alias in node.names:
                # the imported module: a.b of "from a.b import c", or a.b.c if c is a module
                target = modules.get(f"{node.module}.{alias.name}") or modules.get(f"{node.module}")
                target = target or modules.get(f"{node.module}.__init__")
                if target is not None and target.parent != file.parent:
                    edges.setdefault(folder, set()).add(target.parent.relative_to(PACKAGE).as_posix())
    return edges


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Return folders that form an import cycle, the first again at the end, or an empty list."""

    def walk(folder: str, trail: list[str]) -> list[str]:
        if folder in trail:
            return [*trail[trail.index(folder) :], folder]
        return next(filter(None, (walk(other, [*trail, folder]) for other in sorted(edges.get(folder, ())))), [])

    return next(filter(None, (walk(folder, []) for folder in sorted(edges))), [])


@pytest.mark.parametrize("stage", [stage for stage in STAGES if (PACKAGE / stage).is_dir()])
def test_folders_of_a_stage_have_no_import_cycles(stage: str) -> None:
    assert cycle(folder_imports(PACKAGE / stage)) == []


def test_an_import_cycle_is_detected() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}}) == []
    assert folder_imports(PACKAGE / "data")["data/scan"] >= {"data"}


@cache
def loaded(code: str) -> set[str]:
    """Return the modules that a program has loaded; PyTorch is always among them."""
    run = forked.run(f"import sys\n{code}\nprint(*sys.modules)")
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def freshly_loaded(code: str) -> set[str]:
    """Return the modules that a program has loaded in a fresh interpreter."""
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'src')\n{code}\nprint(*sys.modules)"]
    return set(subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split())


def test_import_loads_no_extra() -> None:
    assert not EXTRAS & loaded("from pcmcnet import PCMCNet")


def test_names_are_imported_lazily() -> None:
    assert not {"torch", "numpy", "pyarrow"} & freshly_loaded("import pcmcnet, pcmcnet.cli.app")
    assert {"pcmcnet.layers", "pcmcnet.insight"} <= loaded("from pcmcnet import PCMCNet")
    assert {name for name in dir(pn) if not name.startswith("__")} == set(pn.__all__)
    assert all(getattr(pn, name) is getattr(api, name) for name in pn.__all__)
    assert pn.insight is sys.modules["pcmcnet.insight"]
    with pytest.raises(AttributeError, match="module 'pcmcnet' has no attribute 'nonsense'"):
        pn.nonsense  # noqa: B018


def test_tables_are_read_and_scanned_without_torch(tmp_path: Path) -> None:
    """Loading torch takes longer than reading most tables, and each worker of a scan would load it."""
    table = {
        "id": [1, 1, 2, 2],
        "y": [0, 1, 1, 0],
        "price": [1.0, 2.5, 3.0, 4.0],
        "mode": ["car", "bus", "car", "bus"],
        "services": [["wifi"], [], ["wifi", "pool"], []],
        "about": ["a room", "2 rooms", "a suite", "3 rooms"],
        "style": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]],
        "at": ["2024-05-01 10:00", "2024-05-02 11:00"] * 2,
        "photo": [picture(k) for k in range(4)],
        "node": [0, 1, 2, 3],
    }
    kinds = {
        "services": "multi",
        "about": "text",
        "style": "vector",
        "at": "datetime",
        "photo": "image",
        "node": "id",
    }
    assert set(kinds.values()) == KINDS.keys()
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "table.parquet")
    roles = {"choice_set": "id", "chosen": "y", "features": [*table][2:], "kinds": kinds}
    program = f"""
from pcmcnet import ChoiceData
from pcmcnet.data import Encoder
from pcmcnet.data.encoder import learn_encoder
file, roles = {str(tmp_path / "table.parquet")!r}, {roles}
in_memory, on_disk = ChoiceData.from_long(file, **roles), ChoiceData.scan(file, **roles)
train, held_out = in_memory.split((0.5, 0.5))
for data in (train, on_disk):
    encoder = learn_encoder(data, bend=True)
    assert Encoder.from_dict(encoder.to_dict()) == encoder
    assert len(encoder.features.contents) == {len(kinds)}
"""
    assert "torch" not in freshly_loaded(program)


def test_tensor_classes_are_exported_by_data() -> None:
    assert set(data.__all__) <= set(dir(data))
    assert data.EncodedSets is sys.modules["pcmcnet.data.batches"].EncodedSets
    assert data.EncodedStream is sys.modules["pcmcnet.data.scan.stream"].EncodedStream
    with pytest.raises(AttributeError, match=r"module 'pcmcnet.data' has no attribute 'nonsense'"):
        data.nonsense  # noqa: B018


def test_a_fit_does_not_load_insight_or_plots() -> None:
    words = ["pcmcnet", "fit", "nothing.csv", "--choice-set", "id", "--chosen", "y", "-o", "nothing"]
    run = f"from pcmcnet.cli import main\nsys.argv = {words}\ntry:\n    main()\nexcept SystemExit:\n    pass"
    modules = loaded(run)
    assert "pcmcnet.evaluation" in modules
    assert not {"pcmcnet.insight", "pcmcnet.decisions", "pcmcnet.plots", "matplotlib"} & modules


def test_plots_are_loaded_only_when_drawn() -> None:
    before = "from pcmcnet.evaluation.report import Report\nreport = Report(n_sets=1, nll=None, top={}, brier=None)"
    pictures = {"pcmcnet.plots", "matplotlib"}
    assert not pictures & loaded(f"from pcmcnet import compare, evaluate, explain\n{before}")
    assert pictures <= loaded(f"{before}\nreport.plot()")


def test_tables_and_shards_of_numbers_are_read_without_pandas(tmp_path: Path) -> None:
    """Arrow's own conversions load pandas, which takes longer than reading most tables."""
    table = pa.table({"id": [2, 2, 1, 1], "y": [0, 1, 1, 0], "x": [1.0, 2.5, 3.0, 4.0]})
    pyarrow.parquet.write_table(table, tmp_path / "table.parquet", row_group_size=2)
    arguments = f"({str(tmp_path / 'table.parquet')!r}, choice_set='id', chosen='y', features=['x'])"
    pn.ChoiceData.scan(tmp_path / "table.parquet", choice_set="id", chosen="y", features=["x"])  # writes the shards
    program = f"""
from pcmcnet.data import ChoiceData, Encoder
for data in (ChoiceData.from_long{arguments}, ChoiceData.scan{arguments}):
    Encoder.learn(data, bend=True)
"""
    assert "pandas" not in loaded(program)


def kind_switches(source: str) -> list[int]:
    """Return the lines that compare a column kind with a name, or have a table keyed by such names."""
    lines = []
    for node in nodes(source):
        match node:
            case ast.Compare(left=asked, comparators=named) if "kind" in ast.unparse(asked):
                least = 1
            case ast.Match(subject=asked, cases=named) if "kind" in ast.unparse(asked):
                least = 1
            case ast.Dict(keys=named):
                least = 2
            case _:
                continue
        words = {part.value for one in named if one for part in ast.walk(one) if isinstance(part, ast.Constant)}
        if len(words & KINDS.keys()) >= least:
            lines.append(node.lineno)
    return lines


def test_only_the_kinds_compare_names_of_kinds() -> None:
    """A new kind is one file: differences between kinds are looked up in the registry."""
    files = [file for file in sorted(PACKAGE.rglob("*.py")) if file.parent != PACKAGE / "data" / "kinds"]
    switches = [f"{file}:{line}" for file in files for line in kind_switches(file.read_text("utf-8"))]
    assert not switches, "\n".join(switches)


@pytest.mark.parametrize(
    "source",
    [
        "column.kind == 'image'",
        "kind in ('datetime', 'id')",
        "match kind:\n    case 'text':\n        pass",
        "{'vector': read_vectors, 'multi': read_lists}",
    ],
)
def test_a_switch_on_kinds_is_detected(source: str) -> None:
    assert kind_switches(source) == [1]
    assert kind_switches("{'id': 1, 'first': 2}, column == 'id', kind == 'number'") == []


def test_the_architecture_page_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    named = set(re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.(?:py|c))`", page))
    named -= {"tests/test_architecture.py", "tests/serving/test_new_kind.py", "pcmcnet/api.py"}
    assert len(named) > 40
    files = {file.relative_to(PACKAGE).as_posix() for file in PACKAGE.rglob("*.*")}
    names = {file.rpartition("/")[2] for file in files}  # files whose folder is named in the sentence
    assert sorted(file for file in named if file not in (files if "/" in file else files | names)) == []
