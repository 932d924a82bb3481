"""Mixed logit of the electricity panel: pcmcnet beside xlogit, with the same draws, to the same likelihood, in one run.

All six coefficients are normal; 361 customers, 4,308 choices, 1,000 draws. Both begin at the multinomial logit with
spreads of 0.1, and end with standard errors. xlogit writes its Halton draws to a file. pcmcnet maximises once with
those, so that both maximise one function, and once with its own. A simulated likelihood has a maximum for each sign of
each spread, as draws are not quite symmetric: those of pcmcnet are bounded by 0, on the side where xlogit's are. Each
fit is a process of its own; the ways take turns, and medians over rounds count. A process with one thread has one for
every library.

The peer may live in an environment of its own: name its interpreter in PCMCNET_PEERS (see ``benchmarks/logit.py``)::

    PCMCNET_PEERS=../peers/bin/python python -m benchmarks.mixed_logit [--rounds 3]
    python -m benchmarks.mixed_logit --memory        # one pass of 100,000 choices x 1,000 draws x 10 coefficients
    python -m benchmarks.mixed_logit --unequal       # seconds per utility of equal and of unequal choice sets
"""

from __future__ import annotations

import argparse
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
AGREE = (
    0.01  # how far log-likelihoods under the same draws may be apart: each package has its own rule for when to stop
)
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
    return {"seconds": time.perf_counter() - began, "log_likelihood": float(model.loglikelihood)}


def pcmcnet(task: dict[str, Any]) -> dict[str, Any]:
    """Fit by pcmcnet, with its own draws or with those of a file."""
    import numpy as np
    import torch

    import pcmcnet as pn
    from pcmcnet.models.logits.simulation.coefficients import Mixing
    from pcmcnet.models.logits.simulation.draws import Draws, keys_of

    torch.set_num_threads(task["threads"])
    data = pn.ChoiceData.from_long(
        task["file"], choice_set="chid", chosen="choice", features=NAMES, person="id", missing="error"
    )
    persons = sorted(set(data.keep["id"].plain()), key=int)
    values = np.load(task["draws"]) if task["given"] else np.zeros(0)
    place = {int(key): n for n, key in enumerate(keys_of(persons))}

    class Given(Draws):
        """Draws of a file, by person."""

        def of(self, keys: Any) -> Any:
            found = torch.from_numpy(values[[place[int(key)] for key in keys]][:, :, : self.number])
            return (found / 2**0.5).erf()

    class WithGiven(pn.MixedMNL):
        """A mixed logit with draws of a file, but for the second set, by which it measures its simulation error."""

        def _draws(self, mixing: Mixing, number: int, seed: int, device: Any) -> Draws:
            usual = super()._draws(mixing, number, seed, device)
            return usual if seed else Given(usual.sequence, usual.dimensions, number, 0)

    kind = WithGiven if task["given"] else pn.MixedMNL
    spreads = [f"sd[{name}]" for name in NAMES]
    bounds = dict.fromkeys(spreads, (0.0, None))
    model = kind(draws=DRAWS, start=dict.fromkeys(spreads, SPREAD), bounds=bounds, prior=0.0)
    began = time.perf_counter()
    model.fit(data, progress=False, device="cpu")
    return {"seconds": time.perf_counter() - began, "log_likelihood": model.estimates_.log_likelihood}


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
        "", {"package": "", "threads": "d", "seconds": ".2f", "ratio": ".1f", "log-likelihood": ".3f"}, first=24
    )
    with tempfile.TemporaryDirectory() as folder:
        common = {"file": str(packaged.path("electricity")), "draws": f"{folder}/draws.npy"}
        for threads in (1, 2):
            task = {**common, "threads": threads}
            ways = {"xlogit": {}, "pcmcnet, its draws": {"given": True}, "pcmcnet": {"given": False}}
            found: dict[str, list[dict[str, Any]]] = {label: [] for label in ways}
            for _ in range(rounds):
                for label, more in ways.items():
                    found[label].append(in_own_process(label.split(",")[0], {**task, **more}))
            theirs, ours = (found[label][0]["log_likelihood"] for label in list(ways)[:2])
            if not abs(theirs - ours) < AGREE:
                raise RuntimeError(f"with the same draws, expected log-likelihoods within {AGREE}: {theirs} and {ours}")
            medians = {label: statistics.median(run["seconds"] for run in runs) for label, runs in found.items()}
            for label, runs in found.items():
                ratio = medians["xlogit"] / medians[label]
                table.add({"package": label, "threads": threads, "seconds": medians[label], "ratio": ratio,
                           "log-likelihood": runs[0]["log_likelihood"]})  # fmt: skip
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
