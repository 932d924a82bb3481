"""Plan a fit on other machines: time, memory and cost by number of sets, alternatives and workers.

    python -m benchmarks.scaling_plan [--figures FOLDER] [--picture docs/scaling-plan.png] [--json FILE]

The formulas are in ``scaling_model``, the simulation in ``scaling_simulation``. ``scaling_fit`` computes the rates from
records of other benchmarks: those in ``benchmarks/measured``, or in another folder, such as ``runs``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.harness import RUNS, Row, Table, surroundings
from benchmarks.scaling_fit import AIRLINE, ASSUMED, MEASURED, figures, growth, on_gpu, validated
from benchmarks.scaling_model import (
    AS_IT_IS,
    GIB,
    Design,
    Job,
    Rates,
    begin_seconds,
    epoch_seconds,
    fit_seconds,
    gpu_hours,
    learn_seconds,
    memory,
    parts,
    saturates_first,
    scan_seconds,
)
from benchmarks.scaling_simulation import GIVEN_UP, Chances, simulate, simulate_begin

WORKERS = (1, 2, 4, 8, 16, 32, 64)
SETS = (1e6, 1e7, 1e8, 1e9)
ALTERNATIVES = (5, 10, 20, 50, 100, 200)
BILLION = Job(sets=1e9, workers=64, epochs=10, **AIRLINE)
_READERS = Design(readers=8)
TWO = "83,320 sets from disk, 2 of gloo, CPU time each"  # the measured fit that is most similar to the plan
DESIGNS: dict[str, Design] = {
    "one scans and learns": Design(scanners=1),
    "as it is": AS_IT_IS,
    "and 8 readers each": _READERS,
    "and own batches": replace(_READERS, own_plan=True),
}
CHANGED = replace(_READERS, own_plan=True, recorded=True)
COLOURS = {
    "read": "#D55E00",
    "compute": "#0072B2",
    "launch": "#009E73",
    "reduce": "#CC79A7",
    "plan": "#E69F00",
    "sizes": "#F0E442",
    "copy": "#56B4E9",
}


def show_rates(rates: Rates) -> list[Row]:
    """Print the rates of the model."""
    table = Table("rates of one H200 and its host", {"rate": "", "value": ".4g", "source": ""}, first=15)
    for name, value in asdict(rates).items():
        table.add({"rate": name, "value": value, "source": "assumed" if name in ASSUMED else "measured"})
    for name in ("price", "spread", "deaths"):
        table.add({"rate": name, "value": ASSUMED[name].value, "source": "assumed"})
    return table.rows


def show_validation(rows: list[Row], title: str) -> list[Row]:
    """Print predicted and measured times."""
    table = Table(title, {"what": "", "predicted": ".3f", "measured": ".3f", "error": "+.0%"}, first=34)
    for row in rows:
        table.add(row)
    return table.rows


def _hours(seconds: float) -> str:
    for size, unit in ((86400 * 2, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / (86400 if unit == 'd' else size):.1f} {unit}"
    return f"{seconds:.1f} s"


def show_epochs(rates: Rates, design: Design, name: str) -> list[Row]:
    """Print the time of an epoch by workers, for several numbers of sets and alternatives."""
    columns = {"sets": "", **{f"{w}": "" for w in WORKERS}, "speed": ".0f", "first": "", "from": ""}
    table = Table(
        f"time of an epoch by workers, {name}; speed of 64 workers relative to one; number of workers from which "
        f"doubling saves less than a quarter of the time, and the part that limits the speed",
        columns,
        first=24,
    )
    jobs = {f"{sets:.0e} of about 33": Job(sets=sets, **AIRLINE) for sets in SETS}
    jobs |= {f"1e+09 of {n}": Job(sets=1e9, alternatives=n) for n in ALTERNATIVES}
    for what, job in jobs.items():
        times = {str(w): epoch_seconds(replace(job, workers=w), rates, design) for w in WORKERS}
        first, speed = saturates_first(job, rates, design), times["1"] / times["64"]
        shown = {w: _hours(t) for w, t in times.items()}
        row = {"sets": what, **shown, "speed": speed, "first": first.part, "from": str(first.workers or "-")}
        table.add(row | {"seconds": times})
    return table.rows


def show_designs(rates: Rates) -> list[Row]:
    """Print the plan for a billion sets on 64 GPUs: the current library, then one change after the other."""
    columns = dict.fromkeys(("way", "scan", "learn", "begins", "epoch", "10 epochs"), "")
    columns |= {"GPU-hours": ",.0f", "USD": ",.0f", "busy": ".0%", "most": ""}
    table = Table("a billion choice sets of about 33 on 64 GPUs", columns, first=20)
    for name, design in DESIGNS.items():
        seconds_by_part, epoch, whole = (f(BILLION, rates, design) for f in (parts, epoch_seconds, fit_seconds))
        hours = gpu_hours(BILLION, whole)
        named = {k: v for k, v in seconds_by_part._asdict().items() if k != "keep"}
        row = {
            "way": name,
            "scan": _hours(scan_seconds(BILLION, rates, design)),
            "learn": _hours(learn_seconds(BILLION, rates, design)),
            "begins": _hours(begin_seconds(BILLION, rates, design)),
            "epoch": _hours(epoch),
            "10 epochs": _hours(whole),
            "GPU-hours": hours,
            "USD": hours * ASSUMED["price"].value,
            "busy": seconds_by_part.compute / epoch,
            "most": max(named, key=lambda k: named[k]),
        }
        table.add(row | {"parts": seconds_by_part._asdict(), "epoch_seconds": epoch, "fit_seconds": whole})
    return table.rows


def show_headline(rates: Rates, records: dict[str, list[Row]], runs: int) -> list[Row]:
    """Print a summary of the plan, with its error for a fit with two workers."""
    error = next(row["error"] for row in validated(records) if row["what"] == TWO)
    chances = Chances(ASSUMED["spread"].value, ASSUMED["deaths"].value)
    simulated = [run.seconds for run in simulate(BILLION, rates, AS_IT_IS, chances, runs=runs, seed=0)]
    begins, epoch, formula = (f(BILLION, rates) for f in (begin_seconds, epoch_seconds, fit_seconds))
    median = float(np.median(simulated))
    slow = float(np.median([begin.seconds for begin in simulate_begin(BILLION, rates, chances, runs=runs, seed=0)]))
    print(
        f"a billion sets on 64 GPUs, current library: the first epoch begins after {_hours(begins)} by the formula and "
        f"{_hours(slow)} in the simulation. An epoch takes "
        f"{_hours(epoch)}, ten take {_hours(formula)} by the formula and {_hours(median)} in the simulation. For two "
        f"workers the formula was {-error:.0%} below the measurement: with the same error, an epoch takes "
        f"{_hours(epoch / (1 + error))} and ten take {_hours(median / (1 + error))}."
    )
    return [
        {
            "begins": begins,
            "begins, simulated": slow,
            "epoch": epoch,
            "formula": formula,
            "simulated": median,
            "error": error,
        }
    ]


def show_parts(rates: Rates) -> list[Row]:
    """Print the parts of this epoch in seconds."""
    names = ("read", "sizes", "plan", "copy", "compute", "launch", "reduce", "keep")
    table = Table("parts of this epoch, seconds", {"way": "", **dict.fromkeys(names, ",.1f")}, first=20)
    for name, design in DESIGNS.items():
        table.add({"way": name, **parts(BILLION, rates, design)._asdict()})
    return table.rows


def show_simulation(rates: Rates, runs: int) -> list[Row]:
    """Print the results of the simulation."""
    columns = {"way": "", "formula": "", "median": "", "9 of 10 within": "", "failures": ".2f", "by hand": ".0%"}
    table = Table(f"10 epochs with slow workers and failures, {runs} runs", columns, first=34)
    spread, deaths = ASSUMED["spread"].value, ASSUMED["deaths"].value
    for name, design in (("as it is", AS_IT_IS), ("with all changes", CHANGED)):
        for rate in (0.0, deaths, 10 * deaths):
            simulated = simulate(BILLION, rates, design, Chances(spread, rate), runs=runs, seed=0)
            seconds, failures = np.array([r.seconds for r in simulated]), np.array([r.failures for r in simulated])
            times = {
                "formula": fit_seconds(BILLION, rates, design),
                "median": float(np.median(seconds)),
                "9 of 10 within": float(np.quantile(seconds, 0.9)),
            }
            row = {"way": f"{name}, {rate:g} deaths an hour", **{k: _hours(v) for k, v in times.items()}}
            row |= {"failures": float(failures.mean()), "by hand": float((failures > GIVEN_UP).mean())}
            table.add(row | {"seconds": times})
    return table.rows


def show_memory(rates: Rates) -> list[Row]:
    """Print the memory and disk space needed, in GiB."""
    numbers = ("scan", "allowed", "host", "device", "disk", "ids")
    columns = {"sets": ".0e", "workers": "", **dict.fromkeys(numbers, ",.1f")}
    table = Table(
        "sets of about 33, GiB: memory of the scan, of all workers, and of one worker; disk; ids of a prediction",
        columns,
        first=8,
    )
    for sets, workers in product(SETS, (1, 64)):
        job = Job(sets=sets, workers=workers, **AIRLINE)
        needed = memory(job, rates)._asdict()
        sizes = {"scan": job.scanned_with, "allowed": job.allowed(rates), **needed}
        table.add({"sets": sets, "workers": workers, **{k: v / GIB for k, v in sizes.items()}})
    return table.rows


def draw(rates: Rates, path: Path) -> None:
    """Draw the parts of an epoch by number of workers, for the current library and with the changes."""
    from matplotlib.figure import Figure

    from pcmcnet.plots.style import save_picture

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    chosen: Mapping[str, Design] = {
        "as it is": AS_IT_IS,
        "8 readers and batches of their own, recorded steps": CHANGED,
    }
    many = np.unique(np.geomspace(1, 64, 25).round().astype(int))
    for axes, (name, design) in zip(figure.subplots(1, 2, sharey=True), chosen.items(), strict=True):
        jobs = [replace(BILLION, workers=int(w)) for w in many]
        lines = [parts(job, rates, design)._asdict() for job in jobs]
        for part, colour in COLOURS.items():
            y = np.array([line[part] for line in lines])
            axes.loglog(many[y > 0], y[y > 0] / 60, color=colour, label=part)
        whole = [epoch_seconds(job, rates, design) / 60 for job in jobs]
        axes.loglog(many, whole, color="0.8", linewidth=8, zorder=1, label="epoch")
        axes.set_xticks(WORKERS, [str(w) for w in WORKERS])
        axes.minorticks_off()
        axes.set_xlabel("GPUs", fontsize=11)
        axes.set_title(name, fontsize=11)
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("minutes of an epoch", fontsize=11)
    figure.axes[1].legend(fontsize=10, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle("A billion choice sets of about 33 alternatives, hidden layers of 512 and 512 units", fontsize=12)
    save_picture(figure, path, dpi=120)


def main() -> None:
    """Print, write and draw the plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, default=MEASURED, help="folder of records (default: %(default)s)")
    parser.add_argument("--picture", type=Path, help="file of the picture: .png, .pdf or .svg")
    parser.add_argument("--runs", type=int, default=300, help="runs of the simulation (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=RUNS / "scaling-plan.json", help="file of the results")
    arguments = parser.parse_args()
    records = figures(arguments.figures)
    rates = on_gpu(records)
    record = surroundings("python -m benchmarks.scaling_plan")
    headline = show_headline(rates, records, arguments.runs)
    print()
    grown, steps = growth(records)
    shown: dict[str, list[Row]] = {"headline": headline, "rates": show_rates(rates)}
    formula = " + ".join(
        f"{grown[name]:.2e}{power}" for name, power in (("step", ""), ("row", " n"), ("pair", " n²"), ("cube", " n³"))
    )
    print(f"\non a CPU, seconds of a step by the size n of 8 sets: {formula}")
    shown["growth"] = show_validation(steps, "fitted")
    print()
    shown["validation"] = show_validation(validated(records), "predicted from parts")
    sections = {
        "epochs": lambda: show_epochs(rates, AS_IT_IS, "as it is"),
        "epochs, changed": lambda: show_epochs(rates, CHANGED, "with all changes"),
        "designs": lambda: show_designs(rates),
        "parts": lambda: show_parts(rates),
        "simulation": lambda: show_simulation(rates, arguments.runs),
        "memory": lambda: show_memory(rates),
    }
    for name, show in sections.items():
        print()
        shown[name] = show()
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({**record, "figures": shown}, indent=2))
    if arguments.picture is not None:
        draw(rates, arguments.picture)


if __name__ == "__main__":
    main()
