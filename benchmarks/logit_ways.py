"""Fit one conditional logit, from a file to estimates with standard errors, with pcmcnet, larch or xlogit.

Run as ``python -m benchmarks.logit_ways WAY TASK``, with the interpreter of an environment that has the package. It
imports only that package and its data frames. So larch and xlogit, which need other versions of scipy, can be in a
separate environment. TASK is JSON: the file, its columns, and the numeric columns to standardise over all rows. The
fit is repeated, because the first may compile. The output is JSON with one dictionary per fit.

Each way is the fastest documented one of the package, in float64. pandas reads only the columns in use. larch uses the
sparse form of its data (idce) and its default method (BHHH). xlogit uses a balanced panel, padded here with numpy, and
its default method (BFGS). Standard errors are the classical ones. larch and xlogit compute the Hessian from differences
of gradients; pcmcnet uses the formula, and also computes robust standard errors.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from typing import Any

FITS = 3

Estimates = tuple[float, list[float], list[float]]  # log-likelihood, coefficients, standard errors
Steps = Iterator[Estimates | None]  # yields None when the data are prepared, then the estimates


def pcmcnet(task: dict[str, Any]) -> Steps:
    """Fit with pcmcnet; the formula standardises."""
    import pcmcnet as pn

    roles = {"choice_set": task["choice_set"], "chosen": task["chosen"]}
    data = pn.ChoiceData.from_long(task["file"], features=task["features"], **roles)
    yield None
    terms = [f"standardise({name})" if name in task["standardised"] else name for name in task["features"]]
    model = pn.MNL(formula=" + ".join(terms)).fit(data)
    fitted = model.estimates_.log_likelihood, model.coefficients, model.standard_errors()
    yield fitted[0], list(fitted[1].values()), list(fitted[2].values())


def larch(task: dict[str, Any]) -> Steps:
    """Fit with larch from a sorted frame, because the rows of a set must be adjacent."""
    import larch as lx

    index = [task["choice_set"], task["alternative"]]
    frame = _frame(task).set_index(index)
    frame = frame if frame.index.is_monotonic_increasing else frame.sort_index()
    model = lx.Model(lx.Dataset.construct.from_idce(frame, crack=False))
    model.utility_ca = sum(lx.P(name) * lx.X(name) for name in task["features"])
    model.choice_ca_var, model.availability_ca_var = task["chosen"], "1"
    model.unmangle(force=True)  # otherwise the fit would prepare the arrays
    yield None
    result = model.maximize_loglike(stderr=True, quiet=True)
    estimates = model.parameters.sel(param_name=task["features"])
    yield float(result.loglike), estimates["value"].values.tolist(), estimates["std_err"].values.tolist()


def xlogit(task: dict[str, Any]) -> Steps:
    """Fit with xlogit; sets are padded to the largest, with a mask of the real rows."""
    import numpy as np
    from xlogit import MultinomialLogit

    frame = _frame(task)
    sets = frame[task["choice_set"]].factorize()[0]
    place = frame.groupby(task["choice_set"], sort=False).cumcount().to_numpy()
    N, J = sets.max() + 1, place.max() + 1
    rows = sets * J + place
    x, chosen, available = np.zeros((N * J, len(task["features"]))), np.zeros(N * J), np.zeros(N * J)
    x[rows], chosen[rows], available[rows] = frame[task["features"]], frame[task["chosen"]], 1
    ids, alternatives = np.repeat(np.arange(N), J), np.tile(np.arange(J), N)
    yield None
    model = MultinomialLogit()
    model.fit(x, chosen, task["features"], alternatives, ids, avail=available, verbose=0)
    yield float(model.loglikelihood), model.coeff_.tolist(), model.stderr.tolist()


WAYS: dict[str, Callable[[dict[str, Any]], Steps]] = {"pcmcnet": pcmcnet, "larch": larch, "xlogit": xlogit}


def _frame(task: dict[str, Any]) -> Any:
    """Read the columns in use with pandas and standardise."""
    import pandas as pd

    columns = [task["choice_set"], task["alternative"], task["chosen"], *task["features"]]
    if task["file"].endswith(".parquet"):
        frame = pd.read_parquet(task["file"], columns=columns)
    else:
        frame = pd.read_csv(task["file"], usecols=columns)
    for name in task["standardised"]:
        frame[name] = (frame[name] - frame[name].mean()) / frame[name].std(ddof=0)
    return frame


def timed(way: str, task: dict[str, Any]) -> dict[str, Any]:
    """Run one fit; return its estimates and the seconds of its two steps."""
    begin = time.perf_counter()
    steps = WAYS[way](task)
    next(steps)
    prepared = time.perf_counter()
    fitted = next(steps)
    end = time.perf_counter()
    assert fitted is not None
    log_likelihood, coefficients, errors = fitted
    seconds = {"prepare": prepared - begin, "fit": end - prepared, "total": end - begin}
    return {**seconds, "log_likelihood": log_likelihood, "coefficients": coefficients, "errors": errors}


def main(way: str, task: dict[str, Any]) -> None:
    """Import the package, fit and print the results; or print the missing package."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    begin = time.perf_counter()
    try:
        for name in (way,) if way == "pcmcnet" else (way, "pandas"):
            import_module(name)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        return
    imported = time.perf_counter() - begin
    print(json.dumps({"version": version(way), "import": imported, "fits": [timed(way, task) for _ in range(FITS)]}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
