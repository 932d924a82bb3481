"""``pcmcnet simulate``: tables with known probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcmcnet.cli.output import Json, show


def simulate(
    process: Annotated[str, typer.Argument(help="What to simulate: mlba.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write: .parquet, .csv or .arrow.")],
    sets: Annotated[int, typer.Option(help="Number of choice sets.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
    json_: Json = False,
) -> None:
    """Write a table of simulated choices with their true probabilities.

    `mlba`: the paper's first experiment: two alternatives and a third that changes the preference between them
    (attraction, similarity and compromise effects).

    Example: `pcmcnet simulate mlba --sets 20000 --seed 1 -o train.parquet`
    """
    from pcmcnet.data.files import require_table_path, write_table
    from pcmcnet.datasets import mlba
    from pcmcnet.errors import ConfigError, did_you_mean

    processes = {"mlba": mlba.simulate}
    if process not in processes:
        raise ConfigError(f"unknown process {process!r}." + did_you_mean(process, processes))
    require_table_path(output)
    table = processes[process](sets, seed=seed)
    write_table(table, output)
    result = {"output": str(output), "choice_sets": sets, "rows": table.num_rows}
    show(f"wrote {sets:,} choice sets ({table.num_rows:,} rows) to {output}", result, as_json=json_)
