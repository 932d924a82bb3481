import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from pcmcnet import MNL, ChoiceData, PCMCNet
from pcmcnet.errors import ConfigError, InputError, NotFittedError
from pcmcnet.layers import PairwiseRates, stationary_distribution
from pcmcnet.layers.stationary.elimination import exported_distribution
from pcmcnet.models.networks.averaged_members import members_of

ROOT = Path(__file__).parents[3]
ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "alternative": "mode",
    "individual": ["income", "purpose"],
    "features": ["price", "comfort", "constant"],
    "missing": "indicator",
    "kinds": {"income": "spline"},
}
QUICK: dict[str, Any] = {"hidden": (8, 8), "epochs": 2, "weight_decay": 1.0}


def page() -> dict[str, Any]:
    """Return the reader from the documentation."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "export.md").read_text("utf-8"), re.M | re.S)
    names: dict[str, Any] = {"np": np}
    exec(next(block for block in blocks if "def inputs_of" in block), names)
    return names


INPUTS_OF: Callable[..., dict[str, Any]] = page()["inputs_of"]


def draw(sizes: Any, seed: int, *, missing: float = 0.2, new: float = 0.0) -> list[dict[str, Any]]:
    """Draw choice sets as dicts, with a share of missing values and unseen categories."""
    rng = np.random.default_rng(seed)

    def maybe(value: Any) -> Any:
        return None if rng.random() < missing else value

    def word(*words: str) -> str:
        return f"new {rng.integers(9)}" if rng.random() < new else str(rng.choice(words))

    return [
        {
            "individual": {"income": float(rng.normal(30, 5)), "purpose": maybe(word("work", "leisure"))},
            "alternatives": [
                {
                    "mode": f"m{k}",
                    "price": maybe(float(rng.lognormal(2, 1))),
                    "comfort": maybe(word("low", "high")),
                    "constant": 7.0,
                }
                for k in range(size)
            ],
        }
        for size in sizes
    ]


def rows(sets: list[dict[str, Any]], seed: int = 0) -> dict[str, list[Any]]:
    """Return the long table of the same sets, with choices drawn at random."""
    rng = np.random.default_rng(seed)
    table: dict[str, list[Any]] = {}
    for trip, one in enumerate(sets):
        took = rng.integers(len(one["alternatives"]))
        for k, alternative in enumerate(one["alternatives"]):
            row = {"trip": trip, "took": int(k == took), **one["individual"], **alternative}
            for name, value in row.items():
                table.setdefault(name, []).append(value)
    return table


@pytest.fixture(scope="module")
def model() -> PCMCNet:
    sizes = np.random.default_rng(0).integers(1, 6, 120)
    return PCMCNet(**QUICK).fit(ChoiceData.from_long(rows(draw(sizes, 1)), **ROLES), progress=False)


@pytest.fixture(scope="module")
def folder(model: PCMCNet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("exported")
    assert model.export(folder / "model.onnx") == folder / "model.onnx"
    return folder


@pytest.fixture(scope="module")
def encoder(folder: Path) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads((folder / "model.encoder.json").read_text("utf-8"))
    return entries


@pytest.fixture(scope="module")
def run_onnx(folder: Path) -> Callable[[dict[str, Any]], Any]:
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    return lambda inputs: session.run(["probabilities"], inputs)[0]


def real(p: Any, sets: list[dict[str, Any]]) -> Any:
    """Return the probabilities of the alternatives, one set after another."""
    return np.concatenate([row[: len(one["alternatives"])] for row, one in zip(p, sets, strict=True)])


# -- the same probabilities ------------------------------------------------------------------------------------------


QUICK_SIZES, MORE_SIZES = [[1], [5, 2, 1, 4], [60, 1, 33]], [[2], [1, 1, 1], list(range(1, 30))]


@pytest.mark.parametrize(
    "sizes",
    [*QUICK_SIZES, *(pytest.param(sizes, marks=pytest.mark.slow) for sizes in MORE_SIZES)],
    ids=lambda s: f"{len(s)}-{max(s)}",
)
def test_onnx_gives_the_probabilities_of_the_model(
    model: PCMCNet, encoder: dict[str, Any], run_onnx: Any, sizes: list[int]
) -> None:
    sets = draw(sizes, seed=len(sizes), new=0.3)
    p = run_onnx(INPUTS_OF(sets, encoder))
    assert p.shape == (len(sizes), max(sizes))
    assert p.dtype == np.float32
    np.testing.assert_allclose(real(p, sets), model.predict_proba(rows(sets)), rtol=0, atol=1e-5)
    assert all((row[size:] == 0).all() for row, size in zip(p, sizes, strict=True))


def test_a_network_compiles_to_one_graph_after_an_export(folder: Path) -> None:
    """An export to ONNX restricts how torch.compile can call min and max."""
    torch.compiler.reset()
    net = PairwiseRates(0, 2, hidden=(6, 5))
    inputs = (torch.zeros(1, 0), torch.ones(1, 3, 2), torch.ones(1, 3, dtype=torch.bool))
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), net(*inputs))


def test_padding_may_be_anywhere_with_any_values(encoder: dict[str, Any], run_onnx: Any) -> None:
    inputs = INPUTS_OF(draw([3], seed=5), encoder)
    expected = run_onnx(inputs)[0]
    wide = {name: np.insert(x, [0, 1, 3], 0, axis=1) if x.shape[1:2] == (3,) else x for name, x in inputs.items()}
    wide["numeric"][:, ~wide["mask"][0]] = np.nan
    result = run_onnx(wide)[0]
    np.testing.assert_allclose(result[wide["mask"][0]], expected, rtol=0, atol=1e-6)
    assert (result[~wide["mask"][0]] == 0).all()


def test_nan_affects_only_its_own_set(encoder: dict[str, Any], run_onnx: Any) -> None:
    inputs = INPUTS_OF(draw([3, 3], seed=6), encoder)
    expected = run_onnx(inputs)
    inputs["numeric"][0, 1, 0] = np.nan
    result = run_onnx(inputs)
    assert np.isnan(result[0]).any()
    np.testing.assert_array_equal(result[1], expected[1])


def test_a_torch_export_gives_the_probabilities_of_the_model(
    model: PCMCNet, encoder: dict[str, Any], tmp_path: Path
) -> None:
    program, sets = torch.export.load(model.export(tmp_path / "model.pt2")), draw([4, 1, 9], seed=7)
    inputs = {name: torch.from_numpy(x) for name, x in INPUTS_OF(sets, encoder).items()}
    assert list(program.graph_signature.user_inputs) == [entry["name"] for entry in encoder["inputs"]]
    p = program.module()(**inputs).numpy()
    np.testing.assert_allclose(real(p, sets), model.predict_proba(rows(sets)), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_torch_export_runs_without_the_library(model: PCMCNet, encoder: dict[str, Any], tmp_path: Path) -> None:
    with torch.autocast("cpu", torch.bfloat16), torch.device("meta"):  # settings of the caller's code
        model.export(tmp_path / "model.pt2")
    assert json.loads((tmp_path / "model.encoder.json").read_text("utf-8")) == encoder
    sets = draw([4, 1, 9], seed=7)
    np.savez(tmp_path / "inputs.npz", **INPUTS_OF(sets, encoder))
    code = """
