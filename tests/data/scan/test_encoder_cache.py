"""An encoder is learnt once from a part of a scanned table, and again only where the kept one is of no use."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pcmcnet.data import ChoiceData, Encoder, ScannedData
from pcmcnet.data.scan import encoder_cache as kept
from pcmcnet.errors import ArtifactError


@pytest.fixture
def scan(
    write: Callable[..., Path], make_table: Callable[..., pa.Table], roles: dict[str, Any]
) -> Callable[[], ScannedData]:
    """Open the table anew, as another process does."""
    path = write(make_table())
    return lambda: ChoiceData.scan(path, memory="1 MiB", **roles)


@pytest.mark.parametrize("bend", [True, False])
def test_the_kept_encoder_is_the_one_that_was_learnt_and_takes_no_look_at_shards(
    scan: Callable[[], ScannedData], bend: bool
) -> None:
    expected = Encoder.learn(scan(), bend=bend)
    assert kept.learnt(scan(), bend=bend) == expected
    again = scan()
    assert kept.learnt(again, bend=bend) == expected
    assert not again.checked.seen


def test_parts_and_ways_have_encoders_of_their_own(scan: Callable[[], ScannedData]) -> None:
    whole = scan()
    parts = whole.split((0.5, 0.5))
    how = [{"bend": bend, "labels": labels} for bend in (True, False) for labels in (True, False)]
    ways = [(part, options) for part in (whole, whole.counted(), *parts) for options in how]
    for part, options in ways * 2:
        assert kept.learnt(part, **options) == Encoder.learn(part, **options)
    assert len(list(whole.folder.glob("encoder-*.json"))) == len(ways)


@pytest.mark.parametrize("content", ["", "{}", '{"encoder": "{}", "sha256": "0"}', "[1]", "half"])
def test_a_damaged_one_is_learnt_again(scan: Callable[[], ScannedData], content: str) -> None:
    data = scan()
    expected = kept.learnt(data)
    (file,) = data.folder.glob("encoder-*.json")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if content == "half" else content.encode())
    assert kept.learnt(data) == expected
    assert file.read_bytes() == whole


def test_without_a_right_to_write_it_is_learnt_all_the_same(
    scan: Callable[[], ScannedData], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ArtifactError("cannot be written")

    data = scan()
    monkeypatch.setattr(kept, "write_bytes", refuse)
    assert kept.learnt(data) == Encoder.learn(data)
    assert not list(data.folder.glob("encoder-*"))
