"""If two processes write to one path, the second is refused with the process id of the first."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from pcmcnet.models import load

# The first process pauses once it is the writer, until it is killed.
PAUSE = """
    import signal, sys
    from pcmcnet import storage as lock

    real = lock._write_holder

    def sign(held):
        real(held)
        print("this process is the writer", flush=True)
        signal.pause()

    lock._write_holder = sign
"""

FIT = ["--set=hidden=4", "--set=epochs=2", "--set=weight_decay=0"]
COMMANDS: dict[str, list[Any]] = {
    "fit": ["fit", "{table}", "{roles}", *FIT, "-o", "{out}"],
    "members": ["fit", "{table}", "{roles}", *FIT, "--ensemble", 2, "-o", "{out}"],
    "tune": ["tune", "{table}", "{roles}", "--search", "lr=0.01,0.02", *FIT, "--trials", 1, "-o", "{out}"],
    "compare": ["compare", "{table}", "{roles}", "--models", "uniform", "--folds", 2, "-o", "{out}"],
    "predict": ["predict", "{model}", "{table}", "-o", "{out}.csv"],
    "explain": ["explain", "{model}", "{table}", "-o", "{out}"],
    "reproduce": ["reproduce", "table1", "--sets", 20, "-o", "{out}"],
}


LONG = ("members", "tune")  # each runs several fits


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in COMMANDS])
def test_a_second_writer_waits_for_the_death_of_the_first(
    name: str, server: Any, table: Path, roles: list[str], model: Path, tmp_path: Path
) -> None:
    values = {"table": table, "model": model, "out": tmp_path / "out"}
    words: list[str] = []
    for word in COMMANDS[name]:
        words += roles if word == "{roles}" else [str(word).format(**values)]
    first = server.start(*words, before=PAUSE)
    first.wait_for("this process is the writer")
    second = server.run(*words)
    place = re.escape(words[-1])
    assert re.fullmatch(
        rf"{place} is being written by process {first.pid} on \S+ \(pcmcnet .*\): "
        rf"wait until the writer has finished, or choose another location\.",
        second.message,
    )
    assert first.kill().status == -signal.SIGKILL
    if name in ("explain", "reproduce"):  # slow, and the rest is tested elsewhere
        return
    third = server.run(*words)
    assert third.status == 0, third.log
    assert not list(tmp_path.glob(".*"))
    if name in ("fit", "members"):
        load(tmp_path / "out")


def test_a_model_is_not_saved_into_the_folder_of_another_fit(
    server: Any, table: Path, roles: list[str], model: Path, tmp_path: Path
) -> None:
    first = server.start("fit", table, *roles, *FIT, "-o", tmp_path / "out", before=PAUSE)
    first.wait_for("this process is the writer")
    with pytest.raises(ValueError, match=f"is being written by process {first.pid} on "):
        load(model).save(tmp_path / "out")
    first.kill()
    load(model).save(tmp_path / "out")
    assert load(tmp_path / "out").num_parameters == load(model).num_parameters
