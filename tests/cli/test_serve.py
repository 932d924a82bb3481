"""``pcmcnet serve`` as a command: what is wrong with its options is said in one line, before anything listens."""

from pathlib import Path
from typing import Any

import pytest


def test_a_folder_that_is_no_model_is_refused(cli: Any, model: Path, tmp_path: Path) -> None:
    assert "no such folder" in cli("serve", tmp_path / "nothing").message
    assert "is not a saved model" in cli("serve", model, "--baseline", tmp_path).message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-sets", "0"], "max_sets must be"),
        (["--max-alternatives", "-1"], "max_alternatives must be"),
        (["--queue", "0"], "queue must be"),
        (["--token", ""], "token must be one line of printable ASCII characters, and not empty."),
        (["--deadline", "-1"], "deadline must be"),
        (["--max-values", "0"], "max_values must be"),
        (["--host", "no-such-host.invalid", "--insecure"], "cannot listen on no-such-host.invalid:8000"),
        (["--host", "no-such-host.invalid", "--token", "secret"], "cannot listen on no-such-host.invalid:8000"),
        (["--port", "65536"], "65535"),
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str], message: str, cli: Any, model: Path) -> None:
    assert message in cli("serve", model, *words).message


def test_without_the_extra_the_command_that_installs_it_is_named(
    cli: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli("serve", model).message == "serving needs uvicorn: pip install 'pcmcnet[serve]'."


def test_an_empty_token_in_the_environment_is_refused(cli: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what a secret that was not found becomes; serving everyone would be the worst way to read it."""
    monkeypatch.setenv("PCMCNET_TOKEN", "")
    expected = "the environment variable PCMCNET_TOKEN is empty: set a token, or unset it."
    assert cli("serve", model).message == expected
    assert cli("serve", model, "--insecure").message == expected
    assert "cannot listen" in cli("serve", model, "--token", "secret", "--host", "no-such-host.invalid").message


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "no-such-host.invalid"])
def test_other_machines_are_not_let_in_without_a_token(host: str, cli: Any, model: Path) -> None:
    assert cli("serve", model, "--host", host).message == (
        f"at '{host}' other machines could use the model without a token: set the environment variable PCMCNET_TOKEN, "
        "or add --insecure to allow it."
    )
