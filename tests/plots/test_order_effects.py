from collections.abc import Iterator

import pytest
from matplotlib import pyplot as plt

from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.order_effects import Order, OrderEffects, Term
from pcmcnet.plots.order_effects import order_bars

ORDERS = (
    Order("1", 3, 1.0, 1.5, 0.75, 0.9, 0.0),
    Order("2", 3, 0.2, 0.5, 0.25, 1.0, 0.1),
)
TERMS = (Term(8, "car", "bus", ("train", "bike"), -0.4),)


def found(terms: tuple[Term, ...] = TERMS) -> OrderEffects:
    return OrderEffects(model="Net", orders=ORDERS, terms=terms, sets=1, sampled=1, pairs=3, questions=9, seed=0)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


def test_bars_are_contributions_with_what_is_explained_beside_them() -> None:
    assert [(bar.label, bar.value, bar.note) for bar in order_bars(found())] == [
        ("order 1", 1.5, "90.0%"),
        ("order 2", 0.5, "100.0%"),
    ]
    axes = found().plot()
    assert [bar.get_width() for bar in axes.patches] == [1.5, 0.5]
    (error,) = (line for line in axes.lines if len(set(line.get_xdata())) == 2)  # the other line is that of 0
    assert list(error.get_xdata()) == [0.4, 0.6]


def test_terms_are_named_by_those_who_act_and_those_acted_on() -> None:
    (bar,) = order_bars(found(), "terms")
    assert (bar.label, bar.value, bar.note) == ("set 8: car against bus\nby train + bike", -0.4, "-0.40")
    assert found().plot("terms").patches[0].get_width() == -0.4


def test_no_term_and_an_unknown_figure_are_refused() -> None:
    with pytest.raises(InputError, match="no set has three alternatives"):
        found(()).plot("terms")
    with pytest.raises(ConfigError, match="what"):
        found().plot("pairs")  # type: ignore[arg-type]
