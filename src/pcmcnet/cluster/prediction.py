"""Compute predictions for all Parquet files in a folder with several workers, and write them to another folder.

    files -> those not yet predicted -> Ray Data assigns each to a worker -> written under a temporary name, renamed

Every file in the output folder is complete. The footer of each file identifies the model and the input file, so that a
second run processes only the missing files. If a worker dies, Ray Data assigns its file to another worker, so that each
row appears exactly once, in order. All rows of a choice set must be in the same file. This rule is checked before
anything is written.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from pcmcnet.cluster.engine import RayWorkers, ray_connection, silenced
from pcmcnet.data.files.read_files import is_hidden
from pcmcnet.data.files.tabular import read_table
from pcmcnet.data.files.write_files import write_table
from pcmcnet.decisions.constraints import Constraints
from pcmcnet.decisions.optimise_offer import Revenue
from pcmcnet.decisions.optimise_offers import OfferSearch, WrittenOffers, search_chunk, write_offer_chunks
from pcmcnet.errors import ArtifactError, PcmcNetError, SchemaError
from pcmcnet.models import load
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.saving import state_files
from pcmcnet.progress import show_steps
from pcmcnet.storage import as_path, parse_json, require_folder, sole_writer

_FOOTER_KEY = b"pcmcnet.prediction"


@dataclass(frozen=True)
class FolderPrediction:
    """Result of :func:`predict`."""

    files: int  # in the output folder
    rows: int  # in all files
    kept: int  # files that had been predicted before


@dataclass(frozen=True)
class PredictionOrigin:
    """The origin of an output file: a digest of the model, the name of the new column, and the input file."""

    model: str
    column: str
    size: int
    modified: int  # in nanoseconds
    rows: int

    @classmethod
    def of(cls, model: str, column: str, file: Path) -> PredictionOrigin:
        """Return the origin for an input file, without reading its rows."""
        stat = file.stat()
        return cls(model, column, stat.st_size, stat.st_mtime_ns, _rows(file))


def predict(
    model: ChoiceModel | str | Path,
    folder_in: str | Path,
    folder_out: str | Path,
    *,
    workers: int = 2,
    column: str = "probability",
    progress: bool = True,
) -> FolderPrediction:
    """Compute predictions for all Parquet files in a folder with several workers.

    Each file is written to another folder with an additional column, which holds the probability of each row. Call the
    function again after an interruption to process only the missing files.

    Parameters
    ----------
    model
        A fitted model, or the folder of a saved one.
    folder_in, folder_out
        Input and output folder, accessible from the machines of all workers. Files are found at any depth and keep
        their names. Files and folders whose names begin with a dot or an underscore are skipped. Each file must fit
        into the memory of a worker.
    workers
        Number of worker processes (default 2).
    column
        Name of the new column (default "probability").
    progress
        Whether to show a progress bar on a terminal, or log one line per file elsewhere (default True).

    Returns
    -------
    FolderPrediction
        Numbers of files, of rows, and of files that an earlier run had processed.

    Raises
    ------
    SchemaError
        If some files cannot be processed (all other files are processed first), or if a choice set has rows in several
        files.
    ArtifactError
        If the output folder holds predictions of another model.
    ConfigError
        If Ray is not available.
    """
    fitted = model if isinstance(model, ChoiceModel) else load(model)
    source, target = Path(folder_in).absolute(), Path(folder_out).absolute()
    if target == source or source in target.parents or target in source.parents:
        raise SchemaError(f"{folder_out} and {folder_in} must not contain each other: choose another output folder.")
    names = _file_names(source)
    task = _Task(fitted, hashlib.sha256(b"".join(state_files(fitted).values())).hexdigest(), source, target, column)
    with ray_connection(workers) as ray, sole_writer(target), show_steps(len(names), show=progress) as report:
        require_folder(target)
        # 1. Find the files that are predicted already, and check that no choice set has rows in two files.
        done = {name for name in names if task.is_done(name)}
        _require_sets_within_files(_ids_by_file(ray, task, names), fitted.schema.choice_set)
        for name in sorted(done):
            report.end(name, "already predicted")
        # 2. Predict the others. A file that fails does not stop the rest.
        failures = []
        for outcome in _predict_files(ray, task, [name for name in names if name not in done], workers):
            error = outcome["error"]
            report.end(outcome["name"], f"failed: {error}" if error else f"{outcome['rows']:,} rows")
            failures += [error] if error else []
    if failures:
        more = f" {len(failures) - 1} more files failed." if len(failures) > 1 else ""
        raise SchemaError(
            f"{min(failures)}{more} All other files have been predicted; repeat the call to retry the failed files."
        )
    return FolderPrediction(len(names), sum(_rows(target / name) for name in names), len(done))


@dataclass(frozen=True)
class _Task:
    """The task of a worker: the model, its digest, the input and output folders, and the name of the new column."""

    model: ChoiceModel
    digest: str
    source: Path
    target: Path
    column: str

    def origin(self, name: str) -> PredictionOrigin:
        return PredictionOrigin.of(self.digest, self.column, self.source / name)

    def is_done(self, name: str) -> bool:
        """Return True if a file has already been processed. Raise ArtifactError if the output has another origin."""
        file = self.target / name
        if not file.exists():
            return False
        origin = _origin_of(file)
        if origin is None or (origin.model, origin.column) != (self.digest, self.column):
            problem = "was not written by this command" if origin is None else "was predicted by another model"
            raise ArtifactError(f"{file} {problem}: choose another output folder, or empty this one.")
        return origin == self.origin(name) and origin.rows == _rows(file)

    def run(self, name: str) -> int:
        """Write the predictions for a file, and return its number of rows."""
        origin, target = self.origin(name), self.target / name
        rows = read_table(self.source / name, text=self.model.schema.text_columns)
        if self.column in rows.column_names:
            raise SchemaError(f"{self.source / name} already has a column {self.column!r}: choose another name.")
        rows = rows.append_column(self.column, pa.array(self.model.predict_proba(rows)))
        footer = {**(rows.schema.metadata or {}), _FOOTER_KEY: json.dumps(asdict(origin))}
        write_table(rows.replace_schema_metadata(footer), target)
        return int(rows.num_rows)


class _Worker:
    """A process that holds the model and processes one file at a time."""

    def __init__(self, task: Any) -> None:
        import ray

        self.task: _Task = ray.get(task)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Process the file named in a row. A PcmcNetError is caught, because a retry cannot help."""
        try:
            return {"name": row["name"], "rows": self.task.run(row["name"]), "error": ""}
        except PcmcNetError as error:
            message = str(error)
            prefix = "" if row["name"] in message else f"{self.task.source / row['name']}: "
            return {"name": row["name"], "rows": 0, "error": f"{prefix}{message}"}


