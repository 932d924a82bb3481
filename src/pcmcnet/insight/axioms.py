"""Audit a fitted model: determine which axioms of choice it satisfies on sets drawn from a table.

A violated axiom does not mean that the model is wrong. A logit satisfies nearly all axioms by construction. People's
choices violate some axioms, and a model that has learnt their context effects violates independence (IIA) and
regularity. The audit reports the size of the violations and shows the worst cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any, Literal

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.evaluation.predictions import Predictor, gives_of, require_data
from pcmcnet.insight.queries import (
    alternative_name,
    draw_sets,
    places_in_set,
    predict_sets,
    require_sampling,
    set_id_of,
    set_of,
)
from pcmcnet.insight.removals import (
    MIN_ALTERNATIVES,
    Removals,
    extrapolation_warning,
    predict_removals,
    sample_removals,
)
from pcmcnet.reports.formats import ReportPartMixin, ToDictMixin
from pcmcnet.reports.tables import Cells, escaped, markdown_table, text_table

# -- Axiom checks ------------------------------------------------------------------------------------------------------
# The axioms of choice, checked on cases drawn from a table. Each check predicts all its sets in one call.
#
# For a set S, alternatives i, j, r of it, and P(i over j) the probability of i in the pair {i, j}:
#
#     independence    log P(i | S) / P(j | S) does not change when r is removed from S  (Luce, 1959)
#     regularity      P(i | S - r) >= P(i | S)  (all random utility models)
#     transitivity    P(i over j) >= 1/2 and P(j over k) >= 1/2 imply that P(i over k) is at least
#                     1/2 (weak), the smaller (moderate) or the larger (strong) of the two
#     expansion       k copies of every alternative of S: all copies of i have P(i | S)  (Ragain & Ugander, 2016)
#     copies          one alternative i twice: its copies together have P(i | S), the others lose nothing
#
# The size of a violation is the amount by which the axiom fails: a change in the log-ratio for independence, a
# probability for all other axioms. A logit satisfies all axioms but the last: two copies get 2 P / (1 + P), and the
# other alternatives lose P (1 - P) / (1 + P).

Verdict = Literal["holds", "violated", "not checked"]


@dataclass(frozen=True, kw_only=True)
class AxiomFinding:
    """Result of checking one axiom.

    Attributes
    ----------
    axiom
        Name of the axiom.
    unit
        Unit in which violations are measured: "log-ratio" or "probability".
    cases
        Number of cases checked.
    violations
        Number of cases in which the violation exceeds the tolerance.
    mean
        Mean size of the violations over all cases, counting 0 for a case that satisfies the axiom.
    largest
        Size of the largest violation.
    choice_set
        Id of the choice set with the largest violation, or None if there is no violation.
    example
        Description of the largest violation, or None if there is no violation.
    more
        Mapping from names to additional figures.
    """

    axiom: str
    unit: str
    cases: int
    violations: int
    mean: float
    largest: float
    choice_set: Any = None
    example: str | None = None
    more: Mapping[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Share of cases that violate the axiom."""
        return self.violations / self.cases if self.cases else 0.0

    @property
    def verdict(self) -> Verdict:
        """Verdict on the axiom: "holds", "violated" or "not checked"."""
        if not self.cases:
            return "not checked"
        return "violated" if self.violations else "holds"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-compatible values."""
        names = ("axiom", "verdict", "unit", "cases", "violations", "share", "mean", "largest", "choice_set", "example")
        return {**{name: getattr(self, name) for name in names}, **self.more}


Describe = Callable[[int], tuple[int, str]]  # case -> place of an alternative of its set, and a sentence about the case


def _finding(
    data: ChoiceData, axiom: str, unit: str, size: Floats, tolerance: float, describe: Describe, **more: float
) -> AxiomFinding:
    """Summarise the violations in all cases, and describe the largest one if it exceeds the tolerance."""
    worst = int(size.argmax()) if len(size) else None
    place, example = describe(worst) if worst is not None and size[worst] > tolerance else (None, None)
    return AxiomFinding(
        axiom=axiom,
        unit=unit,
        cases=len(size),
        violations=int((size > tolerance).sum()),
        mean=float(np.maximum(size, 0).mean()) if len(size) else 0.0,
        largest=max(float(size.max()), 0.0) if len(size) else 0.0,
        choice_set=None if place is None else set_id_of(data, place),
        example=example,
        more=more,
    )


def independence(data: ChoiceData, removals: Removals, tolerance: float) -> AxiomFinding:
    """Check independence of irrelevant alternatives: compare the log-ratios of all pairs before and after removals.

    A removal counts as one violation if it changes the log-ratio of any pair.
    """
    ratios = removals.log_ratios()

    def describe(case: int) -> tuple[int, str]:
        i, j, removed = ratios.up[case], ratios.down[case], int(removals.removed[ratios.cases[case]])
        before, after = (float(log_p[i] - log_p[j]) for log_p in (removals.log_with, removals.log_without))
        a, b = (alternative_name(data, int(removals.places[k])) for k in (i, j))
        return (
            removed,
            f"without {alternative_name(data, removed)}, log P({a}) / P({b}) changes from {before:.3f} to {after:.3f}",
        )

    more = {"pairs": float(ratios.pairs.sum()), "pairs_without_log_ratio": float(ratios.left_out)}
    size = removals.shift[ratios.up] - removals.shift[ratios.down]  # change of the pair that changes most
    axiom = "independence of irrelevant alternatives"
    finding = _finding(data, axiom, "log-ratio", size, tolerance, describe, **more)
    return replace(finding, mean=float(ratios.sums.sum() / ratios.pairs.sum())) if len(size) else finding


def regularity(data: ChoiceData, removals: Removals, tolerance: float) -> AxiomFinding:
    """Check regularity: no alternative becomes less probable when another is removed."""
    before, after = np.exp(removals.log_with), np.exp(removals.log_without)

    def describe(case: int) -> tuple[int, str]:
        i, removed = int(removals.places[case]), alternative_name(data, int(removals.removed[removals.case[case]]))
        return (
            i,
            f"without {removed}, P({alternative_name(data, i)}) falls from {before[case]:.3f} to {after[case]:.3f}",
        )

    return _finding(data, "regularity", "probability", before - after, tolerance, describe)


def transitivity(model: Predictor, data: ChoiceData, triples: Ints, tolerance: float) -> tuple[AxiomFinding, ...]:
    """Check weak, moderate and strong stochastic transitivity on the three pairs of each triple (T, 3)."""
    # 1. Predict the three pairs of every triple.
    i, j, k = triples.T if len(triples) else np.empty((3, 0), np.int64)
    pairs = np.concatenate([np.stack(pair, axis=1) for pair in ((i, j), (j, k), (i, k))])  # (3 T, 2)
    first = np.exp(predict_sets(model, data, list(pairs), set_of(data, pairs[:, 0]))[::2]).reshape(3, -1)
    over = np.full((3, 3, len(triples)), np.nan)  # over[a, b]: probability of the a-th alternative in the pair with b
    for p, (a, b) in zip(first, ((0, 1), (1, 2), (0, 2)), strict=True):
        over[a, b], over[b, a] = p, 1 - p
    # 2. Find the orders (a, b, c) of each triple in which the premise P(a over b), P(b over c) >= 1/2 holds.
    orders = list(permutations(range(3)))
    chain = np.stack([np.stack([over[a, b], over[b, c], over[a, c]]) for a, b, c in orders])  # (6, 3, T)
    holds = (chain[:, 0] >= 0.5) & (chain[:, 1] >= 0.5)  # true for at least one order of each triple
    bounds = {"weak": np.full(holds.shape, 0.5), "moderate": chain[:, :2].min(1), "strong": chain[:, :2].max(1)}
    # 3. Compare P(a over c) with the bound of each form.
    findings = []
    for form, bound in bounds.items():
        gap = np.where(holds, bound - chain[:, 2], -np.inf)  # (6, T)

        def describe(t: int, gap: Floats = gap) -> tuple[int, str]:
            order = int(gap[:, t].argmax())
            x, y, z = (alternative_name(data, int(triples[t, index])) for index in orders[order])
            pairs = zip(((x, y), (y, z), (x, z)), chain[order, :, t], strict=True)
            values = [f"P({u} over {v}) = {p:.3f}" for (u, v), p in pairs]
            return int(triples[t, 0]), f"{values[0]}, {values[1]}, but {values[2]}"

        axiom = f"{form} stochastic transitivity"
        findings.append(_finding(data, axiom, "probability", gap.max(axis=0), tolerance, describe))
    return tuple(findings)


def expansion(model: Predictor, data: ChoiceData, sets: Ints, copies: int, tolerance: float) -> AxiomFinding:
    """Check uniform expansion: with k copies of every alternative, the copies of each one share its probability."""
    inside = [places_in_set(data, s) for s in sets]
    log_p = predict_sets(model, data, [*inside, *(np.repeat(part, copies) for part in inside)], np.tile(sets, 2))
    places = np.concatenate(inside) if inside else np.empty(0, np.int64)
    original, summed = np.exp(log_p[: len(places)]), np.exp(log_p[len(places) :]).reshape(-1, copies).sum(axis=1)

    def describe(case: int) -> tuple[int, str]:
        place, p = int(places[case]), f"{summed[case]:.3f}"
        before = f"{alternative_name(data, place)} has probability {original[case]:.3f}"
        return place, f"{before}; if every alternative occurs {copies} times, its copies have probability {p} in total"

    return _finding(data, "uniform expansion", "probability", np.abs(summed - original), tolerance, describe)


def copies(model: Predictor, data: ChoiceData, twice: Ints, tolerance: float) -> AxiomFinding:
    """Measure how much probability the other alternatives lose if one alternative (C,) per set is offered twice.

    ``of_a_logit`` is the ratio of this loss to the loss in a logit: 0 if the two copies share the original probability,
    1 if the other alternatives lose as much as in a logit.
    """
    # 1. Predict each set as observed, and with a copy of the alternative in the last position.
    sets = set_of(data, twice)
    inside = [places_in_set(data, s) for s in sets]
    doubled = [np.append(part, place) for part, place in zip(inside, twice, strict=True)]
    log_p = predict_sets(model, data, [*inside, *doubled], np.tile(sets, 2))
    sizes = data.sizes[sets]
    before, after = np.exp(log_p[: sizes.sum()]), np.exp(log_p[sizes.sum() :])
    # 2. Extract the probabilities of the alternative and of its two copies.
    at = twice - data.offsets[sets]
    original = before[np.cumsum(sizes) - sizes + at]
    ends = np.cumsum(sizes + 1)
    pair = after[ends - sizes - 1 + at], after[ends - 1]
    # 3. Compare the gain of the copies with their gain in a logit.
    size, logit = pair[0] + pair[1] - original, original * (1 - original) / (1 + original)
    more = {
        "of_a_logit": float(size.sum() / logit.sum()) if logit.sum() > 0 else 0.0,
        "largest_gap_between_copies": float(np.abs(pair[0] - pair[1]).max()) if size.size else 0.0,
    }

    def describe(case: int) -> tuple[int, str]:
        p, gain = original[case], size[case]
        both = (
            f"offered twice, it has {p + gain:.3f} ({p + logit[case]:.3f} in a logit), and the others lose {gain:.3f}"
        )
        return int(twice[case]), f"{alternative_name(data, int(twice[case]))} has probability {p:.3f}; {both}"

    return _finding(data, "copies", "probability", np.abs(size), tolerance, describe, **more)


# -- Axioms ------------------------------------------------------------------------------------------------------------

# Networks compute in float32, where the log p of equal alternatives differ by up to 1e-5, and a change in a log-ratio
# combines four of them. Differences of practical interest are larger.
ROUNDING_TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Audit(ToDictMixin, ReportPartMixin):
    """Results of :func:`audit`. ``print(audit)`` shows a table, and ``audit["regularity"]`` is the result of one axiom.

    Attributes
    ----------
    model
        Name of the model class.
    findings
        One result per axiom.
    sets
        Number of choice sets drawn.
    questions
        Number of choice sets predicted.
    seed
        Seed for the draws.
    tolerance
        Size up to which a violation is regarded as rounding error.
    notes
        Notes on properties of the model that affect the figures.
    """

    model: str
    findings: tuple[AxiomFinding, ...]
    sets: int
    questions: int
    seed: int
    tolerance: float
    notes: tuple[str, ...] = ()

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [{k: v for k, v in finding.to_dict().items() if k not in finding.more} for finding in self.findings]

    def _short(self) -> str:
        return f"{self.model}: {len(self.obeyed)} of {len(self.findings)} axioms satisfied"

    def __getitem__(self, axiom: str) -> AxiomFinding:
        """Return the result of an axiom, by its name or the first word of its name."""
        names = {finding.axiom: finding for finding in self.findings}
        names |= {finding.axiom.split()[0]: finding for finding in self.findings}
        if axiom not in names:
            raise InputError(f"no axiom {axiom!r}." + did_you_mean(axiom, names))
        return names[axiom]

    @property
    def obeyed(self) -> tuple[str, ...]:
        """Names of the axioms that hold in every case."""
        return tuple(finding.axiom for finding in self.findings if finding.verdict == "holds")

    def to_markdown(self) -> str:
        """Return a page of Markdown: the table, the worst case of each violated axiom, and the notes."""
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
            f"{self.sets:,} choice sets drawn, {self.questions:,} predicted, seed {self.seed}; violations up to "
            f"{self.tolerance:g} are regarded as rounding error. A second copy of an alternative takes "
            f"{relative:.2f} times as much probability from the others as in a logit."
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
    tolerance: float = ROUNDING_TOLERANCE,
) -> Audit:
    """Check the axioms of choice on sets drawn from a table.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that matches the model's schema.
    sets
        Maximum number of choice sets to draw (100 by default).
    seed
        Seed for all draws (0 by default).
    limit
        Maximum number of choice sets to predict (5,000 by default) for the checks of independence and regularity, which
        remove each alternative of a set in turn.
    triples
        Maximum number of triples of alternatives to draw for the check of transitivity (1,000 by default).
    expand
        Number of copies of every alternative in the check of uniform expansion (2 by default).
    tolerance
        Size up to which a violation is regarded as rounding error (1e-4 by default).

    Returns
    -------
    Audit
        One result per axiom.

    Raises
    ------
    InputError
        If no set with a positive weight has two alternatives, or the model does not return probabilities.
    ConfigError
        If a number is out of range.

    Examples
    --------
    >>> from pcmcnet.models import Uniform
    >>> table = {"trip": [1, 1, 1], "took": [0, 1, 0], "price": [3.0, 4.0, 9.0]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"])
    >>> result = audit(Uniform().fit(data), data)
    >>> result["independence"].verdict, result["copies"].verdict, round(result["copies"].more["of_a_logit"], 3)
    ('holds', 'violated', 1.0)
    """
    require_sampling(sets=sets, seed=seed, limit=limit, triples=triples)
    require_number("expand", expand, whole=True, low=2)
    require_number("tolerance", tolerance, low=0)
    data = require_data(model, data)
    rng = np.random.default_rng(seed)
    drawn = draw_sets(data, least=2, most=sets, rng=rng)
    if not drawn.size:
        raise InputError(
            f"expected a choice set with at least two alternatives and a positive weight, found none in {len(data)} "
            f"sets."
        )
    removals = predict_removals(model, data, *sample_removals(data, drawn, limit=limit, rng=rng))
    triples_drawn = draw_triples(data, drawn, triples, rng)
    findings = (
        independence(data, removals, tolerance),
        regularity(data, removals, tolerance),
        *transitivity(model, data, triples_drawn, tolerance),
        expansion(model, data, drawn, expand, tolerance),
        copies(model, data, rng.integers(data.offsets[drawn], data.offsets[drawn + 1]), tolerance),
    )
    return Audit(
        model=type(model).__name__,
        findings=findings,
        sets=len(drawn),
        questions=removals.questions + 3 * len(triples_drawn) + 4 * len(drawn),
        seed=seed,
        tolerance=tolerance,
        notes=_notes(model, data),
    )


def draw_triples(data: ChoiceData, sets: Ints, most: int, rng: np.random.Generator) -> Ints:
    """Draw up to ``most`` distinct triples (T, 3), cycling through the sets with at least three alternatives."""
    eligible = sets[data.sizes[sets] >= MIN_ALTERNATIVES]
    if not eligible.size:
        return np.empty((0, 3), np.int64)
    owner = np.resize(eligible, most)
    low, n = data.offsets[owner], data.sizes[owner]
    # Three distinct alternatives: the second skips the first, the third skips both in ascending order.
    first, second, third = rng.integers(0, n), rng.integers(0, n - 1), rng.integers(0, n - 2)
    second += second >= first
    for taken in (np.minimum(first, second), np.maximum(first, second)):
        third += third >= taken
    triples = np.sort(np.stack([first, second, third], axis=1) + low[:, None], axis=1)
    return np.unique(triples, axis=0)


def _notes(model: Predictor, data: ChoiceData) -> tuple[str, ...]:
    """Return notes on properties of the model that change the meaning of the figures."""
    gives, notes = gives_of(model), []
    if getattr(model, "order_matters", False):
        notes.append(
            "This model's probabilities depend on the order of the rows of a set. Removing or copying a row also "
            "shifts the other rows, so the figures include this effect."
        )
    if gives == "scores":
        notes.append("This model returns scores that are scaled to sum to 1 within a set, not fitted probabilities.")
    if gives == "ranking":
        notes.append(
            "This model returns a ranking: the first alternative has probability 1, all others have 0. Log-ratios "
            "exist only between alternatives that share the first rank."
        )
    if (warning := extrapolation_warning(model, data)) is not None:
        notes.append(warning)
    return tuple(notes)
