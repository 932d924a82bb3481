"""What a hypothesis test found: the statistic, its p-value, and one sentence with the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pcmcnet.checks import require_number
from pcmcnet.errors import printable
from pcmcnet.reports.formats import ToDictMixin


@dataclass(frozen=True, kw_only=True)
class Outcome(ToDictMixin):
    """A test's outcome; prints as a sentence with the decision, and its caveats.

    Attributes
    ----------
    test
        Name of the test.
    statistic, degrees_of_freedom, p_value
        ``degrees_of_freedom`` is None where the statistic is normal.
    hypothesis
        What is tested, in words that follow "that".
    rejected
        Whether the hypothesis is rejected at the level ``significance``.
    decision
        What follows, in words.
    details
        Numbers that the test is made of.
    notes
        What to know before trusting it.
    """

    test: str
    statistic: float
    p_value: float
    hypothesis: str
    significance: float
    decision: str
    degrees_of_freedom: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    _derived = ("rejected",)

    @property
    def rejected(self) -> bool:
        """Whether the hypothesis is rejected."""
        return self.p_value < self.significance

    def __str__(self) -> str:
        p = "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.3f}"
        if self.degrees_of_freedom is None:
            found = f"z = {self.statistic:.3f}"
        else:
            plural = "s" * (self.degrees_of_freedom != 1)
            found = f"chi-squared = {self.statistic:.3f} with {self.degrees_of_freedom} degree{plural} of freedom"
        verdict = f"{'rejected' if self.rejected else 'not rejected'} at the {self.significance:.3g} level"
        sentence = f"{self.test}: {found}, {p}. That {self.hypothesis} is {verdict}: {self.decision}."
        return printable("\n".join([sentence, *(f"Note: {note}." for note in self.notes)]))

    __repr__ = __str__


def chi_squared_p(statistic: float, degrees_of_freedom: int) -> float:
    """Return the probability that a chi-squared variable is larger."""
    from scipy.special import chdtrc

    return float(chdtrc(degrees_of_freedom, max(statistic, 0.0)))


def require_significance(value: float) -> None:
    """Refuse a level that is none."""
    require_number("significance", value, low=0, high=1, open_low=True, open_high=True)
