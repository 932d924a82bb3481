"""Speed on a CUDA device: ours, the paper's way, batched LU, and the bound of the matrix products, in one run.

    python -m benchmarks.gpu [--json FILE] [SECTION ...]

Sections: stationary, training, prediction, precision, wide. Times are medians; a training speed is the median over the
epochs of one fit through the public interface, the first two left out, in which kernels are compiled and steps recorded.
The bound is the three products of the second hidden layer alone, on the real pairs of the same number of sets.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.paper_way import sets_per_second
from benchmarks.shapes import AIRLINE, WIDE
from benchmarks.stationary import by_lu
from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.layers import solve_chain

Figures = dict[str, Any]
SETS = 27_160  # as many as the paper trained on
ROOM = {"pair_budget": 20_000_000}


def milliseconds(run: Callable[[], Any], repeats: int = 20) -> float:
    """Median time of a call, by events on the device."""
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def replayed(run: Callable[[], Any], times: int = 10) -> float:
    """Median time of a call within a recorded graph: without the time that Python takes to launch it."""
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            run()
    return milliseconds(graph.replay) / times


def stationary() -> Figures:
    """Time forward and backward of the layer, recorded and launched one by one, beside LU."""
    figures: Figures = {}
    print(f"{'stationary, ms':<24} {'replayed':>9} {'launched':>9} {'LU':>8} {'ratio':>7} {'error':>9}")
    for sets, n in ((512, 33), (512, 50), (16, 33), (4_096, 3), (64, 128), (16, 300), (2, 1_024)):
        rates = torch.randn(sets, n, n, device="cuda").exp().requires_grad_()
        mask = torch.ones(sets, n, dtype=torch.bool, device="cuda")
        by = torch.randn(sets, n, device="cuda")

        def ours(rates: torch.Tensor = rates, mask: torch.Tensor = mask, by: torch.Tensor = by) -> None:
            torch.autograd.grad(solve_chain(rates, mask), rates, by)

        def lu(rates: torch.Tensor = rates, by: torch.Tensor = by) -> None:
            torch.autograd.grad(by_lu(rates), rates, by)

        times = {"replayed": replayed(ours), "launched": milliseconds(ours), "lu": milliseconds(lu)}
        exact = solve_chain(rates.detach().double().cpu(), mask.cpu())
        found = solve_chain(rates.detach(), mask).double().cpu()
        times["error"] = float(((found - exact) / exact).abs().max())
        name = f"{sets} sets of {n}"
        ratio = times["lu"] / times["replayed"]
        columns = f"{times['replayed']:>9.3f} {times['launched']:>9.3f} {times['lu']:>8.3f} {ratio:>7.1f}"
        print(f"{name:<24} {columns} {times['error']:>9.1e}", flush=True)
        figures[name] = times
    return figures


def bound(data: ChoiceData) -> float:
    """Sets per second if the three products of the second hidden layer in bfloat16 were all there is."""
    sets = data.subset(np.arange(512))
    pairs, width = int((sets.sizes**2).sum()), AIRLINE.hidden[0]
    h, d = (torch.randn(pairs, width, device="cuda").bfloat16() for _ in range(2))
    weight, z = torch.randn(width, width, device="cuda").bfloat16(), torch.empty_like(h)

    def multiply() -> None:
        torch.mm(h, weight.t(), out=z)
        torch.mm(d, weight, out=z)
        torch.mm(d.t(), h)

    return len(sets) / milliseconds(multiply) * 1e3


def fitted(data: ChoiceData, *, epochs: int, **options: Any) -> tuple[PCMCNet, float]:
    """Fit on the device; returns the model and sets per second, the first two epochs left out."""
    settings = {"hidden": AIRLINE.hidden, "dropout": AIRLINE.dropout, **ROOM, **options}
    model = PCMCNet(epochs=epochs, **settings).fit(data, device="cuda", progress=False)
    return model, len(data) / statistics.median(entry["seconds"] for entry in model.history[2:])


def training() -> Figures:
    """Sets per second at the airline shape, by batch size."""
    data = AIRLINE.data(SETS)
    theirs = sets_per_second(AIRLINE, data.subset(np.arange(160)), steps=10, device="cuda")
    limit = bound(data)
    figures: Figures = {"paper way": theirs, "bound": limit}
    print(f"{'airline training':<24} {'sets/s':>10} {'x paper way':>12} {'of the bound':>13}")
    print(f"{'paper way, batch 16':<24} {theirs:>10,.0f} {1:>12} {theirs / limit:>13.4f}")
    for size in (16, 64, 256, 1_024, 2_048):
        _, speed = fitted(data, epochs=5, batch_size=size)
        figures[f"batch {size}"] = speed
        print(f"{f'batch {size}':<24} {speed:>10,.0f} {speed / theirs:>12,.0f} {speed / limit:>13.2f}", flush=True)
    print(f"{'products alone':<24} {limit:>10,.0f} {limit / theirs:>12,.0f} {1:>13.2f}")
    return figures


def prediction() -> Figures:
    """Sets per second of predictions from encoded sets on the device, and from a table."""
    from pcmcnet.training import predict

    data = AIRLINE.data(SETS)
    model, _ = fitted(data.subset(np.arange(512)), epochs=3, batch_size=64)
    encoded = model.encoder_.encode(data).to(torch.device("cuda"))

    def run() -> None:
        for _ in predict(model.network_, encoded, pair_budget=5_000_000):
            pass

    on_device = len(data) / milliseconds(run, repeats=7) * 1e3
    began = time.perf_counter()
    model.predict_proba(data)
    table = len(data) / (time.perf_counter() - began)
    one = data.subset(np.flatnonzero(data.sizes == data.sizes.max())[:1])
    alone = model.encoder_.encode(one).to(torch.device("cuda"))
    latency = milliseconds(lambda: list(predict(model.network_, alone, pair_budget=5_000_000)))
    print(f"airline prediction, sets/s: {on_device:,.0f} on the device, {table:,.0f} from a table to an array")
    print(f"one set of {int(one.sizes[0])}: {latency:.2f} ms", flush=True)
    return {"on device": on_device, "from a table": table, "one set, ms": latency}


def precision() -> Figures:
    """NLL on fresh sets after 5 epochs on simulated airline choices, in float32 and bfloat16."""
    from pcmcnet.datasets import airline

    data = ChoiceData.from_long(airline.simulate(12_000, seed=0), **airline.ROLES)
    train, test = data.split((0.8, 0.2), seed=0)
    figures = {}
    for kind in ("float32", "bfloat16"):
        values = []
        for seed in range(3):
            model = PCMCNet(hidden=(512, 512), dropout=0.5, batch_size=64, lr=0.001, epochs=5, precision=kind, **ROOM)
            values.append(-model.fit(train, seed=seed, device="cuda", progress=False).score(test))
        figures[kind] = values
        print(
            f"NLL after 5 epochs, {kind:<9} {statistics.mean(values):.4f}  seeds {[round(v, 4) for v in values]}",
            flush=True,
        )
    print(f"difference of the means {statistics.mean(figures['bfloat16']) - statistics.mean(figures['float32']):+.4f}")
    return figures


def wide() -> Figures:
    """Time and memory of training steps on one set of 2,000 alternatives."""
    data = WIDE.data(1)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model, _ = fitted(data, epochs=5, batch_size=1)
    seconds = statistics.median(entry["seconds"] for entry in model.history[2:])
    peak = torch.cuda.max_memory_allocated() / 2**30
    reserved = torch.cuda.max_memory_reserved() / 2**30
    print(
        f"one set of {int(data.sizes[0]):,}: {seconds:.3f} s a step, peak {peak:.2f} GiB ({reserved:.2f} reserved)",
        flush=True,
    )
    return {"seconds": seconds, "peak GiB": peak, "reserved GiB": reserved}


SECTIONS: dict[str, Callable[[], Figures]] = {
    "stationary": stationary,
    "training": training,
    "prediction": prediction,
    "precision": precision,
    "wide": wide,
}


def main() -> None:
    """Run the sections asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], metavar="SECTION")
    parser.add_argument("--json", type=Path, help="where the figures go")
    given = parser.parse_args()
    machine = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}"
    print(machine)
    figures: Figures = {"machine": machine}
    for name in given.sections or SECTIONS:
        figures[name] = SECTIONS[name]()
        print()
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
