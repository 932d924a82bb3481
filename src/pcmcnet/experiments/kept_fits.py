"""Models fitted to a training part and a development part, and kept: an interrupted experiment goes on where it was.

    folder/<model>-<hash>/     a saved model, named by all that the fit depends on: options, both parts, seed;
                               until it is finished, the checkpoint of one of a network's last epochs

What is tested on is not known here, so that it cannot have any influence.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path

from pcmcnet.data import ChoiceData
from pcmcnet.errors import PcmcNetError
from pcmcnet.evaluation.cross_validation import Failure, fresh, model_identity
from pcmcnet.models import ChoiceModel, load
from pcmcnet.models.saving.manifest import MANIFEST
from pcmcnet.training.run_folder import checkpoints

log = logging.getLogger("pcmcnet")


def fit_all(
    contestants: Mapping[str, ChoiceModel],
    train: ChoiceData,
    dev: ChoiceData,
    folder: Path,
    *,
    seed: int = 0,
    device: str = "auto",
) -> dict[str, ChoiceModel | Failure]:
    """Fit and keep every model; one that the folder holds already, of the same data and options, is read.

    No test set is within reach here. A model that does not stop early, or holds out sets of its own to learn how long
    to train, learns from both parts: nothing is held back from a model that has no use for it. One that fails on these
    data is no end to the others.
    """
    fitted: dict[str, ChoiceModel | Failure] = {}
    for label, model in contestants.items():
        place = folder / _folder_name(model, train, dev, seed)
        if (place / MANIFEST).exists():
            log.info("%s: already fitted", label)
            fitted[label] = load(place)
            continue
        try:
            fitted[label] = _fit(model, train, dev, place, seed=seed, device=device)
            log.info("%s: fitted", label)
        except PcmcNetError as error:
            fitted[label] = Failure.of(error)
            log.warning("%s: failed: %s", label, error)
    return fitted


def _fit(model: ChoiceModel, train: ChoiceData, dev: ChoiceData, place: Path, *, seed: int, device: str) -> ChoiceModel:
    """Fit a copy of a model and save it with the time it took."""
    began, learner = time.perf_counter(), fresh(model)
    stops_on_dev = learner.stops_early and learner.get_params().get("min_delta") != "noise"
    part, held_out = (train, dev) if stops_on_dev else (train.concat(dev), None)
    goes_on = bool(checkpoints(place))
    learner.fit(part, held_out, seed=seed, device=device, progress=False, run_folder=place, resume=goes_on)
    in_epochs = sum(entry.get("seconds", 0.0) for entry in learner.history)  # those before an interruption included
    learner.note_table(seconds=max(time.perf_counter() - began, in_epochs))
    learner.save(place)
    return learner


def _folder_name(model: ChoiceModel, train: ChoiceData, dev: ChoiceData, seed: int) -> str:
    """Name a fit by everything it depends on."""
    identity = [model_identity(model), train.fingerprint(), dev.fingerprint(), seed]
    return f"{model.name}-{hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]}"
