"""Fits to samples of the alternatives of a simulated catalogue, whose choices follow a chain with four factors.

    python -m benchmarks.catalogue [--json FILE] [SECTION ...]

``simulation`` fits a logit and a default PCMC-Net to samples of 100 of 10,000 items, for 20,000 choosers. ``bias``
compares fits to full sets, which are parts of a catalogue of 200 items, with fits to samples of several sizes and
protocols. Divergences are those from the true probabilities of new choosers on full sets. All fits run on one thread.
CPU time counts the process, so other programs of the machine hardly change it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.harness import RUNS, Row, Section, Table, run
from pcmcnet import MNL, CatalogueData, ChoiceData, PCMCNet
from pcmcnet.arrays import Floats
from pcmcnet.datasets import catalogue
from pcmcnet.datasets.catalogue import ITEM_COLUMNS, CatalogueTruth
from pcmcnet.models import ChoiceModel

RANK = 4  # of the truth
ITEMS, CHOOSERS, NEW_CHOOSERS = 10_000, 20_000, 500
# Context effects are identified by assortments that differ, and are stronger with larger weights of the factors.
SMALL: dict[str, Any] = {"items": 200, "rank": RANK, "context": 2.0, "seed": 2}
VISITS, NEW_VISITS, ASSORTMENTS = 8_000, 1_000, 50
RECIPE: dict[str, Any] = {"rank": RANK, "epochs": 30, "weight_decay": 0.3, "members": 1}
SEEDS = 3
SAMPLES = (("uniform", 5), ("uniform", 10), ("uniform", 20), ("uniform", 50), ("department", 18), ("popularity", 20))


def read(shop: CatalogueTruth, choosers: Any) -> CatalogueData:
    """Read simulated choosers and their catalogue."""
    offered = "offered" if "offered" in choosers.column_names else None
    return ChoiceData.from_catalogue(
        choosers,
        shop.catalogue,
        item="id",
        chosen="item",
        offered=offered,
        individual=["income"],
        features=list(ITEM_COLUMNS),
        pair_features={"distance": catalogue.distance},
    )


def divergence(model: ChoiceModel, test: CatalogueData, true: Floats) -> float:
    """Return the mean Kullback-Leibler divergence from the true probabilities (S, n), 0 for items not on offer."""
    p = true[true > 0]
    return float((p * np.log(p / model.predict_proba(test))).sum() / len(test))


def simulation() -> list[Row]:
    """Fit a logit and a default PCMC-Net to samples of a catalogue of 10,000 items."""
    columns = {"model": "", "sample": "", "KL": ".4f", "CPU s": ".0f", "wall s": ".0f"}
    table = Table(f"{CHOOSERS:,} choosers x {ITEMS:,} items, truth of rank {RANK}, default fits", columns)
    shop = catalogue.random_catalogue(ITEMS, rank=RANK, seed=2)
    sample = read(shop, shop.simulate(CHOOSERS, seed=2)).sample_alternatives()
    new = shop.simulate(NEW_CHOOSERS, seed=3)
    test, true = read(shop, new), shop.probabilities(new)
    for model in (MNL(), PCMCNet()):
        cpu, wall = time.process_time(), time.perf_counter()
        model.fit(sample, seed=0, progress=False)
        times = {"CPU s": time.process_time() - cpu, "wall s": time.perf_counter() - wall}
        size = int(sample.sizes.max())
        table.add({"model": type(model).__name__, "sample": size, "KL": divergence(model, test, true), **times})
    return table.rows


def bias() -> list[Row]:
    """Compare fits to samples with fits to full sets."""
    columns = {"alternatives": "", "by": "", "KL": ".4f", "±": ".4f", "uncorrected": ".4f", "MNL": ".4f"}
    table = Table(f"{VISITS:,} choosers, truth of rank {RANK}; KL on full sets by sample, {SEEDS} seeds", columns)
    shop = catalogue.random_catalogue(**SMALL)
    full = read(shop, shop.simulate(VISITS, seed=2, assortments=ASSORTMENTS))
    new = shop.simulate(NEW_VISITS, seed=3, assortments=ASSORTMENTS)
    test, true = read(shop, new), shop.probabilities(new)

    def measured(data: list[ChoiceData]) -> list[float]:
        fits = (PCMCNet(**RECIPE).fit(each, seed=seed, progress=False) for seed, each in enumerate(data))
        return [divergence(model, test, true) for model in fits]

    for by, n in SAMPLES:
        samples = [full.sample_alternatives(n, by=by, seed=seed) for seed in range(SEEDS)]
        kl = measured(samples)
        row: Row = {"alternatives": n, "by": by, "KL": np.mean(kl), "±": np.std(kl, ddof=1) / np.sqrt(SEEDS)}
        if by != "uniform":  # uniform factors are the same for all alternatives of a set
            row["uncorrected"] = np.mean(measured([replace(sample, expansion=None) for sample in samples]))
        table.add({**row, "MNL": divergence(MNL().fit(samples[0], progress=False), test, true)})
    kl = measured([full.read()] * SEEDS)
    logit = divergence(MNL().fit(full.read(), progress=False), test, true)
    row = {"alternatives": "all", "KL": np.mean(kl), "±": np.std(kl, ddof=1) / np.sqrt(SEEDS), "MNL": logit}
    table.add(row)
    print(f"(the full sets have {full.sizes.mean():.0f} alternatives on average)")
    return table.rows


SECTIONS: dict[str, Section] = {"bias": bias, "simulation": simulation}

if __name__ == "__main__":
    torch.set_num_threads(1)
    record = RUNS / "bench-catalogue.json"
    run("benchmarks.catalogue", SECTIONS, description=__doc__ or "", json_file=record, device="cpu")
