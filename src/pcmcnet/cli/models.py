"""``pcmcnet models``: list models and their options. ``pcmcnet export``: export a model to ONNX or torch.export."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, line_width, print_result

if TYPE_CHECKING:
    from pcmcnet.models import ChoiceModel


def models(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of a model. Without a name, list all models.", autocompletion=arguments.complete_model
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """List all models, or the options of one model with their defaults and descriptions.

    Example: `pcmcnet models pcmcnet`, then `pcmcnet fit trips.csv --schema roles.toml --set hidden=128,128 -o model`
    """
    from pcmcnet.models import MODELS, model_class

    if name is not None:
        _show_options(model_class(name), as_json=json_)
        return
    name_width, gives_width = max(map(len, MODELS)) + 2, 15
    head = f"{'name':<{name_width}}{'gives':<{gives_width}}description"
    rows = [f"{key:<{name_width}}{kind.gives:<{gives_width}}{_first_line(kind)}" for key, kind in MODELS.items()]
    lines = [fill(row, line_width(), subsequent_indent=" " * (name_width + gives_width)) for row in rows]
    text = "\n".join([head, *lines, "", "To list the options of a model: pcmcnet models NAME"])
    print_result(text, {key: _about(kind) for key, kind in MODELS.items()}, as_json=json_, strong=[head])


def _first_line(kind: type[ChoiceModel]) -> str:
    return (kind.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()


def _about(kind: type[ChoiceModel]) -> dict[str, Any]:
    facts = ("gives", "stops_early", "streams", "reads_contents")
    names = {"name": kind.name, "class": kind.__name__, "what": _first_line(kind)}
    return names | {fact: getattr(kind, fact) for fact in facts}


def _options(kind: type[ChoiceModel]) -> list[dict[str, Any]]:
    from pcmcnet.models.interface.options import REQUIRED, option_docs

    entries = []
    for option in option_docs(kind.config_class):
        required = option.default is REQUIRED
        default = None if required else option.default
        entries.append({"name": option.name, "required": required, "default": default, "meaning": option.meaning})
    return entries


def _show_options(kind: type[ChoiceModel], *, as_json: bool) -> None:
    from pcmcnet.tuning.space import in_words

    abilities = ["gives a ranking" if kind.gives == "ranking" else f"gives {kind.gives}"]
    abilities += ["trains in epochs (--valid, --resume)"] if kind.stops_early else []
    abilities += ["can be resumed after an interruption (--resume)"] if kind.resumes else []
    abilities += ["reads tables larger than memory (--stream)"] if kind.streams else []
    abilities += ["reads columns of text, images and other kinds (--kinds)"] if kind.reads_contents else []
    lines, strong, options = [fill(f"It {'; '.join(abilities)}.", line_width()), ""], [], _options(kind)
    for option in options:
        value = " (required)" if option["required"] else f"={in_words(option['default'])}"
        strong.append(f"{option['name']}{value}")
        lines += [strong[-1], fill(option["meaning"], line_width(), initial_indent="    ", subsequent_indent="    ")]
    text = "\n".join([f"{kind.name}: {_first_line(kind)}", *lines, *([] if options else ["No options."])])
    print_result(text, {**_about(kind), "options": options}, as_json=as_json, strong=strong)


def export(
    model: arguments.SavedModel,
    file: Annotated[Path, typer.Argument(help="File to write: .onnx, or .pt2 for torch.export.load.")],
    json_: Json = False,
) -> None:
    """Export MODEL to ONNX or torch.export, with a JSON file that describes its inputs.

    Example: `pcmcnet export model model.onnx` also writes model.encoder.json
    """
    from pcmcnet.models import load
    from pcmcnet.models.networks.export import ENCODER

    graph = load(model).export(file)
    encoder = graph.with_suffix(f".{ENCODER}")
    print_result(f"wrote {graph} and {encoder}", {"graph": str(graph), "encoder": str(encoder)}, as_json=json_)
