"""Hierarchical Bayes logit: effective draws per second against NUTS of numpyro, coverage, and known people.

    python -m benchmarks.hierarchical numpyro --peer-python ../numpyro/bin/python  # the same posterior, on one thread
    python -m benchmarks.hierarchical coverage      # intervals of 20 simulated panels
    python -m benchmarks.hierarchical electricity   # seconds; agreement with the maximum of the mixed logit
    python -m benchmarks.hierarchical known         # the last choice of every customer, given the others

A panel has 300 persons with 12 choices of 3 alternatives and 8 attributes. NUTS runs in a separate process, whose
interpreter needs only numpyro (``benchmarks/hierarchical_numpyro.py``)::

    python3 -m venv ../numpyro && ../numpyro/bin/pip install numpyro==0.22.0

If the compiled library is missing, ``numpyro`` compiles it first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

PERSONS, TASKS, ALTERNATIVES, ATTRIBUTES = 300, 12, 3, 8
LEVEL = 0.9
EFFECTIVE_DRAWS = 1000  # to which the time is compared, with burn-in
Arrays = dict[str, np.ndarray]


def simulate(seed: int) -> tuple[np.ndarray, np.ndarray, Arrays]:
    """Return the attributes (N, T, J, K) of a panel, the choices (N, T), and the true population."""
    rng, K = np.random.default_rng(seed), ATTRIBUTES
    # 1. Part-worths: means of .3 to 1 in size, standard deviations of .5 to 1, random correlations.
    root = 0.5 * rng.standard_normal((K, K))
    correlation = root @ root.T + np.eye(K)
    scale = 1 / np.sqrt(np.diag(correlation))
    correlation *= np.outer(scale, scale)
    deviations = rng.uniform(0.5, 1.0, K)
    mean = rng.choice([-1, 1], K) * rng.uniform(0.3, 1.0, K)
    factor = np.linalg.cholesky(correlation * np.outer(deviations, deviations))
    b = mean + rng.standard_normal((PERSONS, K)) @ factor.T
    # 2. Choices by a logit.
    x = rng.standard_normal((PERSONS, TASKS, ALTERNATIVES, K))
    choices = (np.einsum("ntjk,nk->ntj", x, b) + rng.gumbel(size=x.shape[:3])).argmax(2)
    return x, choices, {"mean": mean, "sd": deviations, "correlation": correlation, "b": b}


def differences(x: np.ndarray, choices: np.ndarray) -> np.ndarray:
    """Return attributes of the alternatives that were not chosen minus those of the chosen one (N, T, J - 1, K)."""
    J = x.shape[2]
    others = np.array([[j for j in range(J) if j != c] for c in range(J)])[choices]
    picked = np.take_along_axis(x, choices[..., None, None], 2)
    return np.take_along_axis(x, others[..., None], 2) - picked


def parameters(means: np.ndarray, covariances: np.ndarray) -> Arrays:
    """Return draws (C, R) of all means, standard deviations and correlations from draws (C, R, K), (C, R, K, K)."""
    K = means.shape[2]
    sd = np.sqrt(np.diagonal(covariances, axis1=2, axis2=3))
    draws = {f"mean {k}": means[..., k] for k in range(K)} | {f"sd {k}": sd[..., k] for k in range(K)}
    for i in range(K):
        for j in range(i):
            draws[f"corr {i} {j}"] = covariances[..., i, j] / (sd[..., i] * sd[..., j])
    return draws


# -- numpyro -----------------------------------------------------------------------------------------------------------


def compile_library() -> None:
    """Compile the library if it is missing."""
    folder = ROOT / "src" / "pcmcnet" / "models" / "logit"
    if not (folder / "libhierarchical.so").exists():
        flags = ["-O3", "-std=gnu11", "-fno-math-errno", "-Wno-psabi", "-shared", "-fPIC"]
        files = ["-o", str(folder / "libhierarchical.so"), str(folder / "hierarchical_steps.c"), "-lm"]
        try:
            subprocess.run([os.environ.get("CC", "cc"), *flags, *files], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"(without the compiled library, which is several times slower: {error})")


class Draws(NamedTuple):
    """Draws (C, R) of each parameter, with CPU and wall seconds."""

    draws: Arrays
    burn_in: np.ndarray  # (2,)
    sampling: np.ndarray  # (2,)


def seconds() -> np.ndarray:
    """Return CPU and wall time of this process."""
    return np.array([time.process_time(), time.perf_counter()])


def own_run(z: np.ndarray, seed: int, chains: int, burn_in: int, sweeps: int) -> Draws:
    """Sample with pcmcnet."""
    from pcmcnet.models.logit.hierarchical_sampler import (
        DrawStore,
        HierarchicalSampler,
        PopulationPrior,
        SamplerSettings,
    )
    from pcmcnet.models.logit.person_posterior import PersonChoices

    N, T, J, K = z.shape
    began = seconds()
    choices = PersonChoices.of(
        z.reshape(-1, K), np.arange(0, N * T * J + 1, J), np.repeat(np.arange(N), T), N, np.zeros(K, np.int64)
    )
    settings = SamplerSettings(chains=chains, burn_in=burn_in, kept=sweeps, thin=1, person_draws=100)
    sampler = HierarchicalSampler(choices, np.ones((N, 1)), np.ones(N), PopulationPrior("half-t", K), settings)
    rng = np.random.default_rng(seed)
    state = sampler.start(rng, np.zeros(K))
    sampler.burn_in(state, rng, lambda sweep: None)
    middle = seconds()
    draws = sampler.draw(state, rng, DrawStore.of(sampler), lambda sweep: None)
    ended = seconds()
    by_chain = draws.coefficients[..., 0].swapaxes(0, 1), draws.covariances.swapaxes(0, 1)
    return Draws(parameters(*by_chain), middle - began, ended - middle)


def numpyro_run(python: str, z: np.ndarray, options: dict[str, Any]) -> Draws:
    """Sample the same posterior with NUTS in a process of another interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        problem, out = Path(folder) / "problem.npz", Path(folder) / "draws.npz"
        np.savez(problem, z=z)
        command = [python, str(Path(__file__).with_name("hierarchical_numpyro.py")), str(problem), str(out)]
        done = subprocess.run([*command, json.dumps(options)], check=False, capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise RuntimeError(f"numpyro failed with {python}:\n{done.stderr}")
        with np.load(out) as result:
            compiled, warm, sampling = result["times"]
            steps, diverging = result["steps"]
            print(
                f"(numpyro {result['version']}, {'centred' if options['centred'] else 'non-centred'}: "
                f"{steps:.0f} gradients per draw, {diverging:.1%} divergent; compilation of {compiled[0]:.1f} CPU s is "
                f"not counted)",
                flush=True,
            )
            return Draws(parameters(result["means"], result["covariances"]), warm, sampling)


def against_numpyro(options: argparse.Namespace) -> None:
    """Print effective draws per CPU second of both, and how far their posterior means are apart."""
    os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core for all threads, also of the other process
    compile_library()
    from pcmcnet.models.logit.chain_diagnostics import bulk_effective_size, split_rhat

    # 1. Draws of both, one after the other.
    x, choices, _ = simulate(0)
    z = differences(x, choices)
    z = z / np.sqrt((z**2).mean((0, 1, 2)))  # units of pcmcnet
    numbers = {"chains": 4, "warmup": options.warmup, "samples": options.samples, "seed": 1}
    results: dict[str, Draws] = {}
    for way in options.ways:
        if way == "pcmcnet":
            results[way] = own_run(z, 1, chains=8, burn_in=300, sweeps=options.sweeps)
        else:
            centred = {"centred": way == "numpyro centred"}
            results[way] = numpyro_run(options.peer_python, z, numbers | centred)
    # 2. The smallest effective sample size of all parameters, per CPU second.
    print(
        f"{'':<18}{'burn-in: CPU':>13}{'wall':>7}{'sampling: CPU':>15}{'wall':>7}{'R-hat':>7}{'ESS':>8}{'median':>8}"
        f"{'per CPU s':>11}{'CPU s to 1,000':>16}"
    )
    rates: dict[str, tuple[float, float]] = {}
    sizes = {way: {name: bulk_effective_size(d) for name, d in r.draws.items()} for way, r in results.items()}
    for way, (draws, burn_in, sampling) in results.items():
        least, rhat = min(sizes[way].values()), max(map(split_rhat, draws.values()))
        rates[way] = least / sampling[0], burn_in[0] + EFFECTIVE_DRAWS * sampling[0] / least
        print(
            f"{way:<18}{burn_in[0]:>13.1f}{burn_in[1]:>7.1f}{sampling[0]:>15.1f}{sampling[1]:>7.1f}{rhat:>7.3f}"
            f"{least:>8.0f}{np.median(list(sizes[way].values())):>8.0f}{rates[way][0]:>11.1f}{rates[way][1]:>16.1f}"
        )
    # 3. Ratios, and differences of posterior means in posterior deviations and in Monte Carlo errors.
    for way in [way for way in rates if way != "pcmcnet" and "pcmcnet" in rates]:
        ratios = rates["pcmcnet"][0] / rates[way][0], rates[way][1] / rates["pcmcnet"][1]
        apart, errors = 0.0, 0.0
        for name, draws in results["pcmcnet"].draws.items():
            distance = abs(draws.mean() - results[way].draws[name].mean()) / draws.std()
            apart = max(apart, distance)
            errors = max(errors, distance / np.sqrt(1 / sizes["pcmcnet"][name] + 1 / sizes[way][name]))
        print(
            f"pcmcnet / {way}: {ratios[0]:.1f} times the effective draws per CPU second; {ratios[1]:.1f} times as fast "
            f"to {EFFECTIVE_DRAWS:,} effective draws, with burn-in; posterior means at most {apart:.2f} sd apart "
            f"({errors:.1f} Monte Carlo errors)"
        )
    print(
        "(ESS: smallest bulk effective sample size of the 44 parameters of the population; CPU s to 1,000: burn-in and "
        "sampling until this size is 1,000)"
    )


# -- coverage ----------------------------------------------------------------------------------------------------------


def as_table(x: np.ndarray, choices: np.ndarray) -> Any:
    """Return a panel as choice data."""
    import pyarrow as pa

    from pcmcnet.data import ChoiceData

    N, T, J, K = x.shape
    task = np.arange(N * T).repeat(J)
    columns = {"person": np.arange(N).repeat(T * J), "task": task}
    columns["choice"] = (np.tile(np.arange(J), N * T) == choices.ravel().repeat(J)).astype(int)
    columns |= {f"x{k}": x[..., k].ravel() for k in range(K)}
    roles: Any = {"choice_set": "task", "chosen": "choice", "person": "person"}
    return ChoiceData.from_long(pa.table(columns), features=[f"x{k}" for k in range(K)], **roles)


def coverage(options: argparse.Namespace) -> None:
    """Print how often intervals of simulated panels contain the true values."""
    from pcmcnet.models import HierarchicalMNL

    inside: dict[str, list[bool]] = {"means": [], "standard deviations": [], "correlations": [], "part-worths": []}
    worst, seconds = 0.0, []
    tail = (1 - LEVEL) / 2
    for seed in range(options.tables):
        x, choices, truth = simulate(seed)
        model = HierarchicalMNL().fit(as_table(x, choices), seed=seed, progress=False)
        traces, K = model.traces(), ATTRIBUTES
        worst = max(worst, model.record_.largest_rhat)
        seconds.append(model._state.seconds)

        def note(kind: str, draws: np.ndarray, value: float) -> None:
            low, high = np.quantile(draws, [tail, 1 - tail])
            inside[kind].append(bool(low <= value <= high))

        for k in range(K):
            note("means", traces[f"x{k}"], truth["mean"][k])
            note("standard deviations", traces[f"sd[x{k}]"], truth["sd"][k])
            for j in range(k):
                note("correlations", traces[f"corr[x{j}, x{k}]"], truth["correlation"][j, k])
        low, high = model.part_worths(LEVEL).intervals()
        inside["part-worths"] += ((low <= truth["b"]) & (truth["b"] <= high)).ravel().tolist()
        print(f"table {seed}: R-hat {model.record_.largest_rhat:.3f}, {seconds[-1]:.1f} s", flush=True)
    print(f"{'':<22}{'intervals':>10}{'coverage':>10}")
    for kind, found in inside.items():
        print(f"{kind:<22}{len(found):>10,}{np.mean(found):>10.1%}")
    print(f"largest R-hat {worst:.3f}; median {np.median(seconds):.1f} s for {HierarchicalMNL().config.draws:,} draws")


# -- electricity -------------------------------------------------------------------------------------------------------


def electricity(options: argparse.Namespace) -> None:
    """Print the time of a fit to the electricity panel, and its agreement with the mixed logit."""
    from pcmcnet.data import ChoiceData
    from pcmcnet.datasets import packaged
    from pcmcnet.models import HierarchicalMNL, MixedMNL

    data = ChoiceData.from_schema(*packaged.long_form("electricity"))
    began, cpu = time.perf_counter(), time.process_time()
    model = HierarchicalMNL().fit(data, progress=False)
    taken = time.perf_counter() - began, time.process_time() - cpu
    record = model.record_
    print(f"{model.config.draws:,} draws kept: {taken[0]:.1f} s, {taken[1]:.1f} CPU s; ", end="")
    print(f"R-hat {record.largest_rhat:.3f}, smallest effective size {record.smallest_size:.0f}")
    mixed = MixedMNL(correlated=True).fit(data, progress=False)
    chains, tastes = model.chains(), mixed.tastes()
    errors = mixed.standard_errors()
    print(
        f"{'':<6}{'mean: HB':>10}{'sd':>7}{'mixed':>9}{'error':>7}{'apart':>7}"
        f"{'sd: HB':>10}{'sd':>7}{'mixed':>9}{'apart':>7}"
    )
    for name in model.part_worth_names_:
        row, spread = chains[name], chains[f"sd[{name}]"]
        value, error = mixed.coefficients[name], errors[name]
        print(f"{name:<6}{row.mean:>10.3f}{row.deviation:>7.3f}{value:>9.3f}{error:>7.3f}", end="")
        print(f"{(row.mean - value) / np.hypot(row.deviation, error):>7.2f}", end="")
        print(f"{spread.mean:>10.3f}{spread.deviation:>7.3f}{tastes[name].deviation:>9.3f}", end="")
        print(f"{(spread.mean - tastes[name].deviation) / spread.deviation:>7.2f}")
    print(
        "(apart: difference in standard deviations of the difference, without the simulation error of the mixed logit)"
    )


# -- known people ------------------------------------------------------------------------------------------------------


def last_choices(data: Any) -> tuple[Any, Any]:
    """Return the choice sets of every person but the last, and the last."""
    person = data.groups()
    is_last = np.append(person[1:] != person[:-1], True)
    return data.subset(~is_last), data.subset(is_last)


def known_people(options: argparse.Namespace) -> None:
    """Print the held-out log-likelihood of the last choice of every person, given the others or not."""
    from pcmcnet.data import ChoiceData
    from pcmcnet.datasets import packaged
    from pcmcnet.models import MNL, Boosted, HierarchicalMNL, LatentClassMNL, MixedMNL, PCMCNet

    data = ChoiceData.from_schema(*packaged.long_form("electricity"))
    history, later = last_choices(data)
    picked = later.offsets[:-1] + later.chosen
    models: dict[str, Any] = {
        "hb-mnl": HierarchicalMNL(),
        "mixed-mnl, correlated": MixedMNL(correlated=True),
        "lc-mnl, 4 classes": LatentClassMNL(classes=4),
        "pcmcnet, 4 classes": PCMCNet(classes=4, members=1),
        "pcmcnet": PCMCNet(members=1),
        "boosted": Boosted(),
        "mnl": MNL(),
    }
    if options.models:
        models = {name: model for name, model in models.items() if name in options.models}
    losses: dict[str, np.ndarray] = {}
    for name, model in models.items():
        began = time.perf_counter()
        model.fit(history, progress=False)
        losses[f"{name} | new"] = -np.log(model.chosen_probabilities(later))
        if hasattr(model, "predict_proba_given"):
            p = later.from_rows(model.predict_proba_given(later, history))[picked]
            losses[f"{name} | known"] = -np.log(p)
        print(f"({name}: {time.perf_counter() - began:.0f} s)", flush=True)
    best_new = min((k for k in losses if k.endswith("new")), key=lambda k: losses[k].mean())
    rng = np.random.default_rng(0)
    draws = rng.integers(len(later), size=(4000, len(later)))
    print(
        f"{len(later)} customers, one choice each; nats per choice, and 95% interval of the difference from {best_new}"
    )
    for name, loss in sorted(losses.items(), key=lambda pair: pair[1].mean()):
        difference = loss - losses[best_new]
        low, high = np.quantile(difference[draws].mean(1), [0.025, 0.975])
        print(f"{name:<32}{loss.mean():>8.4f}   {difference.mean():>+8.4f} [{low:+.4f}, {high:+.4f}]")


def main() -> None:
    """Run the benchmark selected on the command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = ["pcmcnet", "numpyro", "numpyro centred"]
    run = {"numpyro": against_numpyro, "coverage": coverage, "electricity": electricity, "known": known_people}
    options.add_argument("benchmark", choices=run)
    options.add_argument("--ways", nargs="+", choices=ways, default=ways)
    options.add_argument("--sweeps", type=int, default=1000, help="of pcmcnet, after the burn-in")
    options.add_argument("--peer-python", default=sys.executable, help="interpreter of an environment with numpyro")
    options.add_argument("--warmup", type=int, default=500, help="steps of each of 4 chains of NUTS")
    options.add_argument("--samples", type=int, default=1000, help="draws of each chain of NUTS after the warm-up")
    options.add_argument("--tables", type=int, default=20)
    options.add_argument("--models", nargs="+")
    arguments = options.parse_args()
    run[arguments.benchmark](arguments)


if __name__ == "__main__":
    main()
