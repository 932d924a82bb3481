"""Predict a folder of Parquet files into another: one file for each, by several workers.

    files -> those not done yet -> Ray Data hands each to a worker -> written beside its place, renamed into it

A file in its place is whole, and says in its footer which model and which file it was made from: a run that goes on
makes only what is missing. When a worker dies, Ray Data gives its file to another, so that each row is there exactly
once, in its order. A choice set lies within one file; sets that go across files are refused before anything is written.
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

from pcmcnet.cluster.engine import RayWorkers, connected, quiet
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

_KEY = b"pcmcnet.prediction"  # in the footer of a result


@dataclass(frozen=True)
class Predicted:
    """What came of it: files and rows of the result, and how many of the files were there already."""

    files: int
    rows: int
    kept: int


@dataclass(frozen=True)
class Origin:
    """What a result was made from: a digest of the model, the column's name, and the file that was read."""

    model: str
    column: str
    size: int
    modified: int  # in nanoseconds
    rows: int

    @classmethod
    def of(cls, model: str, column: str, file: Path) -> Origin:
        """Look at a file without reading its rows."""
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
) -> Predicted:
    """Write each Parquet file of a folder, with the probability of each row as one more column, into another folder.

    Parameters
    ----------
    model
        A fitted model, or the folder of one.
    folder_in, folder_out
        Workers on other machines must see both. Files are found at any depth and keep their names; files and folders
        whose names begin with a dot or an underscore are passed over. Each file must fit into a worker's memory.
    workers
        Processes that predict.
    column
        Name of the new column.
    progress
        Show a bar on a terminal, or log a line per file elsewhere.

    Raises
    ------
    SchemaError
        When files cannot be predicted, or a choice set goes across files. All other files are predicted first.
    ArtifactError
        When the folder holds results of another model.
    """
    fitted = model if isinstance(model, ChoiceModel) else load(model)
    source, target = Path(folder_in).absolute(), Path(folder_out).absolute()
    if target == source or source in target.parents or target in source.parents:
        raise SchemaError(f"{folder_out} and {folder_in} lie within each other: choose another folder for the result.")
    names = _file_names(source)
    task = _Task(fitted, hashlib.sha256(b"".join(state_files(fitted).values())).hexdigest(), source, target, column)
    with connected(workers) as ray, sole_writer(target), show_steps(len(names), show=progress) as report:
        require_folder(target)
        kept = {name for name in names if task.is_done(name)}
        _require_sets_within_files(_ids_by_file(ray, task, names), fitted.schema.choice_set)
        for name in sorted(kept):
            report.end(name, "already predicted")
        failures = []
        for found in _by_ray_data(ray, task, [name for name in names if name not in kept], workers):
            report.end(found["name"], f"failed: {found['error']}" if found["error"] else f"{found['rows']:,} rows")
            failures += [found["error"]] if found["error"] else []
    if failures:
        more = f" So it is with {len(failures) - 1} more files." if len(failures) > 1 else ""
        raise SchemaError(f"{min(failures)}{more} All others are predicted; the same call goes on with these.")
    return Predicted(len(names), sum(_rows(target / name) for name in names), len(kept))


@dataclass(frozen=True)
class _Task:
    """All that a worker needs to know."""

    model: ChoiceModel
    digest: str
    source: Path
    target: Path
    column: str

    def origin(self, name: str) -> Origin:
        return Origin.of(self.digest, self.column, self.source / name)

    def is_done(self, name: str) -> bool:
        """Tell whether a result is there; refuse one that is of another model, or none of ours."""
        file = self.target / name
        if not file.exists():
            return False
        found = _origin_of(file)
        if found is None or (found.model, found.column) != (self.digest, self.column):
            what = "is no result of this command" if found is None else "was predicted by another model"
            raise ArtifactError(f"{file} {what}: choose another folder for the result, or empty this one.")
        return found == self.origin(name) and found.rows == _rows(file)

    def run(self, name: str) -> int:
        """Predict a file; returns its number of rows."""
        origin, target = self.origin(name), self.target / name
        rows = read_table(self.source / name, text=self.model.schema.text_columns)
        if self.column in rows.column_names:
            raise SchemaError(f"{self.source / name} already has a column {self.column!r}: choose another name.")
        rows = rows.append_column(self.column, pa.array(self.model.predict_proba(rows)))
        notes = {**(rows.schema.metadata or {}), _KEY: json.dumps(asdict(origin))}
        write_table(rows.replace_schema_metadata(notes), target)
        return int(rows.num_rows)


