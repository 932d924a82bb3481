"""``pcmcnet evaluate``: how good a saved model's probabilities are on a table with choices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import Json, show, whole_numbers

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


def evaluate(
    model: options.SavedModel,
    table: Annotated[Path, typer.Argument(help="Table with the columns of the training table, choices included.")],
    top: options.Top = "1,5",
    truth: Annotated[str | None, typer.Option(help="Column with known probabilities: adds the KL divergence.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    stream: options.Stream = False,
    cache: options.Cache = None,
    memory: options.Memory = None,
    json_: Json = False,
) -> None:
    """Print NLL, accuracy and Brier score of MODEL on TABLE, with bootstrap intervals.

    A model that gives a ranking alone gets accuracies alone; values of scores that are no probabilities are marked.
    Where the model was trained on the table, or on a part of it, a note says that the figures flatter it.

    Example: `pcmcnet evaluate model test-trips.csv --top 1,3`

    A table larger than memory: `pcmcnet evaluate model trips/ --stream --memory "2 GiB"`
    """
    from pcmcnet.data import ChoiceData, ScannedData, Sets
    from pcmcnet.data.files.tabular import read_table
    from pcmcnet.errors import ConfigError
    from pcmcnet.evaluation import evaluate as assess
    from pcmcnet.evaluation.predictions import in_sample_warning, training_overlap
    from pcmcnet.models import load

    sizes = whole_numbers("--top", top)
    estimator = load(model)
    known = None
    if stream:
        if truth is not None:
            raise ConfigError("--truth is for a table that is read whole: leave out --stream, or --truth.")
        data: Sets = ScannedData.of(table, estimator.schema, cache=cache, memory=memory or options.MEMORY)
    elif cache is not None or memory is not None:
        raise ConfigError("--cache and --memory are for a table that is read part by part: add --stream.")
    else:
        schema, more = estimator.schema, [] if truth is None else [truth]
        columns = None if schema.wide else list(dict.fromkeys([*schema.columns, *more]))
        rows = read_table(table, columns, text=schema.text_columns, ids=schema.id_columns)
        known = None if truth is None else _numbers(rows, truth)
        data = ChoiceData.from_schema(rows, schema)
    report, seen = assess(estimator, data, sizes, seed, truth=known), training_overlap(estimator, data)
    note = in_sample_warning(estimator, data, seen)
    show((report,) if note is None else (report, note), {**report.to_dict(), "seen_in_training": seen}, as_json=json_)


def _numbers(rows: pa.Table, column: str) -> NDArray[np.float64]:
    """Read a column of numbers, one per row."""
    import numpy as np
    import pyarrow as pa

    from pcmcnet.data.files.tabular import read_table
    from pcmcnet.errors import SchemaError

    try:
        return np.asarray(read_table(rows, [column])[column].cast(pa.float64()).to_numpy())
    except pa.ArrowException as error:
        raise SchemaError(f"column {column!r}: expected numbers, found {rows[column].type}.") from error
