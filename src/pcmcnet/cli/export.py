"""``pcmcnet export``: a saved model to a file for programs without this library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import Json, show


def export(
    model: options.SavedModel,
    file: Annotated[Path, typer.Argument(help="File to write: .onnx, or .pt2 for torch.export.load.")],
    json_: Json = False,
) -> None:
    """Write MODEL as a graph for other programs and languages, and how columns become its inputs beside it.

    Example: `pcmcnet export model model.onnx` also writes model.encoder.json
    """
    from pcmcnet.models import load
    from pcmcnet.models.networks.export import ENCODER

    written = load(model).export(file)
    beside = written.with_suffix(f".{ENCODER}")
    show(f"wrote {written} and {beside}", {"graph": str(written), "encoder": str(beside)}, as_json=json_)
