"""What is counted, read back from the text."""

import re
from typing import Any

import pytest

from pcmcnet.models import PCMCNet
from pcmcnet.serving.metrics import SECONDS, Histogram, Metrics

SAMPLE = re.compile(r'(\w+)(?:\{((?:\w+="[^"\\]*",?)+)\})? (\d+(?:\.\d+)?(?:e-?\d+)?)')


def samples(text: str) -> dict[str, float]:
    """Parse the text format, line by line: series to value; every series follows its HELP and TYPE."""
    found: dict[str, float] = {}
    typed: set[str] = set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        elif not line.startswith("# HELP "):
            name, labels, value = SAMPLE.fullmatch(line).groups()  # type: ignore[union-attr]
            assert re.sub(r"_(bucket|sum|count)$", "", name) in typed or name in typed
            found[f"{name}{{{labels}}}" if labels else name] = float(value)
    return found


def test_a_histogram_adds_up_from_bound_to_bound() -> None:
    histogram = Histogram([1, 2, 4])
    for value in (0.5, 1, 3, 3, 9):
        histogram.observe(value)
    assert list(histogram.lines("x", {"route": "/"})) == [
        'x_bucket{route="/",le="1"} 2',
        'x_bucket{route="/",le="2"} 2',
        'x_bucket{route="/",le="4"} 4',
        'x_bucket{route="/",le="+Inf"} 5',
        'x_sum{route="/"} 16.5',
        'x_count{route="/"} 5',
    ]


def test_requests_are_counted_by_route_and_status(net: PCMCNet, make_client: Any, sets: Any) -> None:
    client = make_client(net)
    for _ in range(3):
        client.post("/v1/probabilities", json={"sets": sets})
    client.post("/v1/probabilities", json={})
    for path in ("/nowhere", "/also-nowhere", "/%22quoted%22%0A", "/health"):
        client.get(path)
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = samples(answer.text)
    assert found['pcmcnet_requests_total{route="/v1/probabilities",status="200"}'] == 3
    assert found['pcmcnet_requests_total{route="/v1/probabilities",status="422"}'] == 1
    assert found['pcmcnet_requests_total{route="other",status="404"}'] == 3
    assert found['pcmcnet_requests_total{route="/health",status="200"}'] == 1
    assert found['pcmcnet_request_seconds_count{route="/v1/probabilities"}'] == 4
    assert found['pcmcnet_request_seconds_bucket{route="/v1/probabilities",le="+Inf"}'] == 4
    assert found["pcmcnet_queue_length"] == 0
    assert found["pcmcnet_sets_predicted_total"] == 3 * len(sets)
    assert found["pcmcnet_batch_sets_count"] == found["pcmcnet_batch_requests_count"] == 3


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.25, 1e12])
def test_every_number_is_written_as_the_format_has_it(value: float) -> None:
    metrics = Metrics()
    metrics.request("/health", 200, value)
    assert samples(metrics.text())['pcmcnet_request_seconds_sum{route="/health"}'] == value
    assert len(SECONDS) + 1 == metrics.text().count("_seconds_bucket")
