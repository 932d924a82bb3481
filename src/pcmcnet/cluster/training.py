"""Fit a network by several workers: Ray Train runs the loop of one process on each of them.

    before:        the encoder is learnt from a scanned table by all workers, and kept beside its shards
    every worker:  the same batches, planned from (seed, epoch) -> its share of each -> gradients added up over all
    the first:     a checkpoint after each epoch, to a folder that all workers see
    at the end:    the model is read from the last checkpoint, as a run that goes on and finds nothing left to do

A worker's share is that of the shards it reads, which are every n-th of a buffer, or every n-th set of a table that all
of them have in memory. So each step follows the gradient of one process, up to rounding, whose effects grow with the
steps: the model is as good, and its weights are others. When a worker dies, Ray starts all of them again, and they go
on from the last checkpoint: the run ends as if nothing had happened.
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
from pcmcnet.cluster.engine import RayWorkers, connected, new_board, on_loopback, wants_gpu
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
# The folder of a run that several machines share: any folder, or any address that fsspec knows.
#
# Each worker has a folder of its own, filled from the shared one when it starts. The first worker copies every new
# checkpoint back; it appears under its name when it is complete.


class SharedFolder:
    """A run's checkpoints at some address, and a folder of this process's own."""

    def __init__(self, address: str, own: Path) -> None:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]

        try:
            self.files, self.root = url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise InputError(f"{address} cannot be a shared folder: {error}.") from error
        self.own, self._copied = own, dict[Path, tuple[int, int]]()

    @classmethod
    @contextmanager
    def opened(cls, address: str) -> Iterator[SharedFolder]:
        """Yield a folder whose local part is removed at the end."""
        with tempfile.TemporaryDirectory(prefix="pcmcnet-") as own:
            yield cls(address, Path(own))

    def holds_checkpoints(self) -> bool:
        """Tell whether an unfinished run has left its state there."""
        return bool(self._found())

    def pull(self) -> None:
        """Fill this process's folder with the checkpoints that are there."""
        for path in self._found():
            place = self.own / os.path.relpath(path, self.root)
            place.parent.mkdir(exist_ok=True)
            self.files.get_file(path, str(place))

    def push(self) -> None:
        """Copy the checkpoints that are new."""
        for file in checkpoint_files(self.own):
            stat = file.stat()
            state = (stat.st_mtime_ns, stat.st_ino)
            if self._copied.get(file) != state:
                self._put(file)
                self._copied[file] = state

    def _put(self, file: Path) -> None:
        target = f"{self.root}/{file.relative_to(self.own).as_posix()}"
        try:
            if "file" in (self.files.protocol if isinstance(self.files.protocol, tuple) else (self.files.protocol,)):
                write_bytes(target, file.read_bytes())
                return
            folder, _, name = target.rpartition("/")
            self.files.makedirs(folder, exist_ok=True)
            beside = f"{folder}/.new.{name}"
            self.files.put_file(str(file), beside)
            self.files.mv(beside, target)
        except OSError as error:
            raise ArtifactError(f"checkpoint {target} cannot be written: {error.strerror or error}.") from error

    def _found(self) -> list[str]:
        """Return the checkpoints that are there, of the run itself or of its members."""
        if not self.files.exists(self.root):
            return []
        return [path for path in self.files.find(self.root, maxdepth=2) if is_run_file(path.rpartition("/")[2])]


# -- Scanning ----------------------------------------------------------------------------------------------------------
# Scan a table by the workers of Ray: they share its pieces, then its shards, and make the bytes of one process.
#
# All machines see the table and the folder of the cache. A piece whose worker dies is done again, from its beginning.


def scan(
    table: str | Path, *, workers: int = 2, cache: str | Path | None = None, memory: str | int = "1 GiB", **roles: Any
) -> ScannedData:
    """Scan a table as :meth:`ChoiceData.scan` does, by several workers.

    Parameters
    ----------
    table, cache
        Paths that all workers see.
    workers
        Processes that share the table, each of which takes up to two fifths of ``memory`` meanwhile.
    memory, roles
        As for :meth:`ChoiceData.scan`.
    """
    return scan_by_roles(table, Schema.from_dict(roles), workers=workers, cache=cache, memory=memory)


