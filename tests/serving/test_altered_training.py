"""Model folders with altered facts of the training table and matching hashes: rejected, or served without errors."""

import importlib.util
import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError
from pcmcnet.models import PCMCNet, Uniform, load

GOLDEN = Path(__file__).parents[1] / "models" / "golden" / "format-2"
NAMES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
INFINITY = float("inf")

_spec = importlib.util.spec_from_file_location("hostile_loads", GOLDEN.parents[1] / "hostile_loads.py")
assert _spec is not None
assert _spec.loader is not None
hostile_loads = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hostile_loads)


def write_altered(folder: Path, fit: Any) -> Path:
    """Replace the facts of the training table and the fit in a folder, and update the hash."""
    manifest = json.loads((folder / "model.json").read_bytes())
    hostile_loads.write(folder, "model.json", json.dumps({**manifest, "fit": fit}).encode())
    return folder


def fit_of(folder: Path) -> Any:
    return json.loads((folder / "model.json").read_bytes())["fit"]


@pytest.fixture
def statuses(one_client: Any) -> Callable[[Path], list[int]]:
    """Return a function that loads a folder and requests everything that uses the facts of the training table."""

    def collect(folder: Path) -> list[int]:
        with one_client(load(folder)) as client:
            answers = [client.get(path) for path in ("/v1/schema", "/openapi.json", "/v1/example")]
            body = answers[-1].json() if answers[-1].status_code == 200 else {"sets": [{}]}
            moved = {"set": body["sets"][0], "x": "price", "y": "minutes", "place": 0, "between": [0, 1], "points": 2}
            answers += [client.post("/v1/probabilities", json=body), client.post("/v1/map", json=moved)]
            return [answer.status_code for answer in answers]

    return collect


def entry(*keys: Any) -> Any:
    """Return a function that sets or removes a nested entry."""

    def put(fit: Any, value: Any) -> None:
        *above, last = keys
        for key in above:
            fit = fit[key]
        if value is KeyError:
            del fit[last]
        else:
            fit[last] = value

    return put


DESCRIPTION = ("table", "description")
COLUMNS = (*DESCRIPTION, "columns")
FIRST = (*DESCRIPTION, "example", "alternatives", 0)


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (entry(*DESCRIPTION), 1, "TrainingTable.description: unexpected type"),
        (entry(*COLUMNS), [], "table, columns: does not fit"),
        (entry(*COLUMNS, "x"), {}, "table, columns: does not fit"),
        (entry(*COLUMNS, "price"), 1, "column 'price': does not fit"),
        (entry(*COLUMNS, "price", "quartiles"), 1, "the facts of column 'price': does not fit"),
        (entry(*COLUMNS, "price", "quartiles"), [3.0, 4.0], "the facts of column 'price': does not fit"),
        (entry(*COLUMNS, "price", "max"), None, "the facts of column 'price': does not fit"),
        (entry(*COLUMNS, "price", "max"), 1e39, "the facts of column 'price': does not fit"),
        (entry(*COLUMNS, "price", "min"), 10**400, "the facts of column 'price': does not fit"),
        (entry(*COLUMNS, "price", "min"), 1e9, "the facts of column 'price': does not fit"),
        (entry(*COLUMNS, "comfort", "most"), INFINITY, "the facts of column 'comfort': does not fit"),
        (entry(*COLUMNS, "comfort", "categories"), ["low", 1], "the facts of column 'comfort': does not fit"),
        (entry(*DESCRIPTION, "example"), {}, "the example: does not fit"),
        (entry(*DESCRIPTION, "example", "individual"), KeyError, "the example: does not fit"),
        (entry(*DESCRIPTION, "example", "alternatives"), [], "the example: does not fit"),
        (entry(*DESCRIPTION, "example", "chosen"), 99, "the example: does not fit"),
        (entry(*FIRST, "price"), INFINITY, "column 'price' of the example: does not fit"),
        (entry(*FIRST, "price"), KeyError, "the example: does not fit"),
        (entry(*FIRST, "comfort"), 1, "column 'comfort' of the example: does not fit"),
        (
            entry("table", "choice_sets"),
            INFINITY,
            "TrainingTable.choice_sets: unexpected type",
        ),
        (entry("table", "unheard"), 1, "TrainingTable: entry 'unheard' is unknown"),
        (entry("table", "fingerprint"), KeyError, "fingerprint"),
        (entry("record", "converged"), "yes", "converged: expected bool or NoneType, got 'yes'"),
    ],
)
def test_impossible_facts_are_rejected_by_name(where: Any, value: Any, message: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "mnl", tmp_path / "mnl"))
    fit = fit_of(folder)
    where(fit, value)
    with pytest.raises(ArtifactError, match=rf"incomplete or altered \(.*{message}"):
        load(write_altered(folder, fit))


