"""Gain from latent classes in PCMC-Net, for new people and for people whose earlier choices are known.

    python -m benchmarks.classes [TABLE ...]

New people: two of four folds, by person if persons are known. Known people, if persons have several choice sets: the
first half of each person's sets, in the order of the table, is the training part, and the rest the test part. Mixtures
then use the class shares given the choices of the first half. Tables are limited to 1,500 sets, with whole persons.
Differences are taken set by set against one class. Their standard errors are over persons, or over sets if persons are
unknown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.arrays import Floats, Ints
from pcmcnet.datasets import packaged
from pcmcnet.evaluation.leaderboard_entries import sample_table
from pcmcnet.selection import mean_gain

MAX_SETS = 1_500
WAYS: tuple[dict[str, Any], ...] = ({}, {"classes": 2}, {"classes": 3})

Parts = tuple[ChoiceData, ChoiceData]


def losses(model: PCMCNet, data: ChoiceData, history: ChoiceData | None) -> Floats:
    """(S,) negative log-likelihoods of the choices, given the earlier choices of the same people if known."""
    if history is None or model.n_classes_ == 1:
        log_p = data.from_rows(model.predict_log_proba(data))
    else:
        log_p = np.log(data.from_rows(model.predict_proba_given(data, history)))
    nll: Floats = -log_p[data.offsets[:-1] + data.require_chosen("a benchmark")]
    return nll


def halves(data: ChoiceData) -> Parts:
    """Return the first half of each person's sets, and the rest."""
    person = data.groups(None)
    order = np.argsort(person, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(person[order]) != 0))
    sizes = np.diff(np.append(starts, len(person)))
    place = np.empty(len(person))
    place[order] = (np.arange(len(person)) - np.repeat(starts, sizes)) / np.repeat(sizes, sizes)
    return data.subset(np.flatnonzero(place < 0.5)), data.subset(np.flatnonzero(place >= 0.5))


def measured(options: dict[str, Any], parts: list[Parts], *, known: bool) -> tuple[Floats, float, list[int]]:
    """Return the losses of all test sets, the seconds per fit, and the numbers of classes."""
    nlls, seconds, classes = [], 0.0, []
    for train, test in parts:
        start = time.process_time()
        model = PCMCNet(**options).fit(train, progress=False)
        seconds += time.process_time() - start
        nlls.append(losses(model, test, train if known else None))
        classes.append(model.n_classes_)
    return np.concatenate(nlls), seconds / len(parts), classes


def lines(name: str, data: ChoiceData) -> Iterator[str]:
    """Yield the rows of a table."""
    several = len(np.unique(data.groups(None))) < len(data)
    for people in ("new", "known") if several else ("new",):
        parts = data.folds(4, seed=11)[:2] if people == "new" else [halves(data)]
        groups = _groups([test for _, test in parts])
        first: Floats | None = None
        for options in WAYS:
            nll, seconds, classes = measured(options, parts, known=people == "known")
            first = nll if first is None else first
            gain, error = mean_gain(first - nll, np.ones(len(nll)), groups)
            difference = "-" if nll is first else f"{-gain:+.4f} ± {error:.4f}"
            numbers = f" ({', '.join(map(str, classes))})" if options.get("classes") == "auto" else ""
            way = f"{options.get('classes', 1)}{numbers}"
            yield f"| {name} | {people} | {way} | {nll.mean():.4f} | {difference} | {seconds:.0f} |"


def _groups(tables: list[ChoiceData]) -> Ints:
    """(S,) numbers of persons, different in different tables."""
    first = np.cumsum([0, *(len(data) for data in tables)])
    return np.concatenate([data.groups(None) + start for data, start in zip(tables, first, strict=False)])


def main(names: list[str]) -> None:
    """Print a table in Markdown."""
    chosen = names or [name for name, table in packaged.TABLES.items() if table.use == "development"]
    print("| table | people | classes | NLL | difference | CPU seconds |\n| --- | --- | --- | ---: | ---: | ---: |")
    for name in chosen:
        data = sample_table(ChoiceData.from_schema(*packaged.long_form(name)), MAX_SETS).data
        for line in lines(name, data):
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
