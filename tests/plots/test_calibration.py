from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pcmcnet.errors import InputError
from pcmcnet.insight.calibration import Calibration, Curve
from pcmcnet.plots.calibration import draw_calibration

PngSize = Callable[[Path], tuple[int, int]]


def made(*, unknown: bool = False) -> Calibration:
    p = np.array([0.1, 0.5, 0.9])
    ends = (np.full(3, -np.inf), np.full(3, np.inf)) if unknown else (p - 0.05, p + 0.1)
    curve = Curve(predicted=p, observed=p**2, low=ends[0], high=ends[1], share=np.full(3, 1 / 3))
    return Calibration(alternatives=curve, first=curve, n_sets=100)


def test_calibrations_are_drawn_together(tmp_path: Path, png_size: PngSize) -> None:
    path = draw_calibration({"a $ model": made(), "of one set": made(unknown=True)}, tmp_path / "curve.png")
    assert png_size(path) == (1012, 528)
    svg = draw_calibration({"a model": made()}, tmp_path / "curve.svg").read_text("utf-8")
    assert svg.startswith("<?xml")


def test_nothing_and_too_much_to_draw_are_refused(tmp_path: Path) -> None:
    for number in (0, 7):
        with pytest.raises(InputError, match=f"1 to 6 calibrations to draw, got {number}"):
            draw_calibration({str(k): made() for k in range(number)}, tmp_path / "curve.png")
