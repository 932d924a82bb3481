"""Sampling of the hierarchical logit with checkpoints, so that an interrupted fit continues bit for bit.

A checkpoint is a safetensors file with the present values of all chains, the draws kept so far, and, as JSON in its
header, the state of the random numbers and the identity of the run. Checkpoints are written after the burn-in.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_arrays

from pcmcnet.arrays import Floats
from pcmcnet.errors import ArtifactError
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.logit.hierarchical_sampler import (
    ChainState,
    DrawStore,
    HierarchicalDraws,
    HierarchicalSampler,
    PopulationStates,
)
from pcmcnet.models.logit.person_posterior import PersonPosterior, PersonStates
from pcmcnet.progress import StepReporter, show_steps
from pcmcnet.storage import write_bytes
from pcmcnet.training.run_folder import CHECKPOINT, open_run_folder, require_same_run

_STORE = ("coefficients", "covariances", "persons", "accepted")
_SECONDS_BETWEEN_CHECKPOINTS = 5.0
_PROGRESS_STEPS = 20


def sample_posterior(
    sampler: HierarchicalSampler, first: Floats, run: FitRun, model: Mapping[str, Any]
) -> HierarchicalDraws:
    """Sample, with checkpoints if there is a run folder.

    ``first`` (K,) contains the first value of the mean of each part-worth, and ``model`` identifies the model.
    """
    settings = sampler.settings
    total = settings.burn_in + settings.kept * settings.thin
    with (
        open_run_folder(run.run_folder, resume=run.resume),
        show_steps(_PROGRESS_STEPS, show=run.progress) as reporter,
    ):
        file = None if run.run_folder is None else run.run_folder / CHECKPOINT
        identity = {**model, "table": run.fingerprint, "seed": run.seed}
        rng, store = np.random.default_rng(run.seed), DrawStore.of(sampler)
        progress = SweepProgress(reporter, total)
        # 1. The burn-in, or the state of an interrupted run.
        if file is not None and file.exists():
            state = read_checkpoint(file, identity, sampler, store, rng)
        else:
            state = sampler.start(rng, first)
            sampler.burn_in(state, rng, progress.report)

        # 2. The draws, with a checkpoint every few seconds.
        def on_progress(sweep: int) -> None:
            progress.report(sweep)
            if file is not None and progress.is_checkpoint_due():
                write_bytes(file, checkpoint_bytes(identity, state, store, rng))

        return sampler.draw(state, rng, store, on_progress)


@dataclass(eq=False)
class SweepProgress:
    """Progress of the sampler."""

    reporter: StepReporter
    total: int  # sweeps
    shown: int = 0  # steps of the reporter
    saved: float = field(default_factory=time.monotonic)

    def report(self, sweep: int) -> None:
        """Show the progress after a number of sweeps."""
        while self.shown < sweep * _PROGRESS_STEPS // self.total:
            self.shown += 1
            self.reporter.end("sampling", f"{self.shown / _PROGRESS_STEPS:.0%} of {self.total:,} sweeps")

    def is_checkpoint_due(self) -> bool:
        """Return True if the last checkpoint was some seconds ago, and note the time of the next one."""
        due = time.monotonic() - self.saved > _SECONDS_BETWEEN_CHECKPOINTS
        if due:
            self.saved = time.monotonic()
        return due


def checkpoint_bytes(
    identity: Mapping[str, Any], state: ChainState, store: DrawStore, rng: np.random.Generator
) -> bytes:
    """Return the content of a checkpoint."""
    arrays: dict[str, NDArray[Any]] = {
        "population/coefficients": state.population.coefficients,
        "population/covariance": state.population.covariance,
        "population/factor": state.population.factor,
        "posterior/linear": state.posterior.linear,
        "posterior/hessian": state.posterior.hessian,
        "centre": state.centre,
        "root": state.root,
        "person_steps": state.person_steps,
        **{f"persons/{name}": array for name, array in state.persons._asdict().items()},
        **{f"store/{name}": getattr(store, name) for name in _STORE},
    }
    facts = {
        "identity": identity,
        "random": rng.bit_generator.state,
        "population_step": state.population_step,
        "sweeps": store.sweeps,
        "population_accepted": store.population_accepted,
    }
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save_arrays(contiguous, metadata={"state": json.dumps(facts)})


def read_checkpoint(
    file: Path, identity: Mapping[str, Any], sampler: HierarchicalSampler, store: DrawStore, rng: np.random.Generator
) -> ChainState:
    """Return the state of an interrupted run, with ``store`` and ``rng`` as they were.

    Raises
    ------
    ArtifactError
        If the file is damaged, or belongs to a run with another table, other options or another seed.
    """
    # 1. Read the file, and check that it belongs to this run.
    try:
        with safe_open(file, framework="numpy") as stored:
            facts = json.loads(stored.metadata()["state"])
            names = stored.keys()
            arrays = {name: stored.get_tensor(name) for name in names}
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise ArtifactError(f"{file} is damaged ({error}): remove it, and fit again.") from error
    require_same_run(file, facts["identity"], json.loads(json.dumps(identity)))
    # 2. Restore the draws and the random numbers.
    for name in _STORE:
        getattr(store, name)[:] = arrays[f"store/{name}"]
    store.sweeps, store.population_accepted = facts["sweeps"], facts["population_accepted"]
    rng.bit_generator.state = facts["random"]
    # 3. Restore the chains.
    coefficients, covariance, factor = (
        arrays[f"population/{name}"] for name in ("coefficients", "covariance", "factor")
    )
    return ChainState(
        population=PopulationStates.of(coefficients, covariance, factor),
        persons=PersonStates(*(arrays[f"persons/{name}"] for name in PersonStates._fields)),
        posterior=PersonPosterior(sampler.choices, arrays["posterior/linear"], arrays["posterior/hessian"]),
        centre=arrays["centre"],
        root=arrays["root"],
        person_steps=arrays["person_steps"],
        population_step=facts["population_step"],
    )
