from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.chain import Chain
from pcmcnet.layers import stationary_distribution
from pcmcnet.plots.chain import MAX_ARROWS, MIN_RELATIVE_FLOW, chain_chart, chain_figure, draw_chain

PngSize = Callable[[Path], tuple[int, int]]


def make_chain(n: int, *, reversible: bool = False, seed: int = 0) -> Chain:
    rng = np.random.default_rng(seed)
    q = np.tile(rng.exponential(size=n), (n, 1)) if reversible else np.exp(rng.normal(0, 2, (n, n)))
    np.fill_diagonal(q, 0.0)
    q = q / max(q.max(), 1e-300)
    law = stationary_distribution(torch.from_numpy(q)).numpy()
    return Chain(labels=tuple(f"plan ${k}" for k in range(n)), rates=q, probabilities=law, choice_set="trip $9")


def test_a_small_chain_is_drawn_completely() -> None:
    chain = make_chain(4)
    chart = chain_chart(chain)
    assert chart.labels == chain.labels
    np.testing.assert_array_equal(chart.rates, chain.rates)
    np.testing.assert_allclose(np.hypot(*chart.places.T), 1, rtol=1e-12)
    np.testing.assert_allclose(chart.places[:2], [[0, 1], [1, 0]], atol=1e-15)  # clockwise from the top
    assert chart.circulation == chain.circulation


def test_arrows_are_flows_with_the_stronger_direction_first() -> None:
    chain = make_chain(4)
    chart = chain_chart(chain)
    flows = chain.flows
    assert max(arrow.flow for arrow in chart.arrows) == 1
    assert [arrow.flow for arrow in chart.arrows] == sorted(arrow.flow for arrow in chart.arrows)
    for i, j, flow, ahead in chart.arrows:
        assert flow == pytest.approx(flows[i, j] / flows.max(), rel=1e-12)
        assert flow >= MIN_RELATIVE_FLOW
        net = (flows[i, j] - flows[j, i]) / (flows[i, j] + flows[j, i])
        assert ahead == pytest.approx(max(net, 0), rel=1e-12)
    hidden = 12 - len(chart.arrows)
    assert chart.notes == ((f"{hidden} weaker flows are not drawn",) if hidden else ())


def test_a_reversible_chain_has_no_stronger_direction() -> None:
    assert max(arrow.ahead for arrow in chain_chart(make_chain(6, reversible=True)).arrows) < 1e-12


def test_large_chains_show_the_most_probable_alternatives() -> None:
    chain = make_chain(30)
    chart = chain_chart(chain)
    assert len(chart.labels) == 12
    assert chart.probabilities.min() >= np.sort(chain.probabilities)[-12]
    shown = [chain.labels.index(label) for label in chart.labels]
    assert shown == sorted(shown)
    share = chain.probabilities[shown].sum()
    assert chart.notes[0] == f"12 of 30 alternatives are shown; they have {share:.1%} of the probability"
    assert len(chart.arrows) <= MAX_ARROWS
    assert len(chain_chart(chain, most=3).labels) == 3
    with pytest.raises(ConfigError, match="most must be a whole number of at least 1"):
        chain_chart(chain, most=0)


@pytest.mark.parametrize("n", [1, 2, 12, 30])
def test_chains_of_all_sizes_are_drawn(n: int, tmp_path: Path, png_size: PngSize) -> None:
    path = draw_chain(make_chain(n), tmp_path / "chain.png")
    assert png_size(path) == (1265, 638)


def test_a_picture_has_a_title(tmp_path: Path) -> None:
    path = draw_chain(make_chain(3), tmp_path / "chain.svg", title="one $ and another $")
    assert path.read_bytes().startswith(b"<?xml")
    assert (
        path.read_bytes() == draw_chain(make_chain(3), tmp_path / "same.svg", title="one $ and another $").read_bytes()
    )
    with pytest.raises(InputError, match=r"ends in .png, .pdf or .svg"):
        draw_chain(make_chain(3), tmp_path / "chain.gif")


def test_a_chain_has_a_node_for_each_alternative() -> None:
    chain = make_chain(4)
    figure = chain_figure(chain)
    (nodes,) = figure.traces
    assert len(nodes["x"]) == 4
    places = {(round(x, 9), round(y, 9)) for x, y in zip(nodes["x"], nodes["y"], strict=True)}
    for arrow in figure.layout["annotations"]:
        near = min(np.hypot(arrow["x"] - x, arrow["y"] - y) for x, y in places)
        assert near == pytest.approx(0.025, abs=1e-6)  # next to its node; positions are rounded
    assert f"{chain.circulation:.1%} of all moves" in figure.caption
