"""Itineraries in words: the example runs, and words predict almost as well as attributes."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        yield importlib.import_module("itineraries_in_words")


@pytest.mark.slow
def test_the_example_prints_its_figures() -> None:
    command = [sys.executable, str(EXAMPLES / "itineraries_in_words.py"), "--sets", "60", "--test", "30"]
    done = subprocess.run([*command, "--epochs", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("AL44, 2 flights with 1 airlines, 1353 euros, 480 minutes, leaves 8.7\n")
    assert "PCMC-Net on words" in done.stdout


@pytest.mark.slow
def test_words_predict_almost_as_well_as_attributes(example: ModuleType) -> None:
    scores, best = example.compare(epochs=8)
    assert scores["words"].nll < scores["attributes"].nll + 0.05
    assert scores["attributes"].nll > best
