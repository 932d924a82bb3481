"""What classes of people bring to PCMC-Net: for people it does not know, and for those whose earlier choices it knows.

    python -m benchmarks.classes [TABLE ...]

New people: two of four folds, by person where persons are known. Known people, where persons have several choice sets:
the first half of each person's sets, in the order of the table, is fitted, and the rest predicted. Mixtures then mix by
the shares given the choices of the first half. Tables are cut to 1,500 sets, of whole persons. Differences are taken
set by set against one class. Their standard errors are over persons, or over sets where there are none.
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

SETS = 1_500
WAYS: tuple[dict[str, Any], ...] = ({}, {"classes": 2}, {"classes": 3})

Parts = tuple[ChoiceData, ChoiceData]


def losses(model: PCMCNet, data: ChoiceData, history: ChoiceData | None) -> Floats:
    """(S,) negative log-likelihoods of the choices, of people whose history is known where it is given."""
    if history is None or model.n_classes_ == 1:
        log_p = data.from_rows(model.predict_log_proba(data))
    else:
        log_p = np.log(data.from_rows(model.predict_proba_given(data, history)))
    found: Floats = -log_p[data.offsets[:-1] + data.require_chosen("a benchmark")]
    return found


def halves(data: ChoiceData) -> Parts:
    """Return the first half of each person's sets, and the rest."""
    who = data.groups(None)
    order = np.argsort(who, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(who[order]) != 0))
    sizes = np.diff(np.append(starts, len(who)))
    place = np.empty(len(who))
    place[order] = (np.arange(len(who)) - np.repeat(starts, sizes)) / np.repeat(sizes, sizes)
    return data.subset(np.flatnonzero(place < 0.5)), data.subset(np.flatnonzero(place >= 0.5))


def measured(options: dict[str, Any], parts: list[Parts], *, known: bool) -> tuple[Floats, float, list[int]]:
    """Return the losses of all tested sets, the seconds of a fit, and the numbers of classes."""
    found, seconds, classes = [], 0.0, []
    for train, test in parts:
        start = time.process_time()
        model = PCMCNet(**options).fit(train, progress=False)
        seconds += time.process_time() - start
        found.append(losses(model, test, train if known else None))
        classes.append(model.n_classes_)
    return np.concatenate(found), seconds / len(parts), classes


def lines(name: str, data: ChoiceData) -> Iterator[str]:
    """Yield the lines of a table."""
    several = len(np.unique(data.groups(None))) < len(data)
    for people in ("new", "known") if several else ("new",):
        parts = data.folds(4, seed=11)[:2] if people == "new" else [halves(data)]
        groups = _groups([test for _, test in parts])
        first: Floats | None = None
        for options in WAYS:
            found, seconds, classes = measured(options, parts, known=people == "known")
            first = found if first is None else first
            gain, error = mean_gain(first - found, np.ones(len(found)), groups)
            apart = "-" if found is first else f"{-gain:+.4f} ± {error:.4f}"
            numbers = f" ({', '.join(map(str, classes))})" if options.get("classes") == "auto" else ""
            way = f"{options.get('classes', 1)}{numbers}"
            yield f"| {name} | {people} | {way} | {found.mean():.4f} | {apart} | {seconds:.0f} |"


def _groups(tables: list[ChoiceData]) -> Ints:
    """(S,) numbers of persons, different in different tables."""
    first = np.cumsum([0, *(len(data) for data in tables)])
    return np.concatenate([data.groups(None) + start for data, start in zip(tables, first, strict=False)])


def main(names: list[str]) -> None:
    """Print a table in Markdown."""
    chosen = names or [name for name, table in packaged.TABLES.items() if table.use == "development"]
    print("| table | people | classes | NLL | difference | CPU seconds |\n| --- | --- | --- | ---: | ---: | ---: |")
    for name in chosen:
        data = sample_table(ChoiceData.from_schema(*packaged.long_form(name)), SETS).data
        for line in lines(name, data):
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
