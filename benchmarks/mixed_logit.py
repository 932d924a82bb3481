"""Mixed logit of the electricity panel: pcmcnet beside xlogit, with the same draws, to the same likelihood, in one run.

All six coefficients are normal; 361 customers, 4,308 choices, 1,000 draws. Both begin at the multinomial logit with
spreads of 0.1, and end with standard errors. Each maximises with its own draws, xlogit's a Halton sequence, so that the
maxima differ by simulation. That the likelihood is the same function is checked at xlogit's estimates with xlogit's
draws, which it writes to a file. Each fit is a process of its own; the ways take turns, and medians over rounds count.
A process with one thread has one for every library.

The peer may live in an environment of its own: name its interpreter in PCMCNET_PEERS (see ``benchmarks/logit.py``)::

    PCMCNET_PEERS=../peers/bin/python python -m benchmarks.mixed_logit [--rounds 3]
    python -m benchmarks.mixed_logit --memory        # one pass of 100,000 choices x 1,000 draws x 10 coefficients
    python -m benchmarks.mixed_logit --unequal       # seconds per utility of equal and of unequal choice sets
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ["pf", "cl", "loc", "wk", "tod", "seas"]
DRAWS, SPREAD = 1000, 0.1
AGREE = 1e-5  # how far log-likelihoods with the same draws, at the same parameters, may be apart
LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMEXPR")


def xlogit(task: dict[str, Any]) -> dict[str, Any]:
    """Fit by xlogit, which begins at its multinomial logit by default; keep its draws."""
    import numpy as np
    import pandas as pd
    from xlogit import MixedLogit

    frame, model = pd.read_csv(task["file"]), MixedLogit()
    made = model._generate_draws

    def keep(*given: Any, **options: Any) -> Any:
        draws = made(*given, **options)
        np.save(task["draws"], draws)
        return draws

    model._generate_draws = keep
    began = time.perf_counter()
    model.fit(
        X=frame[NAMES], y=frame["choice"], varnames=NAMES, ids=frame["chid"], panels=frame["id"], alts=frame["alt"],
        n_draws=DRAWS, randvars=dict.fromkeys(NAMES, "n"), verbose=0,
    )  # fmt: skip
    taken, found = time.perf_counter() - began, [float(value) for value in model.coeff_]
    return {"seconds": taken, "log_likelihood": float(model.loglikelihood), "estimates": found}


def pcmcnet(task: dict[str, Any]) -> dict[str, Any]:
    """Fit by pcmcnet; then compute the log-likelihood at xlogit's estimates with xlogit's draws."""
    import torch

    import pcmcnet as pn

    torch.set_num_threads(task["threads"])
    data = pn.ChoiceData.from_long(task["file"], choice_set="chid", chosen="choice", features=NAMES, person="id")
    model = pn.MixedMNL(draws=DRAWS, start={f"sd[{name}]": SPREAD for name in NAMES})
    began = time.perf_counter()
    model.fit(data, progress=False, device="cpu")
    taken, reached = time.perf_counter() - began, model.estimates_.log_likelihood
    return {"seconds": taken, "log_likelihood": reached, "at_theirs": with_draws_of(model, data, task)}


def with_draws_of(model: Any, data: Any, task: dict[str, Any]) -> float:
    """Return the log-likelihood at the estimates of a peer, with its draws (persons, coefficients, draws)."""
    import numpy as np
    import torch

    from pcmcnet.models.logits.estimation import LogitSets
    from pcmcnet.models.logits.estimation.mixed_likelihood import MixedSets
    from pcmcnet.models.logits.simulation.draws import Draws

    class Given(Draws):
        """Draws of a file; a key is the place of the person in it."""

        def of(self, keys: Any) -> Any:
            return (torch.from_numpy(np.load(task["draws"])[keys]) / 2**0.5).erf()

    ids, first, person = np.unique(data.keep["id"].plain(), return_index=True, return_inverse=True)
    keys = np.argsort(np.argsort(ids.astype(np.int64)))  # xlogit numbers persons by their ids
    sets = LogitSets.from_matrix(model.design_.matrix(data), data.offsets, data.chosen)
    draws, mixing = Given("sobol", len(NAMES), DRAWS, 0), dataclasses.replace(model.mixing_, mirror=())
    made = MixedSets.of(sets, person, keys, np.zeros((len(first), 0)), mixing, draws, 2.0**30)
    return float(made.evaluate(np.array(task["estimates"]), "float64", scores=False)[0].sum())


def in_own_process(way: str, task: dict[str, Any]) -> dict[str, Any]:
    """Run a way; the peer with the interpreter that was named for it."""
    peers = Path(os.environ.get("PCMCNET_PEERS", sys.executable)).absolute()
    python = str(peers) if way == "xlogit" else sys.executable
    limits = {f"{library}_NUM_THREADS": str(task["threads"]) for library in LIBRARIES}
    root = Path(__file__).parents[1]
    surroundings = {**os.environ, **limits, "PYTHONPATH": str(root / "src")}
    done = subprocess.run(
        [python, __file__, "--way", way, json.dumps(task)],
        check=False, capture_output=True, text=True, cwd=root, env=surroundings,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{way} failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(rounds: int) -> list[dict[str, Any]]:
    """Print medians of both packages with one and two threads."""
    from benchmarks.harness import Table
    from pcmcnet.datasets import packaged

    print(f"electricity, 6 normal coefficients, {DRAWS:,} draws, seconds to estimates with errors, median of {rounds}")
    table = Table(
        "", {"package": "", "threads": "d", "seconds": ".2f", "ratio": ".1f", "log-likelihood": ".3f"}, first=10
    )
    with tempfile.TemporaryDirectory() as folder:
        common = {"file": str(packaged.path("electricity")), "draws": f"{folder}/draws.npy"}
        for threads in (1, 2):
            task = {**common, "threads": threads}
            found: dict[str, list[dict[str, Any]]] = {"xlogit": [], "pcmcnet": []}
            for _ in range(rounds):
                found["xlogit"].append(in_own_process("xlogit", task))
                theirs = found["xlogit"][-1]
                found["pcmcnet"].append(in_own_process("pcmcnet", {**task, "estimates": theirs["estimates"]}))
                apart = abs(found["pcmcnet"][-1]["at_theirs"] - theirs["log_likelihood"])
                if not apart < AGREE:
                    raise RuntimeError(f"with the same draws and parameters, log-likelihoods are {apart} apart")
            medians = {label: statistics.median(run["seconds"] for run in runs) for label, runs in found.items()}
            for label, runs in found.items():
                ratio = medians["xlogit"] / medians[label]
                table.add({"package": label, "threads": threads, "seconds": medians[label], "ratio": ratio,
                           "log-likelihood": runs[0]["log_likelihood"]})  # fmt: skip
    print(f"(with xlogit's draws, at its estimates, the log-likelihoods are {apart:.0e} apart)")
    return table.rows


def problem(sets: int, sizes: tuple[int, int], columns: int, draws: int, persons: int) -> Any:
    """Make a likelihood of simulated choice sets."""
    import numpy as np

    from pcmcnet.models.logits.estimation.mixed_likelihood import MixedSets
    from pcmcnet.models.logits.simulation.coefficients import Mixing, Random
    from pcmcnet.models.logits.simulation.distributions import Distribution
    from pcmcnet.models.logits.simulation.draws import Draws

    rng = np.random.default_rng(0)
    others = rng.integers(sizes[0] - 1, sizes[1], sets)
    offsets = np.concatenate([[0], np.cumsum(others)])
    names = tuple(f"x{k}" for k in range(columns))
    mixing = Mixing(names, columns, tuple(Random(k, Distribution("normal")) for k in range(columns)))
    z, person, keys = rng.standard_normal((offsets[-1], columns)), np.arange(sets) % persons, np.arange(persons)
    made = MixedSets(
        z, offsets, person, keys, np.zeros((persons, 0)), mixing, Draws("sobol", columns, draws, 0), 2.0**30
    )
    return made, np.full(2 * columns, 0.1)


def memory() -> None:
    """Print the seconds and the memory of one pass of a large problem: likelihood and scores."""
    import resource

    made, x = problem(100_000, (4, 4), 10, 1000, 100_000)
    began = time.perf_counter()
    ll, scores, _ = made.evaluate(x, "float32")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"100,000 choices of 4, 10 random coefficients, 1,000 draws: {time.perf_counter() - began:.1f} s, ", end="")
    print(f"{most:.2f} GiB at most; log-likelihood {ll.sum():.1f}, scores {scores.shape}")


def unequal() -> None:
    """Print the time of a utility in one draw, scores included, for equal and for unequal choice sets."""
    for title, sizes in {"sets of 4": (4, 4), "sets of 2 to 6": (2, 6), "sets of 2 to 30": (2, 30)}.items():
        made, x = problem(3000, sizes, 6, 1000, 3000)
        best = min(_timed(lambda made=made, x=x: made.evaluate(x, "float32")) for _ in range(4))
        print(f"{title:<16} {len(made.z) * 1000:>12,} utilities  {best / len(made.z) / 1000 * 1e9:5.2f} ns each")


def _timed(run: Any) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def main() -> None:
    """Run what the command line asks for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--memory", action="store_true")
    options.add_argument("--unequal", action="store_true")
    options.add_argument("--way", nargs=2)
    given = options.parse_args()
    if given.way:
        print(json.dumps({"xlogit": xlogit, "pcmcnet": pcmcnet}[given.way[0]](json.loads(given.way[1]))))
    elif given.memory:
        memory()
    elif given.unequal:
        unequal()
    else:
        compare(given.rounds)


if __name__ == "__main__":
    main()
