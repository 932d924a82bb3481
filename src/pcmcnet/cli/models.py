"""``pcmcnet models``: list models and their options. ``pcmcnet export``: export a model to ONNX or torch.export."""

from __future__ import annotations

import re
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
    r"""List all models, or the options of one model with their defaults and descriptions.

    For example:

        pcmcnet models
        pcmcnet models pcmcnet
        pcmcnet fit trips.csv --schema roles.toml --set hidden=128,128 -o model
    """
    from pcmcnet.models import FAMILIES, MODELS, model_class

    if name is not None:
        _show_options(model_class(name), as_json=json_)
        return
    if json_:
        print_result("", {key: _about(kind) for key, kind in MODELS.items()}, as_json=True)
        return
    width = max(map(len, MODELS)) + 4
    lines = []
    for family, places in FAMILIES.items():
        lines.append(family)
        for key, place in places.items():
            row = f"  {key:<{width - 2}}{_description(place)}"
            lines.append(fill(row, line_width(), subsequent_indent=" " * width))
        lines.append("")
    lines.append("To list the options of a model: pcmcnet models NAME")
    print_result("\n".join(lines), {}, as_json=False, strong=[*FAMILIES])


def _description(place: str) -> str:
    """Return the first paragraph of a model's docstring, read from its file, because importing networks is slow."""
    module, _, kind = place.partition(".")
    text = (Path(__file__).parents[1] / "models" / f"{module}.py").read_text("utf-8")
    body = re.split(r"^class ", text.partition(f"\nclass {kind}(")[2], maxsplit=1, flags=re.MULTILINE)[0]
    match = re.search(r'"""(.*?)(?:\n\n|""")', body, re.DOTALL)
    gives = re.search(r'^    gives = "(\w+)"', body, re.MULTILINE)
    described = "" if match is None else " ".join(match[1].split())
    return f"{described} (gives {'a ranking' if gives[1] == 'ranking' else gives[1]})" if gives else described


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

    This command also writes model.encoder.json:

        pcmcnet export model model.onnx
    """
    from pcmcnet.models import load
    from pcmcnet.models.networks.export import ENCODER

    graph = load(model).export(file)
    encoder = graph.with_suffix(f".{ENCODER}")
    print_result(f"wrote {graph} and {encoder}", {"graph": str(graph), "encoder": str(encoder)}, as_json=json_)