import json, sys, numpy as np, torch
extra = {"encoder.json": ""}
program = torch.export.load("model.pt2", extra_files=extra)
inputs = {name: torch.from_numpy(x) for name, x in np.load("inputs.npz").items()}
np.save("p.npy", program.module()(**inputs).numpy())
assert json.loads(extra["encoder.json"])["version"] == 1
assert not any(name.startswith("pcmcnet") for name in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    p = np.load(tmp_path / "p.npy")
    np.testing.assert_allclose(real(p, sets), model.predict_proba(rows(sets)), rtol=0, atol=1e-5)


def check(model: PCMCNet, sets: list[dict[str, Any]], tmp_path: Path) -> list[str]:
    """Export a model, compare on some sets, and return the names of its inputs."""
    model.export(tmp_path / "model.onnx")
    inputs = INPUTS_OF(sets, json.loads((tmp_path / "model.encoder.json").read_text("utf-8")))
    session, expected = onnxruntime.InferenceSession(tmp_path / "model.onnx"), model.predict_proba(rows(sets))
    for _ in range(3):  # later runs reuse memory of earlier ones
        np.testing.assert_allclose(real(session.run(None, inputs)[0], sets), expected, rtol=0, atol=1e-5)
    empty = [x.name for x in onnx.load(tmp_path / "model.onnx").graph.initializer if 0 in x.dims]
    assert not empty  # the runtime does not initialise the result of an empty product
    return list(inputs)


@pytest.mark.slow
def test_the_papers_network_can_be_exported(tmp_path: Path) -> None:
    sets = draw([3, 2, 4, 1, 5] * 8, seed=2, missing=0.0)
    data = ChoiceData.from_long(rows(sets), choice_set="trip", chosen="took", features=["price"])
    fitted = PCMCNet.paper(hidden=(8,), epochs=1, batch_size=8).fit(data, progress=False)
    assert check(fitted, sets, tmp_path) == ["numeric", "mask"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"rate": "softplus", "activation": "gelu", "epsilon": 0.1},
        {"rate": "softplus", "activation": "sigmoid"},
        {"rate": "relu", "epsilon": 0.5, "activation": "silu"},
        {"rate": "exp", "epsilon": 0.01, "activation": "tanh", "tails": "keep"},
        {"hidden": (), "utility": "none", "labels": False},
        {"hidden": (5,), "activation": "relu", "dropout": 0.5, "precision": "bfloat16"},
        {"members": 7},
    ],
    ids=str,
)
def test_every_form_of_the_network_can_be_exported(options: dict[str, Any], tmp_path: Path) -> None:
    sets = draw([3, 2, 4, 1, 5] * 8, seed=2)
    roles = {**ROLES, "kinds": {"income": "piecewise"}}
    fitted = PCMCNet(**{**QUICK, **options}).fit(ChoiceData.from_long(rows(sets), **roles), progress=False)
    if options.get("precision") == "bfloat16":
        fitted.network_.rates.precision = "float32"  # type: ignore[union-attr]
    check(fitted, sets, tmp_path)


