"""Options of the latent class logit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pcmcnet.checks import require_number, require_word
from pcmcnet.models.interface.persons import By
from pcmcnet.models.logits.design.individual_design import parse_membership
from pcmcnet.models.logits.logit_config import LogitConfig

# Precision of the prior. On the electricity table, larch's artificial_long and simulated ones 0.001 moves estimates by
# less than a twentieth of their standard error. With up to 4 classes, held-out likelihoods of small tables are clearly
# better with 0.1 (itinerary, 615 sets: 2.47 against 2.77 nats).
_GIVEN, _SEARCHED = 1e-3, 0.1


@dataclass(frozen=True, kw_only=True)
class LatentClassMNLConfig(LogitConfig):
    """Options of the latent class logit: those of the logit models, which hold for every class, and the classes.

    Parameters
    ----------
    classes
        Number of classes; "auto" takes the one with the smallest AIC up to ``max_classes``.
    max_classes
        See ``classes``.
    by
        Who is of a class: the "person", where the table declares persons, or the choice "set".
    membership
        What the shares of the classes depend on: a sum of individual columns such as "income + age", "." for all of
        them that are the same in all sets of each person, or "1" for none.
    starts
        Random starts, the best of which goes on; with ``classes`` "auto" against one from the maximum for fewer.
    em_steps
        Steps of EM, or between EM's and Newton's, at most.
    prior
        Precision of a normal prior around 0 on each coefficient of a standardised column, and on how far classes are
        apart in those of membership: a pull that keeps estimates finite. 0 for the maximum likelihood itself. "auto" is
        0.001 where the number of classes is given, which hardly moves estimates, and 0.1 where it is searched for,
        which predicts better. Standard errors are those of the likelihood, without the prior.
    """

    classes: int | Literal["auto"] = "auto"
    max_classes: int = 4
    by: By = "person"
    membership: str = "."
    starts: int = 5
    em_steps: int = 200
    prior: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes != "auto":
            require_number("classes", self.classes, whole=True, low=1)
        require_number("max_classes", self.max_classes, whole=True, low=1)
        require_number("starts", self.starts, whole=True, low=1)
        require_number("em_steps", self.em_steps, whole=True, low=1)
        if self.prior != "auto":
            require_number("prior", self.prior, low=0)
        require_word("by", self.by, get_args(By))
        parse_membership(self.membership)

    @property
    def precision(self) -> float:
        """The precision of the prior."""
        if self.prior == "auto":
            return _SEARCHED if self.classes == "auto" else _GIVEN
        return float(self.prior)
