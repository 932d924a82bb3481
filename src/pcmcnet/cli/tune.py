"""``pcmcnet tune``: search for the best options of a model on a table, and fit the model with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, print_message, print_result, resume_hint_on_interrupt, written_files


@arguments.with_role_options
def tune(
    context: typer.Context,
    table: arguments.Table,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the trials, the result and the model.")],
    model: arguments.ModelName = "pcmcnet",
    trials: Annotated[
        int, typer.Option(help="Number of trials, including failed trials and the first trial with the defaults.")
    ] = 25,
    space: Annotated[
        str | None,
        typer.Option(
            help="Search space: default, paper or wide; --search adds to it.",
            show_default="default",
            autocompletion=arguments.complete_space,
        ),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help="Option to search, as name=low:high, name=log:low:high or name=a,b,c; repeatable."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Option with a fixed value, as name=value; repeatable.")
    ] = None,
    valid: Annotated[
        float, typer.Option(help="Share of the choice sets held out for validation; small tables use folds.")
    ] = 0.2,
    by: arguments.By = None,
    seed: arguments.Seed = 0,
    device: arguments.Device = "auto",
    timeout: Annotated[float | None, typer.Option(help="Start no new trial after this many seconds.")] = None,
    engine: arguments.Engine = "local",
    workers: arguments.Workers = None,
    json_: Json = False,
) -> None:
    r"""Search for the options with which a model best predicts held-out choices in TABLE, and fit the model with them.

    The first trial uses the defaults and the options given with --set. The options of the first trial are kept unless
    another trial is significantly better.

    Each trial is saved in the output folder when it ends. After an interruption, run the same command again to
    continue. A larger value of --trials extends the search. The results are written to tuning.json, tuning.md and
    search.png, and the fitted model to the subfolder model. Evaluate the tuned model on data that are not in TABLE.

    For example:

        pcmcnet tune trips.csv --choice-set trip --chosen took \
            --features time,cost -o study

    With a custom search space, in which slashes separate list values:

        pcmcnet tune trips.csv --schema roles.toml \
            --search lr=log:1e-4:1e-1 --search hidden=16/32,32 \
            --search activation=relu,tanh --set epochs=50 --trials 40 -o study

    Four trials in parallel:

        pcmcnet tune trips.csv --schema roles.toml \
            --engine ray --workers 4 -o study
    """
    from pcmcnet.data import ChoiceData
    from pcmcnet.plots import draw_search, search_chart
    from pcmcnet.storage import sole_writer
    from pcmcnet.tuning import tune as run_search

    # 1. Check the options before the table is read.
    many = arguments.worker_count(engine, workers)
    estimator, search_space = _read_search(model, space, search or [], set_ or [])
    schema = arguments.schema_of_command(context.params, "tuning")
    schema = arguments.keep_columns(schema, by, getattr(estimator.config, "cluster", None))
    context.with_resource(sole_writer(output))
    # 2. Read the table and search.
    data = ChoiceData.from_schema(table, schema)
    print_message(f"read {data!r}")
    settings: dict[str, Any] = {"valid": valid, "by": by, "seed": seed, "device": device, "timeout": timeout}
    settings |= {"space": search_space, "trials": trials, "folder": output}
    with resume_hint_on_interrupt(output):
        if many:
            from pcmcnet.cluster import tune as search_by_workers

            tuning = search_by_workers(estimator, data, workers=many, **settings)
        else:
            tuning = run_search(estimator, data, **settings)
    # 3. Draw and print the result.
    title = f"Tuning {model} on {table.name}: trial 1 uses the defaults\n{tuning.why}"
    draw_search(search_chart(tuning), output / "search.png", title=title)
    files = [output / name for name in ("tuning.json", "tuning.md", "search.png", "model")]
    result = {**tuning.to_dict(), "files": [str(file) for file in files]}
    print_result((tuning, written_files(files)), result, as_json=json_, strong=[tuning.why])


def _read_search(model: str, name: str | None, search: list[str], settings: list[str]) -> tuple[Any, Any]:
    """Return the model with its fixed options, and the search space for the other options."""
    from pcmcnet.errors import ConfigError
    from pcmcnet.models import model_class
    from pcmcnet.models.interface.parse_options import parse_options
    from pcmcnet.tuning import Space
    from pcmcnet.tuning.space import parse_search

    kind = model_class(model)
    fixed = parse_options(kind.config_class, settings)
    dimensions = dict(parse_search(kind, word) for word in search)
    custom = Space.of(kind, dimensions) if dimensions else Space({})
    conflicts = [option for option in custom.option_names if option in fixed]
    if conflicts:
        raise ConfigError(f"{conflicts[0]} is both fixed with --set and searched with --search: use one of them.")
    if dimensions and name is None:
        return kind(**fixed), custom
    return kind(**fixed), Space.of(kind, name or "default").without([*fixed, *custom.option_names]).combined_with(
        custom
    )
