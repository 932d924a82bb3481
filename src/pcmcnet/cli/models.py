"""``pcmcnet models``: the models and the options of each; ``pcmcnet export``: a saved model as a graph."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import Json, columns, show

if TYPE_CHECKING:
    from pcmcnet.models import ChoiceModel


def models(
    name: Annotated[
        str | None, typer.Argument(help="A model; none lists them all.", autocompletion=options.model_names)
    ] = None,
    json_: Json = False,
) -> None:
    """List the models, or the options of one of them with their defaults.

    Example: `pcmcnet models pcmcnet`, then `pcmcnet fit trips.csv --schema roles.toml --set hidden=128,128 -o model`
    """
    from pcmcnet.models import MODELS, model_class

    if name is not None:
        _show_options(model_class(name), as_json=json_)
        return
    width, gives = max(map(len, MODELS)) + 2, 15
    head = f"{'name':<{width}}{'gives':<{gives}}what it is"
    rows = [f"{key:<{width}}{kind.gives:<{gives}}{_first_line(kind)}" for key, kind in MODELS.items()]
    lines = [fill(row, columns(), subsequent_indent=" " * (width + gives)) for row in rows]
    text = "\n".join([head, *lines, "", "The options of a model: pcmcnet models NAME"])
    show(text, {key: _about(kind) for key, kind in MODELS.items()}, as_json=json_, strong=[head])


def _first_line(kind: type[ChoiceModel]) -> str:
    return (kind.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()


def _about(kind: type[ChoiceModel]) -> dict[str, Any]:
    facts = ("gives", "stops_early", "streams", "reads_contents")
    names = {"name": kind.name, "class": kind.__name__, "what": _first_line(kind)}
    return names | {fact: getattr(kind, fact) for fact in facts}


def _options(kind: type[ChoiceModel]) -> list[dict[str, Any]]:
    from pcmcnet.models.interface.options import REQUIRED, option_docs

    found = []
    for option in option_docs(kind.config_class):
        required = option.default is REQUIRED
        default = None if required else option.default
        found.append({"name": option.name, "required": required, "default": default, "meaning": option.meaning})
    return found


def _show_options(kind: type[ChoiceModel], *, as_json: bool) -> None:
    from pcmcnet.tuning.space import in_words

    uses = ["gives a ranking" if kind.gives == "ranking" else f"gives {kind.gives}"]
    uses += ["trains in epochs (--valid, --resume)"] if kind.stops_early else []
    uses += ["reads tables larger than memory (--stream)"] if kind.streams else []
    uses += ["reads texts, images and the like (--kinds)"] if kind.reads_contents else []
    lines, strong, options = [fill(f"It {'; '.join(uses)}.", columns()), ""], [], _options(kind)
    for option in options:
        value = " (required)" if option["required"] else f"={in_words(option['default'])}"
        strong.append(f"{option['name']}{value}")
        lines += [strong[-1], fill(option["meaning"], columns(), initial_indent="    ", subsequent_indent="    ")]
    text = "\n".join([f"{kind.name}: {_first_line(kind)}", *lines, *([] if options else ["No options."])])
    show(text, {**_about(kind), "options": options}, as_json=as_json, strong=strong)


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
