"""Folders of an attacker cause no crash, no hang, no memory exhaustion and no wrong number.

The limits are those of SECURITY.md.
"""

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import forked
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, InputError
from pcmcnet.models import MNL, PCMCNet, load
from pcmcnet.models.interface import saving
from pcmcnet.models.interface.saving import manifest_digest
from pcmcnet.models.networks.neural_model import read_network

GOLDEN = Path(__file__).parent / "golden"
PROGRAM = Path(__file__).parent / "hostile_loads.py"
SLOW = pytest.mark.slow


@pytest.fixture
def golden(tmp_path: Path) -> Any:
    """Copies of golden folders that tests may alter."""
    return lambda name: Path(shutil.copytree(GOLDEN / "format-2" / name, tmp_path / name))


def write(folder: Path, name: str, content: bytes) -> None:
    """Replace a file and update the hashes."""
    (folder / name).write_bytes(content)
    facts = {"files": hashlib.sha256(content).hexdigest(), "sizes": len(content)}
    alter_manifest(folder, lambda m: [m[entry].update({name: fact}) for entry, fact in facts.items()])


def alter_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest and update its hash."""
    manifest = json.loads((folder / "model.json").read_bytes())
    change(manifest)
    del manifest["sha256"]
    (folder / "model.json").write_text(json.dumps({**manifest, "sha256": manifest_digest(manifest)}))


def rewrite(folder: Path, name: str, **entries: Any) -> None:
    """Change entries of a JSON file and update the hashes."""
    write(folder, name, json.dumps({**json.loads((folder / name).read_bytes()), **entries}).encode())


# -- random alterations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "loads"), [(0, 24), pytest.param(24, 1_000, marks=SLOW)])
def test_an_altered_folder_is_refused_or_gives_probabilities(first: int, loads: int) -> None:
    """Loads run in a separate process, so that a crash is a failed test. Half of the folders are forests."""
    run = forked.run(forked.script(PROGRAM), first, first + loads)
    wrong = [line for line in run.stdout.splitlines() if "WRONG" in line or not line.startswith("seed")]
    assert (run.returncode, wrong) == (0, [f"{loads} loads, 0 of them wrong"]), run.stdout[-500:] + run.stderr[-2000:]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (10**5, "config.json"),
        *(pytest.param(value, "config.json", marks=SLOW) for value in (10**6, 10**9)),
        *(pytest.param(value, "model.json", marks=SLOW) for value in (10**5, 10**6, 10**9)),
    ],
)
def test_a_large_count_is_refused_or_loaded_in_few_steps(value: int, name: str) -> None:
    """Each whole number of every model's options, or of its record, is set to a large value."""
    run = forked.run(forked.script(PROGRAM), "count", value, name)
    lines = run.stdout.splitlines()
    assert len(lines) > 50
    assert [line for line in lines if "WRONG" in line] == []
    assert (run.returncode, lines[-1]) == (0, f"{len(lines) - 1} loads, 0 of them wrong"), run.stderr[-2000:]


def test_a_network_is_not_built_if_its_file_has_too_few_tensors(golden: Any) -> None:
    """A network of 10,000 tensors is not compared with a file of 6, whatever option it comes from."""
    content = (golden("pcmcnet") / "weights.safetensors").read_bytes()
    registered = itertools.count()

    def build() -> nn.Module:
        return nn.ModuleList(nn.Linear(next(registered) + 1, 1) for _ in range(5_000))

    with pytest.raises(ArtifactError, match="saved options, which describe a larger network"):
        read_network(content, build)
    assert next(registered) < 100
    nn.ModuleList(nn.Linear(1, 1) for _ in range(100))  # there is no limit elsewhere


# -- links, pipes and folders in place of files --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.json", "config.json", "weights.safetensors"])
@pytest.mark.parametrize("target", ["/dev/zero", "/etc/hostname", "../elsewhere"])
def test_a_link_out_of_the_folder_is_not_followed(name: str, target: str, golden: Any) -> None:
    folder = golden("pcmcnet")
    shutil.copy(folder / name, folder.parent / "elsewhere")
    (folder / name).unlink()
    (folder / name).symlink_to(target)
    with pytest.raises(ArtifactError, match=rf"{name} is a link to a file outside the folder.*cp -rL"):
        load(folder)


def test_links_within_the_folder_and_to_the_folder_are_followed(golden: Any, tmp_path: Path) -> None:
    """Kubernetes mounts files as links to a hidden folder."""
    folder = golden("mnl")
    (folder / "..data").mkdir()
    for file in [path for path in folder.iterdir() if path.is_file()]:
        file.rename(folder / "..data" / file.name)
        file.symlink_to(Path("..data") / file.name)
    (tmp_path / "link").symlink_to(folder)
    assert isinstance(load(tmp_path / "link"), MNL)


@pytest.mark.parametrize("name", ["model.json", "config.json"])
def test_a_pipe_is_refused_without_waiting(name: str, golden: Any) -> None:
    folder = golden("mnl")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ArtifactError, match=rf"{name} is not a regular file"):
        load(folder)


