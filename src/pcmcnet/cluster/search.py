"""Search for a model's options with several trials at once, in one study.

    this process:  draws configurations, keeps what came of them (study.db)        the only one that writes
    workers:       fit a configuration each, and leave word of every epoch

A draw takes the trials under way into account: the Gaussian process supposes that they end as it predicts, and none of
them is drawn again. A trial whose worker dies is run again by Ray. When this process dies, what was under way is drawn
first by the search that goes on, so that no trial is lost or repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pcmcnet.cluster.engine import connected, new_board, wants_gpu
from pcmcnet.data import ChoiceData
from pcmcnet.errors import PcmcNetError, TrainingError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.tuning import Space, TrialRecord, Tuning
from pcmcnet.tuning import tune as search
from pcmcnet.tuning.objective import Objective
from pcmcnet.tuning.result import Measurement
from pcmcnet.tuning.search import StartAnother

POLL = 0.2  # seconds between looks at the board
RETRIES = 3  # new starts of a trial whose worker died


def tune(
    model: ChoiceModel | type[ChoiceModel] | str,
    data: ChoiceData,
    *,
    workers: int = 2,
    device: str = "auto",
    **options: Any,
) -> Tuning:
    """Search for the options with which a model predicts best, several trials at once, and fit it with them.

    Parameters
    ----------
    model, data
        As for :func:`pcmcnet.tune`.
    workers
        Trials at once. Which of them were under way together depends on how long each took, so a search by several
        workers is not the same from run to run.
    device
        "auto" gives each trial a GPU if there are enough; "cpu" or "cuda".
    **options
        The other options of :func:`pcmcnet.tune`: space, trials, valid, by, seed, folder, progress, timeout. Only this
        process writes to the folder.

    Raises
    ------
    ConfigError
        When Ray is not to be had. All else as for :func:`pcmcnet.tune`.
    """
    with connected(workers) as ray:
        gpu = wants_gpu(ray, device, workers)

        def at_once(study: Any, space: Space, objective: Objective, more: StartAnother) -> Iterator[TrialRecord]:
            there = objective if gpu else replace(objective, device="cpu")
            yield from _Trials(ray, study, space, ray.put(there), workers, gpu).run(more)

        return search(model, data, device=device, runner=at_once, **options)


@dataclass
class _Under:
    """A trial at a worker: how many of its epochs were told, and the error that ends it early, if one does."""

    trial: Any
    epochs: int = 0
    pruned: Exception | None = None


@dataclass
class _Trials:
    """The trials under way, by the task that runs each."""

    ray: Any
    study: Any
    space: Space
    objective: Any
    workers: int
    gpu: bool
    under_way: dict[Any, _Under] = field(default_factory=dict)

    def run(self, more: StartAnother) -> Iterator[TrialRecord]:
        """Keep all workers at work; yield each trial that has ended."""
        board = new_board(self.ray)
        measure = self.ray.remote(num_cpus=1, num_gpus=int(self.gpu), max_retries=RETRIES)(_measure)
        try:
            while True:
                while len(self.under_way) < self.workers and more(len(self.under_way)):
                    self._begin(measure, board)
                if not self.under_way:
                    return
                done, _ = self.ray.wait(list(self.under_way), timeout=POLL)
                self._tell(board)
                for task in done:
                    yield self._end(task)
        finally:
            for task in self.under_way:
                self.ray.cancel(task, force=True)

    def _begin(self, measure: Any, board: Any) -> None:
        from pcmcnet.tuning.study import RunningTrial

        trial = RunningTrial(self.study, self.space)
        task = measure.remote(self.objective, trial.options, board, str(trial.trial.number))
        self.under_way[task] = _Under(trial)

    def _tell(self, board: Any) -> None:
        """Pass on what workers have left on the board; a trial that is pruned by it ends at its next epoch."""
        import optuna

        left = self.ray.get(board.take.remote())
        for under in self.under_way.values():
            work = str(under.trial.trial.number)
            for entry in left.get(work, []):
                if entry["epoch"] <= under.epochs or under.pruned is not None:  # told before its worker died
                    continue
                under.epochs = entry["epoch"]
                try:
                    under.trial.on_epoch(entry)
                except optuna.TrialPruned as pruned:
                    under.pruned = pruned
                    board.end.remote(work, str(pruned))

    def _end(self, task: Any) -> TrialRecord:
        under = self.under_way.pop(task)
        try:
            result = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            last = (str(error).strip().splitlines() or [type(error).__name__])[0]
            result = TrainingError(f"its worker died {RETRIES + 1} times: {last}")
        record: TrialRecord = under.trial.end(under.pruned or result)
        return record


def _measure(objective: Objective, options: dict[str, Any], board: Any, work: str) -> Measurement | Exception:
    """Fit a configuration at a worker; an error is an answer too."""
    import ray

    def on_epoch(entry: dict[str, Any]) -> None:
        if (why := ray.get(board.leave.remote(work, entry))) is not None:
            raise TrainingError(why)

    try:
        return objective(options, on_epoch)
    except (PcmcNetError, OSError, MemoryError) as error:
        return error
    except Exception as error:  # noqa: BLE001 - some cannot be sent
        return RuntimeError(f"{type(error).__name__}: {error}")
