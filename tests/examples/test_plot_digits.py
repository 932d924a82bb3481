"""Choices between pictures: the example runs, and pixels predict almost as well as the values of the digits."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        yield importlib.import_module("plot_digits")


@pytest.mark.slow
def test_the_example_prints_its_figures_and_saves_a_picture(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "plot_digits.py"), "--output", str(tmp_path), "--sets", "200"]
    done = subprocess.run([*command, "--epochs", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "PCMC-Net on pictures" in done.stdout
    assert (tmp_path / "digits.png").stat().st_size < 100_000


def test_odds_depend_on_a_third_digit(example: ModuleType) -> None:
    """Adding a 3 changes the odds of 0 against 6 by more than a half, which no logit can represent."""
    two, three = (example.probabilities(np.array([digits]))[0] for digits in ([0.0, 6.0], [0.0, 6.0, 3.0]))
    assert abs(np.log((two[0] / two[1]) / (three[0] / three[1]))) > 0.5


@pytest.mark.slow
def test_pixels_predict_almost_as_well_as_values(example: ModuleType) -> None:
    """Within .05 of the same network on the values, out of sample. A logit on pixels is not; copies share equally."""
    scores, _ = example.compare()
    pictures = scores["PCMC-Net on pictures"]
    assert pictures.nll < scores["PCMC-Net on the digits' values"].nll + 0.05
    assert pictures.nll < scores["MNL on pixels"].nll - 0.2
    assert example.copies(pictures.model, example.digits()) < 1e-6
