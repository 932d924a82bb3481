"""A figure -> a PNG file: whole, or not there at all.

Figures are matplotlib objects of their own: no display, no window system, no state shared with ``pyplot``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pcmcnet.data.files import replacing
from pcmcnet.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200  # sharp in print at the size of a column


def png_path(path: str | os.PathLike[str]) -> Path:
    """Check a destination before any work is done for it."""
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise InputError(f"expected a file name that ends in .png, got {target.name!r}.")
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist. Create it first.")
    return target


def save_png(figure: Figure, path: str | os.PathLike[str], *, dpi: int = DPI) -> Path:
    """Draw beside the destination and rename into it, so that no half-written file is ever seen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    target = png_path(path)
    FigureCanvasAgg(figure)  # becomes the figure's canvas
    with replacing(target) as beside:
        figure.savefig(beside, format="png", dpi=dpi)
    return target