@pytest.mark.parametrize("kind", ["folder", "circle"])
def test_a_folder_or_a_loop_of_links_is_refused_as_a_file(kind: str, golden: Any) -> None:
    folder = golden("mnl")
    (folder / "config.json").unlink()
    if kind == "folder":
        (folder / "config.json").mkdir()
    else:
        (folder / "config.json").symlink_to("config.json")
    with pytest.raises(ArtifactError, match=r"config.json is (not a regular file|missing or unreadable)"):
        load(folder)


# -- sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("model.json", 10**12, r"model.json has 1,000,000,000,000 bytes; the limit .* is 64 MiB"),
        ("config.json", 10**12, r"config.json has 1,000,000,000,000 bytes; the limit .* is 64 MiB"),
        ("weights.safetensors", 10**12, r"limit .* is 8 GiB for all files together"),
    ],
)
def test_a_file_beyond_the_limits_is_not_read(name: str, size: int, message: str, golden: Any) -> None:
    """A sparse file takes no space on disk, but a terabyte in memory."""
    folder = golden("pcmcnet")
    os.truncate(folder / name, size)
    with pytest.raises(ArtifactError, match=message):
        load(folder)


def test_a_file_of_unexpected_size_is_not_read(fitted: PCMCNet, tmp_path: Path) -> None:
    folder = fitted.save(tmp_path / "model")
    os.truncate(folder / "weights.safetensors", 2**32)
    with pytest.raises(ArtifactError, match=r"weights.safetensors was truncated or altered"):
        load(folder)


def test_the_total_size_of_all_files_is_limited(golden: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcmcnet.models.interface.saving.MAX_FOLDER_BYTES", 5_000)
    with pytest.raises(ArtifactError, match=r"is 0 GiB for all files together"):
        load(golden("ensemble"))


def test_a_model_too_large_to_load_is_not_saved(
    fitted: PCMCNet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "MAX_JSON_BYTES", 2**10)
    with pytest.raises(ArtifactError, match=r"encoder.json has [\d,]+ bytes; the limit .* is 0 MiB"):
        fitted.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


# -- entries that need too much memory -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "entries", "message"),
    [
        ("pcmcnet", "config.json", {"hidden": [10**9]}, "the saved weights do not match the saved options"),
        ("pcmcnet", "config.json", {"hidden": [10**18, 10**18]}, "incomplete or altered|not match the saved options"),
        ("pcmcnet", "config.json", {"hidden": [1] * 10**6}, "the number of hidden layers must be"),
        ("dpn", "config.json", {"hidden": 10**6}, "the saved weights do not match the saved options"),
        ("dpn", "config.json", {"hidden": 10**9}, "incomplete or altered"),
        ("rf", "config.json", {"trees": 10**9}, "holds 2 trees, expected 1000000000"),
        ("ensemble", "config.json", {"n": 10**9}, "incomplete or altered"),
        ("thurstone", "items.json", {"strengths": [0, 1e12, 0]}, "strengths exceed the range"),
        ("pcmc-bins", "items.json", {"edges": {str(k): [0, 1] for k in range(99)}}, "match the saved items"),
        ("lc-mnl", "classes.json", {"classes": 10**9}, "classes, columns and estimates do not match"),
    ],
)
def test_entries_that_would_exhaust_memory_are_refused(
    kind: str, name: str, entries: dict[str, Any], message: str, golden: Any
) -> None:
    folder = golden(kind)
    rewrite(folder, name, **entries)
    with pytest.raises(ArtifactError, match=message):
        load(folder)


@pytest.mark.parametrize(
    "spec",
    [
        {"classes": 10**9, "bins": [0]},
        {"classes": 1, "bins": [0] * 10**6},
        {"classes": 2, "bins": [0, 0]},
        {"classes": 1, "bins": [0, 10**9]},
    ],
)
def test_an_impossible_architecture_is_refused(spec: dict[str, Any], golden: Any) -> None:
    folder = golden("pcmcnet-classes")
    alter_manifest(folder, lambda m: m["fit"]["record"].update(spec=spec))
    with pytest.raises(ArtifactError, match="the saved model has an unknown architecture"):
        load(folder)


def nested(levels: int) -> dict[str, Any]:
    return {"model": "calibrated", "options": nested(levels - 1)} if levels else {"model": "uniform", "options": {}}


@pytest.mark.parametrize("levels", [5, 40, 400])
def test_deeply_nested_models_are_refused(levels: int, golden: Any) -> None:
    """Each model checks the inner one more than once, so 40 levels would take practically forever."""
    folder = golden("calibrated")
    rewrite(folder, "config.json", **nested(levels))
    with pytest.raises(ArtifactError, match=rf"at most 4 nested models, got {levels}"):
        load(folder)


