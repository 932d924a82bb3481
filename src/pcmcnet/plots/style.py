"""How all pictures look: colours that all eyes tell apart, quiet axes, and names that are never read as formulas.

The reader's own style comes first: sizes and colours of letters, lines and grids are those of matplotlib's settings
(``rcParams``), and so are the colours of what is drawn once they are not matplotlib's defaults. Nothing is set there.

A figure becomes a PNG, PDF or SVG file that is whole or not there at all, and has the same bytes each time. Figures of
files are matplotlib objects of their own: no display, no window system, no state shared with ``pyplot``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pcmcnet.errors import InputError
from pcmcnet.storage import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, YELLOW)  # of Okabe and Ito
_WIDEST = 60  # letters of a label
DPI = 200  # sharp in print at the size of a column
# What each format would note of the hour, left out: the same picture is the same file.
_TIMELESS: dict[str, dict[str, Any]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}


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


def picture_path(path: str | os.PathLike[str]) -> Path:
    """Check a destination before any work is done for it."""
    target = Path(path)
    if target.suffix.lower() not in _TIMELESS:
        raise InputError(f"expected a file name that ends in .png, .pdf or .svg, got {target.name!r}.")
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist. Create it first.")
    return target


@contextmanager
def new_picture(
    path: str | os.PathLike[str], size: tuple[float, float], *, title: str = "", dpi: int = DPI
) -> Iterator[Figure]:
    """Give a figure to draw on, and write it once it is drawn.

    Parameters
    ----------
    path
        Where the file goes, .png, .pdf or .svg; its folder must exist.
    size
        Width and height in inches.
    title
        Above the whole picture, if there is one.
    dpi
        Dots per inch, of a PNG.

    Raises
    ------
    InputError
        When the path is not that of a PNG, PDF or SVG file in an existing folder; nothing is drawn then.
    """
    from matplotlib.figure import Figure

    target = picture_path(path)
    figure = Figure(figsize=size, layout="constrained")
    yield figure
    set_title(figure, title)
    save_picture(figure, target, dpi=dpi)


def save_picture(figure: Figure, path: str | os.PathLike[str], *, dpi: int = DPI) -> Path:
    """Draw beside the destination and rename into it, so that no half-written file is ever seen."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    target = picture_path(path)
    kind = target.suffix.lower()
    FigureCanvasAgg(figure)  # becomes the figure's canvas
    with atomic_write(target) as beside, rc_context({"svg.hashsalt": "pcmcnet"}):
        figure.savefig(beside, format=kind[1:], dpi=dpi, metadata=_TIMELESS[kind])
    return target