def scan_by_roles(table: str | Path, schema: Schema, *, workers: int, cache: Any, memory: str | int) -> ScannedData:
    """Do the same with roles that are known."""
    place = None if cache is None else Path(cache).absolute()
    with connected(workers) as ray:
        many = RayWorkers(ray, workers)
        return ScannedData.of(Path(table).absolute(), schema, cache=place, memory=memory, workers=many).by(None)


# -- Training ----------------------------------------------------------------------------------------------------------


POLL = 0.25  # seconds between looks at the board
_FIT = "fit"


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
    """Fit a network to choice sets with known choices, by several workers.

    Parameters
    ----------
    model, train, valid, seed
        As for ``model.fit``. With the same seed the batches are those of one process, and so are the weights, up to
        rounding; dropout is drawn by each worker for itself.
    workers
        Processes that share each batch.
    device
        "auto" gives each worker a GPU if there are enough; "cpu" or "cuda".
    progress
        Show a bar on a terminal, or log a line per epoch elsewhere.
    run_folder, resume
        Folder, or fsspec address, for the checkpoint written after each epoch, and whether to go on from the one there.
        Workers on other machines must see it. Without it, on one machine, a temporary one serves.
    failures
        How often workers may die before the fit is given up.

    Returns
    -------
    The model itself.

    Raises
    ------
    ConfigError
        When Ray is not to be had, or the model does not train in epochs.
    TrainingError
        When training broke down, or workers died too often; what was done until then is in the run folder.
    """
    require_number("failures", failures, whole=True, low=0)
    if not isinstance(model, ChoiceModel) or not model.stops_early:
        name = model.name if isinstance(model, ChoiceModel) else repr(model)
        raise ConfigError(f"workers share the training of networks, and {name} is none: fit it in one process.")
    if resume and run_folder is None:
        raise InputError("resume=True needs the run_folder of the run to go on with.")
    with connected(workers) as ray, ExitStack() as stack:
        _look_through(model, _reachable(train), _reachable(valid), RayWorkers(ray, workers))
        address = _address(ray, run_folder, stack)
        shared = stack.enter_context(SharedFolder.opened(address))
        if shared.holds_checkpoints() and not resume:
            raise InputError(
                f"{address} holds an unfinished run: go on with it (resume=True, or --resume), or choose another "
                f"folder."
            )
        given = {
            "work": ray.put((model, _reachable(train), _reachable(valid))),
            "seed": seed,
            "device": None if wants_gpu(ray, device, workers) else "cpu",
            "address": address,
        }
        epochs = getattr(model.config, "passes", 0)
        _run(ray, given, workers=workers, failures=failures, epochs=epochs, progress=progress)
        shared.pull()
        return model.fit(train, valid, seed, "cpu", False, run_folder=shared.own, resume=True)


def _look_through(model: ChoiceModel, train: Sets | None, valid: Sets | None, workers: RayWorkers) -> None:
    """Do once what takes a look at all shards: workers share it, who would else do it all alike."""
    if not isinstance(train, ScannedData) or train.fits:
        return
    train.require_chosen("fitting")
    model.survey(train.by(workers), valid.by(workers) if isinstance(valid, ScannedData) else valid)
    groups = train.buffers()
    shards = len(train.manifest.shards) / len(groups)
    if shards < workers.count:
        log.warning(
            "a buffer has about %.0f shards for %d workers, some of which will be idle: scan again with more memory, "
            "which is that of all workers together.",
            shards,
            workers.count,
        )


def _reachable(data: Sets | None) -> Sets | None:
    """Name the folder of a table that is read part by part in full: workers have another working folder."""
    if not isinstance(data, ScannedData):
        return data
    folder = data.folder.absolute()
    return replace(data, folder=folder, verified=VerifiedShards(folder)).by(None)


