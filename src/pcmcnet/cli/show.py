"""``pcmcnet show``: what a saved model is, on which table it was fitted, and its coefficients."""

from __future__ import annotations

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, print_result


def show(model: arguments.SavedModel, json_: Json = False) -> None:
    """Print the summary of MODEL, such as its coefficients and options, and the columns that it needs.

    For example:

        pcmcnet show model
    """
    from dataclasses import asdict

    from pcmcnet.models import load
    from pcmcnet.reports.formats import to_json

    estimator = load(model)
    summary, table, schema = estimator.summary(), estimator.table_, estimator.schema
    size = f"{table.choice_sets:,} choice sets, {table.alternatives:,} alternatives"
    heading = f"{model}: model {estimator.name}, fitted to {size} with seed {table.seed}"
    result = {
        "model": estimator.name,
        "choice_sets": table.choice_sets,
        "alternatives": table.alternatives,
        "seed": table.seed,
        "options": to_json(asdict(estimator.config)),
        "schema": schema.to_dict(),
        "summary": to_json(summary),
    }
    columns = f"Roles of the columns:\n\n{schema.to_toml().rstrip()}"
    print_result((heading, summary, columns), result, as_json=json_, strong=[heading])
