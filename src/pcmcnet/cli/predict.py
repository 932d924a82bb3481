"""``pcmcnet predict``: a saved model and a table to a table with probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import Json, show

if TYPE_CHECKING:
    from pcmcnet.models import ChoiceModel


def predict(
    context: typer.Context,
    model: options.SavedModel,
    table: Annotated[
        Path, typer.Argument(help="Table with the columns of the training table; choices are not needed.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write (.parquet, .csv, .arrow), or a folder.")
    ],
    column: Annotated[str, typer.Option(help="Name of the new column.")] = "probability",
    cache: options.Cache = None,
    memory: options.Memory = None,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    json_: Json = False,
) -> None:
    """Write TABLE with the probability of each alternative as one more column, rows in their order.

    Of a wide table, which has a row for all alternatives, the long form is written: a row for each of them.

    The other columns stay as they are: a CSV from a CSV has them byte for byte. Where a CSV becomes another kind of
    file, columns that the model does not read as numbers stay text, unless they can be numbers without loss.

    Example: `pcmcnet predict model new-trips.csv -o predicted.parquet`

    Where the output is a folder, the table may be larger than memory: it is read part by part, and each of its files
    becomes a Parquet file of the same name, as in `pcmcnet predict model trips/ -o predicted/`

    By several workers, each file by one of them; the same command again makes only what is missing:
    `pcmcnet predict model trips/ --engine ray --workers 4 -o predicted/`
    """
    from pcmcnet.data.files.read_files import column_names
    from pcmcnet.data.files.write_files import require_table_path
    from pcmcnet.errors import ConfigError, SchemaError
    from pcmcnet.models import load
    from pcmcnet.models.interface.prediction_files import predict_folder
    from pcmcnet.storage import sole_writer

    many = options.workers_of(engine, workers)
    if many:
        if cache is not None or memory is not None:
            raise ConfigError("--cache and --memory are for one process: with --engine ray each file is read whole.")
        from pcmcnet.cluster import predict as predict_by_workers

        done = predict_by_workers(model, table, output, workers=many, column=column)
        kept = f" ({done.kept} of {done.files} files were there already)" if done.kept else ""
        result = {"output": str(output), "rows": done.rows, "files": done.files, "kept": done.kept}
        show(f"wrote {done.rows:,} rows to {output}{kept}", result, as_json=json_)
        return
    if output.is_dir() or not output.suffix:
        context.with_resource(sole_writer(output))
        n = predict_folder(load(model), table, output, column=column, cache=cache, memory=memory or options.MEMORY)
        show(f"wrote {n:,} rows to {output}", {"output": str(output), "rows": n}, as_json=json_)
        return
    if cache is not None or memory is not None:
        raise ConfigError("--cache and --memory are for a table that is read part by part: give a folder as --output.")
    require_table_path(output)
    if output.exists() and table.exists() and output.samefile(table):
        raise SchemaError(f"{output} is the table itself: choose another file for the result.")
    estimator = load(model)
    context.with_resource(sole_writer(output))
    if column in column_names(table):
        raise SchemaError(f"{table} already has a column {column!r}: choose another name by --column.")
    n = _predict_file(estimator, table, output, column)
    show(f"wrote {n:,} rows to {output}", {"output": str(output), "rows": n}, as_json=json_)


def _predict_file(estimator: ChoiceModel, table: Path, output: Path, column: str) -> int:
    """Write the rows of a table with their probabilities; returns the number of rows."""
    import pyarrow as pa

    from pcmcnet.data.files.csv_files import append_column
    from pcmcnet.data.files.read_files import ending, read_as_written
    from pcmcnet.data.files.write_files import writable_table, write_table
    from pcmcnet.data.wide import long_form

    schema, is_csv = estimator.schema, ending(table).startswith(".csv")
    rows = woven = long_form(table, schema.for_prediction())
    # A CSV from a CSV keeps its bytes; a wide table has no place for a probability of each alternative.
    if woven is None and is_csv and output.suffix == ".csv":
        probabilities = estimator.predict_proba(table)
        append_column(table, output, column, probabilities)
        return len(probabilities)
    if woven is None:
        rows = read_as_written(table, schema.number_columns, schema.for_prediction().columns, schema.name_columns)
    ready = writable_table(rows, output)  # says what is wrong with it before the work
    probabilities = estimator.predict_proba(table if is_csv and woven is None else rows)
    write_table(ready.append_column(column, pa.array(probabilities)), output)
    return len(probabilities)