class _Worker:
    """A process that has the model, and is given one file after another."""

    def __init__(self, task: Any) -> None:
        import ray

        self.task: _Task = ray.get(task)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Predict the file of a row; that it cannot be is an answer too, since another try would not help."""
        try:
            return {"name": row["name"], "rows": self.task.run(row["name"]), "error": ""}
        except PcmcNetError as error:
            message = str(error)
            where = "" if row["name"] in message else f"{self.task.source / row['name']}: "
            return {"name": row["name"], "rows": 0, "error": f"{where}{message}"}


def _by_ray_data(ray: Any, task: _Task, names: Sequence[str], workers: int) -> Iterator[dict[str, Any]]:
    """Yield what came of each file."""
    if not names:
        return
    import ray.data

    with quiet("ray.data"):
        ray.data.DataContext.get_current().enable_progress_bars = False  # there is one of ours
        files = ray.data.from_items([{"name": name} for name in names], override_num_blocks=len(names))
        pool = ray.data.ActorPoolStrategy(size=min(workers, len(names)), max_tasks_in_flight_per_actor=1)
        yield from files.map(_Worker, fn_constructor_args=(ray.put(task),), compute=pool).iter_rows()


def _ids_by_file(ray: Any, task: _Task, names: Sequence[str]) -> Iterable[tuple[str, pa.Array]]:
    """Return the ids of the choice sets of each file that has them, each once."""
    column = task.model.schema.choice_set

    def ids(name: str) -> pa.Array | None:
        try:
            return pc.unique(read_table(task.source / name, [column]).column(column).combine_chunks())
        except PcmcNetError:  # said when the file is predicted
            return None

    read = ray.remote(num_cpus=1, max_retries=-1)(ids)
    found = ray.get([read.remote(name) for name in names])
    return [(name, array) for name, array in zip(names, found, strict=True) if array is not None]


def _require_sets_within_files(ids: Iterable[tuple[str, pa.Array]], column: str) -> None:
    """Refuse a choice set whose rows lie in two files: each would get the probabilities of a part of it."""
    ids = list(ids)
    if len({array.type for _, array in ids}) > 1:
        ids = [(name, array.cast(pa.string())) for name, array in ids]
    if not ids:
        return
    counts = pa.chunked_array([array for _, array in ids]).value_counts()
    across = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if len(across):
        where = [name for name, array in ids if pc.index(array, across[0]).as_py() >= 0]
        raise SchemaError(
            f"choice set {across[0]} (column {column!r}) has rows in {where[0]} and in {where[1]}; {len(across):,} "
            f"such sets. A set must lie within one file: write the table again with each set in one file, or "
            f"predict the folder in one process."
        )


def _file_names(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise SchemaError(f"{folder}: expected a folder of .parquet files.")
    found = [file.relative_to(folder) for file in folder.rglob("*.parquet")]
    names = sorted(os.fspath(file) for file in found if not is_hidden(file))
    if not names:
        raise SchemaError(f"{folder}: the folder holds no .parquet file.")
    return names


def _origin_of(file: Path) -> Origin | None:
    try:
        note = (pyarrow.parquet.read_schema(file).metadata or {}).get(_KEY)
        return None if note is None else Origin(**parse_json(note))
    except (pa.ArrowException, OSError, ValueError, TypeError):
        return None


def _rows(file: Path) -> int:
    try:
        return int(pyarrow.parquet.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError):
        return -1  # said when the file is read


# -- Offers ------------------------------------------------------------------------------------------------------------
# Offers to the individuals of a table, by several workers.
#
# This process reads the pieces of the table and writes their offers, in their order; workers search. Twice as many
# pieces as workers are under way at most, so that memory is bounded. When a worker dies, Ray gives its piece to
# another.


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
    """Find an offer for each individual of a table by several workers: the same file as from one process.

    Parameters
    ----------
    model
        A fitted model, or the folder of one.
    workers
        Processes that search.
    catalogue, individuals, path, revenue, outside, constraints, seed
        As for :func:`pcmcnet.write_offers`.
    """
    fitted = model if isinstance(model, ChoiceModel) else load(model)
    search = OfferSearch(fitted, catalogue, revenue, outside, constraints or Constraints(), seed)
    with connected(workers) as ray:
        many = RayWorkers(ray, workers, retries=-1)

        def by_workers(search: OfferSearch, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
            return many.map(lambda numbered: search_chunk(search, *numbered), enumerate(pieces))

        return write_offer_chunks(search, as_path(individuals), as_path(path), by_workers)
