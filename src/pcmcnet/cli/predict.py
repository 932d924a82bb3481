"""``pcmcnet predict``: a saved model and a table to a table with probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcmcnet.cli.output import Json, show


def predict(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="Folder written by `pcmcnet fit`.")],
    table: Annotated[
        Path, typer.Argument(help="Table with the columns of the training table; choices are not needed.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write: .parquet, .csv or .arrow.")],
    column: Annotated[str, typer.Option(help="Name of the new column.")] = "probability",
    json_: Json = False,
) -> None:
    """Write TABLE with the probability of each alternative as one more column, rows in their order.

    Example: `pcmcnet predict model new-trips.csv -o predicted.parquet`
    """
    import pyarrow as pa

    from pcmcnet.data.files import require_table_path, write_table
    from pcmcnet.data.lock import sole_writer
    from pcmcnet.data.table import read_table
    from pcmcnet.errors import SchemaError
    from pcmcnet.models import load

    require_table_path(output)
    if output.exists() and table.exists() and output.samefile(table):
        raise SchemaError(f"{output} is the table itself: choose another file for the result.")
    estimator = load(model)
    context.with_resource(sole_writer(output))
    rows = read_table(table, text=estimator.schema.text_columns)
    if column in rows.column_names:
        raise SchemaError(f"{table} already has a column {column!r}: choose another name by --column.")
    probabilities = estimator.predict_proba(rows)
    write_table(rows.append_column(column, pa.array(probabilities)), output)
    show(f"wrote {rows.num_rows:,} rows to {output}", {"output": str(output), "rows": rows.num_rows}, as_json=json_)
