"""The paper's first experiment: simulate choices, fit models, compare them and draw preference maps.

People choose between the laptops a = (4, 6), b = (6, 4) and a third laptop c. The preference between a and b depends on
the position of c: the MLBA model simulates attraction, similarity and compromise effects. PCMC-Net learns these effects
from 20,000 choices; no logit model can. Run it with ``make demo``. ``pcmcnet reproduce`` runs the full experiment.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import shutil
import sys
import time
from pathlib import Path

from pcmcnet.datasets import mlba
from pcmcnet.experiments import experiment1
from pcmcnet.experiments.experiment1 import FreshSets, describe_source, networks, simple_models, training_part
from pcmcnet.experiments.report import ExperimentResult, PictureFile, Section, run_facts
from pcmcnet.models import ChoiceModel
from pcmcnet.plots import draw_learning_curve, draw_preference_maps, learning_curve, preference_map


def main() -> None:
    """Run the whole experiment and write its results to a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/demo"), help="output folder; overwritten")
    parser.add_argument("--train", type=int, default=20_000, help="number of training choice sets")
    parser.add_argument("--test", type=int, default=10_000, help="number of test choice sets")
    parser.add_argument("--epochs", type=int, help="number of epochs (default: that of the model)")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    began = time.perf_counter()

    print(f"simulating {arguments.train:,} choice sets for training and {arguments.test:,} for testing", flush=True)
    train = training_part(None, arguments.train, seed=0)
    test = FreshSets.of(mlba.simulate(arguments.test, seed=2))
    logit, *_ = simple_models()
    rows = experiment1.measure_models([logit, *networks(arguments.epochs)], train, test, seeds=1)
    shutil.rmtree(arguments.output, ignore_errors=True)
    arguments.output.mkdir(parents=True)
    pictures = draw(arguments.output, rows[-1].models[0])
    result = ExperimentResult(
        title=experiment1.TITLE,
        command=shlex.join(["python", *sys.argv]),
        sections=(experiment1.table1_section(rows, test), Section(title="PCMC-Net 3x16", blocks=pictures)),
        values=experiment1.table1_values(rows, test.floor()),
        facts=run_facts(
            **{"training sets": describe_source(None, train, 0)}, seed=0, seconds=time.perf_counter() - began
        ),
    )
    result.write(arguments.output)
    print(f"\n{result}\n")
    print(f"finished in {time.perf_counter() - began:.0f} s; report, pictures and model: {arguments.output}")


def draw(folder: Path, model: ChoiceModel) -> tuple[PictureFile, PictureFile]:
    """Write the pictures of a model and the model itself."""
    maps = {"truth (MLBA)": preference_map(mlba.probabilities), "PCMC-Net 3x16": preference_map(model)}
    draw_preference_maps(maps, folder / "preference.png")
    draw_learning_curve(learning_curve(model.history), folder / "learning.png")
    model.save(folder / "model")
    captions = {"preference.png": "Preference for a over b, by position of c", "learning.png": "Learning curve"}
    first, second = (PictureFile(file=folder / name, caption=caption) for name, caption in captions.items())
    return first, second


if __name__ == "__main__":
    main()
