"""``pcmcnet evaluate``: the predictive quality of a saved model on a table with choices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, parse_integers, print_result

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


def evaluate(
    model: arguments.SavedModel,
    table: Annotated[Path, typer.Argument(help="Table with the columns of the training table, including choices.")],
    top: arguments.Top = "1,5",
    truth: Annotated[
        str | None, typer.Option(help="Column with the true probabilities, for the KL divergence.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for the bootstrap.")] = 0,
    stream: arguments.Stream = False,
    cache: arguments.Cache = None,
    memory: arguments.Memory = None,
    json_: Json = False,
) -> None:
    """Print NLL, accuracy and Brier score of MODEL on TABLE, with bootstrap intervals.

    For a model that only ranks alternatives, only accuracies are printed. Scores that are not probabilities are marked.
    If the model was trained on the table or a part of it, a note warns that the results are optimistic.

    For example:

        pcmcnet evaluate model test-trips.csv --top 1,3

    For a table larger than memory:

        pcmcnet evaluate model trips/ --stream --memory "2 GiB"
    """
    from pcmcnet.data import ChoiceData, ScannedData, Sets
    from pcmcnet.data.files.tabular import read_table
    from pcmcnet.errors import ConfigError
    from pcmcnet.evaluation import evaluate as compute_report
    from pcmcnet.evaluation.predictions import in_sample_warning, training_overlap
    from pcmcnet.models import load

    top_sizes = parse_integers("--top", top)
    estimator = load(model)
    true_probabilities = None
    if stream:
        if truth is not None:
            raise ConfigError("--truth cannot be combined with --stream: remove one of them.")
        data: Sets = ScannedData.of(table, estimator.schema, cache=cache, memory=memory or arguments.DEFAULT_MEMORY)
    elif cache is not None or memory is not None:
        raise ConfigError("--cache and --memory need a table that is read in chunks: add --stream.")
    else:
        schema, more = estimator.schema, [] if truth is None else [truth]
        columns = None if schema.wide else list(dict.fromkeys([*schema.columns, *more]))
        rows = read_table(table, columns, text=schema.text_columns, ids=schema.id_columns)
        true_probabilities = None if truth is None else _numbers(rows, truth)
        data = ChoiceData.from_schema(rows, schema)
    report = compute_report(estimator, data, top_sizes, seed, truth=true_probabilities)
    overlap = training_overlap(estimator, data)
    note = in_sample_warning(estimator, data, overlap)
    result = {**report.to_dict(), "seen_in_training": overlap}
    print_result((report,) if note is None else (report, note), result, as_json=json_)


def _numbers(rows: pa.Table, column: str) -> NDArray[np.float64]:
    """Return a numeric column as floats, one per row."""
    import numpy as np
    import pyarrow as pa

    from pcmcnet.data.files.tabular import read_table
    from pcmcnet.errors import SchemaError

    try:
        return np.asarray(read_table(rows, [column])[column].cast(pa.float64()).to_numpy())
    except pa.ArrowException as error:
        raise SchemaError(f"column {column!r}: expected numbers, got {rows[column].type}.") from error
