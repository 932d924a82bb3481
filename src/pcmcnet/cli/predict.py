"""``pcmcnet predict``: add the probabilities of a saved model to a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, print_result

if TYPE_CHECKING:
    from pcmcnet.models import ChoiceModel


def predict(
    context: typer.Context,
    model: arguments.SavedModel,
    table: Annotated[
        Path, typer.Argument(help="Table with the columns of the training table; choices are not needed.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write (.parquet, .csv, .arrow), or a folder.")
    ],
    column: Annotated[str, typer.Option(help="Name of the new column.")] = "probability",
    cache: arguments.Cache = None,
    memory: arguments.Memory = None,
    engine: arguments.Engine = "local",
    workers: arguments.Workers = None,
    json_: Json = False,
) -> None:
    """Write a copy of TABLE with an additional column, the predicted probability of each alternative.

    Rows keep their order. A wide table, with one row per choice set, is written in long form, with one row per
    alternative.

    All other columns stay the same, byte for byte if input and output are CSV files. If a CSV file is converted to
    another format, a column that is not numeric for the model stays text, unless it can be converted to numbers without
    loss.

    For example:

        pcmcnet predict model new-trips.csv -o predicted.parquet

    If the output is a folder, the table may be larger than memory. The table is then read in chunks, and each input
    file becomes a Parquet file with the same name:

        pcmcnet predict model trips/ -o predicted/

    Several workers can each process one file at a time. Run the same command again to process only the missing files:

        pcmcnet predict model trips/ --engine ray --workers 4 -o predicted/
    """
    from pcmcnet.data.files.read_files import column_names
    from pcmcnet.data.files.write_files import require_table_path
    from pcmcnet.errors import ConfigError, SchemaError
    from pcmcnet.models import load
    from pcmcnet.models.interface.prediction_files import predict_folder
    from pcmcnet.storage import sole_writer

    many = arguments.worker_count(engine, workers)
    if many:
        if cache is not None or memory is not None:
            raise ConfigError("--cache and --memory are not supported by --engine ray, which reads whole files.")
        from pcmcnet.cluster import predict as predict_by_workers

        counts = predict_by_workers(model, table, output, workers=many, column=column)
        reused = f" ({counts.kept} of {counts.files} files existed already)" if counts.kept else ""
        result = {"output": str(output), "rows": counts.rows, "files": counts.files, "kept": counts.kept}
        print_result(f"wrote {counts.rows:,} rows to {output}{reused}", result, as_json=json_)
        return
    if output.is_dir() or not output.suffix:
        context.with_resource(sole_writer(output))
        n = predict_folder(
            load(model), table, output, column=column, cache=cache, memory=memory or arguments.DEFAULT_MEMORY
        )
        print_result(f"wrote {n:,} rows to {output}", {"output": str(output), "rows": n}, as_json=json_)
        return
    if cache is not None or memory is not None:
        raise ConfigError("--cache and --memory need a table that is read in chunks: use a folder as --output.")
    require_table_path(output)
    if output.exists() and table.exists() and output.samefile(table):
        raise SchemaError(f"{output} is the input table: choose another output file.")
    estimator = load(model)
    context.with_resource(sole_writer(output))
    if column in column_names(table):
        raise SchemaError(f"{table} already has a column {column!r}: choose another name with --column.")
    n = _predict_file(estimator, table, output, column)
    print_result(f"wrote {n:,} rows to {output}", {"output": str(output), "rows": n}, as_json=json_)


def _predict_file(estimator: ChoiceModel, table: Path, output: Path, column: str) -> int:
    """Write the rows of a table with their probabilities. Return the number of rows."""
    import pyarrow as pa

    from pcmcnet.data.files.csv_files import append_column
    from pcmcnet.data.files.read_files import ending, read_as_written
    from pcmcnet.data.files.write_files import writable_table, write_table
    from pcmcnet.data.read_wide import long_form

    schema, is_csv = estimator.schema, ending(table).startswith(".csv")
    rows = unfolded = long_form(table, schema.for_prediction())  # None unless the table is wide
    # CSV to CSV: append the column to the bytes of each line.
    if unfolded is None and is_csv and output.suffix == ".csv":
        probabilities = estimator.predict_proba(table)
        append_column(table, output, column, probabilities)
        return len(probabilities)
    # Otherwise convert the rows, and check that the format can hold them before predicting.
    if unfolded is None:
        rows = read_as_written(table, schema.number_columns, schema.for_prediction().columns, schema.name_columns)
    ready = writable_table(rows, output)
    probabilities = estimator.predict_proba(table if is_csv and unfolded is None else rows)
    write_table(ready.append_column(column, pa.array(probabilities)), output)
    return len(probabilities)
