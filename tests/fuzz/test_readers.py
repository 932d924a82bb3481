"""Any content of a saved model or schema file gives an equal model or one of our errors. Nothing is executed.

Two kinds of damage: changed bytes, which the hashes detect, and files rewritten with correct hashes, as by someone who
knows the format, which each reader must detect itself.
"""

import copy
import hashlib
import json
import shutil
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choice_tables import read, trips
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.errors import ArtifactError, PcmcNetError, SchemaError
from pcmcnet.models import KINDS, load
from quick_models import QUICK

SLOW = pytest.mark.slow
FEW, MANY = 30, 2_000
QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]

OPTIONS: dict[str, dict[str, Any]] = {
    **QUICK,
    "calibrated": {"model": "mnl", "options": {}},
    "cross-nested-mnl": {"nests": {"road": ["car", "bus"], "light": ["bus", "bike"]}},
    "ensemble": {"model": "pcmcnet", "n": 2, "options": QUICK["pcmcnet"]},
    "nested-mnl": {"nests": {"car": "road", "bus": "road", "bike": "light"}},
    "rank-by": {"column": "price"},
    "with-constants": {"model": "mnl", "shares": {"car": 0.5, "bus": 0.3, "bike": 0.2}},
}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(trips(60, sizes=(3, 3), slope=0.0), alternative="mode", individual=["income"], features=["price"])


@pytest.fixture(scope="module", params=sorted(KINDS))
def saved(request: pytest.FixtureRequest, data: ChoiceData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a model of each kind that tests only read."""
    name = request.param
    folder = tmp_path_factory.mktemp("models") / name
    model = KINDS[name](**OPTIONS.get(name, {})).fit(data, data, progress=False)
    return Path(model.save(folder))


def spoilt_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Truncate, flip, repeat or insert bytes."""
    at = draw(st.integers(0, len(content)))
    match draw(st.sampled_from(["cut", "flip", "repeat", "insert"])):
        case "cut":
            return content[:at]
        case "flip":
            spoilt = bytearray(content)
            spoilt[at % len(content)] ^= draw(st.integers(1, 255))
            return bytes(spoilt)
        case "repeat":
            return content[:at] + content[max(0, at - 20) :]
    return content[:at] + draw(st.binary(min_size=1, max_size=8)) + content[at:]


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["price", "mode", "relu", "auto", "NaN", "../x", "__class__"]),
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield every path in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*path, key))


def spoilt_json(draw: st.DrawFn, content: bytes) -> bytes:
    """Replace one entry by anything, or remove it."""
    value = json.loads(content)
    path = draw(st.sampled_from(list(places(value))))
    if not path:
        return json.dumps(draw(ANYTHING)).encode()
    value = copy.deepcopy(value)
    inside = value
    for key in path[:-1]:
        inside = inside[key]
    if draw(st.booleans()):
        inside[path[-1]] = draw(ANYTHING)
    else:
        del inside[path[-1]]
    return json.dumps(value).encode()


