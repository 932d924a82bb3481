"""Figures of single choice sets."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pcmcnet import Explanation
from pcmcnet.insight.example_sets import ExampleSet
from pcmcnet.insight.preference_map import PreferenceMap
from pcmcnet.plots.explanation import page_set_figures

Make = Callable[..., ExampleSet]


@pytest.fixture
def example(explained: dict[str, Explanation]) -> ExampleSet:
    examples = explained["chain"].examples
    assert examples is not None
    return examples[1]


def test_probabilities_are_bars_with_the_choice_in_another_colour(example: ExampleSet) -> None:
    (trace,) = page_set_figures.probabilities_figure(example).traces
    assert trace["x"] == sorted(example.p.tolist())
    assert example.chosen is not None
    chosen = [colour == page_set_figures.ORANGE for colour in trace["marker"]["color"]]
    assert [p for p, mark in zip(trace["x"], chosen, strict=True) if mark] == [example.p[example.chosen]]


def test_of_a_large_set_the_most_probable_are_shown_and_always_the_choice(example: ExampleSet) -> None:
    p = np.arange(40, 0, -1) / np.arange(40, 0, -1).sum()
    large = replace(example, p=p, names=tuple(map(str, range(40))), chosen=39)
    assert page_set_figures.shown(large) == [*range(14), 39]
    assert page_set_figures.shown(replace(large, chosen=None)) == [*range(15)]
    assert "25 less probable ones" in page_set_figures.probabilities_figure(large).caption


def test_what_rivals_do_adds_up_to_the_change(example: ExampleSet) -> None:
    found = example.attribution
    assert found is not None
    logit, beyond = page_set_figures.attribution_figure(found).traces
    order = np.argsort(-np.abs(found.change), kind="stable")[::-1]
    np.testing.assert_allclose(np.add(logit["x"], beyond["x"]), found.change[order], rtol=0, atol=1e-12)
    np.testing.assert_allclose(beyond["x"], found.change_beyond[order], rtol=0, atol=1e-12)


def test_small_changes_have_the_decimals_to_be_seen(example: ExampleSet) -> None:
    """A choice of 0.02 % that loses 0.004 points to its rivals: no axis of -0 % and +0 %."""
    found = example.attribution
    assert found is not None
    rare = replace(found, p=2e-4, without=2e-4 + 4e-5 * np.arange(1, len(found.rivals) + 1) / len(found.rivals))
    figure = page_set_figures.attribution_figure(rare)
    assert figure.caption.endswith("at 0.02%.")
    assert figure.layout["xaxis"]["tickformat"] == "+.4~%"
    assert figure.numbers[1][3] == "-4e-05"


def test_a_chain_has_a_node_for_each_alternative_and_arrows_between_them(example: ExampleSet) -> None:
    assert example.chain is not None
    figure = page_set_figures.chain_figure(example.chain)
    (nodes,) = figure.traces
    assert len(nodes["x"]) == len(example.p)
    places = {(round(x, 9), round(y, 9)) for x, y in zip(nodes["x"], nodes["y"], strict=True)}
    for arrow in figure.layout["annotations"]:
        near = min(np.hypot(arrow["x"] - x, arrow["y"] - y) for x, y in places)
        assert near == pytest.approx(0.025, abs=1e-6)  # aside of its node; places were rounded
    assert f"{example.chain.circulation:.1%} of all moves" in figure.caption


def test_a_map_is_grey_where_the_third_changes_nothing() -> None:
    """The preference goes from .2 to .5, and without the third it is .4: colours reach 0.2 on either side."""
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    found = PreferenceMap(x, y, np.array([[0.2, 0.4], [0.4, 0.5]]), (1, 3), (2, 4), (1, 4), 0.4)
    figure = page_set_figures.map_figure(found, ("price", "time"), ("a", "b", "c"))
    heat, *dots = figure.traces
    assert (heat["zmin"], heat["zmax"]) == pytest.approx((0.2, 0.6), abs=1e-12)
    assert heat["z"] == found.preference.tolist()
    colours = [colour for _, colour in heat["colorscale"]]
    assert (colours[0], colours[8], colours[-1]) == ("rgb(179,86,27)", "rgb(238,238,238)", "rgb(32,99,155)")
    assert "grey at 40.0%, as without c" in figure.caption
    assert "goes from 20.0% to 50.0%" in figure.caption
    assert [dot["name"] for dot in dots] == ["a", "b", "c"]
    assert figure.numbers[0] == ["time \\ price", "1", "2"]
    assert figure.numbers[1] == ["4", "0.4000", "0.5000"]


def test_a_map_without_any_change_can_be_drawn() -> None:
    flat = PreferenceMap(np.arange(2.0), np.arange(2.0), np.full((2, 2), 0.5), (0, 0), (1, 1))
    heat, *dots = page_set_figures.map_figure(flat, ("price", "time"), ("a", "b", "c")).traces
    assert (heat["zmin"], heat["zmax"]) == pytest.approx((0.45, 0.55), abs=1e-12)  # nothing is dramatised
    assert heat["colorscale"][8][1] == "rgb(238,238,238)"
    assert len(dots) == 2
