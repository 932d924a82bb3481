"""The application conforms to /openapi.json, tested with generated valid and invalid requests."""

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

QUESTIONS = ["/v1/probabilities", "/v1/rates", "/v1/map", "/v1/offer", "/v1/market", "/v1/market/set"]
FACTS = ["/v1/schema", "/v1/example", "/v1/examples", "/health", "/live", "/ready", "/metrics"]
CONFORM = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]


@pytest.fixture(scope="module")
def described(make_trips: Any) -> Iterator[Any]:
    """Return the schema of a model without labels, whose uniqueness it cannot express. Limits keep requests small."""
    roles: dict[str, Any] = {"individual": ["income", "purpose"], "features": ["price", "minutes", "comfort"]}
    data = ChoiceData.from_long(make_trips(), choice_set="trip", chosen="took", **roles)
    net = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    app = create_app(net, settings=ServeSettings(max_sets=3, max_alternatives=4, max_points=4))
    yield schemathesis.openapi.from_asgi("/openapi.json", app)
    app.state.service.worker.close()


def require_conformance(described: Any, path: str, mode: GenerationMode, *, many: bool) -> None:
    """Check an operation with requests that the schema allows, or with requests that it forbids."""
    expected = "negative_data_rejection" if mode is GenerationMode.NEGATIVE else "positive_data_acceptance"
    loose = path in ("/v1/map", "/v1/offer", "/v1/market", "/v1/market/set") and mode is GenerationMode.POSITIVE
    # The schema cannot express all conditions of loose operations.
    checks = CHECKS.get_by_names(CONFORM if loose else [*CONFORM, expected])
    # Few requests of loose operations are valid, so more are needed to see one that succeeds.
    statuses, examples = set(), 1_000 if many else 100 if loose else 20

    @settings(max_examples=examples, derandomize=not many, suppress_health_check=list(HealthCheck))
    @given(case=described[path]["POST"].as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        statuses.add(case.call_and_validate(checks=checks).status_code)

    send()
    assert 200 in statuses or mode is GenerationMode.NEGATIVE


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
@pytest.mark.parametrize("path", QUESTIONS)
def test_requests_conform_to_the_schema(path: str, mode: GenerationMode, described: Any) -> None:
    require_conformance(described, path, mode, many=False)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
@pytest.mark.parametrize("path", QUESTIONS)
def test_many_requests_conform_to_the_schema(path: str, mode: GenerationMode, described: Any) -> None:
    require_conformance(described, path, mode, many=True)


@pytest.mark.parametrize("path", FACTS)
def test_facts_conform_to_the_schema(path: str, described: Any) -> None:
    described[path]["GET"].Case().call_and_validate(checks=CHECKS.get_by_names(CONFORM))


def test_every_operation_is_tested(described: Any) -> None:
    assert {operation.ok().path for operation in described.get_all_operations()} == {*QUESTIONS, *FACTS}
