"""Pictures of tastes."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcmcnet.errors import InputError
from pcmcnet.models.logits.tastes import Tastes
from pcmcnet.plots.tastes import draw_tastes, taste_chart

DRAWS = np.vstack([np.linspace(-1, 3, 1001), np.full(1001, 2.0)])
TASTES = Tastes.of(["x", "$y$"], ["uniform", "normal"], DRAWS)


def test_a_chart_is_a_density_between_the_outer_quantiles() -> None:
    chart = taste_chart(TASTES["x"], DRAWS[0])
    np.testing.assert_allclose(chart.density, 0.25, rtol=0.1)  # 1 over the width of 4
    assert chart.edges[[0, -1]] == pytest.approx([-0.98, 2.98])
    assert chart.note == "25% below 0"
    alike = taste_chart(TASTES["$y$"], DRAWS[1])
    assert alike.note == "all above 0"
    assert np.isfinite(alike.density).all()


def test_one_coefficient_goes_into_axes_and_all_into_a_figure() -> None:
    axes = Figure().subplots()
    assert draw_tastes(TASTES, "x", ax=axes) is axes
    assert axes.get_title() == "x: uniform"
    assert isinstance(draw_tastes(TASTES, "x"), Axes)
    figure = draw_tastes(TASTES)
    assert isinstance(figure, Figure)
    assert len([panel for panel in figure.axes if panel.get_visible()]) == 2
    with pytest.raises(InputError, match="one set of axes holds one coefficient, and there are 2: give name="):
        draw_tastes(TASTES, ax=axes)
