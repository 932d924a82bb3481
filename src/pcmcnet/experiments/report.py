"""Published results of the paper, saved fits of an experiment, and reports as Markdown, HTML and JSON."""

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
from pcmcnet.evaluation.compare import describe_environment, model_identity, unfitted_copy
from pcmcnet.evaluation.paired_differences import Failure
from pcmcnet.models import ChoiceModel, load
from pcmcnet.models.interface.saving import MANIFEST
from pcmcnet.reports.formats import to_html, to_json, to_markdown, to_text
from pcmcnet.reports.sections import Code, Facts, PictureFile, Section
from pcmcnet.storage import package_version, require_folder, write_bytes
from pcmcnet.training.run_folder import checkpoint_files

log = logging.getLogger("pcmcnet")

# -- Published results -------------------------------------------------------------------------------------------------
# The results of the paper (Lhéritier, 2020) are in `published.toml`, in the folder of this file.


class Divergence(NamedTuple):
    """A row of the paper's table 1."""

    model: str
    parameters: int
    kl: float


class Accuracy(NamedTuple):
    """A row of the paper's table 3; ``nll`` is missing for methods without a likelihood."""

    model: str
    top_1: float
    top_5: float
    nll: float | None


def published_table1() -> dict[str, Divergence]:
    """Return the published KL divergences from the true model in experiment 1 by model, in the paper's order.

    Examples
    --------
    >>> published_table1()["PCMC-Net 3x16"]
    Divergence(model='PCMC-Net 3x16', parameters=641, kl=0.009)
    """
    return {row["model"]: Divergence(row["model"], row["parameters"], row["kl"]) for row in _tables()["table1"]["rows"]}


def published_table2() -> dict[str, Any]:
    """Return the options of PCMC-Net in the airline experiment, from table 2 of the paper and its text.

    Examples
    --------
    >>> published_table2()["hidden"], published_table2()["batch_size"]
    ((512, 512), 16)
    """
    values = {name: value for name, value in _tables()["table2"].items() if name != "caption"}
    return {**values, "hidden": tuple(values["hidden"])}


def published_table3() -> dict[str, Accuracy]:
    """Return the published accuracies in the airline experiment by model, in the paper's order.

    Examples
    --------
    >>> published_table3()["Cheapest"]
    Accuracy(model='Cheapest', top_1=0.164, top_5=0.471, nll=None)
    """
    rows = _tables()["table3"]["rows"]
    return {row["model"]: Accuracy(row["model"], row["top_1"], row["top_5"], row.get("nll")) for row in rows}


def published_sizes(table: str) -> tuple[int, int]:
    """Return the numbers of training sets and test sets in the paper.

    Examples
    --------
    >>> published_sizes("table1")
    (20000, 10000)
    """
    return _tables()[table]["training_sets"], _tables()[table]["test_sets"]


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(files("pcmcnet.experiments").joinpath("published.toml").read_text("utf-8"))


# -- Saved fits --------------------------------------------------------------------------------------------------------
# Models are fitted to a training part and a development part, and saved, so that an interrupted experiment can resume.
#
#     folder/<model>-<hash>/     a saved model; the hash covers all inputs of the fit: options, both parts, seed. During
#                                the fit, the folder contains the checkpoint of a network
#
# These functions do not see the test part, so it cannot influence a fit.


def fit_all(
    contestants: Mapping[str, ChoiceModel],
    train: ChoiceData,
    dev: ChoiceData,
    folder: Path,
    *,
    seed: int = 0,
    device: str = "auto",
) -> dict[str, ChoiceModel | Failure]:
    """Fit and save every model, or load it if it was already fitted to the same data with the same options.

    A model that does not use the development part for early stopping is fitted to the training and development parts
    together. If a model fails, the result contains its error, and the other models are still fitted.
    """
    fitted: dict[str, ChoiceModel | Failure] = {}
    for label, model in contestants.items():
        path = folder / _folder_name(model, train, dev, seed)
        if (path / MANIFEST).exists():
            log.info("%s: already fitted", label)
            fitted[label] = load(path)
            continue
        try:
            fitted[label] = _fit(model, train, dev, path, seed=seed, device=device)
            log.info("%s: fitted", label)
        except PcmcNetError as error:
            fitted[label] = Failure.of(error)
            log.warning("%s: failed: %s", label, error)
    return fitted


def _fit(model: ChoiceModel, train: ChoiceData, dev: ChoiceData, path: Path, *, seed: int, device: str) -> ChoiceModel:
    """Fit a copy of a model, and save the copy with the duration of the fit."""
    began, learner = time.perf_counter(), unfitted_copy(model)
    stops_on_dev = learner.stops_early and learner.get_params().get("min_delta") != "noise"
    part, held_out = (train, dev) if stops_on_dev else (train.concat(dev), None)
    resume = bool(checkpoint_files(path))
    learner.fit(part, held_out, seed=seed, device=device, progress=False, run_folder=path, resume=resume)
    in_epochs = sum(entry.get("seconds", 0.0) for entry in learner.history)  # includes epochs before an interruption
    learner.add_table_facts(seconds=max(time.perf_counter() - began, in_epochs))
    learner.save(path)
    return learner


def _folder_name(model: ChoiceModel, train: ChoiceData, dev: ChoiceData, seed: int) -> str:
    """Return a folder name with a hash of all inputs on which the fit depends."""
    identity = [model_identity(model), train.fingerprint(), dev.fingerprint(), seed]
    return f"{model.name}-{hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]}"


# -- Report ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ExperimentResult:
    """The result of an experiment, printed as text.

    Parameters
    ----------
    title
        Heading of the report.
    command
        Command line that reproduces the result.
    sections
        Sections of the report.
    values
        Nested values for result.json, in which infinite numbers become null.
    facts
        Facts about the run, such as seed, versions and machine, from :func:`run_facts`.
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
        """Pictures of all sections of the report."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, PictureFile)]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        names = ("title", "command", "facts", "values")
        whole: dict[str, Any] = to_json({name: getattr(self, name) for name in names})
        return whole

    def write(self, folder: str | Path) -> list[Path]:
        """Write report.md, report.html and result.json atomically.

        Parameters
        ----------
        folder
            Output folder.

        Returns
        -------
        Paths of all written files, including pictures.
        """
        output = require_folder(folder)
        method = Section(title="How to reproduce", blocks=(Code(self.command), Facts(_as_text(self.facts))))
        sections = (*self.sections, method)
        contents = {
            "report.md": to_markdown(self.title, sections),
            "report.html": to_html(self.title, sections),
            "result.json": json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        }
        for name, text in contents.items():
            write_bytes(output / name, text.encode())
        pictures = [name for picture in self.pictures for name in (picture.file.name, *picture.others)]
        return [output / name for name in (*contents, *pictures)]


def run_facts(*, seed: int, seconds: float, **more: Any) -> dict[str, Any]:
    """Return facts about a run: the entries of ``more``, followed by seed, versions, machine and duration."""
    environment = describe_environment()
    versions = {"pcmcnet": package_version("pcmcnet"), **environment["versions"]}
    return {**more, "seed": seed, "versions": versions, "machine": environment["machine"], "seconds": round(seconds, 1)}


def _as_text(facts: Mapping[str, Any]) -> dict[str, str]:
    """Format the facts about a run as text."""
    return {
        name: ", ".join(f"{key} {inner}" for key, inner in value.items()) if isinstance(value, Mapping) else str(value)
        for name, value in facts.items()
    }
