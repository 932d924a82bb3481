"""Predictions for new people: a logit, latent classes, PCMC-Net and a stack on the packaged panels.

    python -m benchmarks.new_people [SECTION ...]     electricity, swissmetro, car, train, electricity-stack, ...

One fifth of the people of each panel are held out. Intervals (95%) are of the difference from the logit in nats per
choice, and resample the held-out people. A section such as electricity-stack also fits the stack, which takes minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

import pcmcnet as pn
from benchmarks.harness import RUNS, Row, Section, Table, run
from pcmcnet.datasets import packaged

TABLES = ("electricity", "swissmetro", "car", "train")
RESAMPLES = 2000
MODELS: dict[str, Callable[[], pn.MNL | pn.LatentClassMNL | pn.PCMCNet | pn.Stacking]] = {
    "mnl": pn.MNL,
    "lc-mnl": pn.LatentClassMNL,
    "pcmcnet": pn.PCMCNet,
    "stacking": pn.Stacking,
}
QUICK = ("mnl", "lc-mnl", "pcmcnet")


def panel(name: str, models: Sequence[str]) -> list[Row]:
    """Compare the models on the held-out people of one panel."""
    data = pn.ChoiceData.from_schema(*packaged.long_form(name))
    train, test = data.split((0.8, 0.2), seed=0)
    people = test.groups()
    title = f"{name}: {len(train):,} choices to learn from, {len(test):,} of {people.max() + 1} new people."
    table = Table(title, {"model": "", "nats": ".4f", "difference": "", "interval": "", "seconds": ".0f"})
    baseline = np.zeros(len(test))
    for model_name in models:
        began = time.perf_counter()
        losses = -np.log(MODELS[model_name]().fit(train, seed=0, progress=False).chosen_probabilities(test))
        seconds = time.perf_counter() - began
        row: Row = {"model": model_name, "nats": float(losses.mean()), "seconds": seconds}
        if model_name == "mnl":
            baseline = losses
        else:
            low, high = _interval(losses - baseline, people)
            row |= {"difference": f"{(losses - baseline).mean():+.4f}", "interval": f"[{low:+.4f}, {high:+.4f}]"}
        table.add(row)
    print()
    return table.rows


def _interval(differences: np.ndarray, people: np.ndarray) -> tuple[float, float]:
    """Return the 95% bootstrap interval of the mean difference over choices, resampling people."""
    sums, counts = np.bincount(people, differences), np.bincount(people)
    drawn = np.random.default_rng(0).integers(0, len(sums), (RESAMPLES, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


SECTIONS: dict[str, Section] = {name: partial(panel, name, QUICK) for name in TABLES}
SECTIONS |= {f"{name}-stack": partial(panel, name, tuple(MODELS)) for name in TABLES}

if __name__ == "__main__":
    run("benchmarks.new_people", SECTIONS, description=__doc__ or "", json_file=RUNS / "new_people.json", device="cpu")
