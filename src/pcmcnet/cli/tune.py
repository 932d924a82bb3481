"""``pcmcnet tune``: search for a model's options on a table, and fit the best."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import Json, kept_when_interrupted, say, show, written


@options.with_roles
def tune(
    context: typer.Context,
    table: options.Table,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the trials, the result and the model.")],
    model: options.ModelName = "pcmcnet",
    trials: Annotated[int, typer.Option(help="Configurations to try, the defaults and failed ones included.")] = 25,
    space: Annotated[
        str | None,
        typer.Option(
            help="default, paper or wide; those of --search come on top.  [default: default]",
            autocompletion=options.space_names,
        ),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help="Option to search: name=low:high, name=log:low:high or name=a,b,c; repeatable."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Option to hold fixed, as name=value; repeatable.")
    ] = None,
    valid: Annotated[float, typer.Option(help="Share of the sets held out to measure trials; in folds if few.")] = 0.2,
    by: options.By = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    timeout: Annotated[float | None, typer.Option(help="Seconds after which no further trial begins.")] = None,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    json_: Json = False,
) -> None:
    """Search for the options with which a model predicts held-out choices of TABLE best, and fit it with them.

    The first trial has the defaults, with the options of --set. They are kept unless the best trial is better by more
    than chance explains.

    Each trial is kept in the output folder when it ends: after an interruption the same command goes on, and with
    more trials it searches further. The result is tuning.json, tuning.md, search.png and the fitted model in the folder
    model. Judge that model on data that are not in TABLE.

    Example: `pcmcnet tune trips.csv --choice-set trip --chosen took --features time,cost -o study`

    With a space of your own; lists are separated by slashes:
    `pcmcnet tune trips.csv --schema roles.toml --search lr=log:1e-4:1e-1 --search hidden=16/32,32
    --search activation=relu,tanh --set epochs=50 --trials 40 -o study`

    Four trials at once: `pcmcnet tune trips.csv --schema roles.toml --engine ray --workers 4 -o study`
    """
    from pcmcnet.data import ChoiceData
    from pcmcnet.plots import draw_search, search_chart
    from pcmcnet.storage import sole_writer
    from pcmcnet.tuning import tune as find

    many = options.workers_of(engine, workers)
    estimator, searched = _read_search(model, space, search or [], set_ or [])
    found = options.of_command(context.params, "tuning")
    found = options.keeping(found, by, getattr(estimator.config, "cluster", None))
    context.with_resource(sole_writer(output))
    data = ChoiceData.from_schema(table, found)
    say(f"read {data!r}")
    given: dict[str, Any] = {"valid": valid, "by": by, "seed": seed, "device": device, "timeout": timeout}
    given |= {"space": searched, "trials": trials, "folder": output}
    with kept_when_interrupted(output):
        if many:
            from pcmcnet.cluster import tune as find_by_workers

            tuning = find_by_workers(estimator, data, workers=many, **given)
        else:
            tuning = find(estimator, data, **given)
    title = f"Search for {model} on {table.name}: trial 1 has the defaults\n{tuning.why}"
    draw_search(search_chart(tuning), output / "search.png", title=title)
    files = [output / name for name in ("tuning.json", "tuning.md", "search.png", "model")]
    result = {**tuning.to_dict(), "files": [str(file) for file in files]}
    show((tuning, written(files)), result, as_json=json_, strong=[tuning.why])


def _read_search(model: str, name: str | None, search: list[str], settings: list[str]) -> tuple[Any, Any]:
    """Build the model with its fixed options, and the space of those to search."""
    from pcmcnet.errors import ConfigError
    from pcmcnet.models import model_class
    from pcmcnet.models.interface.parse_options import parse_options
    from pcmcnet.tuning import Space
    from pcmcnet.tuning.space import parse_search

    kind = model_class(model)
    fixed = parse_options(kind.config_class, settings)
    given = dict(parse_search(kind, word) for word in search)
    own = Space.of(kind, given) if given else Space({})
    twice = [option for option in own.option_names if option in fixed]
    if twice:
        raise ConfigError(f"{twice[0]} is both held fixed by --set and searched by --search: give one of them.")
    if given and name is None:
        return kind(**fixed), own
    return kind(**fixed), Space.of(kind, name or "default").without([*fixed, *own.option_names]).combined_with(own)
