"""A figure -> a PNG, PDF or SVG file: whole, or not there at all, and the same bytes each time.

Figures are matplotlib objects of their own: no display, no window system, no state shared with ``pyplot``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcmcnet.errors import InputError
from pcmcnet.plots.style import set_title
from pcmcnet.storage.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200  # sharp in print at the size of a column
# What each format would note of the hour, left out: the same picture is the same file.
_TIMELESS: dict[str, dict[str, Any]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}


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
    with replacing(target) as beside, rc_context({"svg.hashsalt": "pcmcnet"}):
        figure.savefig(beside, format=kind[1:], dpi=dpi, metadata=_TIMELESS[kind])
    return target
