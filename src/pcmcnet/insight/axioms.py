"""An audit of any fitted model: which axioms of choice it obeys on sets drawn from a table, and where it does not.

A violation is no fault. A logit obeys nearly all axioms, because it cannot do otherwise; people do not, and a model
that has learnt context effects from them is found to violate independence and regularity. The audit gives their size,
and cases to look at. See ``axiom_checks`` for the axioms and what a size is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcmcnet.arrays import Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.evaluation.predictions import Predictor, gives_of, require_data
from pcmcnet.insight.availability import extrapolation
from pcmcnet.insight.axiom_checks import Finding, copies, expansion, independence, regularity, transitivity
from pcmcnet.insight.questions import require_sampling, some_sets
from pcmcnet.insight.removals import SMALLEST, ask_removals, sample_removals
from pcmcnet.reports.notebook import PartOfReport
from pcmcnet.reports.tables import Cells, escaped, markdown_table, text_table

__all__ = ["Audit", "Finding", "audit"]

# Networks compute in float32, where log p of equal alternatives come out up to 1e-5 apart, and a change of a log-ratio
# has four of them. A difference that matters to anybody is larger.
TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Audit(PartOfReport):
    """What was found of each axiom. Prints as a table.

    Parameters
    ----------
    model
        Name of the model's class.
    findings
        One for each axiom.
    sets, questions, seed, tolerance
        Sets drawn, sets that the model was asked about, and how.
    notes
        What to know about the model before reading the figures.
    """

    model: str
    findings: tuple[Finding, ...]
    sets: int
    questions: int
    seed: int
    tolerance: float
    notes: tuple[str, ...] = ()

    def _short(self) -> str:
        return f"{self.model}: {len(self.obeyed)} of {len(self.findings)} axioms obeyed"

    def __getitem__(self, axiom: str) -> Finding:
        """Return the finding on an axiom, by its name or the first word of it."""
        names = {finding.axiom: finding for finding in self.findings}
        names |= {finding.axiom.split()[0]: finding for finding in self.findings}
        if axiom not in names:
            raise InputError(f"no axiom {axiom!r}." + did_you_mean(axiom, names))
        return names[axiom]

    @property
    def obeyed(self) -> tuple[str, ...]:
        """Names of the axioms that hold in all cases."""
        return tuple(finding.axiom for finding in self.findings if finding.verdict == "holds")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        names = ("model", "sets", "questions", "seed", "tolerance")
        facts = {name: getattr(self, name) for name in names}
        return {**facts, "notes": list(self.notes), "findings": [finding.to_dict() for finding in self.findings]}

    def to_markdown(self) -> str:
        """Return one page: the verdicts, the worst case of each violated axiom, and what to know."""
        worst = [
            f"- **{f.axiom}**: choice set {escaped(str(f.choice_set))}: {escaped(f.example)}."
            for f in self.findings
            if f.example is not None
        ]
        parts = [f"# Axioms of choice: {self.model}", markdown_table(self._cells()), self._facts()]
        parts += ["## Worst cases", "\n".join(worst)] if worst else []
        parts += ["## Notes", "\n".join(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n\n".join(parts) + "\n"

    def __str__(self) -> str:
        worst = [f"{f.axiom}: choice set {f.choice_set}: {f.example}" for f in self.findings if f.example is not None]
        parts = [f"Axioms of choice: {self.model}", text_table(self._cells()), self._facts()]
        return "\n\n".join([*parts, *(["\n".join(worst)] if worst else []), *self.notes])

    def _cells(self) -> Cells:
        heads = ["axiom", "verdict", "cases", "violated", "mean", "largest", "in"]
        rows = [
            [f.axiom, f.verdict, f"{f.cases:,}", f"{f.share:.1%}", f"{f.mean:.2g}", f"{f.largest:.2g}", f.unit]
            for f in self.findings
        ]
        return [heads, *rows]

    def _facts(self) -> str:
        relative = round(self["copies"].more["of_a_logit"], 2) + 0.0  # never -0
        return (
            f"{self.sets:,} choice sets drawn, {self.questions:,} asked about, seed {self.seed}; up to "
            f"{self.tolerance:g} is rounding. A second copy of an alternative costs the others {relative:.2f} of what "
            f"it costs them in a logit."
        )


def audit(
    model: Predictor,
    data: Any,
    sets: int = 100,
    seed: int = 0,
    *,
    limit: int = 5000,
    triples: int = 1000,
    expand: int = 2,
    tolerance: float = TOLERANCE,
) -> Audit:
    """Check the axioms of choice on sets drawn from a table.

    Parameters
    ----------
    model
        Any fitted model; also an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that the model's schema reads; choices are not needed.
    sets
        Choice sets to draw, at most.
    seed
        Where all draws come from.
    limit
        Choice sets to ask about, at most, for independence and regularity: every alternative of a set is removed.
    triples
        Triples of alternatives to ask about as pairs, at most, for transitivity.
    expand
        Copies of every alternative, for uniform expansion.
    tolerance
        Size up to which a violation is taken for rounding.

    Returns
    -------
    Audit

    Raises
    ------
    InputError
        When no set with a weight has two alternatives, or the model gives something else than probabilities.
    ConfigError
        When a number is out of its range.

    Examples
    --------
    >>> from pcmcnet.models import Uniform
    >>> table = {"trip": [1, 1, 1], "took": [0, 1, 0], "price": [3.0, 4.0, 9.0]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"])
    >>> found = audit(Uniform().fit(data), data)
    >>> found["independence"].verdict, found["copies"].verdict, round(found["copies"].more["of_a_logit"], 3)
    ('holds', 'violated', 1.0)
    """
    require_sampling(sets=sets, seed=seed, limit=limit, triples=triples)
    require_number("expand", expand, whole=True, low=2)
    require_number("tolerance", tolerance, low=0)
    data = require_data(model, data)
    rng = np.random.default_rng(seed)
    drawn = some_sets(data, least=2, most=sets, rng=rng)
    if not drawn.size:
        raise InputError(f"expected a choice set of two alternatives and a weight above 0, got none in {len(data)}.")
    removals = ask_removals(model, data, *sample_removals(data, drawn, limit=limit, rng=rng))
    asked = draw_triples(data, drawn, triples, rng)
    findings = (
        independence(data, removals, tolerance),
        regularity(data, removals, tolerance),
        *transitivity(model, data, asked, tolerance),
        expansion(model, data, drawn, expand, tolerance),
        copies(model, data, rng.integers(data.offsets[drawn], data.offsets[drawn + 1]), tolerance),
    )
    questions = removals.questions + 3 * len(asked) + 4 * len(drawn)
    return Audit(
        model=type(model).__name__,
        findings=findings,
        sets=len(drawn),
        questions=questions,
        seed=seed,
        tolerance=tolerance,
        notes=_notes(model, data),
    )


def draw_triples(data: ChoiceData, sets: Ints, most: int, rng: np.random.Generator) -> Ints:
    """Draw up to ``most`` different triples of alternatives (T, 3), in turn from all sets of at least three."""
    fit = sets[data.sizes[sets] >= SMALLEST]
    if not fit.size:
        return np.empty((0, 3), np.int64)
    owner = np.resize(fit, most)
    low, n = data.offsets[owner], data.sizes[owner]
    # Three distinct members: the second skips the first, the third skips both in ascending order.
    first, second, third = rng.integers(0, n), rng.integers(0, n - 1), rng.integers(0, n - 2)
    second += second >= first
    for taken in (np.minimum(first, second), np.maximum(first, second)):
        third += third >= taken
    triples = np.sort(np.stack([first, second, third], axis=1) + low[:, None], axis=1)
    return np.unique(triples, axis=0)


def _notes(model: Predictor, data: ChoiceData) -> tuple[str, ...]:
    """Mark what makes figures mean something else."""
    gives, notes = gives_of(model), []
    if getattr(model, "order_matters", False):
        notes.append(
            "The order of a set's rows changes this model's probabilities: leaving out or copying a row also moves "
            "the others, and the figures hold both."
        )
    if gives == "scores":
        notes.append("This model gives scores made to sum to 1 within a set, not probabilities fitted as such.")
    if gives == "ranking":
        notes.append(
            "This model gives a ranking: its probabilities are 1 for the first and 0 for the others, and log-ratios "
            "exist only between alternatives that share the first rank."
        )
    if (unseen := extrapolation(model, data)) is not None:
        notes.append(unseen)
    return tuple(notes)
