"""``pcmcnet fit``: fit a model to a table and save it."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, print_message, print_result

if TYPE_CHECKING:
    from pcmcnet.data import Sets
    from pcmcnet.evaluation import Report
    from pcmcnet.models import ChoiceModel
    from pcmcnet.reports.formats import Summary


@arguments.with_role_options
def fit(
    context: typer.Context,
    table: arguments.Table,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the model.")],
    model: arguments.ModelName = "pcmcnet",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Model option, as name=value; repeatable. `pcmcnet models MODEL` lists the options.",
        ),
    ] = None,
    ensemble: Annotated[
        int, typer.Option(min=1, help="Fit this many models from different seeds and save them as one ensemble.")
    ] = 1,
    resample: Annotated[
        bool, typer.Option("--resample", help="With --ensemble: fit each model with new bootstrap weights.")
    ] = False,
    valid: Annotated[
        float, typer.Option(help="Share of the choice sets held out for early stopping; 0 for none.")
    ] = 0.0,
    by: arguments.By = None,
    seed: arguments.Seed = 0,
    device: arguments.Device = "auto",
    stream: arguments.Stream = False,
    cache: arguments.Cache = None,
    memory: arguments.Memory = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted fit in the same folder.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model in the output folder when the new fit begins.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Print all options, and the layers of a network.")
    ] = False,
    engine: arguments.Engine = "local",
    workers: arguments.Workers = None,
    json_: Json = False,
) -> None:
    r"""Fit a model to TABLE and save it.

    Checkpoints are saved in the output folder during training. To continue an interrupted fit, run the same command
    with `--resume`: the result is the same as without the interruption.

    Fit PCMC-Net, or a logit with coefficients and standard errors:

        pcmcnet fit trips.csv --choice-set trip --chosen took \
            --features time,cost -o model
        pcmcnet fit trips.csv --choice-set trip --chosen took \
            --features time,cost --model mnl -o logit

    With column roles from a file, and early stopping:

        pcmcnet fit trips.parquet --schema roles.toml --valid 0.1 \
            --set hidden=128,128 --set epochs=50 -o model

    For a table larger than memory, add `--stream`. The converted table is cached next to the original, or in `--cache`:

        pcmcnet fit trips/ --schema roles.toml --stream --memory "2 GiB" \
            -o model

    Several workers can share each batch. The model fits equally well, but its weights differ slightly from those of a
    single-process fit because of floating-point rounding:

        pcmcnet fit trips.parquet --schema roles.toml \
            --engine ray --workers 4 -o model
    """
    from pcmcnet.checks import require_number
    from pcmcnet.data import ChoiceData, ScannedData
    from pcmcnet.data.files.read_files import require_path
    from pcmcnet.errors import ConfigError
    from pcmcnet.models import model_from_options
    from pcmcnet.models.interface.saving import remove_model, require_free_folder
    from pcmcnet.storage import sole_writer

    # 1. Build the model from its options. A wrong path is reported before PyTorch is loaded for a network.
    start, many = time.perf_counter(), arguments.worker_count(engine, workers)
    require_path(table)
    single = model_from_options(model, set_ or [])
    if resample and ensemble == 1:
        raise ConfigError("--resample needs an ensemble of several models: add --ensemble N.")
    estimator = single
    if ensemble > 1:
        from pcmcnet.models import Ensemble

        estimator = Ensemble(single, ensemble, resample=resample)
    if device not in ("auto", "cpu") and not single.uses_device:
        from pcmcnet.training.device import resolve_device

        resolve_device(device)
        print_message(f"{model} is fitted on the CPU: --device {device} has no effect.")
    # 2. Read the column roles, and check that the options fit together.
    schema = arguments.schema_of_command(context.params, "fitting")
    if not stream and (cache is not None or memory is not None):
        raise ConfigError("--cache and --memory need a table that is read in chunks: add --stream.")
    require_number("--valid", valid, low=0, high=1, open_high=True)
    if valid and not single.stops_early:
        raise ConfigError(f"--valid is not supported by {model}, which uses no validation part: remove it.")
    if resume and not (single.stops_early or single.resumes):
        raise ConfigError(f"--resume is not supported by {model}, which has no epochs: remove it.")
    schema = arguments.keep_columns(schema, by, getattr(single.config, "cluster", None))
    context.with_resource(sole_writer(output))
    if overwrite and resume:
        raise ConfigError("--overwrite and --resume cannot be combined: use one of them.")
    replaced = overwrite and output.is_dir() and any(output.iterdir())
    if not replaced:
        require_free_folder(output)
    if single.stops_early and not many:
        from pcmcnet.training.device import start_preloading

        start_preloading(device)
    # 3. Read the table into memory, or scan it in chunks in this process or by workers.
    if stream and many:
        from pcmcnet.cluster.engine import ray_connection
        from pcmcnet.cluster.training import scan_with_schema

        context.with_resource(ray_connection(many))  # one connection for the scan and the fit
        data: Sets = scan_with_schema(
            table, schema, workers=many, cache=cache, memory=memory or arguments.DEFAULT_MEMORY
        )
    elif stream:
        data = ScannedData.of(table, schema, cache=cache, memory=memory or arguments.DEFAULT_MEMORY)
    else:
        data = ChoiceData.from_schema(table, schema)
    # 4. Fit, save and print the result.
    train, held_out = data.split((1 - valid, valid), seed=seed, by=by) if valid else (data, None)
    print_message(f"read {data!r}")
    if replaced:  # only now: wrong options and tables have raised their errors
        remove_model(output)
    _train(estimator, train, held_out, many, seed=seed, device=device, run_folder=output, resume=resume)
    if held_out is not None:
        estimator.add_table_facts(drawn_from=data.fingerprint())
    estimator.save(output)
    _show_fit(estimator, train, held_out, time.perf_counter() - start, output, table, verbose=verbose, as_json=json_)


def _train(
    estimator: ChoiceModel, train: Sets, held_out: Sets | None, workers: int, *, run_folder: Path, **settings: Any
) -> None:
    """Fit the model, in this process if ``workers`` is 0. On Ctrl-C, print whether the fit can be resumed."""
    from pcmcnet.training.run_folder import checkpoint_files

    try:
        if workers:
            from pcmcnet.cluster import fit as fit_by_workers

            fit_by_workers(estimator, train, held_out, workers=workers, run_folder=run_folder, **settings)
        else:
            estimator.fit(train, held_out, run_folder=run_folder, **settings)
    except KeyboardInterrupt:
        if checkpoint_files(run_folder):
            print_message(f"\ninterrupted; to continue, run the same command with --resume (state in {run_folder}).")
        else:
            print_message("\ninterrupted before the end of the first epoch: there is nothing to resume.")
        raise SystemExit(130) from None


def _show_fit(
    estimator: ChoiceModel,
    train: Sets,
    held_out: Sets | None,
    seconds: float,
    output: Path,
    table: Path,
    *,
    verbose: bool,
    as_json: bool,
) -> None:
    """Print the summary, the goodness of fit, the number of epochs, the weight decay, and what to do next."""
    from pcmcnet.evaluation import evaluate

    # 1. Evaluate the model on both parts of the table.
    parts = {"training": train, **({} if held_out is None else {"held-out": held_out})}
    reports = {part: evaluate(estimator, sets, top=(), resamples=0) for part, sets in parts.items()}
    training = reports["training"]
    result: dict[str, Any] = {"model": str(output), "choice_sets": len(train)}
    result |= {
        "nll": training.to_dict()["nll"],
        "nll_uniform": training.uniform["nll"],
        "pseudo_r2": training.pseudo_r2,
    }
    scores = [f"NLL of the {report.n_sets:,} {part} sets: {_quality(report)}" for part, report in reports.items()]
    lines = list(scores)
    # 2. Report the epoch whose weights were kept.
    if estimator.history:
        record, config = estimator.record_, estimator.config
        last = estimator.history[record.epochs - 1]
        result |= {key: last[key] for key in ("epoch", "train_loss", "valid_loss")}
        result |= {"epochs": record.epochs, "weight_decay": record.weight_decay}
        source = "learnt from the table" if config.weight_decay == "auto" else "as given"
        decay = f"{record.weight_decay:.3g}, {source}"
        lines.append(f"epochs: {record.epochs} of {config.passes}; weight decay: {decay}")
    # 3. Print the summary, the scores and the next commands.
    lines.append(f"saved to {output} after {seconds:.1f} s")
    result |= {"seconds": seconds, "caveats": list(estimator.caveats)}
    summary = estimator.summary() if verbose else short_summary(estimator.summary())
    print_result((summary, "\n".join(lines), _next_commands(output, table)), result, as_json=as_json, strong=scores)


_DETAILS = ("options", "epochs", "weight decay", "training NLL")  # facts that `fit` prints only with -v


def short_summary(summary: Summary) -> Summary | str:
    """Return a summary without its options and without the layers of a network."""
    facts = {name: fact for name, fact in summary.facts.items() if not name.startswith(_DETAILS)}
    if summary.header[:1] != ("weights",):
        return replace(summary, facts=facts)
    width = max(map(len, facts))
    lines = [summary.title, "=" * len(summary.title), *(f"{name:<{width}}  {fact}" for name, fact in facts.items())]
    return "\n".join([*lines, *(f"\nCaveat: {caveat}." for caveat in summary.caveats)])


def _next_commands(model: Path, table: Path) -> str:
    """Return the commands that a user is likely to need next."""
    model_word, table_word = shlex.quote(str(model)), shlex.quote(str(table))
    report = shlex.quote(f"{model}-report")
    return (
        "Next, see what drives the choices, and predict choices that the fit has not seen:\n"
        f"    pcmcnet explain {model_word} {table_word} -o {report}\n"
        f"    pcmcnet evaluate {model_word} OTHER-TABLE"
    )


def _quality(report: Report) -> str:
    """Return the NLL, the NLL of the uniform model and the pseudo-R2 as text."""
    if report.nll is None:
        return "none, since a ranking has no probabilities"
    ratio = "" if report.pseudo_r2 is None else f"; pseudo-R2 {report.pseudo_r2:.3f}"
    return f"{report.nll:.4f} (lower is better; guessing at random: {report.uniform['nll']:.4f}){ratio}"
