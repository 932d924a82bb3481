"""Fit one logit with pcmcnet, statsmodels, xlogit or Biogeme: ``python -m benchmarks.peers_ways WAY TASK``.

Run it with the interpreter of an environment that has the package; it imports only that package and pandas. TASK is
JSON: a CSV file, the features and the nests of the alternatives, or null. The CSV has the columns ``set``,
``alternative`` (1, 2, ...), ``chosen`` and the features; each feature has one coefficient. The output is JSON: the
log-likelihood, the estimates in the order of the features (then the log-sum), and standard errors by kind. It is empty
if the package has no nests.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import chdir
from importlib import import_module
from importlib.metadata import version
from typing import Any

Found = dict[str, Any]


def pcmcnet(task: dict[str, Any]) -> Found:
    """Fit with pcmcnet; constants are columns of the table."""
    import pcmcnet as pn

    roles: dict[str, Any] = {"choice_set": "set", "chosen": "chosen", "alternative": "alternative"}
    data = pn.ChoiceData.from_long(task["file"], features=task["features"], **roles)
    formula = " + ".join(task["features"]) + " | 0"
    model = pn.NestedMNL(formula=formula, nests=task["nests"]) if task["nests"] else pn.MNL(formula=formula)
    model.fit(data)
    errors = {kind: list(model.standard_errors(kind).values()) for kind in ("classical", "robust")}
    return {"log_likelihood": model.estimates_.log_likelihood, "values": list(model.coefficients.values()), **errors}


def statsmodels(task: dict[str, Any]) -> Found | None:
    """Fit with statsmodels, conditional on one choice per set."""
    from statsmodels.discrete.conditional_models import ConditionalLogit

    if task["nests"]:
        return None
    frame = _frame(task)
    fitted = ConditionalLogit(frame["chosen"], frame[task["features"]], groups=frame["set"]).fit(
        method="newton", disp=0, tol=1e-12
    )
    return {
        "log_likelihood": float(fitted.llf),
        "values": fitted.params.tolist(),
        "classical": fitted.bse.tolist(),
    }


def xlogit(task: dict[str, Any]) -> Found | None:
    """Fit with xlogit; sets are padded to all alternatives, with a mask of the real rows."""
    import numpy as np
    from xlogit import MultinomialLogit

    if task["nests"]:
        return None
    frame = _frame(task)
    sets, J = frame["set"].factorize()[0], int(frame["alternative"].max())
    rows, n = sets * J + frame["alternative"].to_numpy() - 1, sets.max() + 1
    x, chosen, available = np.zeros((n * J, len(task["features"]))), np.zeros(n * J), np.zeros(n * J)
    x[rows], chosen[rows], available[rows] = frame[task["features"]], frame["chosen"], 1
    ids, alternatives = np.repeat(np.arange(n), J), np.tile(np.arange(J), n)
    errors: Found = {}
    for kind in ("classical", "robust"):
        model = MultinomialLogit()
        options = {"avail": available, "verbose": 0, "robust": kind == "robust"}
        model.fit(x, chosen, task["features"], alternatives, ids, **options)
        errors[kind] = model.stderr.tolist()
    return {"log_likelihood": float(model.loglikelihood), "values": model.coeff_.tolist(), **errors}


def biogeme(task: dict[str, Any]) -> Found:
    """Fit with Biogeme from one row per set; it writes files to the working folder."""
    import biogeme.biogeme as bio
    import biogeme.database as db
    import numpy as np
    from biogeme import models
    from biogeme.expressions import Beta, Variable
    from biogeme.nests import NestsForNestedLogit, OneNestForNestedLogit

    frame = _frame(task)
    wide = frame.pivot(index="set", columns="alternative", values=task["features"]).fillna(0.0)
    wide.columns = [f"{name}_{alternative}" for name, alternative in wide.columns]
    offered = frame.assign(one=1).pivot(index="set", columns="alternative", values="one").fillna(0)
    labels = [int(label) for label in offered.columns]
    for label in labels:
        wide[f"av_{label}"] = offered[label].to_numpy()
    wide["choice"] = frame[frame["chosen"] == 1].set_index("set")["alternative"].loc[wide.index].to_numpy()
    betas = {name: Beta(f"b{k:02d}_{name}", 0, None, None, 0) for k, name in enumerate(task["features"])}
    v = {a: sum(beta * Variable(f"{name}_{a}") for name, beta in betas.items()) for a in labels}
    av = {a: Variable(f"av_{a}") for a in labels}
    if task["nests"]:
        mu = Beta("mu", 1.0, 1.0, 10.0, 0)
        inside = [int(a) for a, nest in task["nests"].items() if nest == "existing"]
        nests = NestsForNestedLogit(choice_set=labels, tuple_of_nests=(OneNestForNestedLogit(mu, inside),))
        likelihood = models.lognested(v, av, nests, Variable("choice"))
    else:
        likelihood = models.loglogit(v, av, Variable("choice"))
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        estimator = bio.BIOGEME(db.Database("choices", wide.reset_index(drop=True)), likelihood)
        estimator.modelName = "choices"
        estimator.generate_html = estimator.generate_pickle = estimator.save_iterations = False
        results = estimator.estimate()
    table = results.get_estimated_parameters(only_robust=False).sort_index()
    values, errors = table["Value"].to_numpy(), {"classical": table["Std err"], "robust": table["Rob. Std err"]}
    scale = np.ones(len(values))
    if task["nests"]:  # the log-sum is 1 / mu; its standard error is that of mu divided by mu^2
        scale[-1] = 1 / values[-1] ** 2
        values = np.append(values[:-1], 1 / values[-1])
    by_kind = {kind: (column.to_numpy() * scale).tolist() for kind, column in errors.items()}
    return {"log_likelihood": float(results.data.logLike), "values": values.tolist(), **by_kind}


WAYS: dict[str, Callable[[dict[str, Any]], Found | None]] = {
    "pcmcnet": pcmcnet,
    "statsmodels": statsmodels,
    "xlogit": xlogit,
    "biogeme": biogeme,
}


def _frame(task: dict[str, Any]) -> Any:
    import pandas as pd

    return pd.read_csv(task["file"])


def main(way: str, task: dict[str, Any]) -> None:
    """Import the package, fit and print the results; or print the missing package."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    try:
        for name in (way,) if way == "pcmcnet" else (way, "pandas"):
            import_module(name)
        result = WAYS[way](task)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        return
    print(json.dumps({"version": version(way), **(result or {})}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
