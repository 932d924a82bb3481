"""Figure 2 of the paper: how each model of experiment 1 represents the preference for a over b as c moves.

    P(a) / (P(a) + P(b))   in the set {a, b, c}, for c in every cell of [1, 9]^2

The truth shows attraction (around c_A, a is preferred more), similarity (around c_S, less) and compromise (around
c_C, more). A logit has one shade everywhere; the chain over bins has one shade for each bin; PCMC-Net is smooth.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import mlba
from pcmcnet.experiments.context_effects import TRAIN_SETS, networks, simple_models, source, training_part
from pcmcnet.experiments.report import Result, facts
from pcmcnet.insight.preference_map import Point
from pcmcnet.plots import PreferenceMap, draw_preference_maps, preference_error, preference_map
from pcmcnet.plots.context import CONTEXTS
from pcmcnet.reports.sections import Picture, Section, Table, note
from pcmcnet.storage.files import require_folder

log = logging.getLogger("pcmcnet")

TRUTH, NET = "Ground truth", "PCMC-Net 3x16"
CAPTION = (
    "Preference for a over b for different attributes of the third alternative c; lighter is a higher preference "
    "for a. The last panel is the absolute error of PCMC-Net, darker where it is larger."
)


def maps(
    train: ChoiceData, *, epochs: int | None = None, cells: int = 128, seed: int = 0, device: str = "auto"
) -> dict[str, PreferenceMap]:
    """Fit the models and compute the panels of the figure, the truth first."""
    found = {TRUTH: preference_map(mlba.probabilities, cells=cells)}
    for who in [*simple_models(), *networks(epochs, depths=[3])]:
        log.info("fitting %s", who.label)
        model = who.make().fit(train, seed=seed, device=device, progress=False)
        found[who.label] = preference_map(model, cells=cells)
    return found


def preference_at(drawn: PreferenceMap, place: Point) -> float:
    """Return the preference with c in the cell that holds a place."""
    column, row = (int(np.abs(centres - value).argmin()) for centres, value in zip(drawn[:2], place, strict=True))
    return float(drawn.preference[row, column])


def section(found: Mapping[str, PreferenceMap], pictures: tuple[Picture, ...] = ()) -> Section:
    """Return what the figure shows in numbers: the preference at the marked places, and the error of each model."""
    places = [f"c at {x:g}, {y:g} ({name})" for name, (x, y) in CONTEXTS.items()]
    cells = [["model", *places, "lowest", "highest", "mean error"]]
    for title, drawn in found.items():
        error = preference_error(drawn, found[TRUTH]).preference.mean()
        at = [f"{preference_at(drawn, place):.3f}" for place in CONTEXTS.values()]
        span = [f"{end:.3f}" for end in (drawn.preference.min(), drawn.preference.max())]
        cells.append([title, *at, *span, "-" if title == TRUTH else f"{error:.4f}"])
    notes = (
        "Attraction and compromise raise the preference for a above .5; similarity lowers it, in the truth below .5.",
        "Mean error: of the preference, over all cells.",
    )
    return Section(title="Preference for a over b", blocks=(Table(cells=cells), *map(note, notes), *pictures))


def values(found: Mapping[str, PreferenceMap]) -> dict[str, Any]:
    """Return the numbers of the figure's table."""
    return {
        title: {
            **{name: preference_at(drawn, place) for name, place in CONTEXTS.items()},
            "lowest": float(drawn.preference.min()),
            "highest": float(drawn.preference.max()),
            "mean_error": float(preference_error(drawn, found[TRUTH]).preference.mean()),
        }
        for title, drawn in found.items()
    }


def run(
    folder: str | Path,
    *,
    seed: int = 0,
    sets: int = TRAIN_SETS,
    data: str | Path | None = None,
    cells: int = 128,
    epochs: int | None = None,
    device: str = "auto",
    command: str = "",
) -> Result:
    """Reproduce figure 2, with a panel for the error, and write it as figure2.png, .pdf and .svg with a report.

    Parameters
    ----------
    folder
        Where the files go.
    seed, sets, data, epochs, device, command
        As for :func:`pcmcnet.experiments.table1.run`.
    cells
        Places of c along each attribute.
    """
    require_number("sets", sets, whole=True, low=1)
    require_number("cells", cells, whole=True, low=2)
    began = time.perf_counter()
    place = require_folder(folder)
    train = training_part(data, sets, seed)
    found = maps(train, epochs=epochs, cells=cells, seed=seed, device=device)
    error = ("Error of PCMC-Net", preference_error(found[NET], found[TRUTH]))
    names = [f"figure2{ending}" for ending in (".png", ".pdf", ".svg")]
    for name in names:
        draw_preference_maps(found, place / name, error=error)
    picture = Picture(file=place / names[0], caption=CAPTION, others=tuple(names[1:]))
    result = Result(
        title="Figure 2 of the paper: the preference for a over b",
        command=command,
        sections=(section(found, (picture,)),),
        values=values(found),
        facts=facts(
            **{"training sets": source(data, train, seed), "places of c": f"{cells} x {cells}"},
            device=device,
            seed=seed,
            seconds=time.perf_counter() - began,
        ),
    )
    result.write(place)
    return result
