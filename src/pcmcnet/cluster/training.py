"""Fit a network with several workers: Ray Train runs the usual training loop on each worker.

    before:        all workers together learn the encoder from a scanned table; it is saved next to the shards
    every worker:  the same batches, planned from (seed, epoch) -> its share of each -> gradients summed over workers
    first worker:  a checkpoint after each epoch, in a folder that all workers can access
    at the end:    the model is loaded from the last checkpoint, like a resumed run with no epochs left

Each of n workers processes every n-th shard of a buffer, or every n-th choice set of a table in memory. Up to rounding,
each step therefore follows the same gradient as in a single process. Rounding errors grow with the number of steps, so
the weights differ from those of a single process, although the model is equally good. If a worker dies, Ray restarts
all workers from the last checkpoint, and the run ends as if no worker had died.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pcmcnet.checks import require_number
from pcmcnet.cluster.engine import RayWorkers, has_gpu_per_worker, is_on_loopback, ray_connection, start_board
from pcmcnet.concurrency import tasks_run_by
from pcmcnet.data import ScannedData, Schema, Sets
from pcmcnet.data.scan.cache import VerifiedShards
from pcmcnet.errors import ArtifactError, ConfigError, InputError, PcmcNetError, TrainingError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.progress import show_epochs
from pcmcnet.storage import write_bytes
from pcmcnet.training.data_parallel import ProcessGroup, training_in_group
from pcmcnet.training.run_folder import checkpoint_files, is_run_file

log = logging.getLogger("pcmcnet")

# -- Run folder --------------------------------------------------------------------------------------------------------
# The checkpoints of a run, shared by several machines: in any folder, or at any address that fsspec supports.
#
# Each worker has a local folder, filled from the shared one at the start. The first worker copies every new checkpoint
# to the shared folder, where it appears under its final name only when it is complete.


class SharedFolder:
    """The checkpoints of a run at a shared address, with a local copy."""

    def __init__(self, address: str, local: Path) -> None:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]

        try:
            self.files, self.root = url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise InputError(f"{address} is not a valid shared folder: {error}.") from error
        self.local, self._copied = local, dict[Path, tuple[int, int]]()

    @classmethod
    @contextmanager
    def with_temporary_copy(cls, address: str) -> Iterator[SharedFolder]:
        """Yield a shared folder whose local copy is removed at the end of the block."""
        with tempfile.TemporaryDirectory(prefix="pcmcnet-") as local:
            yield cls(address, Path(local))

    def has_checkpoints(self) -> bool:
        """Return True if the shared folder holds checkpoints of an unfinished run."""
        return bool(self._shared_checkpoints())

    def pull(self) -> None:
        """Copy the shared checkpoints to the local folder."""
        for path in self._shared_checkpoints():
            file = self.local / os.path.relpath(path, self.root)
            file.parent.mkdir(exist_ok=True)
            self.files.get_file(path, str(file))

    def push(self) -> None:
        """Copy new local checkpoints to the shared folder."""
        for file in checkpoint_files(self.local):
            stat = file.stat()
            state = (stat.st_mtime_ns, stat.st_ino)
            if self._copied.get(file) != state:
                self._put(file)
                self._copied[file] = state

    def _put(self, file: Path) -> None:
        """Copy a file to the shared folder, where it gets its final name only when it is complete."""
        target = f"{self.root}/{file.relative_to(self.local).as_posix()}"
        try:
            if "file" in (self.files.protocol if isinstance(self.files.protocol, tuple) else (self.files.protocol,)):
                write_bytes(target, file.read_bytes())
                return
            folder, _, name = target.rpartition("/")
            self.files.makedirs(folder, exist_ok=True)
            temporary = f"{folder}/.new.{name}"
            self.files.put_file(str(file), temporary)
            self.files.mv(temporary, target)
        except OSError as error:
            raise ArtifactError(f"checkpoint {target} cannot be written: {error.strerror or error}.") from error

    def _shared_checkpoints(self) -> list[str]:
        """Return the paths of the shared checkpoints of the run, including those of ensemble members."""
        if not self.files.exists(self.root):
            return []
        return [path for path in self.files.find(self.root, maxdepth=2) if is_run_file(path.rpartition("/")[2])]


# -- Scanning ----------------------------------------------------------------------------------------------------------
# Scan a table with Ray: workers share the chunks of the table, then its shards. The result is byte for byte the same as
# with a single process. All machines must be able to access the table and the cache. If a worker dies, its chunk is
# scanned again.


def scan(
    table: str | Path, *, workers: int = 2, cache: str | Path | None = None, memory: str | int = "1 GiB", **roles: Any
) -> ScannedData:
    """Scan a table with several workers, as :meth:`ChoiceData.scan` does with one process.

    Parameters
    ----------
    table
        Path of the table, accessible from the machines of all workers.
    workers
        Number of processes that share the table (default 2). During the scan, each process uses up to two fifths of
        ``memory``.
    cache
        Folder for the converted table, accessible from the machines of all workers (default: next to the table).
    memory
        Memory for choice sets during training, such as "2 GiB" or a number of bytes (default "1 GiB").
    **roles
        Roles of the columns, as for :meth:`ChoiceData.scan`.

    Returns
    -------
    ScannedData
        The choice sets of the table.

    Raises
    ------
    ConfigError
        If Ray is not available.
    SchemaError
        If the table does not fit the roles.
    """
    return scan_with_schema(table, Schema.from_dict(roles), workers=workers, cache=cache, memory=memory)


def scan_with_schema(table: str | Path, schema: Schema, *, workers: int, cache: Any, memory: str | int) -> ScannedData:
    """Scan a table with several workers, using the column roles in a schema."""
    cache_folder = None if cache is None else Path(cache).absolute()
    with ray_connection(workers) as ray:
        many = RayWorkers(ray, workers)
        return ScannedData.of(Path(table).absolute(), schema, cache=cache_folder, memory=memory, workers=many).by(None)


# -- Training ----------------------------------------------------------------------------------------------------------


POLL_SECONDS = 0.25  # between two reads of the progress board
_FIT = "fit"  # name of the job on the board


def fit(
    model: ChoiceModel,
    train: Sets,
    valid: Sets | None = None,
    *,
    workers: int = 2,
    seed: int = 0,
    device: str = "auto",
    progress: bool = True,
    run_folder: str | Path | None = None,
    resume: bool = False,
    failures: int = 3,
) -> Any:
    """Fit a network or a stack to choice sets with known choices, with several workers.

    Parameters
    ----------
    model
        The network, or the stack, which is fitted in place. The workers share each batch of a network. For a stack,
        they share the fits that predict held-out sets; this process then fits the members to all choice sets.
    train, valid
        Training part and optional validation part, as for ``model.fit``.
    workers
        Number of processes that share the work (default 2).
    seed
        Random seed (default 0). The batches are the same as in a single process with this seed. Up to rounding, the
        weights are also the same, unless dropout is used, because each worker draws different dropout masks.
    device
        "cpu", "cuda", or "auto" (the default) to give each worker a GPU if there are enough GPUs. A stack is fitted on
        CPUs.
    progress
        Whether to show a progress bar on a terminal, or log one line per epoch elsewhere (default True).
    run_folder
        Folder or fsspec address for the checkpoint after each epoch, accessible from the machines of all workers.
        Default: a temporary folder, if all workers are on one machine. The run folder of a stack is on this machine.
    resume
        Whether to continue from the checkpoint in ``run_folder`` (default False).
    failures
        Number of times that workers may die before the fit is abandoned (default 3).

    Returns
    -------
    ChoiceModel
        The model itself.

    Raises
    ------
    ConfigError
        If Ray is not available, the model is neither a network, an ensemble of networks nor a stack, or ``device`` is
        not a CPU for a stack.
    InputError
        If ``run_folder`` is needed but missing, or holds an unfinished run and ``resume`` is False.
    TrainingError
        If training fails, or workers die too often. The run folder keeps the last checkpoint.
    """
    require_number("failures", failures, whole=True, low=0)
    if not isinstance(model, ChoiceModel) or not (model.shares_batches or model.shares_tasks):
        name = model.name if isinstance(model, ChoiceModel) else repr(model)
        raise ConfigError(
            f"Ray workers cannot fit {name}: only networks, ensembles of networks and stacks have work to share among "
            f"workers. Fit {name} in one process (on the command line: without --engine ray)."
        )
    if resume and run_folder is None:
        raise InputError("resume=True needs the run_folder of the run to continue.")
    if model.shares_tasks:
        run = {"seed": seed, "progress": progress, "run_folder": run_folder, "resume": resume}
        return _fit_with_shared_tasks(model, train, valid, workers, device, failures, run)
    with ray_connection(workers) as ray, ExitStack() as stack:
        # 1. Learn the encoder, and find the folder of the checkpoints.
        _learn_encoder(model, _with_absolute_path(train), _with_absolute_path(valid), RayWorkers(ray, workers))
        address = _checkpoint_address(ray, run_folder, stack)
        shared = stack.enter_context(SharedFolder.with_temporary_copy(address))
        if shared.has_checkpoints() and not resume:
            raise InputError(
                f"{address} holds an unfinished run: continue it (resume=True, or --resume), or choose another folder."
            )
        # 2. Train with all workers, up to the last checkpoint.
        task = {
            "work": ray.put((model, _with_absolute_path(train), _with_absolute_path(valid))),
            "seed": seed,
            "device": None if has_gpu_per_worker(ray, device, workers) else "cpu",
            "address": address,
        }
        epochs = getattr(model.config, "passes", 0)
        _run(ray, task, workers=workers, failures=failures, epochs=epochs, progress=progress)
        # 3. Load the model from the last checkpoint: a resumed run with no epochs left.
        shared.pull()
        return model.fit(train, valid, seed, "cpu", False, run_folder=shared.local, resume=True)


def _fit_with_shared_tasks(
    model: ChoiceModel,
    train: Sets,
    valid: Sets | None,
    workers: int,
    device: str,
    failures: int,
    run: Mapping[str, Any],
) -> ChoiceModel:
    """Fit a model in this process, while workers run its independent tasks, one CPU for each."""
    if device not in ("auto", "cpu"):
        raise ConfigError(f"workers fit {model.name} on CPUs: expected device 'auto' or 'cpu', got {device!r}.")
    with ray_connection(workers) as ray, tasks_run_by(RayWorkers(ray, workers, retries=failures).map):
        return model.fit(train, valid, device="cpu", **run)


def _learn_encoder(model: ChoiceModel, train: Sets | None, valid: Sets | None, workers: RayWorkers) -> None:
    """Learn the encoder of a scanned table once, with all workers, so that no worker repeats this work."""
    if not isinstance(train, ScannedData) or train.fits:
        return
    train.require_chosen("fitting")
    model.survey(train.by(workers), valid.by(workers) if isinstance(valid, ScannedData) else valid)
    groups = train.buffers()
    shards = len(train.manifest.shards) / len(groups)
    if shards < workers.count:
        log.warning(
            "a buffer has about %.0f shards for %d workers, so some workers will be idle: scan the table again with "
            "a larger memory=, which is the total for all workers.",
            shards,
            workers.count,
        )


def _with_absolute_path(data: Sets | None) -> Sets | None:
    """Make the path of a scanned table absolute, because workers have a different working directory."""
    if not isinstance(data, ScannedData):
        return data
    folder = data.folder.absolute()
    return replace(data, folder=folder, verified=VerifiedShards(folder)).by(None)


def _checkpoint_address(ray: Any, run_folder: str | Path | None, stack: ExitStack) -> str:
    """Return the address of the checkpoints. A path is made absolute, because workers run in another directory."""
    if run_folder is None:
        if len(ray.nodes()) > 1:
            raise InputError(
                "workers on several machines need a run_folder for checkpoints that all machines can access."
            )
        return stack.enter_context(tempfile.TemporaryDirectory(prefix="pcmcnet-"))
    return str(run_folder) if "://" in str(run_folder) else str(Path(run_folder).absolute())


def _run(ray: Any, task: Mapping[str, Any], *, workers: int, failures: int, epochs: int, progress: bool) -> None:
    """Run the workers with Ray Train, and report their epochs."""
    import ray.train
    from ray.train.torch import TorchTrainer

    from pcmcnet.cluster.process_group import SingleMachineConfig

    board = start_board(ray)
    with tempfile.TemporaryDirectory(prefix="pcmcnet-ray-") as folder:
        trainer = TorchTrainer(
            _work,  # type: ignore[arg-type]  # Ray passes its return value on as return_value of the result
            train_loop_config={**task, "board": board},
            torch_config=SingleMachineConfig(folder=folder) if is_on_loopback(ray) else None,
            scaling_config=ray.train.ScalingConfig(num_workers=workers, use_gpu=task["device"] is None),
            run_config=ray.train.RunConfig(
                name="fit", storage_path=folder, failure_config=ray.train.FailureConfig(max_failures=failures)
            ),
        )
        outcome: list[Any] = []
        # In a separate thread Ray does not handle Ctrl+C, so that the main thread can.
        running = threading.Thread(target=lambda: outcome.append(_outcome(trainer, task, failures)), daemon=True)
        running.start()
        with show_epochs(epochs, show=progress) as report:
            try:
                while running.is_alive():
                    running.join(POLL_SECONDS)
                    for entry in ray.get(board.collect.remote()).get(_FIT, []):
                        report(entry)
            except KeyboardInterrupt:
                ray.get(board.stop.remote(_FIT, "interrupted"))
                raise
    if isinstance(outcome[0], BaseException):
        raise outcome[0]


def _outcome(trainer: Any, task: Mapping[str, Any], failures: int) -> BaseException | None:
    """Run the trainer and return its error, or None after success."""
    from ray.train import TrainingFailedError

    try:
        returned = trainer.fit().return_value
    except TrainingFailedError as error:
        causes = [getattr(cause, "_base_exc", cause) for cause in getattr(error, "worker_failures", {}).values()]
        own_errors = [cause for cause in causes if isinstance(cause, PcmcNetError)]
        if own_errors:
            return own_errors[0]
        last = str(causes[0] if causes else error).strip().splitlines()
        return TrainingError(
            f"workers failed more than {failures} times; the last reason: {last[-1] if last else 'unknown'}. "
            f"The last checkpoint is in {task['address']}: continue with resume=True, or --resume."
        )
    except BaseException as error:  # noqa: BLE001 - raised again in the main thread
        return error
    return returned if isinstance(returned, BaseException) else None


def _work(task: dict[str, Any]) -> PcmcNetError | None:
    """Train as one of the workers. Errors common to all workers are returned, because a restart would not help."""
    import ray.train
    import torch.distributed
    from ray.train.torch import get_device

    context = ray.train.get_context()
    model, train, valid = ray.get(task["work"])
    device = task["device"] or str(get_device())

    with SharedFolder.with_temporary_copy(task["address"]) as folder:
        rank, size = context.get_world_rank(), context.get_world_size()
        group = ProcessGroup(rank, size, torch.distributed.all_reduce, folder.push)
        folder.pull()

        def on_epoch(entry: dict[str, Any]) -> None:
            stop = torch.zeros(1, device=device)
            if group.is_first:
                stop += float(ray.get(task["board"].post.remote(_FIT, entry)) is not None)
            group.sum_over_processes(stop)  # so that all workers stop together
            if stop:
                raise TrainingError("the fit was interrupted.")

        try:
            with training_in_group(group):
                model.fit(
                    train, valid, task["seed"], device, False, run_folder=folder.local, resume=True, on_epoch=on_epoch
                )
        except ArtifactError:
            raise  # a problem of one worker, such as a full disk: a restart may help
        except PcmcNetError as error:
            return error
    return None
