"""The application keeps to what /openapi.json says of it, tried with right and wrong requests made from that."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from pcmcnet.data import ChoiceData
from pcmcnet.models import PCMCNet
from pcmcnet.serving.app import create_app
from pcmcnet.serving.settings import ServeSettings

QUESTIONS = ["/v1/probabilities", "/v1/rates", "/v1/map", "/v1/offer"]
FACTS = ["/v1/schema", "/v1/example", "/v1/examples", "/health", "/live", "/ready", "/metrics"]
CONFORM = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]


@pytest.fixture(scope="module")
def described(make_trips: Any) -> Iterator[Any]:
    """A model without labels, whose uniqueness a schema cannot express; small limits make small requests."""
    roles: dict[str, Any] = {"individual": ["income", "purpose"], "features": ["price", "minutes", "comfort"]}
    data = ChoiceData.from_long(make_trips(), choice_set="trip", chosen="took", **roles)
    net = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    app = create_app(net, settings=ServeSettings(max_sets=3, max_alternatives=4, max_points=4))
    yield schemathesis.openapi.from_asgi("/openapi.json", app)
    app.state.service.worker.close()


def require_kept(described: Any, path: str, mode: GenerationMode, *, many: bool) -> None:
    """Try an operation with requests that the schema allows, or with such as it does not."""
    expected = "negative_data_rejection" if mode is GenerationMode.NEGATIVE else "positive_data_acceptance"
    loose = path in ("/v1/map", "/v1/offer") and mode is GenerationMode.POSITIVE
    checks = CHECKS.get_by_names(CONFORM if loose else [*CONFORM, expected])  # a schema cannot express all they need
    answered, examples = set(), 1_000 if many else 20

    @settings(max_examples=examples, derandomize=not many, suppress_health_check=list(HealthCheck))
    @given(case=described[path]["POST"].as_strategy(generation_mode=mode))
    def tried(case: schemathesis.Case) -> None:
        answered.add(case.call_and_validate(checks=checks).status_code)

    tried()
    assert 200 in answered or mode is GenerationMode.NEGATIVE


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
@pytest.mark.parametrize("path", QUESTIONS)
def test_questions_are_answered_as_the_schema_says(path: str, mode: GenerationMode, described: Any) -> None:
    require_kept(described, path, mode, many=False)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
@pytest.mark.parametrize("path", QUESTIONS)
def test_many_questions_are_answered_as_the_schema_says(path: str, mode: GenerationMode, described: Any) -> None:
    require_kept(described, path, mode, many=True)


@pytest.mark.parametrize("path", FACTS)
def test_facts_are_told_as_the_schema_says(path: str, described: Any) -> None:
    described[path]["GET"].Case().call_and_validate(checks=CHECKS.get_by_names(CONFORM))


def test_every_operation_is_tried(described: Any) -> None:
    assert {operation.ok().path for operation in described.get_all_operations()} == {*QUESTIONS, *FACTS}
