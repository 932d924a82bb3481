"""JSON is strict, and its size is known before any object is made of it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.models import PCMCNet
from pcmcnet.serving.refusal import RefusalError
from pcmcnet.serving.settings import ServeSettings
from pcmcnet.serving.strict_json import Size, parse, size_of

MOST = Size(ServeSettings().max_depth, 1_000_000)

texts = st.text(alphabet=st.sampled_from('[]{},:"\\\\/ aé😀'), max_size=8)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
)


def counted(value: Any) -> Size:
    """Count levels and values of what was made."""
    if not isinstance(value, dict | list):
        return Size(0, 1)
    inside = [counted(one) for one in (value.values() if isinstance(value, dict) else value)]
    return Size(1 + max((one.depth for one in inside), default=0), 1 + sum(one.values for one in inside))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the body is not valid JSON: Expecting value (line 1, column 1)."),
        (b'{"a": 1,}', "the body is not valid JSON"),
        (b'{"a": 1} x', "the body is not valid JSON: Extra data (line 1, column 10)."),
        (b'{"a": NaN}', "the body holds NaN, which JSON does not know: leave the value out, or write null."),
        (b"[-Infinity]", "the body holds -Infinity, which JSON does not know"),
        (b'{"a": 1, "b": 2, "a": 3}', "'a' stands twice in one object: keep one."),
        (b'{"x": {"\\ud800": 1, "\\ud800": 2}}', r"'\ud800' stands twice in one object"),
        (b"\xff\xfe", "the body is not valid Unicode: expected JSON in UTF-8."),
        (b'["\\ud800"]', "the body is not valid Unicode: expected JSON in UTF-8."),
        (b"[" * 100_000, "the body is nested too deeply: expected at most 100 levels."),
        (b'{"a":' * 100_000, "the body is nested too deeply: expected at most 100 levels."),
        (b"9" * 5_000, "the body holds a number with too many digits."),
    ],
)
def test_what_is_not_strict_json_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(RefusalError) as refusal:
        parse(content, MOST)
    assert refusal.value.status == 400
    assert refusal.value.message.startswith(message)


def test_many_names_that_are_all_different_but_two_are_told_apart_quickly() -> None:
    """One look-up a name: a count of each would take minutes for this body."""
    names = ",".join(f'"{k}": 0' for k in range(200_000))
    with pytest.raises(RefusalError, match="'199999' stands twice"):
        parse(f'{{{names}, "199999": 0}}'.encode(), MOST)


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert parse(b'["\\ud83d\\ude00"]', MOST) == ["😀"]


# -- size -----------------------------------------------------------------------------------------------------------


@given(value=anything, ascii_=st.booleans(), indent=st.none() | st.just(1))
def test_the_size_is_that_of_the_values_whatever_texts_hold(value: Any, ascii_: bool, indent: int | None) -> None:
    """An empty list is counted as if it held one value: there are never more values than that."""
    found = size_of(json.dumps(value, ensure_ascii=ascii_, indent=indent).encode())
    depth, values = counted(value)
    assert found.depth == depth
    assert values <= found.values <= 2 * values


@given(content=st.binary(max_size=30) | st.text(alphabet='[]{}",\\\\1', max_size=30).map(str.encode))
def test_the_size_of_any_bytes_can_be_asked_for(content: bytes) -> None:
    assert size_of(content).depth <= len(content)


def test_texts_with_brackets_and_commas_are_within_any_bound() -> None:
    text = '[{,"' * 1_000 + "\\"
    assert parse(json.dumps([text]).encode(), Size(depth=1, values=2)) == [text]


@pytest.mark.parametrize(
    "content",
    [b"[" + b"[]," * 50_000 + b"[]]", b"[" + b"{}," * 50_000 + b"{}]", b"[" + b"0," * 100_000 + b"0]", b"," * 100_001],
)
def test_too_many_values_are_refused_before_any_is_made(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("objects were made"))
    with pytest.raises(RefusalError, match=r"holds more than 100,000 values: .* raise --max-values") as refusal:
        parse(content, Size(depth=10, values=100_000))
    assert refusal.value.status == 413


def test_the_bounds_of_a_server_are_those_of_its_settings(net: PCMCNet, make_client: Any, sets: Any) -> None:
    client = make_client(net, max_values=200, max_depth=6)
    assert client.post("/v1/probabilities", json={"sets": sets[:1]}).status_code == 200
    assert client.post("/v1/probabilities", json={"sets": sets * 10}).status_code == 413
    answer = client.post("/v1/probabilities", content="[" * 7 + "]" * 7, headers={"Content-Type": "application/json"})
    assert answer.json() == {"error": "the body is nested too deeply: expected at most 6 levels."}
    limits = client.get("/v1/schema").json()["limits"]
    assert (limits["values"], limits["depth"], limits["seconds"]) == (200, 6, 30)
