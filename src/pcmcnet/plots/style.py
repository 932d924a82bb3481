"""The common style of all plots: colours for colour-blind readers, light axes, and no parsing of names as formulas.

The user's matplotlib settings (``rcParams``) take precedence: they determine fonts, lines and grids, and also the
colour cycle unless it is matplotlib's default. The settings are never changed.

A figure is written to a PNG, PDF or SVG file atomically, and the same figure always yields the same bytes. Figures for
files are separate matplotlib objects, so they need no display and share no state with ``pyplot``.
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
_MAX_LABEL_LENGTH = 60  # characters
DPI = 200  # sharp in print at column width
# Metadata that removes the time from each format, so that the same picture gives the same file.
_METADATA: dict[str, dict[str, Any]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}


def colour(number: int) -> Any:
    """Return a colour from the user's colour cycle, or from Okabe and Ito's if the cycle is matplotlib's default."""
    from matplotlib import rcParams, rcParamsDefault

    cycle = rcParams["axes.prop_cycle"].by_key().get("color", [])
    default = rcParamsDefault["axes.prop_cycle"].by_key()["color"]
    chosen = COLOURS if cycle in ([], default) else cycle
    return chosen[number % len(chosen)]


def text_colour() -> Any:
    """Return the text colour, which is used for lines and marks with full contrast."""
    from matplotlib import rcParams

    return rcParams["text.color"]


def background_colour() -> Any:
    """Return the background colour of the axes, which is used to fill hollow marks."""
    from matplotlib import rcParams

    return rcParams["axes.facecolor"]


def axes_for(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return ``ax``, or the axes of a new pyplot figure, which notebooks and ``plt.show()`` display."""
    from matplotlib import pyplot as plt

    return plt.figure(figsize=size, layout="constrained").subplots() if ax is None else ax


def enable_notebook_display() -> None:
    """Make notebooks display returned figures, by making pyplot choose its backend."""
    from matplotlib import pyplot as plt

    plt.get_backend()
    plt.close(plt.figure())


def escape_dollars(text: str) -> str:
    """Escape dollar signs, which would start a formula."""
    return text.replace("$", r"\$")


def shorten(line: str) -> str:
    """Shorten a label that would leave no room for the plot."""
    return line if len(line) <= _MAX_LABEL_LENGTH else f"{line[: _MAX_LABEL_LENGTH - 3]}..."


def style_axes(axes: Axes, *, grid: Literal["both", "x"] = "both") -> None:
    """Draw a light grid behind the marks, and remove the top and right sides of the frame."""
    axes.grid(axis=grid, alpha=0.35)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def label_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label the rows of a chart on the left, the first row on top."""
    axes.set_yticks(range(len(names)), [escape_dollars(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    style_row_axes(axes)


def style_row_axes(axes: Axes) -> None:
    """Style axes whose rows have names: draw grid lines for the values, but no left side of the frame and no ticks."""
    style_axes(axes, grid="x")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def set_title(figure: Figure, title: str) -> None:
    """Set the title of the whole figure, unless it is empty."""
    if title:
        figure.suptitle(escape_dollars(title))


def require_picture_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a figure file. Raise InputError if its extension or its folder is not valid."""
    target = Path(path)
    if target.suffix.lower() not in _METADATA:
        raise InputError(f"expected a file name that ends in .png, .pdf or .svg, got {target.name!r}.")
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist. Create it first.")
    return target


@contextmanager
def new_picture(
    path: str | os.PathLike[str], size: tuple[float, float], *, title: str = "", dpi: int = DPI
) -> Iterator[Figure]:
    """Yield a figure to draw on, and write it to a file at the end of the block.

    Parameters
    ----------
    path
        File to write: .png, .pdf or .svg, in an existing folder.
    size
        Width and height in inches.
    title
        Title of the whole figure (default: none).
    dpi
        Resolution of a PNG file in dots per inch (default 200).

    Yields
    ------
    matplotlib.figure.Figure
        An empty figure.

    Raises
    ------
    InputError
        If the path does not end in .png, .pdf or .svg, or its folder does not exist. The path is checked before the
        figure is drawn.
    """
    from matplotlib.figure import Figure

    target = require_picture_path(path)
    figure = Figure(figsize=size, layout="constrained")
    yield figure
    set_title(figure, title)
    save_picture(figure, target, dpi=dpi)


def save_picture(figure: Figure, path: str | os.PathLike[str], *, dpi: int = DPI) -> Path:
    """Write a figure atomically, under a temporary name that is then renamed. Return the path."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    target = require_picture_path(path)
    kind = target.suffix.lower()
    FigureCanvasAgg(figure)  # sets the canvas of the figure
    with atomic_write(target) as temporary, rc_context({"svg.hashsalt": "pcmcnet"}):
        figure.savefig(temporary, format=kind[1:], dpi=dpi, metadata=_METADATA[kind])
    return target
