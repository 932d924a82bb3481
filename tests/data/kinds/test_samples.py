import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from choice_tables import objects
from pcmcnet.data.kinds.contents import MAX_SAMPLES, EncoderSamples
from pcmcnet.data.kinds.image import MAX_SAVED_BYTES

TABLES: dict[Any, np.ndarray] = {
    "text": objects("a room", "", "zwei Zimmer", "sea view"),
    "image": objects(b"\x89PNG", b"\x00\xff", b"abc", b"abcdef"),
    "multi": objects(("pool", "wifi"), (), ("spa",), ("bar", "bar")),
    "datetime": np.array(["2024-05-17T09:30", "1969-12-31", "2030-01-01T00:00:00.000001", "2000"], "datetime64[us]"),
    "vector": np.arange(8, dtype=np.float32).reshape(4, 2) / 3,
    "id": np.array([7, 0, 2**40, 3]),
}


def vectors(n: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32)


@pytest.mark.parametrize("kind", TABLES)
def test_samples_of_every_kind_survive_a_json_round_trip(kind: Any) -> None:
    samples = EncoderSamples.of(kind, TABLES[kind], vectors(4))
    restored = EncoderSamples.from_dict(kind, json.loads(json.dumps(samples.to_dict())))
    assert len(restored.contents) == MAX_SAMPLES
    assert restored.contents.dtype == TABLES[kind].dtype
    assert restored.contents.tolist() == samples.contents.tolist()
    np.testing.assert_array_equal(restored.vectors, samples.vectors)


def test_samples_are_limited_in_number_and_size() -> None:
    assert EncoderSamples.of("text", objects("one"), vectors(1)).contents.tolist() == ["one"]
    pictures = objects(bytes(MAX_SAVED_BYTES + 1), b"small", bytes(MAX_SAVED_BYTES - 5))
    assert [len(p) for p in EncoderSamples.of("image", pictures, vectors(3)).contents] == [5, MAX_SAVED_BYTES - 5]


@pytest.mark.parametrize(
    ("change", "differ"),
    [
        (lambda v: v * (1 + 1e-4), False),  # the rounding of another processor
        (lambda v: v + 0.005, False),  # small relative to the spread of the training contents
        (lambda v: v + np.array([0, 0, 0, 0, 9]), False),  # a constant coordinate is no input of the network
        (lambda v: v * 1.1, True),
        (lambda v: v[:, ::-1], True),
        (lambda v: v[::-1], True),
        (lambda v: v[:, :4], True),
    ],
)
def test_only_differences_beyond_rounding_count(change: Callable[[Any], Any], differ: bool) -> None:
    samples = EncoderSamples.of("text", TABLES["text"], vectors(4))
    changed = np.asarray(change(samples.vectors), np.float32)
    assert samples.differ(changed, np.array([1.0, 1.0, 1.0, 1.0, 0.0])) is differ


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"contents": ["a"], "vectors": []},
        {"contents": ["a"], "vectors": [1.0]},
        {"contents": ["a"], "vectors": [[None]]},
    ],
)
def test_invalid_saved_samples_are_refused(entries: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        EncoderSamples.from_dict("text", entries)
