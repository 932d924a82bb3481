"""The service as replicas of Ray Serve gives the predictions of the model."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet.cluster.serving import app, ray_service
from pcmcnet.errors import ArtifactError, ConfigError
from pcmcnet.serving.settings import ServeSettings


def request_json(address: str, path: str, body: Any = None, token: str = "secret") -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{address}{path}", None if body is None else json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.usefixtures("local_ray")
def test_ray_serve_returns_the_predictions_of_the_model(fitted: pn.PCMCNet, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    with ray_service(tmp_path / "model", settings=ServeSettings(token="secret"), workers=1, port=0) as address:
        assert request_json(address, "/health") == {"status": "ok"}
        example = request_json(address, "/v1/example")
        (one,) = example["sets"]
        (answer,) = request_json(address, "/v1/probabilities", example)["sets"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            request_json(address, "/v1/example", token="wrong")
    n = len(one["alternatives"])
    rows = {name: [row[name] for row in one["alternatives"]] for name in one["alternatives"][0]}
    rows |= {name: [value] * n for name, value in one["individual"].items()}
    expected = fitted.predict_proba({**rows, "individual": [0] * n})
    np.testing.assert_allclose(answer["probabilities"], expected, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_a_killed_replica_is_replaced(
    fitted: pn.PCMCNet, tmp_path: Path, kill_workers: Callable[..., list[int]]
) -> None:
    fitted.save(tmp_path / "model")
    with ray_service(tmp_path / "model", workers=1, port=0) as address:
        assert request_json(address, "/health") == {"status": "ok"}
        killed = kill_workers("ServeReplica", [lambda: True])
        until = time.monotonic() + 120
        answers = 0
        while not (killed and answers):
            assert time.monotonic() < until
            try:
                answers += bool(killed) and request_json(address, "/health") == {"status": "ok"}
            except OSError:
                time.sleep(0.2)


def test_the_arguments_of_serve_run_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCMCNET_TOKEN", "secret")
    with pytest.raises(ConfigError, match="the model to serve is missing"):
        app({})
    with pytest.raises(ConfigError, match=r"unknown argument 'modle'\. Did you mean 'model'"):
        app({"modle": "x"})
    with pytest.raises(ConfigError, match="workers must be a whole number of at least 1, got 'two'"):
        app({"model": "x", "workers": "two"})
    with pytest.raises(ArtifactError):
        app({"model": str(tmp_path)})


def test_serve_run_reads_its_token_from_the_environment(
    fitted: pn.PCMCNet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted.save(tmp_path / "model")
    seen: list[str | None] = []

    def application(model: str, baseline: str | None, settings: ServeSettings, **options: Any) -> None:
        seen.append(settings.token)

    monkeypatch.setattr("pcmcnet.cluster.serving.application", application)
    model = {"model": str(tmp_path / "model")}
    monkeypatch.setenv("PCMCNET_TOKEN", "secret")
    app(model)
    app({**model, "token": "other"})
    monkeypatch.delenv("PCMCNET_TOKEN")
    app({**model, "insecure": "true"})
    assert seen == ["secret", "other", None]


@pytest.mark.parametrize(
    ("environment", "arguments", "message"),
    [
        (
            None,
            {},
            "any machine that can reach Ray Serve .*: set the environment variable PCMCNET_TOKEN",
        ),
        (None, {"insecure": "false"}, "or add insecure=true to allow it"),
        (None, {"insecure": "yes"}, "unknown insecure 'yes'"),
        (None, {"token": ""}, "token must be one non-empty line of printable ASCII characters"),
        ("", {}, "the environment variable PCMCNET_TOKEN is empty: set a token, or unset the variable"),
        (" ", {"insecure": "true"}, "the environment variable PCMCNET_TOKEN is empty"),
    ],
)
def test_serve_run_requires_a_token_or_an_explicit_opt_out(
    environment: str | None, arguments: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PCMCNET_TOKEN", raising=False)
    if environment is not None:
        monkeypatch.setenv("PCMCNET_TOKEN", environment)
    with pytest.raises(ConfigError, match=message):
        app({"model": "model", **arguments})
