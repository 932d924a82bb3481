"""Pictures as data URIs: small ones unchanged, large ones reduced, all with the hash of the original."""

import base64
import hashlib
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pcmcnet.data import ChoiceData
from pcmcnet.data.describe import describe
from pcmcnet.data.kinds.image import original_hash, picture_uri
from pcmcnet.data.kinds.kind import RowMoments
from pcmcnet.evaluation.predictions import training_overlap
from pcmcnet.models import PCMCNet


def picture(kind: str = "PNG", size: tuple[int, int] = (8, 6), mode: str = "RGB", seed: int = 0) -> bytes:
    noise = np.random.default_rng(seed).integers(255, size=(*size[::-1], 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(file, kind)
    return file.getvalue()


def shown(uri: str) -> tuple[Any, bytes]:
    content = base64.b64decode(uri.partition("base64,")[2])
    return Image.open(io.BytesIO(content)), content


def test_a_small_picture_is_shown_unchanged() -> None:
    content = picture()
    uri = picture_uri(content, 64)
    assert uri.startswith("data:image/png;")
    assert shown(uri)[1] == content
    assert original_hash(uri) == hashlib.sha256(content).hexdigest()
    assert original_hash("data:image/png;base64,AAAA") is None


@pytest.mark.parametrize(("mode", "as_"), [("RGB", "RGB"), ("L", "L"), ("P", "RGB"), ("1", "L"), ("RGBA", "RGB")])
def test_a_large_picture_is_reduced_and_keeps_its_colours(mode: str, as_: str) -> None:
    content = picture(size=(400, 200), mode=mode)
    image, small = shown(picture_uri(content, side=64))
    assert image.size == (64, 32)
    assert image.mode == as_
    assert len(small) < 8_000
    assert picture_uri(content, 64) == picture_uri(content, 64)


def test_formats_unknown_to_browsers_are_converted() -> None:
    assert picture_uri(picture("TIFF"), 64).startswith("data:image/jpeg;")


def test_the_description_of_contents_fills_a_form() -> None:
    table = {
        "id": [1, 1, 2, 2],
        "y": [1, 0, 0, 1],
        "photo": [picture(seed=k) for k in range(4)],
        "v": np.arange(12.0).reshape(4, 3),
        "has": [["a", "b"], ["a"], [], ["c", "a"]],
        "at": ["2024-01-01T05:00", "2024-01-02", "2024-01-01T05:00:00.5", "2024-01-01T05:00"],
        "node": [0, 3, 2, 1],
    }
    kinds: dict[str, Any] = {"photo": "image", "v": "vector", "has": "multi", "at": "datetime", "node": "id"}
    data = ChoiceData.from_long(table, choice_set="id", chosen="y", features=list(kinds), kinds=kinds)
    about = describe(data)
    columns = about["columns"]
    assert columns["v"] == {"kind": "vector", "distinct": 4, "size": 3}
    assert columns["has"] == {"kind": "multi", "distinct": 4, "categories": ["a", "b", "c"], "words": 3}
    assert (columns["at"]["min"], columns["at"]["max"]) == ("2024-01-01T05:00:00", "2024-01-02T00:00:00")
    assert (columns["node"]["min"], columns["node"]["max"]) == (0, 3)
    assert original_hash(about["example"]["alternatives"][0]["photo"])


def test_a_reduced_training_picture_is_recognised() -> None:
    table = {
        "id": np.repeat(np.arange(8), 2),
        "y": [1, 0] * 8,
        "photo": [picture(size=(80, 70), seed=k) for k in range(16)],
    }
    roles: dict[str, Any] = {"choice_set": "id", "chosen": "y", "features": ["photo"], "kinds": {"photo": "image"}}
    data = ChoiceData.from_long(table, **roles)
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    assert training_overlap(model, data.subset([0, 1])) == "some"
    assert training_overlap(model, data.subset([3, 4])) == "none known"


def test_byte_arrays_keep_their_zero_bytes() -> None:
    contents = np.array([picture(seed=0), picture(seed=1)])
    assert contents.dtype.kind == "S"
    data = ChoiceData.from_long(
        {"id": [1, 1], "photo": contents}, choice_set="id", features=["photo"], kinds={"photo": "image"}
    )
    assert data.features["photo"].plain().tolist() == contents.tolist()


# -- Streaming ---------------------------------------------------------------------------------------------------------


def test_moments_of_parts_equal_those_of_the_whole() -> None:
    rows = np.random.default_rng(0).normal(size=(90, 3)) * [1.0, 10.0, 0.1] + np.arange(90)[:, None]
    moments = RowMoments()
    for part in (rows[:20], rows[:0], rows[20:21], rows[21:]):
        moments.add(part)
    assert moments.count == 90
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.spread, rows.std(0), rtol=1e-12)


def test_the_spread_of_no_rows_is_0() -> None:
    assert RowMoments().spread.tolist() == [0.0]
