"""Ways to fit the mixed logit of ``benchmarks/mixed_logit.py``, one per package; each runs in a separate process.

A way takes a task: the ``file``, the numbers of ``draws`` and ``threads``, and the file ``keep`` for its draws. It
returns the ``seconds`` to estimates with standard errors, the ``cpu`` seconds of the process in that time, and the
log-likelihood. If its draws are available, it also returns the estimates: means, then spreads. Reading the table and
imports do not count. All spreads start at 0.1. Means start at the multinomial logit, whose fit counts; with Biogeme
they start at 0, because its multinomial logit would take half a minute more to compile.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import time
from typing import Any

NAMES = ["pf", "cl", "loc", "wk", "tod", "seas"]
SPREAD = 0.1


class Clock:
    """Measures seconds and CPU seconds of this process since its creation."""

    def __init__(self) -> None:
        self.began, self.cpu = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Return seconds and CPU seconds."""
        return {"seconds": time.perf_counter() - self.began, "cpu": time.process_time() - self.cpu}


def xlogit(task: dict[str, Any]) -> dict[str, Any]:
    """Fit with xlogit, which starts at its multinomial logit by default; save its draws."""
    import numpy as np
    import pandas as pd
    from xlogit import MixedLogit

    frame, model = pd.read_csv(task["file"]), MixedLogit()
    generate = model._generate_draws

    def keep(*values: Any, **options: Any) -> Any:
        draws = generate(*values, **options)
        np.save(task["keep"], draws)
        return draws

    model._generate_draws = keep
    clock = Clock()
    model.fit(
        X=frame[NAMES], y=frame["choice"], varnames=NAMES, ids=frame["chid"], panels=frame["id"], alts=frame["alt"],
        n_draws=task["draws"], randvars=dict.fromkeys(NAMES, "n"), verbose=0,
    )  # fmt: skip
    estimates = [float(value) for value in model.coeff_]
    return {**clock.read(), "log_likelihood": float(model.loglikelihood), "estimates": estimates}


def torchdcm(task: dict[str, Any]) -> dict[str, Any]:
    """Fit with TorchDCM, which uses the same draws for all persons; save them."""
    import numpy as np
    import pandas as pd
    import torch
    from torchdcm import Beta, ChoiceDataset, MixedLogit, MultinomialLogit, UtilitySpec

    torch.set_num_threads(task["threads"])
    data = ChoiceDataset.from_long(
        pd.read_csv(task["file"]), obs_id="chid", alt_id="alt", choice="choice", variables=NAMES, individual_id="id"
    )

    def utilities(start: dict[str, float]) -> Any:
        spec = UtilitySpec()
        for alternative in data.alt_names:
            spec.utility(alternative, sum(Beta(name, init=start[name]) * name for name in NAMES))
        return spec

    clock = Clock()
    plain = MultinomialLogit(utilities(dict.fromkeys(NAMES, 0.0))).fit(data)
    start = dict(zip(plain.param_names, plain.params.tolist(), strict=True))
    model = MixedLogit(utilities(start), dict.fromkeys(NAMES, SPREAD), n_draws=task["draws"])
    fitted = model.fit(data)
    taken, draws = clock.read(), model.compile(data).draws.numpy().T
    np.save(task["keep"], np.broadcast_to(draws, (data.n_individuals, *draws.shape)))
    return {**taken, "log_likelihood": fitted.loglike, "estimates": fitted.params.tolist()}


