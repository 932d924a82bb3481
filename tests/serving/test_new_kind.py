"""A new kind of column, durations such as "2h 35m", from the table to the served model."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import MISSING_CODE, Contents, content_codes
from pcmcnet.data.describe import describe
from pcmcnet.data.encoder import Encoder
from pcmcnet.data.kinds import KINDS, Kind, register
from pcmcnet.data.kinds.frozen import Frozen
from pcmcnet.data.kinds.kind import BadContentError, is_whole
from pcmcnet.errors import ConfigError, SchemaError
from pcmcnet.models import PCMCNet, load


@dataclass(frozen=True)
class DurationCode:
    """Scales durations by the longest in the training part, in minutes."""

    name: str
    longest: float
    kind: ClassVar[str] = "duration"
    dtype: ClassVar[type[np.generic]] = np.float32
    shape: ClassVar[tuple[int, ...]] = (1,)

    @classmethod
    def learn(cls, name: str, table: np.ndarray) -> "DurationCode":
        return cls(name, float(table.max()))

    def prepare(self, table: np.ndarray) -> np.ndarray:
        return (table[:, None] / self.longest).astype(np.float32)

    def is_valid(self) -> bool:
        return self.longest > 0


class DurationKind(Kind):
    name, code, dtype = "duration", DurationCode, np.int64
    fact_checks: ClassVar[Any] = {"longest": is_whole}

    def read(self, values: pa.ChunkedArray, folder: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
        codes, minutes = np.full(len(values), MISSING_CODE, np.int32), []
        for row, text in enumerate(values.to_pylist()):
            parsed = None if text is None else re.fullmatch(r"(\d+)h (\d+)m", text)
            if text is not None and parsed is None:
                raise BadContentError(row, f"expected a duration such as 2h 35m, got {text!r}.", "Correct it.")
            if parsed is not None:
                minutes.append(60 * int(parsed[1]) + int(parsed[2]))
        table = np.array(minutes, np.int64)
        present = np.array([text is not None for text in values.to_pylist()])
        codes[present], first = content_codes(table)
        return codes, table[first]

    def facts(self, column: Contents) -> dict[str, Any]:
        return {"longest": int(column.table.max())}

    def to_json(self, content: Any) -> str:
        return "{}h {:02d}m".format(*divmod(int(content), 60))


@pytest.fixture(autouse=True)
def duration() -> Iterator[None]:
    register(DurationKind())
    yield
    del KINDS["duration"]


ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "features": ["journey"],
    "kinds": {"journey": "duration"},
}


def trips(sets: int = 60) -> dict[str, Any]:
    """Return trips in which the shortest of three journeys is chosen."""
    minutes = np.random.default_rng(0).choice(np.arange(20, 600), (sets, 3), replace=True)
    minutes[:, 0] += 600 * (minutes[:, 0] == minutes[:, 1])
    took = np.eye(3, dtype=int)[minutes.argmin(1)]
    written = [KINDS["duration"].to_json(one) for one in minutes.ravel()]
    return {"trip": np.repeat(np.arange(sets), 3).tolist(), "took": took.ravel().tolist(), "journey": written}


def test_a_new_kind_is_read_described_and_encoded() -> None:
    table = {"trip": [1, 1, 1], "took": [0, 0, 1], "journey": ["2h 35m", "0h 50m", "2h 35m"]}
    data = ChoiceData.from_long(table, **ROLES)
    column = data.features["journey"]
    assert isinstance(column, Contents)
    assert (column.kind, column.codes.tolist(), column.table.tolist()) == ("duration", [0, 1, 0], [155, 50])
    about = describe(data)
    assert about["columns"]["journey"] == {"kind": "duration", "distinct": 2, "longest": 155}
    assert [one["journey"] for one in about["example"]["alternatives"]] == table["journey"]
    encoder = Encoder.from_dict(json.loads(json.dumps(Encoder.learn(data).to_dict())))
    assert encoder.encode(data).contents[0].table.tolist() == [[1.0], [pytest.approx(50 / 155)]]


def test_invalid_values_are_rejected_with_their_row() -> None:
    table = {"trip": [1, 1], "took": [0, 1], "journey": ["2h 35m", "long"]}
    with pytest.raises(SchemaError, match=r"column 'journey', row 1 .*expected a duration such as 2h 35m, got 'long'"):
        ChoiceData.from_long(table, **ROLES)


def test_a_new_kind_is_fitted_saved_served_and_predicted(tmp_path: Path, one_client: Any) -> None:
    data = ChoiceData.from_long(trips(), **ROLES)
    model = PCMCNet(hidden=(8,), epochs=10, weight_decay=0.0, batch_size=8, lr=0.05).fit(data, progress=False)
    parsed = model.predict_proba(data)
    assert parsed[np.array(trips()["took"]) == 1].mean() > 0.6  # 1/3 if the network ignored the column
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(trips()), parsed, rtol=1e-6)
    journeys = trips()["journey"][:3]
    with one_client(again) as client:
        (column,) = client.get("/v1/schema").json()["columns"]
        assert (column["kind"], column["field"]) == ("duration", "text")
        sets = [{"alternatives": [{"journey": journey} for journey in journeys]}]
        answer = client.post("/v1/probabilities", json={"sets": sets})
        np.testing.assert_allclose(answer.json()["sets"][0]["probabilities"], parsed[:3], rtol=1e-5)
        sets[0]["alternatives"][1]["journey"] = "long"
        refused = client.post("/v1/probabilities", json={"sets": sets})
        assert (
            "alternative 1, column 'journey': expected a duration such as 2h 35m, got 'long'" in refused.json()["error"]
        )
        sets[0]["alternatives"][1]["journey"] = 7
        refused = client.post("/v1/probabilities", json={"sets": sets})
        assert "column 'journey': expected a value of kind duration, got 7" in refused.json()["error"]


def test_a_scanned_table_has_the_same_contents_and_encoding(tmp_path: Path) -> None:
    table = trips(2000)
    lines = [",".join(map(str, row)) for row in zip(*table.values(), strict=True)]
    (tmp_path / "trips.csv").write_text("\n".join([",".join(table), *lines]))
    scanned = ChoiceData.scan(tmp_path / "trips.csv", memory=2**20, **ROLES)
    parts = list(scanned.parts())
    assert len(parts) > 1
    whole = ChoiceData.from_long(table, **ROLES)
    assert Encoder.learn(scanned).features == Encoder.learn(whole).features
    parsed = {journey for part in parts for journey in part.features["journey"].plain().tolist()}
    assert parsed == set(whole.features["journey"].plain().tolist())


def test_a_frozen_encoder_receives_plain_contents(tmp_path: Path) -> None:
    hours = Frozen(lambda minutes: [[one / 60] for one in minutes], name="hours")
    data = ChoiceData.from_long(trips(20), **ROLES)
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0, encoders={"journey": hours}).fit(data, progress=False)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model", encoders={"journey": hours})
    np.testing.assert_allclose(again.predict_proba(data), model.predict_proba(data), rtol=1e-6)


def test_a_duplicate_name_is_rejected() -> None:
    with pytest.raises(ConfigError, match="kind 'duration' already exists"):
        register(DurationKind())
