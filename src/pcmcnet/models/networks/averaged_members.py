"""Averaged networks: the mean of the probabilities of M networks that were trained from different seeds.

    p = 1/M sum_m p^m

The average predicts better than a single network. Some members also receive piecewise-linear inputs, which are computed
from bins of the numeric columns:

    x  ->  x, e_1(x), ..., e_T(x)        e_t: the share of the t-th bin that is below x; T bins between quantiles

Without bins, a network needs many weights to represent a threshold in a distance or an income, and weight decay shrinks
these weights. Bins between quantiles (Gorishniy, Rubachev & Babenko, 2022) represent such thresholds directly, both for
the network and for the logit inside it. Networks with and without bins make different errors, so their mean often
predicts better than either kind. However, bins overfit if effects are linear, or if there are many columns and few
choice sets. The number of members with bins is therefore chosen on held-out sets
(:mod:`pcmcnet.models.networks.fitting`).

A member with bins is trained on data with the bins as columns. In the average, a :class:`BinnedView` computes these
columns from the numeric inputs of a batch. Shapes: B sets of up to J alternatives, F numeric inputs, K bins in total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import torch
from torch import Tensor, nn

from pcmcnet.arrays import Ints
from pcmcnet.data import Batch, ChoiceData, Encoder, Sets
from pcmcnet.data.encoder import SideEncoder
from pcmcnet.data.kinds.number import BinCode
from pcmcnet.errors import ArtifactError
from pcmcnet.layers import log_probabilities
from pcmcnet.layers.factored.factored_rates import MAX_RANK
from pcmcnet.training.compiled_steps import usable_form
from pcmcnet.training.config import TrainConfig
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.device import device_of
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.prediction import parameter_count

MAX_MEMBERS = 100
AUTO_MEMBERS = 6  # averaged networks, unless they take too long
AUTO_MEMBERS_SECONDS = 300.0  # nominal time for all networks after the first one

# Nominal speed of training: products (weights x ordered pairs) per second, and seconds per batch. Measured on one
# thread of a 2-core AMD EPYC, for networks of 2 x 64 and 2 x 256 units on sets of 4 and 40 alternatives. The numbers
# for a GPU are low guesses. Nominal times do not depend on the load of the machine, so a table always gets the same
# number of networks on the same installation.
COMPILED_SPEED = (2e10, 0.0)
PYTORCH_SPEED = (1e10, 3e-3)
GPU_SPEED = (1e12, 1e-3)

BIN_COUNTS = (8, 16)  # bins per number of the members that have bins, in turn


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """The part of a network's architecture that is chosen in the fit and saved with the model.

    Parameters
    ----------
    classes
        Number of latent classes.
    bins
        For each averaged network, the number of bins per numeric column, or 0 if the network has no bins.
    rank
        Number of factors of the rates, or None if the network scores all pairs.
    """

    classes: int = 1
    bins: tuple[int, ...] = (0,)
    rank: int | None = None

    @property
    def members(self) -> int:
        """Number of averaged networks."""
        return len(self.bins)

    def require_valid(self, weights: int) -> None:
        """Raise ArtifactError if no fit can produce this architecture with the given number of weights.

        The architecture is checked before the network is built, since a damaged file may describe a network larger than
        memory.
        """
        bins_fit = 1 <= self.members <= MAX_MEMBERS and set(self.bins) <= {0, *BIN_COUNTS} and not self.bins[0]
        # The classes of different networks do not correspond, so an average has one class. A class has some weights.
        rank_fits = self.rank is None or 1 <= self.rank <= MAX_RANK
        classes_fit = 1 <= self.classes <= weights and 1 in (self.classes, self.members)
        if not (bins_fit and classes_fit and rank_fits):
            raise ArtifactError(
                f"the saved model has an unknown architecture ({self.classes} classes, {self.members} members, rank "
                f"{self.rank}, bins {self.bins[:MAX_MEMBERS]}): save the model again."
            )


def automatic_members(train: Sets, network: ChoiceNetwork, config: TrainConfig) -> int:
    """Return the number of networks to average if ``members="auto"``: up to 6, depending on the nominal training time.

    Only one network is trained on a table that is read from disk, or by several processes.

    Parameters
    ----------
    train
        Training part.
    network
        The first network, already trained.
    config
        Options of the training loop, with a number of epochs.
    """
    if not isinstance(train, ChoiceData) or current_group().size > 1:
        return 1
    further = AUTO_MEMBERS_SECONDS / nominal_seconds(train, network, config)
    return 1 + min(int(further), AUTO_MEMBERS - 1)


def nominal_seconds(train: ChoiceData, network: ChoiceNetwork, config: TrainConfig) -> float:
    """Return the nominal time to train a network, which does not depend on the speed or the load of the processor."""
    if device_of(network).type != "cpu":
        products_per_second, seconds_per_batch = GPU_SPEED
    else:
        is_compiled = usable_form(network, train.largest) is not None
        products_per_second, seconds_per_batch = COMPILED_SPEED if is_compiled else PYTORCH_SPEED
    products = parameter_count(network) * float(network.count_evaluations(train.sizes).sum(dtype=float))
    batches = len(train) / config.sets_per_batch(len(train))
    return config.passes * (products / products_per_second + batches * seconds_per_batch)


def bins_per_member(members: int, period: int) -> tuple[int, ...]:
    """Return each member's number of bins per numeric column: 0 except for every ``period``-th member.

    Examples
    --------
    >>> bins_per_member(6, period=2)
    (0, 8, 0, 16, 0, 8)
    >>> bins_per_member(6, period=3)
    (0, 0, 8, 0, 0, 16)
    """
    counts = cycle(BIN_COUNTS)
    return tuple(next(counts) if period and (k + 1) % period == 0 else 0 for k in range(members))


class AveragedNetwork(ChoiceNetwork):
    """Network that maps a batch to the logarithms (B, J) of the members' mean probabilities.

    Parameters
    ----------
    members
        Networks to average. The first network has no bins and needs no view.
    views
        For each member after the first, a module that converts a batch to the inputs of that member.
    """

    takes_generators = True

    def __init__(self, members: Sequence[ChoiceNetwork], views: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members, self.views = nn.ModuleList(members), nn.ModuleList(views)

    @property
    def computes_in_chunks(self) -> bool:
        """Whether each member computes in chunks, so that large batches need little more memory than small ones."""
        return members_of(self)[0].computes_in_chunks

    def count_pairs(self, sizes: Ints) -> Ints:
        """Return the number of pairs that each member scores."""
        return members_of(self)[0].count_pairs(sizes)

    def count_evaluations(self, sizes: Ints) -> Ints:
        """Return how often each member is evaluated."""
        return members_of(self)[0].count_evaluations(sizes)

    def member_inputs(self, batch: Batch) -> list[tuple[ChoiceNetwork, Batch]]:
        """Return a list of members, each with its inputs."""
        return list(zip(members_of(self), [batch, *(view(batch) for view in self.views)], strict=True))

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities, with -inf for padding."""
        p = [member.probabilities(inputs) for member, inputs in self.member_inputs(batch)]
        return log_probabilities(sum(p[1:], p[0]) / len(p), batch.mask)


