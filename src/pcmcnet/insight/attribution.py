"""Attribution of one choice to its rivals: what each does to the probability of the alternative chosen.

Each rival r is left out of the set in turn:

    push_r   = log p_i(S) - log p_i(S - r)     below 0: r takes from i; above 0: i is chosen more often beside r
    share_r  = log(1 - p_r(S))                 the push of a rival that takes from all in proportion, as in a logit
    beyond_r = push_r - share_r                what the model sees in the company of r: 0 in every logit

and the same in probabilities. All sets go to the model in one batch. Probabilities below 1e-12 count as that, so that
logs are finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, require_data
from pcmcnet.insight.alternative_names import name_of
from pcmcnet.insight.questions import ask, id_of, members, place_of, position_of, set_of, spoken
from pcmcnet.reports.tables import PrintsAsTable

LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Attribution(PrintsAsTable):
    """What R rivals do to one alternative, the strongest push beyond a logit's first. Prints as a table."""

    choice_set: Any  # its id
    alternative: str
    p: float  # in the whole set
    rivals: tuple[str, ...]
    places: NDArray[np.int64]  # (R,) of the rivals, in the flat columns of the table
    rival_p: Floats  # (R,) in the whole set
    without: Floats  # (R,) probability of the alternative without the rival
    push: Floats  # (R,)
    beyond: Floats  # (R,)

    @property
    def change(self) -> Floats:
        """(R,) what the rival's presence adds to the probability, mostly below 0."""
        return self.p - self.without

    @property
    def change_beyond(self) -> Floats:
        """(R,) the same, beyond what a rival takes from all in proportion."""
        return self.p / np.maximum(1 - self.rival_p, LEAST) - self.without

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        plain = {"choice_set": self.choice_set, "alternative": self.alternative, "p": self.p}
        arrays = ("places", "rival_p", "without", "push", "beyond", "change", "change_beyond")
        return {**plain, "rivals": list(self.rivals), **{name: getattr(self, name).tolist() for name in arrays}}

    def _cells(self) -> list[list[str]]:
        heads = [f"{self.alternative}: {self.p:.4f}", "p of rival", "p without it", "push", "beyond a logit's"]
        figures = zip(self.rivals, self.rival_p, self.without, self.push, self.beyond, strict=True)
        return [heads, *([n, f"{r:.4f}", f"{w:.4f}", f"{push:+.4f}", f"{b:+.4f}"] for n, r, w, push, b in figures)]


def attribution(model: Predictor, data: Any, choice_set: Any, alternative: Any = None) -> Attribution:
    """Leave each rival out of a set in turn, and see what becomes of one alternative.

    Parameters
    ----------
    model, data
        A fitted model, or an object with the method ``predict_log_proba``; choice data, or a table that the model's
        schema reads.
    choice_set
        The id of the set.
    alternative
        Label of the alternative; in a table without labels its row, or its number in the set as in "#2". The one chosen
        if None.

    Returns
    -------
    Attribution

    Raises
    ------
    InputError
        When there is no such set or alternative, the choice is unknown, or there is no rival.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": [1, 1, 1, 2, 2, 2], "took": [1, 0, 0, 0, 1, 0], "cost": [2, 4, 3, 5, 3, 2]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> found = attribution(MNL().fit(data), data, 1)
    >>> found.alternative, found.rivals
    ('#1 (cost 2)', ('#2 (cost 4)', '#3 (cost 3)'))
    >>> bool(np.abs(found.beyond).max() < 1e-12)
    True
    """
    data = require_data(model, data)
    i = place_of(data, choice_set, alternative) if alternative is not None else _chosen(data, choice_set)
    position = int(set_of(data, i))
    inside = members(data, position)
    rivals = inside[inside != i]
    if not rivals.size:
        raise InputError(f"choice set {spoken(choice_set)} has a single alternative: there is no rival to leave out.")
    sets = [inside, *(inside[inside != r] for r in rivals)]
    p = np.maximum(np.exp(ask(model, data, sets, np.full(len(sets), position))), LEAST)
    whole, n = p[: len(inside)], len(inside)
    # In the set without r, alternatives behind r have moved up by one.
    without = p[n + (n - 1) * np.arange(n - 1) + (i - inside[0]) - (rivals < i)]
    rival_p, at = whole[rivals - inside[0]], float(whole[i - inside[0]])
    push = np.log(at) - np.log(without)
    beyond = push - np.log(np.maximum(1 - rival_p, LEAST))
    order = np.argsort(-np.abs(beyond).round(9), kind="stable")  # equal ones, as in a logit, in the order of the set
    names = tuple(name_of(data, int(r)) for r in rivals[order])
    return Attribution(
        choice_set=id_of(data, i),
        alternative=name_of(data, i),
        p=at,
        rivals=names,
        places=rivals[order],
        rival_p=rival_p[order],
        without=without[order],
        push=push[order],
        beyond=beyond[order],
    )


def _chosen(data: ChoiceData, choice_set: Any) -> int:
    """Return the place of the alternative chosen in a set."""
    position = position_of(data, choice_set)
    return int(data.offsets[position] + data.require_chosen("attribution of the choice")[position])
