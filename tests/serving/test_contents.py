"""Pictures, texts, vectors, lists, instants and ids in requests: same results as tables; errors name the place."""

import base64
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from pcmcnet.data import ChoiceData
from pcmcnet.models import MNL, PCMCNet
from pcmcnet.serving import openapi
from pcmcnet.serving.request_body import RequestError
from pcmcnet.serving.request_sets import SetReader, input_columns
from pcmcnet.serving.settings import ServeSettings
from pcmcnet.serving.worker import concat_requests

AT = "set 1, alternative 2, column '{}': "


@pytest.fixture(scope="module")
def client(rich: PCMCNet, make_client: Any) -> Any:
    return make_client(rich, max_pixels=10_000)


@pytest.fixture(scope="module")
def reader(rich: PCMCNet) -> SetReader:
    return SetReader(rich.schema, input_columns(rich.schema), ServeSettings(max_pixels=10_000), {"taste": 4})


def test_requests_give_the_same_results_as_tables(
    client: Any, rich: PCMCNet, room_table: dict[str, Any], room_sets: list[dict[str, Any]]
) -> None:
    answer = client.post("/v1/probabilities", json={"sets": room_sets})
    assert answer.status_code == 200, answer.text
    probabilities = [p for one in answer.json()["sets"] for p in one["probabilities"]]
    np.testing.assert_allclose(probabilities, rich.predict_proba(room_table), rtol=1e-6)  # batches have other sizes
    rates = client.post("/v1/rates", json={"set": room_sets[0]})
    np.testing.assert_allclose(rates.json()["probabilities"], probabilities[:3], rtol=1e-6)
    moved = {"set": room_sets[0], "x": "price", "y": "stars", "place": 2, "between": [0, 1], "points": 3}
    assert np.shape(client.post("/v1/map", json=moved).json()["share"]) == (3, 3)


def test_pictures_may_be_data_uris_or_base64(client: Any, room_sets: list[dict[str, Any]]) -> None:
    plain = client.post("/v1/probabilities", json={"sets": room_sets}).json()
    for one in room_sets:
        for alternative in one["alternatives"]:
            alternative["photo"] = "data:image/png;name=room.png;base64," + alternative["photo"]
    assert client.post("/v1/probabilities", json={"sets": room_sets}).json() == plain


def test_the_example_can_be_sent_back(client: Any, rich: PCMCNet) -> None:
    """Small pictures are included unchanged."""
    example = client.get("/v1/example").json()
    assert example["sets"][0]["alternatives"][0]["photo"].startswith("data:image/png;sha256=")
    answer = client.post("/v1/probabilities", json=example)
    assert answer.status_code == 200, answer.text


def test_the_schema_describes_contents(client: Any, make_client: Any, rich: PCMCNet) -> None:
    columns = {c["name"]: c for c in client.get("/v1/schema").json()["columns"]}
    assert {name: columns[name]["kind"] for name in rich.schema.kinds} == rich.schema.kinds
    assert columns["taste"]["size"] == 4
    assert columns["services"]["categories"] == ["pool", "wifi"]
    assert columns["services"]["distinct"] == 2
    assert columns["at"]["min"] < columns["at"]["max"]
    entries = client.get("/openapi.json").json()["paths"]["/v1/rates"]["post"]["requestBody"]["content"]
    one = entries["application/json"]["schema"]["properties"]["set"]["properties"]
    kinds = one["alternatives"]["items"]["properties"]
    assert kinds["taste"] | {"items": 0} == {"type": "array", "items": 0, "minItems": 4, "maxItems": 4}
    assert kinds["photo"]["type"] == kinds["about"]["type"] == "string"
    assert "data URI" in kinds["photo"]["description"]
    assert kinds["services"]["type"] == "array"
    assert "ISO 8601" in one["individual"]["properties"]["at"]["description"]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("about", 3, "expected a value of kind text, got 3."),
        ("about", None, "expected a value of kind text, got null."),
        ("taste", [1, 2, 3], "expected a vector of 4 numbers, as in training, got a vector of 3."),
        ("taste", "1 2 3 4", "expected a list of 4 numbers, got '1 2 3 4'."),
        ("taste", [1, 2, "x", 4], "expected 4 numbers, got 'x' at position 2."),
        ("taste", [1, 2, True, 4], "expected 4 numbers, got true at position 2."),
        ("taste", [1, 2, 1e39, 4], "expected numbers below 3.4e38, got 1e+39 at position 2."),
        ("taste", [1, 2, 10**400, 4], "expected numbers below 3.4e38, got a whole number of more than 60 digits"),
        ("services", "wifi", "expected a list of categories, got 'wifi'."),
        ("services", [["wifi"]], "expected a list of categories, got a list of 1 in the list."),
        ("services", [None], "expected a list of categories, got null in the list."),
        (
            "photo",
            7,
            "expected the bytes of a picture, in base64 or as a data URI (paths and URLs are not opened), got 7",
        ),
        ("photo", "", "not opened), got 0 bytes that match none of the formats PNG, JPEG, GIF, WEBP, BMP."),
        ("photo", "AAAA", "(paths and URLs are not opened), got 3 bytes that match none of the formats PNG"),
        ("photo", "data:text/html;base64,AAAA", "(paths and URLs are not opened), got 'data:text/html;base64,AAAA'."),
    ],
)
def test_wrong_contents_are_rejected_with_their_place(
    column: str, value: Any, message: str, reader: SetReader, room_sets: list[dict[str, Any]]
) -> None:
    room_sets[1]["alternatives"][2][column] = value
    with pytest.raises(RequestError) as refused:
        reader.read(room_sets)
    assert refused.value.status == 422
    assert refused.value.message.startswith(AT.format(column))
    assert message in refused.value.message