def _predict_files(ray: Any, task: _Task, names: Sequence[str], workers: int) -> Iterator[dict[str, Any]]:
    """Yield the outcome for each file: its name, number of rows and error message, which is empty on success."""
    if not names:
        return
    import ray.data

    with silenced("ray.data"):
        ray.data.DataContext.get_current().enable_progress_bars = False  # we show our own
        files = ray.data.from_items([{"name": name} for name in names], override_num_blocks=len(names))
        pool = ray.data.ActorPoolStrategy(size=min(workers, len(names)), max_tasks_in_flight_per_actor=1)
        yield from files.map(_Worker, fn_constructor_args=(ray.put(task),), compute=pool).iter_rows()


def _ids_by_file(ray: Any, task: _Task, names: Sequence[str]) -> Iterable[tuple[str, pa.Array]]:
    """Return the distinct choice-set ids in each readable file."""
    column = task.model.schema.choice_set

    def ids(name: str) -> pa.Array | None:
        try:
            return pc.unique(read_table(task.source / name, [column]).column(column).combine_chunks())
        except PcmcNetError:  # reported when the file is predicted
            return None

    read = ray.remote(num_cpus=1, max_retries=-1)(ids)
    arrays = ray.get([read.remote(name) for name in names])
    return [(name, array) for name, array in zip(names, arrays, strict=True) if array is not None]


