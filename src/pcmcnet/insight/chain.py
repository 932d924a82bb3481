"""The Markov chain behind the probabilities of one choice set: rates, stationary distribution, flows and circulation.

The chain moves from alternative i to j at the rate q_ij, and in the long run it spends the share p_i of the time at i.
The flow from i to j is the rate of moves from i to j, and each alternative is left as often as it is entered:

    f_ij = p_i q_ij,        sum_j f_ij = sum_j f_ji.

The two flows between i and j need not be equal: the net flow f_ij - f_ji is their difference. Net flows form cycles. A
reversible chain, in which q_ij = u_j s_ij with a symmetric s, has no net flows. The stationary distribution of a
reversible chain is proportional to u in every choice set, as in a logit. ``circulation`` is the share of all moves that
belong to cycles, from 0 to 1.

The time scale of the chain is arbitrary, so the time to settle is measured in moves: ``moves_to_settle`` is the mean
number of moves during the relaxation time, in which the slowest deviation from the stationary distribution shrinks by a
factor of e.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData, read_chunked
from pcmcnet.data.alternative_sampling import require_full_sets
from pcmcnet.errors import InputError
from pcmcnet.insight.queries import alternative_name, position_of
from pcmcnet.layers import stationary_distribution
from pcmcnet.models.interface.chain_model import ChainModel, require_class
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.reports.formats import NotebookMixin, to_json
from pcmcnet.reports.sections import Block, Table, note
from pcmcnet.reports.tables import number

_MIN_EIGENVALUE = 1e-13  # relative to the largest rate; smaller eigenvalues are lost in rounding


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain(NotebookMixin):
    """The Markov chain of one choice set with n alternatives.

    Attributes
    ----------
    labels
        Labels of the alternatives, or names such as "#2 (A7/A7)" in a table without labels.
    rates
        Rates (n, n) of leaving i for j, scaled so that the largest rate is 1, with 0 on the diagonal.
    probabilities
        Stationary distribution of the rates, (n,).
    choice_set
        Id of the choice set.
    of_class
        For a mixture of chains, the number of the class, counted from 1.
    share
        Share of the class in this choice set.
    """

    labels: tuple[str, ...]
    rates: Floats
    probabilities: Floats
    choice_set: Any = None
    of_class: int | None = None
    share: float = 1.0

    @property
    def name(self) -> str:
        """Title of the chain: its choice set and, for a mixture, its class."""
        of_class = "" if self.of_class is None else f", class {self.of_class} ({self.share:.0%})"
        return f"choice set {self.choice_set}{of_class}"

    def _frame_rows(self) -> Iterator[dict[str, Any]]:
        flows, n = self.flows, len(self.labels)
        for i, j in ((i, j) for i in range(n) for j in range(n) if i != j):
            yield {"from": self.labels[i], "to": self.labels[j], "rate": self.rates[i, j], "flow": flows[i, j]}

    def _short(self) -> str:
        return f"{self.name}, {len(self.labels)} alternatives"

    def _blocks(self) -> list[Block]:
        lines = zip(self.labels, self.probabilities, self.rates, strict=True)
        rows = [[name, f"{p:.4f}", *map(number, rates)] for name, p, rates in lines]
        text = f"{self.circulation:.1%} of all moves belong to cycles."
        return [Table(cells=[["from", "probability", *(f"to {name}" for name in self.labels)], *rows]), note(text)]

    @property
    def flows(self) -> Floats:
        """Long-run number of moves from i to j per unit of time, (n, n)."""
        return self.probabilities[:, None] * self.rates

    @property
    def net_flows(self) -> Floats:
        """Net number of moves from i to j per unit of time, (n, n), which is 0 if the chain is reversible."""
        return self.flows - self.flows.T

    @property
    def circulation(self) -> float:
        """Share of all moves in cycles: 0 if the chain is reversible, 1 if no pair has moves in both directions."""
        total = float(self.flows.sum())
        return float(np.abs(self.net_flows).sum()) / 2 / total if total else 0.0

    @property
    def moves_to_settle(self) -> float:
        """Mean number of moves during the relaxation time: 0 for one alternative, inf if it is too large to compute."""
        n = len(self.rates)
        if n < 2:
            return 0.0
        generator = self.rates - np.diag(self.rates.sum(axis=1))
        gap = float(np.sort(-np.linalg.eigvals(generator).real)[1])  # the first is 0: the stationary distribution
        return float(self.flows.sum()) / gap if gap > _MIN_EIGENVALUE * n else np.inf

    def to_dict(self) -> dict[str, Any]:
        """Return the chain as JSON-compatible values, with None for an infinite number of moves."""
        names = ["labels", "probabilities", "rates", "flows", "net_flows", "circulation", "moves_to_settle"]
        names += [] if self.of_class is None else ["of_class", "share"]
        return {"choice_set": str(self.choice_set), **{name: to_json(getattr(self, name)) for name in names}}


def chain(model: ChoiceModel, data: Any, choice_set: Any, of_class: int | None = None) -> Chain:
    """Return the Markov chain of one choice set.

    Parameters
    ----------
    model
        A fitted model with rates: PCMC-Net, PCMC or linear PCMC.
    data
        Choice sets, or a table that matches the model's schema.
    choice_set
        Id of the choice set, as in the table.
    of_class
        For a mixture of chains, the number of the class, counted from 1. By default, the class with the largest share
        in the set is used.

    Returns
    -------
    Chain
        Rates, stationary distribution and flows.

    Raises
    ------
    InputError
        If the model has no rates, or the set or class does not exist.

    Examples
    --------
    >>> from pcmcnet.models import PCMC
    >>> table = {"game": [0, 0, 1, 1, 2, 2, 2], "wins": [1, 0, 0, 1, 1, 0, 0], "hand": list("abababc")}
    >>> data = ChoiceData.from_long(table, choice_set="game", chosen="wins", alternative="hand")
    >>> chain(PCMC(restarts=1).fit(data), data, 1).labels
    ('a', 'b')
    """
    if not isinstance(model, ChainModel):
        remedies = {
            "ensemble": " Use over() to apply chain() to its members.",
            "calibrated": " Pass the wrapped model, model_, instead.",
        }
        message = f"{type(model).__name__} has no rates: use PCMCNet, PCMC or LinearPCMC."
        raise InputError(message + remedies.get(model.name, ""))
    data = read_chunked(data)
    sets = data if isinstance(data, ChoiceData) else ChoiceData.from_schema(data, model.schema.for_prediction())
    require_full_sets(sets, "a chain")
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
