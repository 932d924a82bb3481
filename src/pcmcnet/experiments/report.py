"""A result -> report.md, report.html and result.json in one folder, each written whole or not at all.

A result is a title, sections, the facts of the run, and its numbers, which go to result.json as they are.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from pcmcnet.data import ChoiceData
from pcmcnet.errors import PcmcNetError
from pcmcnet.evaluation.compare import Failure, describe_environment, model_identity, unfitted_copy
from pcmcnet.models import ChoiceModel, load
from pcmcnet.models.interface.saving import MANIFEST
from pcmcnet.reports.formats import to_html, to_json, to_markdown, to_text
from pcmcnet.reports.sections import Code, Facts, PictureFile, Section
from pcmcnet.storage import package_version, require_folder, write_bytes
from pcmcnet.training.run_folder import checkpoint_files

log = logging.getLogger("pcmcnet")

# -- Published ---------------------------------------------------------------------------------------------------------
# The paper's figures (Lhéritier, 2020), read from `published.toml` beside this file.


class Divergence(NamedTuple):
    """A row of table 1."""

    model: str
    parameters: int
    kl: float


class Accuracy(NamedTuple):
    """A row of table 3; ``nll`` is None for a method without a likelihood."""

    model: str
    top_1: float
    top_5: float
    nll: float | None


def published_table1() -> dict[str, Divergence]:
    """Return the divergences from the true model of experiment 1, by model, in the paper's order.

    Examples
    --------
    >>> published_table1()["PCMC-Net 3x16"]
    Divergence(model='PCMC-Net 3x16', parameters=641, kl=0.009)
    """
    return {row["model"]: Divergence(row["model"], row["parameters"], row["kl"]) for row in _tables()["table1"]["rows"]}


def published_table2() -> dict[str, Any]:
    """Return the options of PCMC-Net for the airline experiment: table 2 and the text around it.

    Examples
    --------
    >>> published_table2()["hidden"], published_table2()["batch_size"]
    ((512, 512), 16)
    """
    values = {name: value for name, value in _tables()["table2"].items() if name != "caption"}
    return {**values, "hidden": tuple(values["hidden"])}


def published_table3() -> dict[str, Accuracy]:
    """Return the accuracies of the airline experiment, by model, in the paper's order.

    Examples
    --------
    >>> published_table3()["Cheapest"]
    Accuracy(model='Cheapest', top_1=0.164, top_5=0.471, nll=None)
    """
    rows = _tables()["table3"]["rows"]
    return {row["model"]: Accuracy(row["model"], row["top_1"], row["top_5"], row.get("nll")) for row in rows}


def published_sizes(table: str) -> tuple[int, int]:
    """Return the numbers of choice sets that the paper trained and tested on.

    Examples
    --------
    >>> published_sizes("table1")
    (20000, 10000)
    """
    return _tables()[table]["training_sets"], _tables()[table]["test_sets"]


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(files("pcmcnet.experiments").joinpath("published.toml").read_text("utf-8"))


# -- Kept fits ---------------------------------------------------------------------------------------------------------
# Models fitted to a training part and a development part, and kept: an interrupted experiment goes on where it was.
#
#     folder/<model>-<hash>/     a saved model, named by all that the fit depends on: options, both parts, seed;
#                                until it is finished, the checkpoint of one of a network's last epochs
#
# What is tested on is not known here, so that it cannot have any influence.


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
    began, learner = time.perf_counter(), unfitted_copy(model)
    stops_on_dev = learner.stops_early and learner.get_params().get("min_delta") != "noise"
    part, held_out = (train, dev) if stops_on_dev else (train.concat(dev), None)
    goes_on = bool(checkpoint_files(place))
    learner.fit(part, held_out, seed=seed, device=device, progress=False, run_folder=place, resume=goes_on)
    in_epochs = sum(entry.get("seconds", 0.0) for entry in learner.history)  # those before an interruption included
    learner.add_table_facts(seconds=max(time.perf_counter() - began, in_epochs))
    learner.save(place)
    return learner


def _folder_name(model: ChoiceModel, train: ChoiceData, dev: ChoiceData, seed: int) -> str:
    """Name a fit by everything it depends on."""
    identity = [model_identity(model), train.fingerprint(), dev.fingerprint(), seed]
    return f"{model.name}-{hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]}"


# -- Report ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ExperimentResult:
    """What an experiment found. Prints as text.

    Parameters
    ----------
    title, command
        Heading, and the command that gives the same again.
    sections
        What people read.
    values
        The numbers, of any depth, that go to result.json; an infinite one becomes null.
    facts
        How it came about: see :func:`facts`.
    """

    title: str
    command: str
    sections: tuple[Section, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return to_text(self.title, self.sections)

    @property
    def pictures(self) -> list[PictureFile]:
        """The pictures of all sections."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, PictureFile)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts that survive JSON."""
        names = ("title", "command", "facts", "values")
        whole: dict[str, Any] = to_json({name: getattr(self, name) for name in names})
        return whole

    def write(self, folder: str | Path) -> list[Path]:
        """Write report.md, report.html and result.json to a folder; returns all files, pictures included."""
        place = require_folder(folder)
        made = Section(title="How it was made", blocks=(Code(self.command), Facts(_spoken(self.facts))))
        sections = (*self.sections, made)
        contents = {
            "report.md": to_markdown(self.title, sections),
            "report.html": to_html(self.title, sections),
            "result.json": json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        }
        for name, text in contents.items():
            write_bytes(place / name, text.encode())
        drawn = [name for picture in self.pictures for name in (picture.file.name, *picture.others)]
        return [place / name for name in (*contents, *drawn)]


def facts(*, seed: int, seconds: float, **more: Any) -> dict[str, Any]:
    """Gather what a reader needs to judge a result: seed, versions, machine and time, after what is given."""
    found = describe_environment()
    versions = {"pcmcnet": package_version("pcmcnet"), **found["versions"]}
    return {**more, "seed": seed, "versions": versions, "machine": found["machine"], "seconds": round(seconds, 1)}


def _spoken(facts: Mapping[str, Any]) -> dict[str, str]:
    """Put facts into words."""
    return {
        name: ", ".join(f"{key} {inner}" for key, inner in value.items()) if isinstance(value, Mapping) else str(value)
        for name, value in facts.items()
    }
