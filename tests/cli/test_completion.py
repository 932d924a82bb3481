"""What a shell completes is what there is."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pcmcnet.cli import completion
from pcmcnet.data.column_arrays import CURVES
from pcmcnet.data.kinds import KINDS
from pcmcnet.datasets.packaged import TABLES
from pcmcnet.evaluation.contestants import BUILT
from pcmcnet.evaluation.leaderboard_tables import simulators
from pcmcnet.models import MODELS
from pcmcnet.tuning.space import NAMES


def test_the_names_are_those_of_the_registries() -> None:
    """A name that is missing in ``pcmcnet/cli/completion.py`` is not completed: add it there."""
    assert list(completion.models()) == sorted(MODELS)
    assert tuple(BUILT) == completion.BUILT
    assert tuple(TABLES) == completion.TABLES
    assert tuple(simulators()) == completion.SIMULATORS
    assert (*KINDS, *CURVES) == completion.KINDS
    assert set(completion.SPACES) == set(NAMES)


@pytest.mark.parametrize(
    ("complete", "incomplete", "found"),
    [
        (completion.model_names, "pcmcn", ["pcmcnet"]),
        (completion.model_lists, "uniform,Small=pcmcn", ["uniform,Small=pcmcnet"]),
        (completion.contestant_lists, "mnl+", ["mnl+individual"]),
        (completion.table_names, "mode-", ["mode-canada"]),
        (completion.table_lists, "mode-canada,ml", ["mode-canada,mlba"]),
        (completion.simulator_names, "rock", ["rock-paper-scissors"]),
        (completion.space_names, "p", ["paper"]),
    ],
)
def test_the_last_word_is_completed(complete: Callable[[str], list[str]], incomplete: str, found: list[str]) -> None:
    assert complete(incomplete) == found


def printed(runs: list[tuple[list[str], dict[str, str]]]) -> list[list[str]]:
    """Return the words that the program prints in each run, one after the other in a process of its own.

    The last word tells whether PyTorch has been loaded by then.
    """
    code = f"""
import os, sys
from pcmcnet.cli import main
for words, variables in {runs!r}:
    os.environ.update(variables)
    sys.argv = ["pcmcnet", *words]
    try:
        main()
    except SystemExit:
        print("torch" in sys.modules, end="\\f")
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(completion.__file__).parents[2])}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return [part.split() for part in run.stdout.split("\f")[:-1]]


COMPLETED = {
    "pcmcnet fit --model pcmcn": "pcmcnet",
    "pcmcnet datasets swiss": "swissmetro",
    "pcmcnet simulate rock": "rock-paper-scissors",
}


def test_a_shell_is_answered_without_pytorch() -> None:
    place = "_PCMCNET_COMPLETE"
    asked = [
        ([], {place: "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)})
        for words in COMPLETED
    ]
    assert printed(asked) == [[word, "False"] for word in COMPLETED.values()]


def test_help_and_version_do_not_load_pytorch() -> None:
    answers = printed([(words, {}) for words in (["--help"], ["--version"], ["fit", "--help"])])
    assert [answer[-1] for answer in answers] == ["False"] * 3
