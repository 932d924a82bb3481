"""Plots of learning curves and calibration."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet import Explanation
from pcmcnet.errors import InputError
from pcmcnet.insight.calibration import Calibration, CalibrationCurve
from pcmcnet.plots import draw_learning_curve, learning_curve
from pcmcnet.plots.page_figures import page_figure
from pcmcnet.plots.quality import calibration_chart, draw_calibration, learning_chart


def history(*valid: float | None, lr: float = 0.01, decay: float = 1.0) -> list[dict[str, Any]]:
    return [
        {"epoch": k + 1, "train_loss": 2.0 / (k + 1), "valid_loss": loss, "lr": lr * decay**k}
        for k, loss in enumerate(valid)
    ]


def test_the_curve_has_losses_and_the_first_best_epoch() -> None:
    curve = learning_curve(history(3.0, 1.5, 1.5, 2.0, decay=0.5))
    assert curve.epoch.tolist() == curve.valid_epoch.tolist() == [1, 2, 3, 4]
    assert curve.train_loss.tolist() == [2.0, 1.0, 2 / 3, 0.5]
    assert curve.valid_loss.tolist() == [3.0, 1.5, 1.5, 2.0]
    assert curve.lr.tolist() == [0.01, 0.005, 0.0025, 0.00125]
    assert curve.best_epoch == 2


def test_epochs_without_validation_are_left_out() -> None:
    curve = learning_curve(history(None, 1.5, None, 1.2))
    assert (curve.valid_epoch.tolist(), curve.valid_loss.tolist()) == ([2, 4], [1.5, 1.2])
    assert curve.best_epoch == 4


@pytest.mark.parametrize("valid", [(None, None), (float("nan"), float("inf"))])
def test_without_a_validation_loss_there_is_no_best_epoch(valid: tuple[float | None, ...]) -> None:
    assert learning_curve(history(*valid)).best_epoch is None


def test_a_diverged_run_keeps_its_best_epoch() -> None:
    assert learning_curve(history(2.0, 1.0, float("nan"))).best_epoch == 2


def test_an_empty_history_is_rejected() -> None:
    with pytest.raises(InputError, match=r"the history is empty: .* Was the model fitted\?"):
        learning_curve([])


def test_an_entry_without_its_keys_is_named() -> None:
    entries = history(1.0, 2.0)
    del entries[1]["valid_loss"], entries[1]["lr"]
    with pytest.raises(InputError, match=r"history, entry 1: expected epoch, .*; valid_loss, lr not found"):
        learning_curve(entries)


@pytest.mark.parametrize(
    ("entries", "height"),
    [
        (history(3.0, 2.0, 2.5, decay=0.5), 1040),  # with a panel for the learning rate
        (history(3.0, 2.0, 2.5), 800),
        (history(None, None), 800),
        (history(1.0), 800),
        (history(1.0, float("nan"), float("inf")), 800),
        (history(*[1.0] * 100), 800),
    ],
)
def test_a_curve_is_drawn_as_a_png(
    entries: list[dict[str, Any]], height: int, tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]
) -> None:
    path = draw_learning_curve(learning_curve(entries), tmp_path / "curve.png", title="PCMC-Net")
    assert png_size(path) == (1280, height)
    assert [file.name for file in tmp_path.iterdir()] == ["curve.png"]


def test_an_invalid_path_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.png"):
        draw_learning_curve(learning_curve(history(1.0)), tmp_path / "curve.jpeg")


PngSize = Callable[[Path], tuple[int, int]]


def calibration(*, unknown: bool = False) -> Calibration:
    p = np.array([0.1, 0.5, 0.9])
    ends = (np.full(3, -np.inf), np.full(3, np.inf)) if unknown else (p - 0.05, p + 0.1)
    curve = CalibrationCurve(predicted=p, observed=p**2, low=ends[0], high=ends[1], share=np.full(3, 1 / 3))
    return Calibration(alternatives=curve, first=curve, n_sets=100)


def test_calibrations_are_drawn_together(tmp_path: Path, png_size: PngSize) -> None:
    both = {"a $ model": calibration(), "of one set": calibration(unknown=True)}
    path = draw_calibration(both, tmp_path / "curve.png")
    assert png_size(path) == (1012, 528)
    svg = draw_calibration({"a model": calibration()}, tmp_path / "curve.svg").read_text("utf-8")
    assert svg.startswith("<?xml")


def test_between_1_and_6_calibrations_can_be_drawn(tmp_path: Path) -> None:
    for number in (0, 7):
        with pytest.raises(InputError, match=f"1 to 6 calibrations to draw, got {number}"):
            draw_calibration({str(k): calibration() for k in range(number)}, tmp_path / "curve.png")


def test_calibration_draws_both_curves_within_their_range(explained: dict[str, Explanation]) -> None:
    part = explained["logit"].calibration
    assert part is not None
    for which, curve in (("first", part.first), ("alternatives", part.alternatives)):
        figure = page_figure(calibration_chart(part, which))  # type: ignore[arg-type]
        _, drawn = figure.traces
        assert drawn["x"] == curve.predicted.tolist()
        assert drawn["y"] == curve.observed.tolist()
        top = np.array(drawn["y"]) + drawn["error_y"]["array"]
        np.testing.assert_allclose(top, np.clip(curve.high, 0, 1), rtol=0, atol=1e-12)
        assert figure.layout["xaxis"]["range"][1] >= min(1, max(drawn["x"]))


def test_a_learning_curve_has_a_line_for_each_network() -> None:
    entry = {"epoch": 1, "train_loss": 1.5, "valid_loss": None, "lr": 0.1}
    one = page_figure(learning_chart({"": [entry]}))
    assert [trace["name"] for trace in one.traces] == ["training"]
    assert one.numbers == [["epoch", "training loss", "validation loss", "learning rate"], ["1", "1.5", "-", "0.1"]]
    two = page_figure(learning_chart({"member 1": [{**entry, "valid_loss": 1.25}], "member 2": [entry]}))
    assert [trace["name"] for trace in two.traces] == [
        "training (member 1)",
        "validation (member 1)",
        "training (member 2)",
    ]
    assert two.numbers[1] == ["1", "member 1", "1.5", "1.25", "0.1"]