def _require_sets_within_files(ids: Iterable[tuple[str, pa.Array]], column: str) -> None:
    """Raise SchemaError if a choice set has rows in two files, because its probabilities would be wrong in both."""
    ids = list(ids)
    if len({array.type for _, array in ids}) > 1:
        ids = [(name, array.cast(pa.string())) for name, array in ids]
    if not ids:
        return
    counts = pa.chunked_array([array for _, array in ids]).value_counts()
    across = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if len(across):
        names = [name for name, array in ids if pc.index(array, across[0]).as_py() >= 0]
        raise SchemaError(
            f"choice set {across[0]} (column {column!r}) has rows in {names[0]} and in {names[1]}; {len(across):,} "
            f"such sets. All rows of a choice set must be in one file: write the table again with each set in one "
            f"file, or predict the folder in one process."
        )


def _file_names(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise SchemaError(f"{folder}: expected a folder of .parquet files.")
    files = [file.relative_to(folder) for file in folder.rglob("*.parquet")]
    names = sorted(os.fspath(file) for file in files if not is_hidden(file))
    if not names:
        raise SchemaError(f"{folder}: the folder contains no .parquet files.")
    return names


def _origin_of(file: Path) -> PredictionOrigin | None:
    try:
        entry = (pyarrow.parquet.read_schema(file).metadata or {}).get(_FOOTER_KEY)
        return None if entry is None else PredictionOrigin(**parse_json(entry))
    except (pa.ArrowException, OSError, ValueError, TypeError):
        return None


def _rows(file: Path) -> int:
    try:
        return int(pyarrow.parquet.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError):
        return -1  # an unreadable file is reported when it is predicted


# -- Offers ------------------------------------------------------------------------------------------------------------
# This process reads chunks of the table of individuals and writes their offers, in order; workers search for the
# offers. At most two chunks per worker are in progress, so that memory is bounded. If a worker dies, Ray assigns its
# chunk to another.


def write_offers(
    model: ChoiceModel | str | Path,
    catalogue: Any,
    individuals: str | Path,
    path: str | Path,
    revenue: Revenue = "revenue",
    *,
    outside: Any = None,
    constraints: Constraints | None = None,
    seed: int = 0,
    workers: int = 2,
) -> WrittenOffers:
    """Use several workers to find an offer for each individual of a table. The output is the same as from one process.

    Parameters
    ----------
    model
        A fitted model, or the folder of a saved one.
    catalogue, individuals, path, revenue, outside, constraints, seed
        The arguments of :func:`pcmcnet.write_offers`: the alternatives that could be offered, the file with the
        individuals, the file to write, the revenue of each alternative (default: the column "revenue"), the outside
        option, the constraints of an offer, and the random seed (default 0).
    workers
        Number of worker processes (default 2).

    Returns
    -------
    WrittenOffers
        Number of individuals and the mean expected revenue.

    Raises
    ------
    ConfigError
        If Ray is not available. Other errors are the same as for :func:`pcmcnet.write_offers`.
    """
    fitted = model if isinstance(model, ChoiceModel) else load(model)
    search = OfferSearch(fitted, catalogue, revenue, outside, constraints or Constraints(), seed)
    with ray_connection(workers) as ray:
        many = RayWorkers(ray, workers, retries=-1)

        def search_by_workers(search: OfferSearch, chunks: Iterator[pa.Table]) -> Iterator[pa.Table]:
            return many.map(lambda numbered: search_chunk(search, *numbered), enumerate(chunks))

        return write_offer_chunks(search, as_path(individuals), as_path(path), search_by_workers)
