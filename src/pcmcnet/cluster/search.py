"""Tune the options of a model with several trials in parallel, in one study.

    this process:  samples configurations and records their results (study.db); the only process that writes
    workers:       fit one configuration each, and report every epoch

The sampler takes running trials into account: the Gaussian process assumes that running trials will have the results it
predicts, and no running configuration is sampled again. If a worker dies, Ray restarts its trial. If this process dies,
the next run starts with the trials that were running, so that no trial is lost or repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pcmcnet.cluster.engine import has_gpu_per_worker, ray_connection, start_board
from pcmcnet.data import ChoiceData
from pcmcnet.errors import PcmcNetError, TrainingError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.tuning import Space, TrialRecord, Tuning
from pcmcnet.tuning import tune as search
from pcmcnet.tuning.objective import Objective
from pcmcnet.tuning.result import Measurement
from pcmcnet.tuning.search import StartAnother

POLL_SECONDS = 0.2  # between two reads of the progress board
MAX_RETRIES = 3  # restarts of a trial whose worker died


def tune(
    model: ChoiceModel | type[ChoiceModel] | str,
    data: ChoiceData,
    *,
    workers: int = 2,
    device: str = "auto",
    **options: Any,
) -> Tuning:
    """Search for the best options of a model with several trials in parallel, and fit the model with them.

    Parameters
    ----------
    model, data
        The model to tune and choice sets with known choices, as for :func:`pcmcnet.tune`.
    workers
        Number of parallel trials (default 2). A search with several workers is not reproducible, because the sampled
        configurations depend on which trials run at the same time.
    device
        "cpu", "cuda", or "auto" (the default) to give each trial a GPU if there are enough GPUs.
    **options
        Other options of :func:`pcmcnet.tune`: space, trials, valid, by, seed, folder, progress, timeout. Only this
        process writes to the folder.

    Returns
    -------
    Tuning
        The trials, the best options and the fitted model.

    Raises
    ------
    ConfigError
        If Ray is not available. Other errors are the same as for :func:`pcmcnet.tune`.
    """
    with ray_connection(workers) as ray:
        gpu = has_gpu_per_worker(ray, device, workers)

        def run_parallel(study: Any, space: Space, objective: Objective, more: StartAnother) -> Iterator[TrialRecord]:
            on_worker = objective if gpu else replace(objective, device="cpu")
            yield from _ParallelTrials(ray, study, space, ray.put(on_worker), workers, gpu).run(more)

        return search(model, data, device=device, runner=run_parallel, **options)


@dataclass
class _WorkerTrial:
    """A trial on a worker: the number of epochs reported to the study, and the error if the study pruned it."""

    trial: Any
    epochs: int = 0
    pruned: Exception | None = None


@dataclass
class _ParallelTrials:
    """The running trials, keyed by their Ray tasks."""

    ray: Any
    study: Any
    space: Space
    objective: Any
    workers: int
    gpu: bool
    running: dict[Any, _WorkerTrial] = field(default_factory=dict)

    def run(self, more: StartAnother) -> Iterator[TrialRecord]:
        """Start trials while ``more`` allows it and a worker is free. Yield each trial after it has ended."""
        board = start_board(self.ray)
        measure = self.ray.remote(num_cpus=1, num_gpus=int(self.gpu), max_retries=MAX_RETRIES)(_measure)
        try:
            while True:
                while len(self.running) < self.workers and more(len(self.running)):
                    self._start(measure, board)
                if not self.running:
                    return
                done, _ = self.ray.wait(list(self.running), timeout=POLL_SECONDS)
                self._report_epochs(board)
                for task in done:
                    yield self._end(task)
        finally:
            for task in self.running:
                self.ray.cancel(task, force=True)

    def _start(self, measure: Any, board: Any) -> None:
        from pcmcnet.tuning.study import RunningTrial

        trial = RunningTrial(self.study, self.space)
        task = measure.remote(self.objective, trial.options, board, str(trial.trial.number))
        self.running[task] = _WorkerTrial(trial)

    def _report_epochs(self, board: Any) -> None:
        """Report the epochs on the board to the study. A trial that the study prunes stops at its next epoch."""
        import optuna

        entries = self.ray.get(board.collect.remote())
        for worker_trial in self.running.values():
            job = str(worker_trial.trial.trial.number)
            for entry in entries.get(job, []):
                # After a restart, a worker repeats epochs that were reported before.
                if entry["epoch"] <= worker_trial.epochs or worker_trial.pruned is not None:
                    continue
                worker_trial.epochs = entry["epoch"]
                try:
                    worker_trial.trial.on_epoch(entry)
                except optuna.TrialPruned as pruned:
                    worker_trial.pruned = pruned
                    board.stop.remote(job, str(pruned))

    def _end(self, task: Any) -> TrialRecord:
        worker_trial = self.running.pop(task)
        try:
            result = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            last = (str(error).strip().splitlines() or [type(error).__name__])[0]
            result = TrainingError(f"the trial's worker died {MAX_RETRIES + 1} times: {last}")
        record: TrialRecord = worker_trial.trial.end(worker_trial.pruned or result)
        return record


def _measure(objective: Objective, options: dict[str, Any], board: Any, job: str) -> Measurement | Exception:
    """Fit a configuration on a worker. Return the held-out loss, or the error."""
    import ray

    def on_epoch(entry: dict[str, Any]) -> None:
        if (reason := ray.get(board.post.remote(job, entry))) is not None:
            raise TrainingError(reason)

    try:
        return objective(options, on_epoch)
    except (PcmcNetError, OSError, MemoryError) as error:
        return error
    except Exception as error:  # noqa: BLE001 - some exceptions cannot be pickled
        return RuntimeError(f"{type(error).__name__}: {error}")
