"""``pcmcnet simulate``: simulated tables with known choice probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, print_result


def simulate(
    process: Annotated[
        str,
        typer.Argument(
            help="Process to simulate: mlba, airline or rock-paper-scissors.",
            autocompletion=arguments.complete_simulator,
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write: .parquet, .csv or .arrow.")],
    sets: Annotated[int, typer.Option(help="Number of choice sets.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    json_: Json = False,
) -> None:
    """Write a table of simulated choices with their true probabilities, and print the lowest possible NLL.

    `mlba`: the first experiment in the paper. A third alternative changes the preference between two others
    (attraction, similarity and compromise effects).

    `airline`: flight searches with the columns of the airline data in the paper, which have 33,951 choice sets. There
    are two segments of travellers, attraction and similarity effects, and up to 50 itineraries per search.

    `rock-paper-scissors`: a Markov chain in which each of three items beats the next.

    For example:

        pcmcnet simulate mlba --sets 20000 --seed 1 -o train.parquet
        pcmcnet simulate airline --sets 33951 --seed 1 -o airline.parquet
    """
    from pcmcnet.data.files.write_files import require_table_path, write_table
    from pcmcnet.datasets import airline, markov, mlba, truth
    from pcmcnet.errors import ConfigError, did_you_mean

    processes = {
        "mlba": mlba.simulate,
        "airline": airline.simulate,
        "rock-paper-scissors": markov.simulate_rock_paper_scissors,
    }
    if process not in processes:
        raise ConfigError(f"unknown process {process!r}." + did_you_mean(process, processes))
    require_table_path(output)
    table = processes[process](sets, seed=seed)
    columns = {"choice_set": "individual", "chosen": "choice"} if process == "airline" else {}
    best = truth.best_nll(table, **columns)
    write_table(table, output)
    text = (
        f"wrote {sets:,} choice sets ({table.num_rows:,} rows) to {output}\n"
        f"best possible NLL: {best.expected:.4f} expected, {best.realised:.4f} on these choices"
    )
    result = {"output": str(output), "choice_sets": sets, "rows": table.num_rows, "best_nll": best._asdict()}
    print_result(text, result, as_json=json_)