def sealed(folder: Path) -> None:
    """Write correct hashes for all files."""
    path = folder / "model.json"
    manifest = json.loads(path.read_bytes())
    manifest.pop("sha256", None)
    if isinstance(manifest.get("files"), dict):
        for name in manifest["files"]:
            if (folder / name).is_file():
                manifest["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
                if isinstance(manifest.get("sizes"), dict):
                    manifest["sizes"][name] = (folder / name).stat().st_size
    manifest["sha256"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(manifest))


def refused(call: Callable[[], Any]) -> Any:
    """Return the result, or None if one of our errors refused it."""
    try:
        return call()
    except PcmcNetError:
        return None


@pytest.mark.parametrize("n", [FEW // 6, pytest.param(MANY // 10, marks=SLOW)])
def test_changed_bytes_of_a_model_are_refused(n: int, saved: Path, data: ChoiceData) -> None:
    undamaged = load(saved).predict_proba(data)

    @settings(max_examples=n, suppress_health_check=QUIET, database=None)
    @given(st.data())
    def check(drawn: Any) -> None:
        with tempfile.TemporaryDirectory() as place:
            folder = shutil.copytree(saved, Path(place) / "model")
            path = drawn.draw(st.sampled_from(sorted(folder.iterdir())))
            content = path.read_bytes()
            spoilt = drawn.draw(st.composite(spoilt_bytes)(content))
            path.write_bytes(spoilt)
            try:
                assert np.array_equal(load(folder).predict_proba(data), undamaged)
            except ArtifactError:
                pass
            else:
                free = ("README.md", "model.json")  # the model card may be edited; white space in JSON does not matter
                assert spoilt == content or path.name in free

    check()


@pytest.mark.parametrize("n", [FEW // 3, pytest.param(MANY // 4, marks=SLOW)])
def test_a_rewritten_model_with_correct_hashes_is_valid_or_refused(n: int, saved: Path, data: ChoiceData) -> None:
    @settings(max_examples=n, suppress_health_check=QUIET, database=None)
    @given(st.data())
    def check(drawn: Any) -> None:
        with tempfile.TemporaryDirectory() as place:
            folder = shutil.copytree(saved, Path(place) / "model")
            path = drawn.draw(st.sampled_from(sorted(p for p in folder.iterdir() if p.suffix != ".md")))
            spoil = spoilt_json if path.suffix == ".json" and drawn.draw(st.integers(0, 4)) else spoilt_bytes
            path.write_bytes(drawn.draw(st.composite(spoil)(path.read_bytes())))
            if path.name != "model.json" or isinstance(refused_json(path), dict):
                sealed(folder)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # library warnings about models without inputs or choice sets
                model = refused(lambda: load(folder))
            if model is None:
                return
            p = refused(lambda: model.predict_proba(data))
            if p is not None:
                assert np.isfinite(p).all()
                assert np.abs(p.reshape(-1, 3).sum(1) - 1).max() < 1e-5  # networks sum float32 numbers

    check()


def refused_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return None


# -- schemas -------------------------------------------------------------------------------------------------------


def entries() -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from([*Schema.__dataclass_fields__, "chioce_set", ""])
    usual = st.one_of(st.sampled_from(["a", "b", "c"]), st.lists(st.sampled_from(["a", "b", "c"]), max_size=3))
    return st.dictionaries(names, st.one_of(usual, ANYTHING), max_size=8)


@pytest.mark.parametrize("n", [300, pytest.param(10_000, marks=SLOW)])
def test_arbitrary_entries_are_a_schema_or_refused(n: int) -> None:
    @settings(max_examples=n, suppress_health_check=QUIET, database=None)
    @given(entries())
    def check(drawn: dict[str, Any]) -> None:
        schema = refused(lambda: Schema.from_dict(drawn))
        if schema is not None:
            assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema

    check()


@pytest.mark.parametrize("n", [300, pytest.param(10_000, marks=SLOW)])
def test_arbitrary_bytes_are_a_schema_file_or_refused(n: int, tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    roles = Schema(choice_set="trip", chosen="took", features=("price", "ä"), categorical=("price",))
    content = roles.to_toml().encode()

    @settings(max_examples=n, suppress_health_check=QUIET, database=None)
    @given(st.one_of(st.binary(max_size=60), st.composite(spoilt_bytes)(content)))
    def check(drawn: bytes) -> None:
        path.write_bytes(drawn)
        schema = refused(lambda: Schema.from_toml(path))
        if schema is not None:
            assert tomllib.loads(drawn.decode())["choice_set"] == schema.choice_set
            path.write_text(schema.to_toml(), encoding="utf-8")
            assert Schema.from_toml(path) == schema

    check()


@pytest.mark.parametrize("content", ["x = " + "[" * 5_000, "choice_set = 1e999", 'choice_set = "a"\n' * 2, "\x00"])
def test_hostile_toml_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(content)
    with pytest.raises(SchemaError):
        Schema.from_toml(path)
