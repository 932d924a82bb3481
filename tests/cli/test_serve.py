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
        (["--host", "no-such-host.invalid"], "cannot listen at no-such-host.invalid:8000"),
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
