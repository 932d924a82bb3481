"""Recovery of coefficients from simulated best-worst questions.

    python -m benchmarks.best_worst [--json FILE] [recovery]

20 tables of 150 persons with 4 questions each: every question shows five profiles, and the person names the best and
the worst of them. The best follows a logit, and the worst of the other four a logit with negated utilities. For each
coefficient, the benchmark counts the tables in which the estimate is within two standard errors of the truth, for the
best choices alone and for best and worst.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pcmcnet as pn
from benchmarks.harness import RUNS, Row, Section, Table, run

TABLES, PERSONS, QUESTIONS, PROFILES = 20, 150, 4, 5
TRUTH = {"price": -1.0, "quality": 0.7, "green": 0.5}


def best_worst_table(seed: int, truth: dict[str, float] = TRUTH) -> dict[str, Any]:
    """Simulate a long table of best-worst questions."""
    rng = np.random.default_rng(seed)
    questions = PERSONS * QUESTIONS
    x = rng.normal(size=(questions, PROFILES, len(truth)))
    v = x @ np.array(list(truth.values()))
    best = (v + rng.gumbel(size=v.shape)).argmax(axis=1)
    is_best = best[:, None] == np.arange(PROFILES)
    worst = np.where(is_best, -np.inf, -v + rng.gumbel(size=v.shape)).argmax(axis=1)
    is_worst = worst[:, None] == np.arange(PROFILES)
    return {
        "question": np.repeat(np.arange(questions), PROFILES),
        "person": np.repeat(np.arange(questions) // QUESTIONS, PROFILES),
        "answer": (is_best.astype(int) - is_worst).ravel(),
        **{name: x[..., k].ravel() for k, name in enumerate(truth)},
    }


def recovery() -> list[Row]:
    """Count the tables in which estimates are within two standard errors of the truth."""
    columns = {"coefficient": "", "answers": "", "truth": ".2f", "mean": ".3f", "sd": ".3f", "mean error": ".3f"}
    table = Table("20 simulated tables of best-worst questions", {**columns, "within 2": ",", "tables": ","})
    roles: dict[str, Any] = {"choice_set": "question", "rank": "answer", "person": "person", "features": list(TRUTH)}
    results: dict[str, list[Any]] = {"best": [], "best and worst": []}
    for seed in range(TABLES):
        rows = best_worst_table(seed)
        best = np.where(rows["answer"] == 1, 1.0, np.nan)
        for answers, column in (("best", best), ("best and worst", rows["answer"])):
            data = pn.ChoiceData.from_long({**rows, "answer": column}, **roles)
            model = pn.MNL().fit(data, progress=False)
            results[answers].append([(model.coefficients[k], model.standard_errors()[k]) for k in TRUTH])
    for answers, pairs in results.items():
        for k, (name, truth) in enumerate(TRUTH.items()):
            b, s = np.array(pairs)[:, k].T
            row: Row = {"coefficient": name, "answers": answers, "truth": truth, "mean": b.mean(), "sd": b.std(ddof=1)}
            table.add(
                {**row, "mean error": s.mean(), "within 2": int((abs(b - truth) <= 2 * s).sum()), "tables": len(b)}
            )
    return table.rows


SECTIONS: dict[str, Section] = {"recovery": recovery}

if __name__ == "__main__":
    run("benchmarks.best_worst", SECTIONS, description=__doc__ or "", json_file=RUNS / "best-worst.json", device="cpu")
