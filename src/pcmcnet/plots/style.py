"""How all pictures look: colours that all eyes tell apart, quiet axes, and names that are never read as formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, YELLOW)  # of Okabe and Ito


def plain(text: str) -> str:
    """Keep a dollar sign from beginning a formula."""
    return text.replace("$", r"\$")


def tidy(axes: Axes, *, grid: Literal["both", "x"] = "both") -> None:
    """Put a light grid behind what is drawn, and leave out the frame above and on the right."""
    axes.grid(axis=grid, color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=10)


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
        figure.suptitle(plain(title), fontsize=13)
