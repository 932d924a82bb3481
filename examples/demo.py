"""The paper's first experiment from nothing: simulate, fit, compare, draw.

Two laptops a = (4, 6) and b = (6, 4) are joined by a third one, c, and the preference between the two changes
with the place of c: attraction, similarity and compromise effects, simulated by the MLBA model. PCMC-Net learns
them from 20,000 choices; no logit model can. Run it by ``make demo``.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import pcmcnet as pn
from pcmcnet.data.files import write_bytes
from pcmcnet.datasets import mlba
from pcmcnet.evaluation import Report
from pcmcnet.plots import draw_learning_curve, draw_preference_maps, learning_curve, preference_map

PAPER = {"MNL": (2, 0.119), "PCMC": (4290, 0.022), "1x16": (97, 0.018), "2x16": (369, 0.011), "3x16": (641, 0.009)}
ROLES = {"choice_set": "choice_set", "chosen": "chosen", "alternative": "alternative", "features": ["attr1", "attr2"]}


def main() -> None:
    """Run the whole experiment and write its results to a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/demo"), help="folder for the results; replaced")
    parser.add_argument("--train", type=int, default=20_000, help="choice sets to learn from")
    parser.add_argument("--test", type=int, default=10_000, help="fresh choice sets to test on")
    parser.add_argument("--epochs", type=int, help="epochs, other than the default")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    began = time.perf_counter()

    print(f"simulating {arguments.train:,} choice sets to learn from and {arguments.test:,} to test on")
    train = pn.ChoiceData.from_long(mlba.simulate(arguments.train, seed=1), **ROLES)
    fresh = mlba.simulate(arguments.test, seed=2)
    test = pn.ChoiceData.from_long(fresh, **ROLES)
    truth = fresh["true_prob"].to_numpy()

    options = {} if arguments.epochs is None else {"epochs": arguments.epochs}
    models, reports, seconds = {}, {}, {}
    for depth in (1, 2, 3):
        name = f"{depth}x16"
        print(f"fitting PCMC-Net {name} ...", end=" ", flush=True)
        start = time.perf_counter()
        models[name] = pn.PCMCNet(hidden=(16,) * depth, **options).fit(train, progress=sys.stderr.isatty())
        seconds[name] = time.perf_counter() - start
        reports[name] = pn.evaluate(models[name], test, truth=truth)
        print(f"{seconds[name]:.0f} s, KL {reports[name].kl:.4f}")

    text = report_text(reports, {n: m.num_parameters for n, m in models.items()}, seconds, floor(fresh))
    print(f"\n{text}")
    write(arguments.output, text, models["3x16"])
    print(f"all of it took {time.perf_counter() - began:.0f} s; report, pictures and model: {arguments.output}")


def floor(fresh: pa.Table) -> tuple[float, float]:
    """NLL and TOP 1 of the process itself, which no model can expect to beat."""
    p = fresh["true_prob"].to_numpy().reshape(-1, 3)
    chosen = fresh["chosen"].to_numpy().reshape(-1, 3).argmax(1)
    picked = p[np.arange(len(p)), chosen]
    return float(-np.log(picked).mean()), float((p.argmax(1) == chosen).mean())


def report_text(
    reports: dict[str, Report], parameters: dict[str, int], seconds: dict[str, float], best: tuple[float, float]
) -> str:
    """Table 1 of the paper beside our figures."""
    lines = [
        "Table 1 of the paper beside this run: KL divergence from the true model, on fresh choice sets",
        "",
        "| model         | parameters | KL, paper | KL, here |    NLL |  TOP 1 | seconds |",
        "|---------------|-----------:|----------:|---------:|-------:|-------:|--------:|",
    ]
    for name, (count, kl) in PAPER.items():
        if name not in reports:
            lines.append(f"| {name:<13} | {count:>10,} | {kl:>9.3f} | {'':>8} | {'':>6} | {'':>6} | {'':>7} |")
            continue
        r = reports[name]
        lines.append(
            f"| PCMC-Net {name} | {parameters[name]:>10,} | {kl:>9.3f} | {r.kl:>8.4f} | {r.nll:>6.4f} "
            f"| {r.top[1]:>6.4f} | {seconds[name]:>7.1f} |"
        )
    nll, top = best
    lines.append(f"| {'true model':<13} | {'':>10} | {'':>9} | {0:>8.4f} | {nll:>6.4f} | {top:>6.4f} | {'':>7} |")
    return "\n".join(lines) + "\n"


def write(folder: Path, text: str, model: pn.PCMCNet) -> None:
    """Write report, pictures and model."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    maps = {"truth (MLBA)": preference_map(mlba.probabilities), "PCMC-Net 3x16": preference_map(model)}
    draw_preference_maps(maps, folder / "preference.png")
    draw_learning_curve(learning_curve(model.history), folder / "learning.png")
    model.save(folder / "model")
    pictures = "![Preference of a over b](preference.png)\n\n![Learning curve](learning.png)\n"
    write_bytes(folder / "report.md", f"# PCMC-Net on simulated context effects\n\n{text}\n{pictures}".encode())


if __name__ == "__main__":
    main()
