"""The paper's figures (Lhéritier, 2020), read from ``published.toml`` beside this file."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


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


def table1() -> dict[str, Divergence]:
    """Return the divergences from the true model of experiment 1, by model, in the paper's order.

    Examples
    --------
    >>> table1()["PCMC-Net 3x16"]
    Divergence(model='PCMC-Net 3x16', parameters=641, kl=0.009)
    """
    return {row["model"]: Divergence(row["model"], row["parameters"], row["kl"]) for row in _tables()["table1"]["rows"]}


def table2() -> dict[str, Any]:
    """Return the options of PCMC-Net for the airline experiment: table 2 and the text around it.

    Examples
    --------
    >>> table2()["hidden"], table2()["batch_size"]
    ((512, 512), 16)
    """
    values = {name: value for name, value in _tables()["table2"].items() if name != "caption"}
    return {**values, "hidden": tuple(values["hidden"])}


def table3() -> dict[str, Accuracy]:
    """Return the accuracies of the airline experiment, by model, in the paper's order.

    Examples
    --------
    >>> table3()["Cheapest"]
    Accuracy(model='Cheapest', top_1=0.164, top_5=0.471, nll=None)
    """
    rows = _tables()["table3"]["rows"]
    return {row["model"]: Accuracy(row["model"], row["top_1"], row["top_5"], row.get("nll")) for row in rows}


def sizes(table: str) -> tuple[int, int]:
    """Return the numbers of choice sets that the paper trained and tested on.

    Examples
    --------
    >>> sizes("table1")
    (20000, 10000)
    """
    return _tables()[table]["training_sets"], _tables()[table]["test_sets"]


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(files("pcmcnet.experiments").joinpath("published.toml").read_text("utf-8"))