def test_a_design_with_too_many_columns_is_refused(golden: Any) -> None:
    """The names and the formula fit into a file, but the numbers would not fit into memory."""
    folder, knots = golden("mnl"), list(range(1, 200_000))
    ends = [f"[to {knots[0]}]", *(f"[{a} to {b}]" for a, b in pairwise(knots)), f"[from {knots[-1]}]"]
    term = f"piecewise(price, {', '.join(map(str, knots))})"
    codes = {"price": {"mean": 0, "scale": 1, "gaps": False}}
    rewrite(folder, "design.json", resolved=f"{term} | 0", codes=codes, labels=None, names=[f"x{end}" for end in ends])
    with pytest.raises(ArtifactError, match=r"too many columns: 200,000"):
        load(folder)


def test_a_formula_with_too_many_columns_is_refused(golden: Any) -> None:
    """The product of 30 categories with 2 levels each has a billion columns, all with short names."""
    folder, names = golden("mnl"), [f"c{k}" for k in range(30)]
    level = {"reference": "a", "levels": ["b"], "pooled": False, "rare": [], "n_rare": 0}
    schema = json.loads((folder / "schema.json").read_bytes())
    rewrite(folder, "schema.json", features=[*schema["features"], *names])
    alter_manifest(folder, lambda m: m["fit"]["table"].update(description={}))  # its example has no such columns
    codes = {"price": {"mean": 0, "scale": 1, "gaps": False}, **dict.fromkeys(names, level)}
    rewrite(folder, "design.json", resolved=f"{':'.join(codes)} | 0", codes=codes)
    with pytest.raises(ArtifactError, match=r"columns, but the limit is 100,000"):
        load(folder)


def test_a_fit_refuses_a_product_with_too_many_columns() -> None:
    n = 400
    table = {"s": [k // 2 for k in range(2 * n)], "took": [1, 0] * n, "x": range(2 * n)}
    table |= {name: [f"{name}{k}" for k in range(2 * n)] for name in ("a", "b")}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["x", "a", "b"])
    with pytest.raises(InputError, match=r"has 640,000 columns, but the limit is 100,000: remove"):
        MNL(formula="a:b", min_chosen=0).fit(data)


@pytest.mark.parametrize("name", ["model.json", "config.json", "encoder.json", "schema.json", "history.json"])
@pytest.mark.parametrize("content", ["[" * 10**6, '{"a":' * 10**6, "9" * 10**6, "1e999999999", "[NaN]", "\x00"])
def test_deep_long_or_malformed_json_is_refused(name: str, content: str, golden: Any) -> None:
    folder = golden("pcmcnet")
    if name == "model.json":
        (folder / name).write_text(content)
    else:
        write(folder, name, content.encode())
    with pytest.raises(ArtifactError, match=r"model.json is damaged|incomplete or altered|saved encoder is incomplete"):
        load(folder)


@pytest.mark.parametrize("entry", ["fit", "versions"])
def test_deeply_nested_manifest_entries_are_refused(entry: str, golden: Any) -> None:
    folder = golden("pcmcnet")
    whole = json.loads((folder / "model.json").read_bytes())
    deep = json.dumps({**whole, entry: "HERE"}).replace('"HERE"', '{"a":' * 10**5 + "0" + "}" * 10**5)
    (folder / "model.json").write_text(deep)
    with pytest.raises(ArtifactError, match=r"model.json is damaged"):
        load(folder)


# -- messages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, True])
def test_an_invalid_format_number_is_refused(value: Any, golden: Any) -> None:
    folder = golden("mnl")
    manifest = {**json.loads((folder / "model.json").read_bytes()), "format": value}
    del manifest["sha256"]
    (folder / "model.json").write_text(json.dumps({**manifest, "sha256": manifest_digest(manifest)}))
    with pytest.raises(ArtifactError, match=r"model.json is damaged \(the format is not a positive whole number\)"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("config.json", {"activation": "x\n" * 50_000}),
        ("config.json", {"lr": "9" * 100_000}),
        ("config.json", {"hidden": ["x" * 100_000]}),
        ("config.json", {"x\n" * 50_000: 1}),
        ("schema.json", {"missing": "x\r\n" * 50_000}),
        ("model.json", {"model": "x" * 100_000}),
        ("model.json", {"format": 10**4_000}),
        ("model.json", {"versions": {"pcmcnet": "9" + "x\n" * 50_000}, "model": "x" * 100_000}),
        ("model.json", {"files": {"x\n" * 50_000: ""}}),
    ],
)
def test_a_message_is_one_line_of_bounded_length(name: str, entries: dict[str, Any], golden: Any) -> None:
    folder = golden("pcmcnet")
    if name == "model.json":
        manifest = {**json.loads((folder / name).read_bytes()), **entries}
        del manifest["sha256"]
        (folder / name).write_text(json.dumps({**manifest, "sha256": manifest_digest(manifest)}))
    else:
        rewrite(folder, name, **entries)
    with pytest.raises(ArtifactError) as caught:
        load(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1_000 + len(str(folder))
