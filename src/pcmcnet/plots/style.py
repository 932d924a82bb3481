"""How all pictures look: colours that all eyes tell apart, quiet axes, and names that are never read as formulas.

The reader's own style comes first: sizes and colours of letters, lines and grids are those of matplotlib's settings
(``rcParams``), and so are the colours of what is drawn once they are not matplotlib's defaults. Nothing is set there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, YELLOW)  # of Okabe and Ito
_WIDEST = 60  # letters of a label


def colour(number: int) -> Any:
    """Return a colour by its number: of the reader's cycle, or of Okabe and Ito where that is matplotlib's default."""
    from matplotlib import rcParams, rcParamsDefault

    cycle = rcParams["axes.prop_cycle"].by_key().get("color", [])
    default = rcParamsDefault["axes.prop_cycle"].by_key()["color"]
    chosen = COLOURS if cycle in ([], default) else cycle
    return chosen[number % len(chosen)]


def ink() -> Any:
    """Return the colour of letters, for lines and marks that must stand out from what is behind them."""
    from matplotlib import rcParams

    return rcParams["text.color"]


def paper() -> Any:
    """Return the colour behind what is drawn, for the inside of hollow marks."""
    from matplotlib import rcParams

    return rcParams["axes.facecolor"]


def axes_for(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the axes given, or those of a new figure of pyplot, which a notebook shows and ``plt.show()`` too."""
    from matplotlib import pyplot as plt

    return plt.figure(figsize=size, layout="constrained").subplots() if ax is None else ax


def shown_by_notebooks() -> None:
    """Let notebooks show figures that are returned: they begin to when pyplot chooses where to draw."""
    from matplotlib import pyplot as plt

    plt.get_backend()
    plt.close(plt.figure())


def plain(text: str) -> str:
    """Keep a dollar sign from beginning a formula."""
    return text.replace("$", r"\$")


def cut(line: str) -> str:
    """Shorten a line that would leave no room for what is drawn."""
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 3]}..."


def tidy(axes: Axes, *, grid: Literal["both", "x"] = "both") -> None:
    """Put a light grid behind what is drawn, and leave out the frame above and on the right."""
    axes.grid(axis=grid, alpha=0.35)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def name_lines(axes: Axes, names: Sequence[str]) -> None:
    """Name the lines of a chart down its left side, the first on top."""
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    quiet_lines(axes)


def quiet_lines(axes: Axes) -> None:
    """A grid along the values alone, and no frame beside the names."""
    tidy(axes, grid="x")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def set_title(figure: Figure, title: str) -> None:
    """Write a title above the whole picture, if there is one."""
    if title:
        figure.suptitle(plain(title))
