"""The chain behind the probabilities of one choice set: rates, law, flows, and what goes round in circles.

The chain moves from alternative i to j at the rate q_ij, and in the long run it is found at i for the share p_i of the
time. So the moves from i to j make up a flow, and each alternative is left as often as it is entered:

    f_ij = p_i q_ij,        sum_j f_ij = sum_j f_ji.

The two flows of a pair need not be equal. What remains, f_ij - f_ji, is the net flow, and all net flows together are
circles. They vanish in a reversible chain: one with q_ij = u_j s_ij for a symmetric s, whose law is proportional to u
in every choice set, as in a logit. ``circulation`` is the share of all moves that are part of circles, 0 to 1.

Time has no scale, so that the time to settle is counted in moves: the mean number of moves within the relaxation time,
in which the slowest of the chain's departures from its law shrinks to 1/e.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.insight.queries import alternative_name, position_of
from pcmcnet.layers import stationary_distribution
from pcmcnet.models.interface.chain_model import ChainModel, require_class
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.reports.formats import NotebookMixin, to_json
from pcmcnet.reports.sections import Block, Table, note
from pcmcnet.reports.tables import number

_BLURRED = 1e-13  # of the largest rate: eigenvalues below it are lost in rounding


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain(NotebookMixin):
    """The chain of one choice set of n alternatives."""

    labels: tuple[str, ...]  # or "#2 (A7/A7)" by number and first category in a table without labels
    rates: Floats  # (n, n) of leaving i for j; the largest is 1, the diagonal 0
    probabilities: Floats  # (n,) the stationary law of the rates
    choice_set: Any = None  # its id
    of_class: int | None = None  # where the model is a mixture of chains, whose chain this is
    share: float = 1.0  # of that class in this set

    @property
    def name(self) -> str:
        """What the chain is called: by its choice set, and its class where there are several."""
        whose = "" if self.of_class is None else f", class {self.of_class} ({self.share:.0%})"
        return f"choice set {self.choice_set}{whose}"

    def _short(self) -> str:
        return f"{self.name}, {len(self.labels)} alternatives"

    def _blocks(self) -> list[Block]:
        lines = zip(self.labels, self.probabilities, self.rates, strict=True)
        rows = [[name, f"{p:.4f}", *map(number, rates)] for name, p, rates in lines]
        text = f"{self.circulation:.1%} of all moves go round in circles."
        return [Table(cells=[["left", "probability", *(f"to {name}" for name in self.labels)], *rows]), note(text)]

    @property
    def flows(self) -> Floats:
        """(n, n) moves from i to j in the long run, per unit of time."""
        return self.probabilities[:, None] * self.rates

    @property
    def net_flows(self) -> Floats:
        """(n, n) moves from i to j beyond those from j to i, per unit of time; 0 but for rounding if reversible."""
        return self.flows - self.flows.T

    @property
    def circulation(self) -> float:
        """Share of all moves that belong to circles: 0 for a reversible chain, 1 where all go one way round."""
        total = float(self.flows.sum())
        return float(np.abs(self.net_flows).sum()) / 2 / total if total else 0.0

    @property
    def moves_to_settle(self) -> float:
        """Moves in the relaxation time: 0 without a second alternative, inf beyond what rounding lets one see."""
        n = len(self.rates)
        if n < 2:
            return 0.0
        generator = self.rates - np.diag(self.rates.sum(axis=1))
        gap = float(np.sort(-np.linalg.eigvals(generator).real)[1])  # the first is 0, of the law itself
        return float(self.flows.sum()) / gap if gap > _BLURRED * n else np.inf

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts that survive JSON; an infinite time is None."""
        names = ["labels", "probabilities", "rates", "flows", "net_flows", "circulation", "moves_to_settle"]
        names += [] if self.of_class is None else ["of_class", "share"]
        return {"choice_set": str(self.choice_set), **{name: to_json(getattr(self, name)) for name in names}}


def chain(model: ChoiceModel, data: Any, choice_set: Any, of_class: int | None = None) -> Chain:
    """Return the chain of one choice set.

    Parameters
    ----------
    model
        A fitted model with rates: PCMC-Net, PCMC or linear PCMC.
    data
        Choice sets, or a table that is read by the model's own schema.
    choice_set
        The id of the set, as in the table.
    of_class
        Which class's chain, from 1 on, where the model is a mixture of several; that of the class with the largest
        share in the set unless given.

    Raises
    ------
    InputError
        When the model has no rates, or the set or the class is not there.

    Examples
    --------
    >>> from pcmcnet.models import PCMC
    >>> table = {"game": [0, 0, 1, 1, 2, 2, 2], "wins": [1, 0, 0, 1, 1, 0, 0], "hand": list("abababc")}
    >>> data = ChoiceData.from_long(table, choice_set="game", chosen="wins", alternative="hand")
    >>> chain(PCMC(restarts=1).fit(data), data, 1).labels
    ('a', 'b')
    """
    if not isinstance(model, ChainModel):
        remedies = {"ensemble": " Ask its members, by over().", "calibrated": " Ask the model inside it, model_."}
        what = f"{type(model).__name__} has no rates: a chain is that of PCMCNet, PCMC or LinearPCMC."
        raise InputError(what + remedies.get(model.name, ""))
    sets = data if isinstance(data, ChoiceData) else ChoiceData.from_schema(data, model.schema.for_prediction())
    one = sets.subset([position_of(sets, choice_set)])
    (shares,) = model.class_shares(one)
    place = int(shares.argmax()) if of_class is None else require_class(model, of_class)
    rates = model.class_rates(one)[0][place]
    return Chain(
        labels=tuple(alternative_name(one, row) for row in range(len(one.rows))),
        rates=rates,
        probabilities=stationary_distribution(torch.from_numpy(rates)).numpy(),
        choice_set=one.set_ids[0],
        of_class=place + 1 if len(shares) > 1 else None,
        share=float(shares[place]),
    )
