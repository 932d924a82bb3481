"""Time of a training step by the size of the sets and by their number.

    python -m benchmarks.scaling [--device cuda] [--picture docs/scaling.png] [--json FILE]

A step is forward and backward of a PCMC-Net with two hidden layers of 64 units on one batch. The exponent is the slope
of a least-squares line through the logarithms of the largest sizes: 2 in n, because there are n^2 pairs, and 1 in sets.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.harness import RUNS, Row, Table, machine, seconds, surroundings
from benchmarks.shapes import Shape
from pcmcnet.data import Encoder
from pcmcnet.layers.likelihood import choice_nll
from pcmcnet.models.networks.pairwise_network import PCMCNetwork
from pcmcnet.models.pcmcnet import PCMCNetConfig

SHAPE = Shape("scaling", individual=8, features=16, hidden=(64, 64), dropout=0.0, paper_batch=1)
SETS, PLACES = 8, 32  # fixed while the other one grows
SIZES = {"cpu": (8, 16, 32, 64, 128, 256, 512), "cuda": (8, 16, 32, 64, 128, 256, 512, 1024)}
NUMBERS = {"cpu": (1, 4, 16, 64, 256, 1024), "cuda": (16, 64, 256, 1024, 4096, 16384)}


class Curve(NamedTuple):
    """Seconds of a step by size, and the line through the last points."""

    name: str
    label: str
    x: np.ndarray
    seconds: np.ndarray
    exponent: float
    factor: float
    fitted: int  # number of last points used


def step(sets: int, n: int, device: str) -> Callable[[], None]:
    """Return a training step on a batch."""
    data = replace(SHAPE, size=n).data(sets)
    encoder = Encoder.learn(data)
    network = PCMCNetwork(encoder, PCMCNetConfig(hidden=SHAPE.hidden)).to(device)
    batch = encoder.encode(data).to(torch.device(device)).batch(np.arange(sets))

    def run() -> None:
        network.zero_grad()
        choice_nll(network(batch), batch.chosen).mean().backward()

    return run


def measure(
    name: str, label: str, sizes: Sequence[int], make: Callable[[int], Callable[[], None]], device: str
) -> Curve:
    """Time steps of growing size, best of some rounds, and fit the exponent in the upper half of the range."""
    times = []
    for size in sizes:
        run = make(size)
        first = seconds(run, device)
        times.append(min(seconds(run, device) for _ in range(int(np.clip(2 / first, 3, 30)))))
    upper = len(sizes) // 2
    x, y = np.array(sizes, float), np.array(times)
    exponent, factor = np.polyfit(np.log(x[-upper:]), np.log(y[-upper:]), 1)
    return Curve(name, label, x, y, float(exponent), float(np.exp(factor)), upper)


def draw(curves: Sequence[Curve], path: Path, title: str) -> None:
    """Draw each curve in a panel, with its line."""
    from matplotlib.figure import Figure

    from pcmcnet.plots.style import save_picture

    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    for axes, curve in zip(figure.subplots(1, len(curves), sharey=True), curves, strict=True):
        upper = curve.x[-curve.fitted :]
        axes.loglog(curve.x, curve.seconds * 1e3, "o", color="#0072B2", base=10, label="measured")
        line = curve.factor * upper**curve.exponent * 1e3
        axes.loglog(upper, line, "--", color="#D55E00", label=f"slope {curve.exponent:.2f}")
        axes.set_xscale("log", base=2)
        axes.set_xticks(curve.x, [f"{x:,.0f}" for x in curve.x])
        axes.set_xlabel(curve.label, fontsize=11)
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=11, frameon=False, loc="upper left")
    figure.axes[0].set_ylabel("one training step, ms", fontsize=11)
    figure.suptitle(title, fontsize=12)
    save_picture(figure, path)


def scale(device: str, picture: Path | None) -> list[Row]:
    """Measure both curves, print their exponents, and draw them."""
    curves = [
        measure("n", f"alternatives of each of {SETS} sets", SIZES[device], lambda n: step(SETS, n, device), device),
        measure(
            "sets",
            f"choice sets of {PLACES} alternatives",
            NUMBERS[device],
            lambda sets: step(sets, PLACES, device),
            device,
        ),
    ]
    table = Table(
        "exponents of the time of a training step", {"in": "", "from": ",.0f", "to": ",.0f", "exponent": ".2f"}
    )
    for curve in curves:
        figures = {"sizes": curve.x.tolist(), "seconds": curve.seconds.tolist()}
        first, last = curve.x[-curve.fitted], curve.x[-1]
        table.add({"in": curve.name, "from": first, "to": last, "exponent": curve.exponent, **figures})
    if picture is not None:
        place = "one thread of " if device == "cpu" else ""
        draw(curves, picture, f"PCMC-Net with hidden layers of 64 and 64 units, {place}{machine()}")
    return table.rows


def main() -> None:
    """Measure on the device given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=list(SIZES), default="cpu")
    parser.add_argument("--picture", type=Path, help="file of the picture: .png, .pdf or .svg")
    parser.add_argument("--json", type=Path, default=RUNS / "scaling.json", help="file of the results")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    elif not torch.cuda.is_available():
        parser.error(f"--device cuda: torch {torch.__version__} found no CUDA device")
    record = surroundings(f"python -m benchmarks.scaling --device {arguments.device}")
    record["figures"] = {"scaling": scale(arguments.device, arguments.picture)}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
