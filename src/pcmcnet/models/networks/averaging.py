"""Averaged networks: M networks trained from different starts predict the mean of their probabilities.

    p = 1/M sum_m p^m

Together they predict better than one of them alone. Some members see numbers piecewise linearly as well:

    x  ->  x, e_1(x), ..., e_T(x)        e_t: how far x has come through the t-th of T bins between quantiles

A network with straight inputs bends slowly: a threshold in a distance or an income costs it many weights, which decay
takes away. Bins between quantiles (Gorishniy, Rubachev & Babenko, 2022) offer the bends at once, for the network and
for the logit inside it. The errors of both kinds of networks differ, so their mean often predicts better than either.
But where effects are straight, or columns many and sets few, bins overfit. So held-out sets decide how many members
have them (:mod:`pcmcnet.models.networks.fitting`).

A member with bins is trained on sets in which bins are columns. Inside the average, its view computes these columns
from the numbers of a batch. Shapes: B sets of up to J alternatives, F numbers, K bins of all numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import torch
from torch import Tensor, nn

from pcmcnet.data import Batch, ChoiceData, Encoder, Sets
from pcmcnet.data.encoder import SideEncoder
from pcmcnet.data.kinds.number import BinCode
from pcmcnet.errors import ArtifactError
from pcmcnet.layers import log_probabilities
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.network import ChoiceNetwork

MAX_MEMBERS = 100
AUTO_MEMBERS = 6  # averaged networks of a small table
AUTO_MEMBERS_MAX_SETS, AUTO_MEMBERS_MAX_PAIRS = (
    12_000,
    3e6,
)  # choice sets and ordered pairs of alternatives of a small table
BIN_COUNTS = (8, 16)  # bins per number of the members that have bins, in turn


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """What decides on the architecture of a fitted network in addition to the options; saved with the model.

    Parameters
    ----------
    classes
        Number of latent classes.
    bins
        Bins per number of each averaged network; 0 for numbers as they are.
    """

    classes: int = 1
    bins: tuple[int, ...] = (0,)

    @property
    def members(self) -> int:
        """Number of averaged networks."""
        return len(self.bins)

    def require_valid(self, weights: int) -> None:
        """Raise ArtifactError if no fit leads to this architecture with that many weights, of which a class has some.

        An impossible network is refused before it is built, since it may take all memory.
        """
        allowed = {0, *BIN_COUNTS}
        bins_fit = 1 <= self.members <= MAX_MEMBERS and set(self.bins) <= allowed and not self.bins[0]
        # The classes of several networks do not match: an average has one class.
        if not bins_fit or not 1 <= self.classes <= weights or (self.classes > 1 and self.members > 1):
            raise ArtifactError(
                f"the saved model has an unknown architecture, {self.classes} classes and {self.members} members with "
                f"bins {self.bins[:MAX_MEMBERS]}: save the model again."
            )


def automatic_members(learns_decay: bool, train: Sets, network: ChoiceNetwork) -> int:
    """Return the number of networks for ``members="auto"``.

    It is 6 if the table is small, the weight decay is learnt from it, one process trains, and the network is small
    enough for compiled steps; otherwise 1.
    """
    alone = current_group().size == 1
    return AUTO_MEMBERS if learns_decay and alone and is_small_table(train) and network.compiled_form is not None else 1


def is_small_table(train: Sets) -> bool:
    """Return whether a table in memory is small enough to train several networks quickly."""
    if not isinstance(train, ChoiceData) or len(train) > AUTO_MEMBERS_MAX_SETS:
        return False
    return bool((train.sizes**2.0).sum() <= AUTO_MEMBERS_MAX_PAIRS)


def bins_per_member(members: int, period: int) -> tuple[int, ...]:
    """Return the bins per number of each member: every ``period``-th one has some; 0 for none.

    Examples
    --------
    >>> bins_per_member(6, period=2)
    (0, 8, 0, 16, 0, 8)
    >>> bins_per_member(6, period=3)
    (0, 0, 8, 0, 0, 16)
    """
    numbers = cycle(BIN_COUNTS)
    return tuple(next(numbers) if period and (k + 1) % period == 0 else 0 for k in range(members))


class AveragedNetwork(ChoiceNetwork):
    """Batch -> logarithms of the mean of the members' probabilities (B, J).

    Parameters
    ----------
    members
        The networks, the first of which sees batches as they are.
    views
        For each further member: a module that turns a batch into what the member sees.
    """

    takes_generators = True

    def __init__(self, members: Sequence[ChoiceNetwork], views: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members, self.views = nn.ModuleList(members), nn.ModuleList(views)

    @property
    def computes_in_chunks(self) -> bool:
        """Whether a large batch takes little more memory than a small one, as in each member."""
        return members_of(self)[0].computes_in_chunks

    def member_inputs(self, batch: Batch) -> list[tuple[ChoiceNetwork, Batch]]:
        """Return every member with the batch as it sees it."""
        return list(zip(members_of(self), [batch, *(view(batch) for view in self.views)], strict=True))

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities; padding gets -inf."""
        p = [member.probabilities(seen) for member, seen in self.member_inputs(batch)]
        return log_probabilities(sum(p[1:], p[0]) / len(p), batch.mask)


def members_of(network: ChoiceNetwork) -> list[ChoiceNetwork]:
    """Return the averaged networks, or the network itself if it is not an average."""
    if not isinstance(network, AveragedNetwork):
        return [network]
    return [member for member in network.members if isinstance(member, ChoiceNetwork)]


class BinnedView(nn.Module):
    """Batch -> the same batch with the columns of bins that a member was trained with.

    Parameters
    ----------
    common
        The encoder of the batches.
    member
        The encoder that the member was trained with.
    """

    def __init__(self, common: Encoder, member: Encoder) -> None:
        super().__init__()
        self.features = _BinColumns(common.features, member.features)
        self.individual = _BinColumns(common.individual, member.individual)

    def forward(self, batch: Batch) -> Batch:
        """Return the batch with bins, if the member has any."""
        numeric, individual = self.features(batch.numeric), self.individual(batch.individual_numeric)
        return replace(batch, numeric=numeric, individual_numeric=individual)


class _BinColumns(nn.Module):
    """(..., F) -> (..., F + K): K bins after the numbers and before the indicators of gaps, as the codes have them."""

    columns: Tensor
    starts: Tensor
    widths: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, common: SideEncoder, member: SideEncoder) -> None:
        super().__init__()
        self.numbers = len(common.numeric)
        place = {code.name: k for k, code in enumerate(common.numeric)}
        bins = [code for code in member.numeric if isinstance(code, BinCode)]
        whole = [common.numeric[place[bin_.name]] for bin_ in bins]
        self.register_buffer("columns", torch.tensor([place[bin_.name] for bin_ in bins]).long(), persistent=False)
        for name, values in {
            "starts": [(bin_.mean - code.mean) / code.scale for bin_, code in zip(bins, whole, strict=True)],
            "widths": [bin_.scale / code.scale for bin_, code in zip(bins, whole, strict=True)],
            "low": [bin_.low for bin_ in bins],
            "high": [bin_.high for bin_ in bins],
        }.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32), persistent=False)

    def forward(self, numbers: Tensor) -> Tensor:
        if not len(self.columns):
            return numbers
        through = (numbers[..., self.columns] - self.starts) / self.widths
        bins = torch.maximum(torch.minimum(through, self.high), self.low)
        return torch.cat([numbers[..., : self.numbers], bins, numbers[..., self.numbers :]], -1)