def test_the_facts_of_members_are_checked(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "calibrated", tmp_path / "calibrated"))
    (path,) = [path for path in folder.glob("member-1-*.json") if "fit" in json.loads(path.read_bytes())]
    kind = json.loads(path.read_bytes())
    kind["fit"]["table"]["description"] = 1
    hostile_loads.write(folder, path.name, json.dumps(kind).encode())
    with pytest.raises(ArtifactError, match=r"TrainingTable\.description"):
        load(folder)


@pytest.mark.parametrize("name", ["model.json", "schema.json"])
def test_lone_surrogates_are_rejected(name: str, tmp_path: Path) -> None:
    """JSON can express a lone surrogate, but UTF-8 cannot."""
    folder = Path(shutil.copytree(GOLDEN / "pcmcnet", tmp_path / "pcmcnet"))
    content = (folder / name).read_bytes().replace(b'"comfort"', b'"\\ud800"')
    hostile_loads.write(folder, name, content)
    with pytest.raises(ArtifactError, match="surrogates"):
        load(folder)


@pytest.mark.parametrize("name", NAMES)
def test_golden_folders_are_served(name: str, statuses: Any) -> None:
    assert statuses(GOLDEN / name)[:4] == [200] * 4


# A network, an ensemble, a forest, a logit and a model of items. They do not need the description.
KINDS = {"pcmcnet", "ensemble", "rf", "mnl", "pcmc"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in KINDS else pytest.mark.slow) for n in NAMES])
def test_golden_folders_without_a_description_are_served(name: str, statuses: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / name, tmp_path / name))
    fit = fit_of(folder)
    fit["table"]["description"] = {}
    assert statuses(write_altered(folder, fit)) == [200, 200, 404, 422, 422]


@pytest.mark.parametrize(("first", "folders"), [(0, 48), pytest.param(48, 600, marks=pytest.mark.slow)])
def test_altered_facts_are_rejected_or_served(first: int, folders: int, statuses: Any, tmp_path: Path) -> None:
    warnings.simplefilter("ignore")
    served = 0
    for seed in range(first, first + folders):
        folder = Path(shutil.copytree(GOLDEN / NAMES[seed % len(NAMES)], tmp_path / str(seed)))
        fit = hostile_loads.alter_json(json.dumps(fit_of(folder)).encode(), random.Random(seed))
        try:
            answers = statuses(write_altered(folder, json.loads(fit)))
        except ArtifactError:
            continue
        served += 1
        assert max(answers) < 500, f"seed {seed}: {answers}"
    assert 0 < served < folders


def test_a_model_of_contents_is_loaded_and_served(rich: PCMCNet, one_client: Any, tmp_path: Path) -> None:
    with one_client(load(rich.save(tmp_path / "rich"))) as client:
        example = client.get("/v1/example").json()
        assert client.post("/v1/probabilities", json=example).status_code == 200


@pytest.mark.parametrize(
    "roles",
    [
        {"features": ["price", "mode"], "alternative": "mode"},
        {"features": ["price", "number"], "alternative": "number"},
        {"features": ["price"], "individual": ["mode"], "alternative": "mode", "conflict": "first"},
        {"features": ["price", "gap", "none"], "individual": ["who"], "missing": "indicator"},
        {"features": ["price", "number"], "categorical": ["number"]},
        {"features": []},
        {"features": ["price"], "weight": "zero", "available": "open"},
    ],
)
def test_facts_of_unusual_tables_survive_saving(roles: dict[str, Any], tmp_path: Path) -> None:
    table = {
        "s": [1, 1, 2, 2, 2],
        "took": [1, 0, 0, 1, 0],
        "price": [1e38, -1e38, 0.1, 2, 3],
        "number": [1, 2, 1, 2, 3],
    }
    table |= {"mode": ["a", "b", "a", "b", "c"], "gap": ["x", None, "y", "x", None], "none": [np.nan] * 5}
    table |= {"who": [None, None, 3.5, 3.5, 3.5], "zero": [0, 0, 1, 1, 1], "open": [1, 1, 0, 1, 1]}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", **roles)
    model = Uniform().fit(data)
    assert load(model.save(tmp_path / "model")).table_ == model.table_