@pytest.mark.parametrize("value", ["yesterday", "2024-13-01", "", 20240501])
def test_a_wrong_instant_is_rejected(value: Any, reader: SetReader, room_sets: list[dict[str, Any]]) -> None:
    room_sets[2]["individual"]["at"] = value
    with pytest.raises(RequestError, match=r"^set 2, individual, column 'at': expected a date or a time such as"):
        reader.read(room_sets)


@pytest.mark.parametrize(
    "place", ["{}", "file://{}", "https://example.com/{}", "../{}", "data:image/png,{}", "data:;base64,{}"]
)
def test_no_request_makes_the_server_open_a_file(
    place: str,
    client: Any,
    room_sets: list[dict[str, Any]],
    draw: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file exists and is a picture, but must not be opened."""
    file = tmp_path / "room"
    file.write_bytes(draw(7))
    (tmp_path / "AAAA").write_bytes(draw(7))
    monkeypatch.chdir(tmp_path)
    opened: list[Any] = []
    monkeypatch.setattr(Path, "read_bytes", lambda self: opened.append(self))
    monkeypatch.setattr("builtins.open", lambda *given, **_: opened.append(given))
    for path in (place.format(file), "AAAA"):  # the name is also valid base64
        room_sets[1]["alternatives"][2]["photo"] = path
        answer = client.post("/v1/probabilities", json={"sets": room_sets})
        assert answer.status_code == 422
        assert "paths and URLs are not opened" in answer.json()["error"]
    assert opened == []


def bomb(side: int) -> bytes:
    """Return a PNG of few bytes that claims many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    head = side.to_bytes(4, "big") * 2 + bytes([1, 0, 0, 0, 0])
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("side", [101, 5_000, 30_000, 2**31 - 1])
def test_pixels_are_counted_before_they_are_decoded(
    side: int, reader: SetReader, room_sets: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(self: Any) -> None:
        raise AssertionError(f"{self.size} was decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    room_sets[0]["alternatives"][0]["photo"] = base64.b64encode(bomb(side)).decode()
    with pytest.raises(
        RequestError, match=r"alternative 0, column 'photo': expected at most 10,000 pixels in the pict"
    ):
        reader.read(room_sets)


def test_pixels_of_all_pictures_of_a_request_are_counted(
    reader: SetReader, room_sets: list[dict[str, Any]], draw: Any
) -> None:
    for k, alternative in enumerate([*room_sets[0]["alternatives"], *room_sets[1]["alternatives"]]):
        alternative["photo"] = base64.b64encode(draw(k, (50, 40))).decode()
    with pytest.raises(RequestError, match="set 1, alternative 2, column 'photo': expected at most 10,000 pixels"):
        reader.read(room_sets)
    for one in room_sets[:2]:  # copies of a picture count once
        for alternative in one["alternatives"]:
            alternative["photo"] = base64.b64encode(draw(1, (50, 40))).decode()
    assert len(reader.read(room_sets).features["photo"].table) == 10


def test_only_safe_picture_formats_are_accepted(reader: SetReader, room_sets: list[dict[str, Any]], draw: Any) -> None:
    """Pillow runs Ghostscript for PostScript."""
    for kind in ("EPS", "TIFF", "PPM"):
        room_sets[1]["alternatives"][2]["photo"] = base64.b64encode(draw(5, kind=kind)).decode()
        with pytest.raises(RequestError, match="bytes that match none of the formats PNG, JPEG, GIF, WEBP, BMP"):
            reader.read(room_sets)
    for kind in ("PNG", "JPEG", "GIF", "WEBP", "BMP"):
        room_sets[1]["alternatives"][2]["photo"] = base64.b64encode(draw(5, kind=kind)).decode()
        reader.read(room_sets)


def test_a_truncated_picture_is_rejected_with_its_place(reader: SetReader, room_sets: list[dict[str, Any]]) -> None:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(255, size=(60, 60)).astype(np.uint8)).save(file, "PNG")
    room_sets[1]["alternatives"][2]["photo"] = base64.b64encode(file.getvalue()[:900]).decode()
    with pytest.raises(RequestError, match="set 1, alternative 2, column 'photo': the picture is damaged"):
        reader.read(room_sets)


def test_missing_contents_are_blank_if_the_model_allows_it(
    make_client: Any, room_sets: list[dict[str, Any]], room_table: dict[str, Any]
) -> None:
    names = {"about": "text", "services": "multi"}
    roles: dict[str, Any] = {"choice_set": "search", "chosen": "booked", "features": ["price", *names], "kinds": names}
    room_table["about"][1] = room_table["services"][3] = None
    data = ChoiceData.from_long(room_table, missing="indicator", **roles)
    net = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    for one in room_sets:
        del one["individual"]
        one["alternatives"] = [{k: a[k] for k in ("price", *names)} for a in one["alternatives"]]
    room_sets[0]["alternatives"][1]["about"] = room_sets[1]["alternatives"][0]["services"] = None
    answer = make_client(net).post("/v1/probabilities", json={"sets": room_sets})
    probabilities = [p for one in answer.json()["sets"] for p in one["probabilities"]]
    np.testing.assert_allclose(probabilities, net.predict_proba(room_table), rtol=1e-6)  # batches have other sizes


def test_a_baseline_may_leave_contents_out(
    rich: PCMCNet, room_table: dict[str, Any], room_sets: list[dict[str, Any]], make_client: Any
) -> None:
    roles: dict[str, Any] = {"choice_set": "search", "chosen": "booked", "features": ["price"]}
    logit = MNL().fit(ChoiceData.from_long(room_table, **roles), progress=False)
    answer = make_client(rich, logit).post("/v1/probabilities", json={"sets": room_sets, "model": "baseline"})
    probabilities = [p for one in answer.json()["sets"] for p in one["probabilities"]]
    np.testing.assert_allclose(probabilities, logit.predict_proba(room_table), rtol=1e-6)  # batches have other sizes


def test_requests_are_combined_into_one_batch(
    reader: SetReader, rich: PCMCNet, room_sets: list[dict[str, Any]]
) -> None:
    parts = [reader.read([one]) for one in room_sets]
    whole = concat_requests(parts)
    each = np.concatenate([rich.predict_log_proba(part) for part in parts])
    np.testing.assert_allclose(rich.predict_log_proba(whole), each, atol=1e-6)
    assert whole.fingerprint() == reader.read(room_sets).fingerprint()
    assert concat_requests(parts[:2]).set_ids.tolist() == [0, 1]


class Nodes(nn.Module):
    """An embedding of ten nodes with one number each."""

    def __init__(self) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.linspace(-1, 1, 10)[:, None])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.level[ids]


def test_ids_must_be_known_integers(make_client: Any) -> None:
    table = {"s": np.repeat(np.arange(10), 2), "y": [1, 0] * 10, "node": np.arange(20) % 10}
    data = ChoiceData.from_long(table, choice_set="s", chosen="y", features=["node"], kinds={"node": "id"})
    net = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0, encoders={"node": Nodes()}).fit(data, progress=False)
    client = make_client(net)

    def ask(node: Any) -> Any:
        return client.post("/v1/probabilities", json={"sets": [{"alternatives": [{"node": 3}, {"node": node}]}]})

    assert ask(4.0).status_code == 200
    for node in (-1, 1.5, "3", None, True, 2**63):
        assert "expected a whole number of at least 0" in ask(node).json()["error"]
    assert ask(11).status_code == 422
    assert "unknown id: expected an id that" in ask(11).json()["error"]


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.binary(max_size=40).map(lambda raw: base64.b64encode(raw).decode()),
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"RIFF....WEBP", b"\xff\xd8\xff"]).flatmap(
        lambda magic: st.binary(max_size=60).map(lambda raw: base64.b64encode(magic + raw).decode())
    ),
    st.datetimes().map(str),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    column=st.sampled_from(["photo", "about", "taste", "services", "at"]), value=leaves | st.lists(leaves, max_size=5)
)
def test_any_content_is_answered_or_rejected(
    column: str, value: Any, client: Any, room_sets: list[dict[str, Any]]
) -> None:
    sets = json.loads(json.dumps(room_sets))
    (sets[0]["individual"] if column == "at" else sets[0]["alternatives"][0])[column] = value
    answer = client.post(
        "/v1/probabilities", content=json.dumps({"sets": sets}), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (200, 422), answer.text
    assert answer.status_code == 200 or len(answer.json()["error"]) < 1_000


def test_facts_about_contents_follow_the_schema(client: Any) -> None:
    openapi.About.model_validate(client.get("/v1/schema").json())
    openapi.Example.model_validate(client.get("/v1/example").json())