def _address(ray: Any, run_folder: str | Path | None, stack: ExitStack) -> str:
    """Return where checkpoints go; workers run elsewhere, so a path is made a whole one."""
    if run_folder is None:
        if len(ray.nodes()) > 1:
            raise InputError("several machines need a run_folder that all of them see, to keep their state in.")
        return stack.enter_context(tempfile.TemporaryDirectory(prefix="pcmcnet-"))
    return str(run_folder) if "://" in str(run_folder) else str(Path(run_folder).absolute())


def _run(ray: Any, given: Mapping[str, Any], *, workers: int, failures: int, epochs: int, progress: bool) -> None:
    """Let Ray Train run the workers, and tell of their epochs meanwhile."""
    import ray.train
    from ray.train.torch import TorchTrainer

    from pcmcnet.cluster.process_group import OneMachine

    board = new_board(ray)
    with tempfile.TemporaryDirectory(prefix="pcmcnet-ray-") as own:
        trainer = TorchTrainer(
            _work,  # type: ignore[arg-type]  # what it returns comes back as the result's return_value
            train_loop_config={**given, "board": board},
            torch_config=OneMachine(folder=own) if on_loopback(ray) else None,
            scaling_config=ray.train.ScalingConfig(num_workers=workers, use_gpu=given["device"] is None),
            run_config=ray.train.RunConfig(
                name="fit", storage_path=own, failure_config=ray.train.FailureConfig(max_failures=failures)
            ),
        )
        outcome: list[Any] = []
        # In a thread of its own, Ray leaves Ctrl+C to us.
        running = threading.Thread(target=lambda: outcome.append(_outcome(trainer, given, failures)), daemon=True)
        running.start()
        with show_epochs(epochs, show=progress) as report:
            try:
                while running.is_alive():
                    running.join(POLL)
                    for entry in ray.get(board.take.remote()).get(_FIT, []):
                        report(entry)
            except KeyboardInterrupt:
                ray.get(board.end.remote(_FIT, "interrupted"))
                raise
    if isinstance(outcome[0], BaseException):
        raise outcome[0]


def _outcome(trainer: Any, given: Mapping[str, Any], failures: int) -> BaseException | None:
    """Return what stood in the way of a fit, if anything."""
    from ray.train import TrainingFailedError

    try:
        found = trainer.fit().return_value
    except TrainingFailedError as error:
        causes = [getattr(each, "_base_exc", each) for each in getattr(error, "worker_failures", {}).values()]
        ours = [each for each in causes if isinstance(each, PcmcNetError)]
        if ours:
            return ours[0]
        last = str(causes[0] if causes else error).strip().splitlines()
        return TrainingError(
            f"workers failed more than {failures} times; the last time: {last[-1] if last else 'for unknown reasons'}. "
            f"The state after the last epoch is in {given['address']}: go on with resume=True, or --resume."
        )
    except BaseException as error:  # noqa: BLE001 - of another thread: raised again in the one that waits
        return error
    return found if isinstance(found, BaseException) else None


def _work(given: dict[str, Any]) -> PcmcNetError | None:
    """Train as one of the workers; returns the error that all of them came to alike, as no new start would help."""
    import ray.train
    import torch.distributed
    from ray.train.torch import get_device

    context = ray.train.get_context()
    model, train, valid = ray.get(given["work"])
    device = given["device"] or str(get_device())

    with SharedFolder.opened(given["address"]) as folder:
        rank, size = context.get_world_rank(), context.get_world_size()
        group = ProcessGroup(rank, size, torch.distributed.all_reduce, folder.push)
        folder.pull()

        def on_epoch(entry: dict[str, Any]) -> None:
            end = torch.zeros(1, device=device)
            if group.is_first:
                end += float(ray.get(given["board"].leave.remote(_FIT, entry)) is not None)
            group.sum_over_processes(end)  # all of them, or none
            if end:
                raise TrainingError("the fit was interrupted.")

        try:
            with training_in_group(group):
                model.fit(
                    train, valid, given["seed"], device, False, run_folder=folder.own, resume=True, on_epoch=on_epoch
                )
        except ArtifactError:
            raise  # one worker's alone, such as a full disk
        except PcmcNetError as error:
            return error
    return None
