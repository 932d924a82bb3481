"""The outcome of a hypothesis test: the statistic, the p-value, and a sentence that states the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pcmcnet.checks import require_number
from pcmcnet.errors import printable
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.frames import FrameMixin


@dataclass(frozen=True, kw_only=True)
class Outcome(ToDictMixin, FrameMixin):
    """The outcome of a hypothesis test, printed as a sentence that states the decision, followed by notes.

    Attributes
    ----------
    test
        Name of the test.
    statistic
        Test statistic.
    degrees_of_freedom
        Degrees of freedom of a chi-squared statistic, or None if the statistic is normally distributed.
    p_value
        Probability of a statistic at least as extreme under the null hypothesis.
    hypothesis
        Null hypothesis, as a noun phrase such as "IIA".
    significance
        Significance level of the test.
    rejected
        Whether the null hypothesis is rejected at the significance level.
    decision
        Conclusion of the test, in words.
    details
        Quantities from which the statistic was computed.
    notes
        Notes on the limitations of the test for these data.
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

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [{name: value for name, value in self.to_dict().items() if name not in ("details", "notes")}]

    @property
    def rejected(self) -> bool:
        """Whether the null hypothesis is rejected."""
        return self.p_value < self.significance

    def __str__(self) -> str:
        p = "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.3f}"
        if self.degrees_of_freedom is None:
            statistic = f"z = {self.statistic:.3f}"
        else:
            plural = "s" * (self.degrees_of_freedom != 1)
            statistic = f"chi-squared = {self.statistic:.3f} with {self.degrees_of_freedom} degree{plural} of freedom"
        hypothesis = self.hypothesis[:1].upper() + self.hypothesis[1:]
        verdict = f"{hypothesis} is{'' if self.rejected else ' not'} rejected at the {self.significance:.3g} level"
        sentence = f"{self.test}: {statistic}, {p}. {verdict}: {self.decision}."
        return printable("\n".join([sentence, *(f"Note: {note}." for note in self.notes)]))

    __repr__ = __str__


def chi_squared_p(statistic: float, degrees_of_freedom: int) -> float:
    """Return the probability that a chi-squared variable exceeds the statistic."""
    from scipy.special import chdtrc

    return float(chdtrc(degrees_of_freedom, max(statistic, 0.0)))


def require_significance(value: float) -> None:
    """Raise ConfigError unless the significance level is between 0 and 1."""
    require_number("significance", value, low=0, high=1, open_low=True, open_high=True)
