"""PCMC-Net with all pairs and with factored rates: held-out NLL and CPU time of fits, in turn in one run.

    python -m benchmarks.rank [--json FILE] [SECTION ...]

All fits use the default recipe on one thread, and differ in ``rank`` only. ``mlba`` is the paper's first experiment,
with the divergence from the true probabilities. ``small`` are packaged tables with at most ten alternatives, ``large``
airline bookings (the packaged itinerary table) and simulated airline searches, both with up to 50 itineraries. A
difference is paired by choice set, and its standard error does not include the noise of the fits. CPU time counts all
threads of the process, so other programs of the machine hardly change it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.accuracy import held_out, training_table
from benchmarks.harness import RUNS, Row, Section, Table, run
from benchmarks.members import parts
from pcmcnet import ChoiceData, PCMCNet, evaluate
from pcmcnet.datasets import airline

RANK = 16
SEEDS = 3
SMALL = ("mode-canada", "mtc-work", "car", "swissmetro", "electricity", "heating")  # development tables
SEARCHES, NEW_SEARCHES = 3_200, 2_000
ITINERARY_SPLITS = 8  # the test parts are small, so two splits leave the difference open
COLUMNS = {"table": "", "split": "", "sets": ",", "all pairs": ".4f", f"rank {RANK}": ".4f"} | {
    "difference": "+.4f",
    "±": ".4f",
    "CPU s, pairs": ".1f",
    "CPU s, rank": ".1f",
    "ratio": ".1f",
}


def fit(train: ChoiceData, rank: int | None, seed: int = 0, **options: object) -> tuple[PCMCNet, float]:
    """Fit a network; return it and its CPU seconds."""
    began = time.process_time()
    model = PCMCNet(rank=rank, **options).fit(train, seed=seed, device="cpu", progress=False)
    return model, time.process_time() - began


def mlba() -> list[Row]:
    """Fit networks of 3 x 16 units to the paper's first experiment."""
    train, (test, truth) = training_table(), held_out()
    columns = {"seed": "", "rank": "", "KL": ".4f", "CPU s": ".1f"}
    table = Table("divergence from the true probabilities of mlba, 20,000 sets, 3 x 16 units", columns)
    for seed in range(SEEDS):
        for rank in (None, RANK):
            model, seconds = fit(train, rank, seed, hidden=(16, 16, 16), labels=False)
            kl = evaluate(model, test, truth=truth, resamples=0).kl
            table.add({"seed": seed, "rank": str(rank), "KL": kl, "CPU s": seconds})
    return table.rows


def compare(table: Table, name: str, splits: Iterator[tuple[ChoiceData, ChoiceData]]) -> None:
    """Fit both networks to the training part of each split, and add a row for each split."""
    for seed, (train, test) in enumerate(splits):
        (pairs, slow), (factored, fast) = (fit(train, rank, seed) for rank in (None, RANK))
        nll = [-np.log(model.chosen_probabilities(test)) for model in (pairs, factored)]
        difference = nll[1] - nll[0]
        table.add(
            {
                "table": name,
                "split": seed,
                "sets": len(train),
                "all pairs": nll[0].mean(),
                f"rank {RANK}": nll[1].mean(),
                "difference": difference.mean(),
                "±": difference.std() / np.sqrt(len(difference)),
                "CPU s, pairs": slow,
                "CPU s, rank": fast,
                "ratio": slow / fast,
            }
        )


def small() -> list[Row]:
    """Compare the held-out NLL on tables with at most ten alternatives."""
    table = Table("held-out NLL of default fits, at most ten alternatives", COLUMNS)
    for name in SMALL:
        compare(table, name, parts(name))
    return table.rows


def searches() -> Iterator[tuple[ChoiceData, ChoiceData]]:
    """Yield simulated airline searches, and new ones."""
    rows = [airline.simulate(sets, seed=seed) for sets, seed in ((SEARCHES, 1), (NEW_SEARCHES, 2))]
    train, test = (ChoiceData.from_long(part, **airline.ROLES) for part in rows)
    yield train, test


def large() -> list[Row]:
    """Compare the held-out NLL and the CPU time on tables with up to 50 alternatives."""
    table = Table("held-out NLL and CPU time of default fits, up to 50 alternatives", COLUMNS)
    compare(table, "itinerary", parts("itinerary", ITINERARY_SPLITS))
    differences = np.array([row["difference"] for row in table.rows])
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    print(f"itinerary: mean difference {differences.mean():+.4f} ± {error:.4f} over {len(differences)} splits")
    compare(table, "simulated airline", searches())
    return table.rows


SECTIONS: dict[str, Section] = {"mlba": mlba, "large": large, "small": small}

if __name__ == "__main__":
    torch.set_num_threads(1)
    run("benchmarks.rank", SECTIONS, description=__doc__ or "", json_file=RUNS / "bench-rank.json", device="cpu")
