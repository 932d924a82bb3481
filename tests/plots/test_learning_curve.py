from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcmcnet.errors import InputError
from pcmcnet.plots import draw_learning_curve, learning_curve


def history(*valid: float | None, lr: float = 0.01, decay: float = 1.0) -> list[dict[str, Any]]:
    return [
        {"epoch": k + 1, "train_loss": 2.0 / (k + 1), "valid_loss": loss, "lr": lr * decay**k}
        for k, loss in enumerate(valid)
    ]


def test_the_curve_has_the_losses_by_epoch_and_the_first_best() -> None:
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


def test_a_run_that_broke_down_keeps_its_best_epoch() -> None:
    assert learning_curve(history(2.0, 1.0, float("nan"))).best_epoch == 2


def test_an_empty_history_is_refused() -> None:
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
def test_a_curve_becomes_a_png(
    entries: list[dict[str, Any]], height: int, tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]
) -> None:
    path = draw_learning_curve(learning_curve(entries), tmp_path / "curve.png", title="PCMC-Net")
    assert png_size(path) == (1280, height)
    assert [file.name for file in tmp_path.iterdir()] == ["curve.png"]


def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.png"):
        draw_learning_curve(learning_curve(history(1.0)), tmp_path / "curve.jpeg")
