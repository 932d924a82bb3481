"""Plots of the trials of a search and of the frontier of offers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from choice_tables import logit_choices, read
from pcmcnet.errors import InputError
from pcmcnet.models import PCMCNet
from pcmcnet.plots import draw_search, search_chart
from pcmcnet.tuning import TrialRecord, Tuning


def tuning(*outcomes: Any, importance: dict[str, float] | None = None) -> Tuning:
    """Return a search with these losses: numbers are complete, strings such as "2.5" pruned, None failed."""
    trials = []
    for k, outcome in enumerate(outcomes, 1):
        state: Any = "failed" if outcome is None else "pruned" if isinstance(outcome, str) else "complete"
        trials.append(TrialRecord(k, state, None if outcome is None else float(outcome), {"lr": 0.1}, 3, 1.0))
    losses = [outcome for outcome in outcomes if isinstance(outcome, float)]
    return Tuning(PCMCNet(), {"lr": 0.1}, min(losses), trials, importance or {}, {})


def test_the_chart_shows_states_and_the_best_trial() -> None:
    chart = search_chart(tuning(None, 3.0, "1.5", 2.0, None, 2.5, 1.0))
    assert chart.complete.tolist() == [2, 4, 6, 7]
    assert chart.complete_loss.tolist() == [3.0, 2.0, 2.5, 1.0]
    assert (chart.pruned.tolist(), chart.pruned_loss.tolist()) == ([3], [1.5])
    assert chart.failed.tolist() == [1, 5]
    assert np.isnan(chart.best_so_far[0])
    assert chart.best_so_far[1:].tolist() == [3.0, 3.0, 2.0, 2.0, 2.0, 1.0]  # a pruned trial is never the best
    assert chart.best == 7


def test_importance_is_sorted_from_the_largest() -> None:
    chart = search_chart(tuning(1.0, 2.0, importance={"a": 0.1, "lr": 0.7, "b": 0.2}))
    assert chart.importance == (("lr", 0.7), ("b", 0.2), ("a", 0.1))


def test_the_axis_excludes_diverged_trials() -> None:
    """With best 1 and median 2, the axis ends at 5 plus a margin."""
    low, high = search_chart(tuning(1.0, 1.5, 2.0, 3.0, 1000.0)).limits
    assert (low, high) == pytest.approx((1 - 0.24, 5 + 0.24))
    assert search_chart(tuning(1.0, 1.0)).limits == (0.95, 1.05)
    low, high = search_chart(tuning(1.0, 1.0, 1.0, 3.0)).limits  # the median is the best
    assert low < 1 < 3 < high


@pytest.mark.parametrize(
    ("found", "width"),
    [
        (tuning(1.0), 1280),
        (tuning(2.0, "1.5", None, 1.0, 99.0), 1280),
        (tuning(2.0, 1.0, importance={"lr": 0.75, "$x": 0.25}), 2000),
    ],
)
def test_a_chart_is_drawn_as_a_png(
    found: Tuning, width: int, tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]
) -> None:
    path = draw_search(search_chart(found), tmp_path / "search.png", title="at $5 or $6")
    assert png_size(path) == (width, 800)
    assert [file.name for file in tmp_path.iterdir()] == ["search.png"]


def test_an_invalid_path_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        draw_search(search_chart(tuning(1.0)), tmp_path / "nowhere" / "search.png")


CATALOGUE = {"mode": list("ABCD"), "x": [0.0, 1.0, -1.0, 0.5], "margin": [0.0, 3.0, 4.0, 2.0]}


@pytest.fixture(scope="module")
def model() -> pn.MNL:
    data = read(logit_choices(200, {"x": 1.0}, sizes=(3, 4)), alternative="mode", features=["x"])
    return pn.MNL(formula="x | 0").fit(data)


def test_revenue_rises_with_size_until_it_no_longer_helps(model: pn.MNL) -> None:
    frontier = pn.offer_frontier(model, CATALOGUE, "margin", sizes=[1, 2, 3], outside="A")
    values = frontier.to_frame()["value"].tolist()
    assert values == sorted(values)
    assert [len(offer.labels) <= size for size, offer in zip(frontier.sizes, frontier.offers, strict=True)]
    assert values[-1] == pn.optimise_offer(model, CATALOGUE, "margin", outside="A").value
    assert "100.0%" in str(frontier)


def test_the_picture_has_a_point_for_each_size(model: pn.MNL) -> None:
    frontier = pn.offer_frontier(model, CATALOGUE, "margin", sizes=[1, 3], outside="A")
    axes = frontier.plot()
    (line,) = axes.lines
    assert line.get_xdata().tolist() == [1, 3]
    assert line.get_ydata().tolist() == [offer.value for offer in frontier.offers]
    assert frontier.plot(ax=axes) is axes


def test_a_frontier_needs_sizes_without_other_size_limits(model: pn.MNL) -> None:
    with pytest.raises(InputError, match="sizes: expected at least one"):
        pn.offer_frontier(model, CATALOGUE, "margin", sizes=[])
    with pytest.raises(InputError, match="constraints: expected no size"):
        pn.offer_frontier(model, CATALOGUE, "margin", constraints=pn.Constraints(size=2))