def members_of(network: ChoiceNetwork) -> list[ChoiceNetwork]:
    """Return the averaged networks, or the network itself if it is not an average."""
    if not isinstance(network, AveragedNetwork):
        return [network]
    return [member for member in network.members if isinstance(member, ChoiceNetwork)]


class BinnedView(nn.Module):
    """Module that adds a member's bins to a batch as additional columns.

    Parameters
    ----------
    common
        The encoder that produced the batches.
    member
        The encoder that the member was trained with.
    """

    def __init__(self, common: Encoder, member: Encoder) -> None:
        super().__init__()
        self.features = _BinColumns(common.features, member.features)
        self.individual = _BinColumns(common.individual, member.individual)

    def forward(self, batch: Batch) -> Batch:
        """Return a copy of the batch with the member's bins."""
        numeric, individual = self.features(batch.numeric), self.individual(batch.individual_numeric)
        return replace(batch, numeric=numeric, individual_numeric=individual)


class _BinColumns(nn.Module):
    """Insert bins between the numeric columns and the missing-value indicators: (..., F) -> (..., F + K)."""

    columns: Tensor
    starts: Tensor
    widths: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, common: SideEncoder, member: SideEncoder) -> None:
        super().__init__()
        self.numbers = len(common.numeric)
        position = {code.name: k for k, code in enumerate(common.numeric)}
        bins = [code for code in member.numeric if isinstance(code, BinCode)]
        columns = [position[bin_.name] for bin_ in bins]
        whole = [common.numeric[k] for k in columns]
        self.register_buffer("columns", torch.tensor(columns).long(), persistent=False)
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
