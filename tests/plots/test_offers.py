"""The frontier of offers, in numbers and as a picture."""

import pytest

import pcmcnet as pn
from choice_tables import logit_choices, read
from pcmcnet.errors import InputError

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


def test_sizes_are_needed_and_stand_alone(model: pn.MNL) -> None:
    with pytest.raises(InputError, match="sizes: expected at least one"):
        pn.offer_frontier(model, CATALOGUE, "margin", sizes=[])
    with pytest.raises(InputError, match="no size among the constraints"):
        pn.offer_frontier(model, CATALOGUE, "margin", constraints=pn.Constraints(size=2))
