"""``pcmcnet serve``: invalid options give one line before the server listens."""

from pathlib import Path
from typing import Any

import pytest


def test_a_folder_without_a_model_is_rejected(cli: Any, model: Path, tmp_path: Path) -> None:
    assert "no such folder" in cli("serve", tmp_path / "nothing").message
    assert "is not a saved model" in cli("serve", model, "--baseline", tmp_path).message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-sets", "0"], "max_sets must be"),
        (["--max-alternatives", "-1"], "max_alternatives must be"),
        (["--queue", "0"], "queue must be"),
        (["--token", ""], "token must be one non-empty line of printable ASCII characters."),
        (["--deadline", "-1"], "deadline must be"),
        (["--max-values", "0"], "max_values must be"),
        (["--host", "no-such-host.invalid", "--insecure"], "cannot listen on no-such-host.invalid:8000"),
        (["--host", "no-such-host.invalid", "--token", "secret"], "cannot listen on no-such-host.invalid:8000"),
        (["--port", "65536"], "65535"),
    ],
)
def test_invalid_options_are_rejected(words: list[str], message: str, cli: Any, model: Path) -> None:
    assert message in cli("serve", model, *words).message


def test_without_the_extra_its_install_command_is_shown(cli: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli("serve", model).message == "serving needs uvicorn: pip install 'pcmcnet[serve]'."


def test_an_empty_token_in_the_environment_is_rejected(cli: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing secret often becomes an empty string; it must not open the server to everyone."""
    monkeypatch.setenv("PCMCNET_TOKEN", "")
    expected = "the environment variable PCMCNET_TOKEN is empty: set a token, or unset the variable."
    assert cli("serve", model).message == expected
    assert cli("serve", model, "--insecure").message == expected
    assert "cannot listen" in cli("serve", model, "--token", "secret", "--host", "no-such-host.invalid").message


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "no-such-host.invalid"])
def test_other_machines_need_a_token(host: str, cli: Any, model: Path) -> None:
    assert cli("serve", model, "--host", host).message == (
        f"at '{host}', other machines could use the model without a token: set the environment variable PCMCNET_TOKEN, "
        "or add --insecure to allow this."
    )
