"""Mixed logit of the electricity panel: pcmcnet, xlogit, Biogeme and TorchDCM, in one run.

All six coefficients are normal; 361 customers, 4,308 choices, 1,000 draws. The ways and their starting values are in
``benchmarks/mixed_logit_ways.py``; all compute standard errors. Each package maximises with its own draws, so the
maxima differ by simulation noise. The likelihood functions are compared at the estimates of xlogit and of TorchDCM,
with their draws, which are written to files. Each fit is a separate process on as many cores as threads. The ways run
in turn, and medians over rounds count. CPU seconds of a process hardly depend on the load of the machine.

Peers can be in separate environments: set PCMCNET_PEERS to their interpreters, separated by colons. Each way uses the
first interpreter that has its package; a missing package is skipped. Biogeme 3.3.2 needs tomlkit as pinned here::

    python3 -m venv ../peers && ../peers/bin/pip install xlogit==0.2.7 biogeme==3.3.2 tomlkit==0.13.2 torchdcm==0.1.2
    PCMCNET_PEERS=../peers/bin/python python -m benchmarks.mixed_logit [--rounds 3] [--ways xlogit pcmcnet]
    python -m benchmarks.mixed_logit --gpu           # seconds of pcmcnet on a GPU
    python -m benchmarks.mixed_logit --memory        # one pass of 100,000 choices x 1,000 draws x 10 coefficients
    python -m benchmarks.mixed_logit --unequal       # seconds per utility of equal and of unequal choice sets
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Table, seconds
from benchmarks.mixed_logit_ways import WAYS, electricity, fitted
from pcmcnet.datasets import packaged

AGREE = 1e-5  # largest difference of log-likelihoods with the same draws and parameters
LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMEXPR")
ROOT = Path(__file__).parents[1]
Run = dict[str, Any]


def installed(ways: list[str]) -> dict[str, tuple[str, str]]:
    """Return interpreter and label of each way; print those that are skipped."""
    named = os.environ.get("PCMCNET_PEERS", sys.executable).split(os.pathsep)
    peers = [str(Path(python).absolute()) for python in named]  # do not resolve links: they identify the environment
    ways_found = {"pcmcnet": (sys.executable, "pcmcnet")} if "pcmcnet" in ways else {}
    for way in [way for way in ways if way != "pcmcnet"]:
        for python in peers:
            command = [python, "-c", f"from importlib.metadata import version; print(version({way!r}))"]
            check = subprocess.run(command, check=False, capture_output=True, text=True)
            if not check.returncode:
                ways_found.setdefault(way, (python, f"{way} {check.stdout.strip()}"))
        if way not in ways_found:
            print(f"(skipped: {way} is not installed)")
    return {way: ways_found[way] for way in WAYS if way in ways_found}  # pcmcnet last: it uses the results of others


def in_own_process(way: str, python: str, task: dict[str, Any], limit: float) -> Run:
    """Run a way; after a timeout, the result has the CPU seconds, but no log-likelihood."""
    limits = {f"{library}_NUM_THREADS": str(task["threads"]) for library in LIBRARIES}
    before = _cpu_of_children()
    try:
        done = subprocess.run(
            [python, str(ROOT / "benchmarks" / "mixed_logit_ways.py"), way, json.dumps(task)],
            check=False, capture_output=True, text=True, timeout=limit,
            env={**os.environ, **limits, "PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"seconds": limit, "cpu": _cpu_of_children() - before, "log_likelihood": None}
    if done.returncode:
        raise RuntimeError(f"{way} failed:\n{done.stderr}")
    result: Run = json.loads(done.stdout.splitlines()[-1])  # a peer may print other lines first
    return result


def take_turn(pythons: dict[str, str], task: dict[str, Any], limit: float) -> dict[str, Run]:
    """Run each way once; check that the likelihood with the draws of a peer equals that of the peer."""
    runs: dict[str, Run] = {}
    with tempfile.TemporaryDirectory() as folder:
        for way, python in pythons.items():
            peers = {peer: {**run, "keep": f"{folder}/{peer}.npy"} for peer, run in runs.items() if "estimates" in run}
            own_task = {**task, "keep": f"{folder}/{way}.npy", "peers": peers}
            runs[way] = in_own_process(way, python, own_task, limit)
    for peer, reached in runs.get("pcmcnet", {}).get("at_theirs", {}).items():
        runs[peer]["apart"] = abs(reached - runs[peer]["log_likelihood"])
        if not runs[peer]["apart"] < AGREE:
            raise RuntimeError(f"log-likelihoods at the estimates of {peer} differ by {runs[peer]['apart']}")
    return runs


def compare(arguments: argparse.Namespace) -> list[Run]:
    """Print medians of all ways; the ratio is relative to the seconds of pcmcnet."""
    labels = installed(arguments.ways)
    print(f"electricity, 6 normal coefficients, {arguments.draws:,} draws, seconds to estimates with errors, ", end="")
    print(f"median of {arguments.rounds}")
    columns = ("package", "threads", "seconds", "ratio", "CPU s", "log-likelihood", "apart")
    table = Table("", dict.fromkeys(columns, ""), first=16)
    for threads in arguments.threads:
        task = {"file": str(packaged.path("electricity")), "draws": arguments.draws, "threads": threads}
        pythons = {way: python for way, (python, _) in labels.items()}
        rounds = [take_turn(pythons, task, arguments.limit) for _ in range(arguments.rounds)]
        medians = {way: {k: statistics.median(r[way][k] for r in rounds) for k in ("seconds", "cpu")} for way in labels}
        for way, (_, label) in labels.items():
            run, median = rounds[0][way], medians[way]
            ended = all(r[way]["log_likelihood"] is not None for r in rounds)
            row: Run = {"package": label, "threads": str(threads), "seconds": f"{median['seconds']:.2f}"}
            row |= {"CPU s": f"{median['cpu']:.1f}", "apart": f"{run['apart']:.0e}" if "apart" in run else None}
            if "pcmcnet" in medians:
                row["ratio"] = f"{median['seconds'] / medians['pcmcnet']['seconds']:.1f}"
            if ended:
                row["log-likelihood"] = f"{run['log_likelihood']:.3f}"
            else:
                row |= {"seconds": f"> {arguments.limit:.0f}", "ratio": f"> {row['ratio']}" if "ratio" in row else None}
            table.add(row)
    print("(apart: difference of the log-likelihoods of pcmcnet and the package, with its draws and estimates)")
    return table.rows


def gpu() -> None:
    """Print the seconds of pcmcnet on a GPU: one fit that compiles, then two fits for each number of draws."""
    import torch

    if not torch.cuda.is_available():
        sys.exit(f"--gpu needs a CUDA device; torch {torch.__version__} found none.")
    data = electricity(str(packaged.path("electricity")))

    def timed(draws: int) -> tuple[float, float]:
        models: list[Any] = []
        taken = seconds(lambda: models.append(fitted(data, draws, "cuda")), "cuda")
        return taken, models[0].estimates_.log_likelihood

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; first fit {timed(1000)[0]:.2f} s")
    for draws in (1000, 10_000):
        (once, reached), (again, _) = timed(draws), timed(draws)
        print(f"{draws:>6,} draws: {once:.2f} and {again:.2f} s, log-likelihood {reached:.3f}")


def problem(sets: int, sizes: tuple[int, int], columns: int, draws: int, persons: int) -> Any:
    """Return a likelihood of simulated choice sets, and parameters."""
    import numpy as np

    from pcmcnet.models.logit.draws import PersonDraws
    from pcmcnet.models.logit.mixed_likelihood import SimulatedLikelihood
    from pcmcnet.models.logit.random_coefficients import Distribution, MixingDistribution, RandomCoefficient

    rng = np.random.default_rng(0)
    sizes_without_chosen = rng.integers(sizes[0] - 1, sizes[1], sets)
    offsets = np.concatenate([[0], np.cumsum(sizes_without_chosen)])
    names = tuple(f"x{k}" for k in range(columns))
    mixing = MixingDistribution(
        names, columns, tuple(RandomCoefficient(k, Distribution("normal")) for k in range(columns))
    )
    z, person, keys = rng.standard_normal((offsets[-1], columns)), np.arange(sets) % persons, np.arange(persons)
    likelihood = SimulatedLikelihood(
        z, offsets, person, keys, np.zeros((persons, 0)), mixing, PersonDraws("sobol", columns, draws, 0), 2.0**30
    )
    return likelihood, np.full(2 * columns, 0.1)


def memory() -> None:
    """Print seconds and memory of one evaluation of a large problem: likelihood and scores."""
    likelihood, x = problem(100_000, (4, 4), 10, 1000, 100_000)
    began = time.perf_counter()
    ll, scores, _ = likelihood.evaluate(x, "float32")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"100,000 choices of 4, 10 random coefficients, 1,000 draws: {time.perf_counter() - began:.1f} s, ", end="")
    print(f"peak {most:.2f} GiB; log-likelihood {ll.sum():.1f}, scores {scores.shape}")


def unequal() -> None:
    """Print the time per utility and draw, including scores, for equal and unequal choice sets."""
    for title, sizes in {"sets of 4": (4, 4), "sets of 2 to 6": (2, 6), "sets of 2 to 30": (2, 30)}.items():
        likelihood, x = problem(3000, sizes, 6, 1000, 3000)
        best = min(_timed(lambda likelihood=likelihood, x=x: likelihood.evaluate(x, "float32")) for _ in range(4))
        utilities = len(likelihood.z) * 1000
        print(f"{title:<16} {utilities:>12,} utilities  {best / utilities * 1e9:5.2f} ns each")


def _timed(run: Any) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the benchmark selected on the command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), help="default: all installed")
    options.add_argument("--limit", type=float, default=600, help="timeout of a fit, in seconds (default: %(default)s)")
    options.add_argument("--draws", type=int, default=1000)
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument("--gpu", action="store_true")
    options.add_argument("--memory", action="store_true")
    options.add_argument("--unequal", action="store_true")
    arguments = options.parse_args()
    if arguments.gpu:
        gpu()
    elif arguments.memory:
        memory()
    elif arguments.unequal:
        unequal()
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
