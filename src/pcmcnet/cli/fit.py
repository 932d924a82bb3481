"""``pcmcnet fit``: a table to a saved model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import Json, say, show

if TYPE_CHECKING:
    from pcmcnet.data import Sets
    from pcmcnet.evaluation import Report
    from pcmcnet.models import ChoiceModel


@options.with_roles
def fit(
    context: typer.Context,
    table: options.Table,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the model.")],
    model: options.ModelName = "pcmcnet",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Option of the model, as name=value; repeatable. `pcmcnet models MODEL` lists them."
        ),
    ] = None,
    members: Annotated[
        int, typer.Option(min=1, help="Fit that many models from different seeds, and save them as one ensemble.")
    ] = 1,
    resample: Annotated[
        bool, typer.Option("--resample", help="With --members: weigh the choice sets anew for each, by the bootstrap.")
    ] = False,
    valid: Annotated[float, typer.Option(help="Share of the sets held out to stop early; 0 for none.")] = 0.0,
    by: options.By = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    stream: options.Stream = False,
    cache: options.Cache = None,
    memory: options.Memory = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted fit in the same folder.")] = False,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    json_: Json = False,
) -> None:
    """Fit a model to TABLE and save it.

    The state is kept in the output folder after epochs: after an interruption the same command with
    `--resume` goes on and ends in the same model.

    Example: `pcmcnet fit trips.csv --choice-set trip --chosen took --features time,cost -o model`

    With the roles of the columns in a file, and early stopping:
    `pcmcnet fit trips.parquet --schema roles.toml --valid 0.1 --set hidden=128,128 --set epochs=50 -o model`

    A table larger than memory, whose converted form is kept for the next time beside it or in `--cache`:
    `pcmcnet fit trips/ --schema roles.toml --stream --memory "2 GiB" -o model`

    By several workers, which share each batch. The model fits as well as that of one process, but its weights are not
    the same numbers: sums in another order round otherwise, and the differences grow with every step:
    `pcmcnet fit trips.parquet --schema roles.toml --engine ray --workers 4 -o model`
    """
    from pcmcnet.checks import require_number
    from pcmcnet.data import ChoiceData, ScannedData
    from pcmcnet.errors import ConfigError
    from pcmcnet.models import Ensemble, model_from_options
    from pcmcnet.models.interface.saving import require_free_folder
    from pcmcnet.storage import sole_writer
    from pcmcnet.training.device import start_preloading

    # 1. The model and its options.
    began, many = time.perf_counter(), options.workers_of(engine, workers)
    one = model_from_options(model, set_ or [])
    if resample and members == 1:
        raise ConfigError("--resample weighs the choice sets for each of several members: give --members.")
    estimator = one if members == 1 else Ensemble(one, members, resample=resample)
    # 2. The roles of the columns, and what goes with what.
    found = options.of_command(context.params, "fitting")
    if not stream and (cache is not None or memory is not None):
        raise ConfigError("--cache and --memory are for a table that is read part by part: add --stream.")
    require_number("--valid", valid, low=0, high=1, open_high=True)
    if (valid or resume) and not one.stops_early:
        raise ConfigError(f"--valid and --resume are for models that train in epochs, and {model} does not: leave out.")
    found = options.keeping(found, by, getattr(one.config, "cluster", None))
    context.with_resource(sole_writer(output))
    require_free_folder(output)
    if one.stops_early and not many:
        start_preloading(device)
    # 3. The table: whole, or scanned by this process or by workers.
    if stream and many:
        from pcmcnet.cluster.engine import connected
        from pcmcnet.cluster.training import scan_by_roles

        context.with_resource(connected(many))  # for the scan and for the fit
        data: Sets = scan_by_roles(table, found, workers=many, cache=cache, memory=memory or options.MEMORY)
    elif stream:
        data = ScannedData.of(table, found, cache=cache, memory=memory or options.MEMORY)
    else:
        data = ChoiceData.from_schema(table, found)
    # 4. Fit, save and show.
    train, held_out = data.split((1 - valid, valid), seed=seed, by=by) if valid else (data, None)
    say(f"read {data!r}")
    _train(estimator, train, held_out, many, seed=seed, device=device, run_folder=output, resume=resume)
    if held_out is not None:
        estimator.add_table_facts(drawn_from=data.fingerprint())
    estimator.save(output)
    _show_fit(estimator, train, held_out, output, time.perf_counter() - began, as_json=json_)


def _train(
    estimator: ChoiceModel, train: Sets, held_out: Sets | None, workers: int, *, run_folder: Path, **settings: Any
) -> None:
    """Fit, by workers if there are some; say whether an interrupted fit can go on."""
    from pcmcnet.training.run_folder import checkpoint_files

    try:
        if workers:
            from pcmcnet.cluster import fit as fit_by_workers

            fit_by_workers(estimator, train, held_out, workers=workers, run_folder=run_folder, **settings)
        else:
            estimator.fit(train, held_out, run_folder=run_folder, **settings)
    except KeyboardInterrupt:
        if checkpoint_files(run_folder):
            say(f"\ninterrupted; to go on, give the same command with --resume (state in {run_folder}).")
        else:
            say("\ninterrupted before the first epoch was done: there is nothing to resume.")
        raise SystemExit(130) from None


def _show_fit(
    estimator: ChoiceModel, train: Sets, held_out: Sets | None, output: Path, seconds: float, *, as_json: bool
) -> None:
    """Print the model, how well it fits, and what the fit has chosen."""
    from pcmcnet.evaluation import evaluate

    parts = {"training": train, **({} if held_out is None else {"held-out": held_out})}
    reports = {part: evaluate(estimator, sets, top=(), resamples=0) for part, sets in parts.items()}
    own = reports["training"]
    result: dict[str, Any] = {"model": str(output), "choice_sets": len(train)}
    result |= {"nll": own.to_dict()["nll"], "nll_uniform": own.uniform["nll"], "pseudo_r2": own.pseudo_r2}
    lines = [f"NLL of the {report.n_sets:,} {part} sets: {_quality(report)}" for part, report in reports.items()]
    if estimator.history:  # of the epoch whose weights were kept
        record, config = estimator.record_, estimator.config
        last = estimator.history[record.epochs - 1]
        result |= {key: last[key] for key in ("epoch", "train_loss", "valid_loss")}
        result |= {"epochs": record.epochs, "weight_decay": record.weight_decay}
        learnt = "learnt from the table" if config.weight_decay == "auto" else "as given"
        decay = f"{record.weight_decay:.3g}, {learnt}"
        lines.append(f"epochs: {record.epochs} of {config.passes}; weight decay: {decay}")
    lines.append(f"saved to {output} after {seconds:.1f} s")
    result |= {"seconds": seconds}
    show((estimator.summary(), "\n".join(lines)), result, as_json=as_json, strong=lines[: len(reports)])


def _quality(report: Report) -> str:
    """Say how well choices are predicted, beside the model that tells no alternatives apart."""
    if report.nll is None:
        return "none, since a ranking gives no probabilities"
    ratio = "" if report.pseudo_r2 is None else f"; pseudo-R2 {report.pseudo_r2:.3f}"
    return f"{report.nll:.4f} (uniform {report.uniform['nll']:.4f}){ratio}"
