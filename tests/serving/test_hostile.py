"""Any request gets a 200 or a client error, never a 500."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pcmcnet.models import MNL, PCMCNet

PATHS = ["/v1/probabilities", "/v1/rates", "/v1/map", "/v1/offer"]
REFUSED = {400, 413, 415, 422}

words = st.sampled_from(
    [
        *("sets", "set", "model", "main", "baseline", "individual", "alternatives", "price", "minutes", "comfort"),
        *("mode", "income", "purpose", "open", "took", "x", "y", "place", "between", "points", "x_range", "low", "bus"),
    ]
)
numbers = st.one_of(
    st.integers(-3, 60),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([3.4e38, -3.4e38, 3.5e38, 1e308, 10**30, 10**400, -0.0, 5e-324]),
)
leaves = st.one_of(st.none(), st.booleans(), numbers, words, st.text(max_size=8))
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.text(max_size=6), inner, max_size=5)
)
alternative = st.fixed_dictionaries(
    {"price": numbers, "minutes": numbers, "comfort": leaves, "mode": leaves}, optional={"open": leaves}
)
choice_set = st.fixed_dictionaries(
    {"individual": st.fixed_dictionaries({"income": numbers, "purpose": leaves})}
    | {"alternatives": st.lists(alternative, min_size=1, max_size=4)}
)
nearly = st.one_of(
    st.fixed_dictionaries({"sets": st.lists(choice_set, max_size=3)}, optional={"model": leaves}),
    st.fixed_dictionaries({"set": choice_set}, optional={"model": leaves}),
    st.fixed_dictionaries(
        {"set": choice_set, "x": words, "y": words, "place": numbers, "between": st.lists(numbers, max_size=3)},
        optional={"points": numbers, "x_range": anything, "y_range": st.lists(numbers, max_size=3), "model": words},
    ),
)


EXAMPLES = settings.default.max_examples  # fewer without slow tests


@pytest.fixture(scope="module")
def client(net: PCMCNet, logit: MNL, make_client: Any) -> Iterator[Any]:
    return make_client(net, logit, max_body=100_000)


def require_answer_or_refusal(answer: Any) -> None:
    """Check that the response is valid JSON or a short error."""
    if answer.status_code == 200:
        json.loads(answer.text, parse_constant=lambda word: pytest.fail(f"{word} in an answer"))
    else:
        assert answer.status_code in REFUSED, answer.text
        assert list(answer.json()) == ["error"]
        assert len(answer.json()["error"]) < 1_000


@settings(max_examples=5 * EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(path=st.sampled_from(PATHS), body=anything | nearly)
def test_any_json_is_answered(path: str, body: Any, client: Any) -> None:
    require_answer_or_refusal(client.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"}))


@settings(max_examples=9 * EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(body=nearly, data=st.data())
def test_almost_valid_requests_are_answered(body: Any, data: st.DataObject, client: Any) -> None:
    path = "/v1/probabilities" if "sets" in body else "/v1/map" if "x" in body else "/v1/rates"
    text = json.dumps(body)
    if data.draw(st.booleans()):  # one place is overwritten
        at = data.draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + data.draw(st.sampled_from(['"', "}", "]", "null", "1e999", "NaN", "{", ',"a":1', "\\"]))
            + text[at + 1 :]
        )
    require_answer_or_refusal(client.post(path, content=text, headers={"Content-Type": "application/json"}))


@settings(max_examples=6 * EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(PATHS), body=st.binary(max_size=200), kind=st.sampled_from(["application/json", "x", ""]))
def test_any_bytes_are_answered(path: str, body: bytes, kind: str, client: Any) -> None:
    require_answer_or_refusal(client.post(path, content=body, headers={"Content-Type": kind}))


def test_valid_requests_are_not_refused(client: Any, sets: Any) -> None:
    answer = client.post("/v1/probabilities", json={"sets": sets})
    assert answer.status_code == 200
    metrics = client.get("/metrics").text
    assert 'pcmcnet_requests_total{route="/v1/probabilities",status="200"}' in metrics
    assert 'status="500"' not in metrics