@pytest.mark.parametrize(
    "options",
    [{}, *(pytest.param({name: 2}, marks=pytest.mark.slow) for name in ("members", "classes"))],
    ids=str,
)
def test_factored_rates_can_be_exported_for_sets_of_any_size(options: dict[str, Any], tmp_path: Path) -> None:
    model = PCMCNet(**{**QUICK, "rank": 3, **options})
    model.fit(ChoiceData.from_long(rows(draw([4] * 40, 1)), **ROLES), progress=False)
    check(model, draw([3, 1, 200, 7, 2], seed=9, new=0.3), tmp_path)


@pytest.mark.parametrize("members", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rates_of_very_different_sizes_are_kept(members: int, tmp_path: Path) -> None:
    model = PCMCNet(**QUICK, utility="none", members=members)
    model.fit(ChoiceData.from_long(rows(draw([4] * 40, 1)), **ROLES), progress=False)
    torch.manual_seed(6)
    for member in members_of(model.network_):
        torch.nn.init.normal_(member.rates.output.weight, std=40.0)
    check(model, draw([2, 3, 5], 2), tmp_path)


@pytest.mark.slow
def test_a_network_of_categories_can_be_exported(tmp_path: Path) -> None:
    sets = draw([3, 2, 4, 1, 5] * 8, seed=2)
    roles = {**ROLES, "individual": ["purpose"], "features": ["comfort"], "kinds": {}}
    fitted = PCMCNet(**QUICK).fit(ChoiceData.from_long(rows(sets), **roles), progress=False)
    assert check(fitted, sets, tmp_path) == ["categorical", "individual_categorical", "mask"]


@pytest.mark.slow
def test_inputs_without_columns_are_omitted(tmp_path: Path) -> None:
    sets = draw([3, 2, 4, 1, 5] * 8, seed=2)
    roles = {**ROLES, "individual": [], "features": [], "kinds": {}}
    fitted = PCMCNet(**QUICK).fit(ChoiceData.from_long(rows(sets), **roles), progress=False)
    assert check(fitted, sets, tmp_path) == ["categorical", "mask"]


def test_exported_distributions_are_accurate_for_small_probabilities() -> None:
    gen = torch.Generator().manual_seed(0)
    rates = torch.exp(12 * torch.randn(6, 7, 7, generator=gen, dtype=torch.float64))
    mask = torch.arange(7) < torch.tensor([[7], [1], [2], [5], [7], [6]])
    torch.testing.assert_close(
        exported_distribution(rates, mask), stationary_distribution(rates, mask), rtol=1e-12, atol=0, check_stride=False
    )


# -- files -----------------------------------------------------------------------------------------------------------


def test_the_graph_has_standard_operators_named_axes_and_an_encoder(folder: Path, encoder: Any) -> None:
    graph = onnx.load(folder / "model.onnx")
    assert [(entry.domain, entry.version) for entry in graph.opset_import] == [("", 18)]
    assert not graph.functions
    shapes = {x.name: [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim] for x in graph.graph.input}
    assert shapes == {expected["name"]: expected["shape"] for expected in encoder["inputs"]}
    (output,) = graph.graph.output
    assert output.name == encoder["output"]["name"] == "probabilities"
    assert [json.loads(entry.value) for entry in graph.metadata_props if entry.key == "encoder.json"] == [encoder]
    assert str(ROOT).encode() not in (folder / "model.onnx").read_bytes()


def test_the_encoder_lists_entries_in_the_order_of_inputs(encoder: dict[str, Any]) -> None:
    entries = {inputs["name"]: inputs.get("entries") for inputs in encoder["inputs"]}
    assert [(e["column"], e["entry"]) for e in entries["numeric"]] == [
        ("price", "number"),
        ("constant", "number"),
        ("price", "missing"),
    ]
    assert [(e["column"], e["missing"]) for e in entries["categorical"]] == [("comfort", 1), ("mode", 0)]
    assert entries["categorical"][0]["categories"] == ["<missing>", "high", "low"]
    assert all(len(e) == inputs["shape"][-1] for inputs in encoder["inputs"] if (e := inputs.get("entries")))


def altered(side: str, column: str, value: Any) -> list[dict[str, Any]]:
    (one,) = draw([2], seed=8)
    {"individual": one["individual"], "alternatives": one["alternatives"][0]}[side][column] = value
    return [one]


@pytest.mark.parametrize(
    ("side", "column", "value", "message"),
    [
        ("individual", "income", None, "income is missing"),
        ("individual", "income", "30", "income: expected a finite number, got '30'"),
        ("individual", "income", True, "income: expected a finite number, got True"),
        ("individual", "purpose", 1, "purpose: expected a string"),
        ("alternatives", "price", float("nan"), "price: expected a finite number, got nan"),
        ("alternatives", "price", float("-inf"), "price: expected a finite number, got -inf"),
        ("alternatives", "price", 1e39, r"price: expected a finite number, got 1e\+39"),
        ("alternatives", "price", 10**400, "price: expected a finite number, got 1000"),
        ("alternatives", "price", [3.0], "price: expected a finite number"),
        ("alternatives", "price", 1j, "price: expected a finite number"),
        ("alternatives", "comfort", True, "comfort: expected a string"),
        ("alternatives", "comfort", float("nan"), "comfort: expected a string"),
        ("alternatives", "comfort", ["low"], "comfort: expected a string"),
    ],
)
def test_the_documented_reader_refuses_what_the_model_refuses(
    side: str, column: str, value: Any, message: str, encoder: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=message):
        INPUTS_OF(altered(side, column, value), encoder)


@pytest.mark.parametrize("side", ["individual", "alternatives"])
def test_the_documented_reader_names_missing_columns(side: str, encoder: dict[str, Any]) -> None:
    columns = {e["column"] for given in encoder["inputs"] for e in given.get("entries", [])}
    (one,) = draw([2], seed=8)
    row = {"individual": one["individual"], "alternatives": one["alternatives"][1]}[side]
    for column in columns & set(row):
        value = row.pop(column)
        with pytest.raises(ValueError, match=f"{column} is absent: use None"):
            INPUTS_OF([one], encoder)
        row[column] = value
    assert INPUTS_OF([one], encoder)


def test_the_documented_reader_refuses_other_encoders_and_empty_sets(encoder: dict[str, Any]) -> None:
    sets = draw([2], seed=8)
    for other in ({}, {**encoder, "version": 2}, {**encoder, "format": "another"}):
        with pytest.raises(ValueError, match="expected an encoder of version 1"):
            INPUTS_OF(sets, other)
    for empty in ([], [*sets, {**sets[0], "alternatives": []}], [{**sets[0], "alternatives": {"price": 1}}]):
        with pytest.raises(ValueError, match="expected sets with a list of alternatives each"):
            INPUTS_OF(empty, encoder)


def test_the_documented_reader_treats_unseen_categories_as_the_model(encoder: dict[str, Any]) -> None:
    inputs = INPUTS_OF(altered("alternatives", "comfort", "new"), encoder)
    assert inputs["categorical"][0, 0, 0] == 0


# -- invalid input ---------------------------------------------------------------------------------------------------


def test_an_unknown_file_ending_is_refused_before_the_export(model: PCMCNet, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a file name that ends in \.onnx or \.pt2, got .*model\.pb"):
        model.export(tmp_path / "model.pb")
    assert not list(tmp_path.iterdir())


def test_unsupported_models_and_columns_are_refused_with_a_remedy(tmp_path: Path) -> None:
    sets = draw([3, 2, 4, 2, 5] * 4, seed=2, missing=0.0)
    roles = {"choice_set": "trip", "chosen": "took", "features": ["price", "comfort"]}
    with pytest.raises(NotFittedError):
        PCMCNet().export(tmp_path / "model.onnx")
    logit = MNL().fit(ChoiceData.from_long(rows(sets), **roles))
    with pytest.raises(ConfigError, match="not supported by MNL, only by PCMCNet"):
        logit.export(tmp_path / "model.onnx")
    texts = ChoiceData.from_long(rows(sets), **roles, kinds={"comfort": "text"})
    with pytest.raises(ConfigError, match="column 'comfort' has kind text"):
        PCMCNet(**QUICK).fit(texts, progress=False).export(tmp_path / "model.onnx")


def test_a_missing_package_is_named(model: PCMCNet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setattr("pcmcnet.models.networks.export._traced", lambda *_: None)
    with pytest.raises(ConfigError, match=r"ONNX export needs onnxscript: pip install 'pcmcnet\[export\]'"):
        model.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