def biogeme(task: dict[str, Any]) -> dict[str, Any]:
    """Fit with Biogeme from a wide table, with its modified Latin hypercube draws."""
    import pandas as pd
    from biogeme.biogeme import BIOGEME
    from biogeme.database import Database
    from biogeme.expressions import Beta, MonteCarlo, PanelLikelihoodTrajectory, PersonDraws, Variable, log
    from biogeme.models import logit

    frame = pd.read_csv(task["file"])
    wide = frame.pivot(index="chid", columns="alt", values=NAMES)
    wide.columns = [f"{name}_{alternative}" for name, alternative in wide.columns]
    wide["choice"] = frame[frame["choice"] == 1].set_index("chid")["alt"]
    wide["person"] = frame.groupby("chid")["id"].first()
    data = Database("electricity", wide.reset_index(drop=True))
    data.panel("person")
    taste = {
        name: Beta(name, 0, None, None, 0)
        + Beta(f"sd_{name}", SPREAD, None, None, 0) * PersonDraws(name + "_", "NORMAL_MLHS")
        for name in NAMES
    }
    alternatives = [int(alternative) for alternative in frame["alt"].unique()]
    utilities = {i: sum(taste[name] * Variable(f"{name}_{i}") for name in NAMES) for i in alternatives}
    simulated = log(MonteCarlo(PanelLikelihoodTrajectory(logit(utilities, None, Variable("choice")))))
    os.chdir(tempfile.gettempdir())  # it writes a file of parameters to the working folder
    silent = {"generate_html": False, "generate_yaml": False, "save_iterations": False}
    clock = Clock()
    model = BIOGEME(data, simulated, number_of_draws=task["draws"], seed=1, **silent)
    model.model_name = "electricity"
    reached = model.estimate().final_log_likelihood
    return {**clock.read(), "log_likelihood": float(reached)}


def pcmcnet(task: dict[str, Any]) -> dict[str, Any]:
    """Fit with pcmcnet; then compute log-likelihoods at the estimates of peers with their draws."""
    import torch

    torch.set_num_threads(task["threads"])
    data = electricity(task["file"])
    clock = Clock()
    model = fitted(data, task["draws"], "cpu")
    taken, reached = clock.read(), model.estimates_.log_likelihood
    at_theirs = {way: with_draws_of(model, data, theirs) for way, theirs in task["peers"].items()}
    return {**taken, "log_likelihood": reached, "at_theirs": at_theirs}


def electricity(file: str) -> Any:
    """Read the table."""
    import pcmcnet as pn

    return pn.ChoiceData.from_long(file, choice_set="chid", chosen="choice", features=NAMES, person="id")


def fitted(data: Any, draws: int, device: str) -> Any:
    """Fit the mixed logit."""
    import pcmcnet as pn

    model = pn.MixedMNL(draws=draws, starts=1, start={f"sd[{name}]": SPREAD for name in NAMES})
    return model.fit(data, progress=False, device=device)


def with_draws_of(model: Any, data: Any, theirs: dict[str, Any]) -> float:
    """Return the log-likelihood at the estimates of a peer, with its draws (persons, coefficients, draws)."""
    import numpy as np
    import torch

    from pcmcnet.models.logit.draws import PersonDraws
    from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
    from pcmcnet.models.logit.mixed_likelihood import SimulatedLikelihood

    normal = np.load(theirs["keep"])

    class FileDraws(PersonDraws):
        """Draws from a file; the key is the position of the person in the file."""

        def of(self, keys: Any) -> Any:
            return (torch.from_numpy(normal[keys]) / 2**0.5).erf()

    ids, first, person = np.unique(data.keep["id"].plain(), return_index=True, return_inverse=True)
    keys = np.argsort(np.argsort(ids.astype(np.int64)))  # peers order persons by id
    sets = LogitLikelihood.from_matrix(model.design_.matrix(data), data.offsets, data.chosen)
    draws = FileDraws("sobol", len(NAMES), normal.shape[-1], 0)
    mixing = dataclasses.replace(model.mixing_, mirror=())
    likelihood = SimulatedLikelihood.of(sets, person, keys, np.zeros((len(first), 0)), mixing, draws, 2.0**30)
    return float(likelihood.evaluate(np.array(theirs["estimates"]), "float64", scores=False)[0].sum())


WAYS = {"xlogit": xlogit, "biogeme": biogeme, "torchdcm": torchdcm, "pcmcnet": pcmcnet}

if __name__ == "__main__":
    task = json.loads(sys.argv[2])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-task["threads"] :])  # some packages ignore OMP_NUM_THREADS
    sys.path.pop(0)  # modules of this folder must not hide packages
    print(json.dumps(WAYS[sys.argv[1]](task)))
