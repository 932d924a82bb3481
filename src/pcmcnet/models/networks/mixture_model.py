"""Base classes of networks with latent classes, and of models with latent classes or averaged networks.

    p(S) = sum_k m_k(I) p_k(S),        m(I) = softmax(a + A I),        k one of K unknown classes

If each person belongs to one class, the choices of a person have a joint likelihood:

    P(i_1, i_2, ... | I) = sum_k m_k(I) prod_s p_k(i_s in S_s)

All choice sets of a person are then in the same batch. If individual-level columns vary between the sets of a person,
the mean of a + A I over these sets is used. A network with latent classes inherits from :class:`LatentClassNetwork`,
and its model from :class:`MixtureModel`, whose options include ``classes``, ``by`` and ``members``. Shapes: B sets of
up to J alternatives, K classes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import Batch, ChoiceData, ScannedData, Sets
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.errors import ConfigError
from pcmcnet.layers import log_probabilities
from pcmcnet.layers.threads import one_thread_per_operation
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.latent_classes import ClassesBy, LatentClasses
from pcmcnet.models.networks.averaged_members import MAX_MEMBERS
from pcmcnet.models.networks.fitting import FittedNetwork, fit_network
from pcmcnet.models.networks.neural_model import NeuralModel
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.network import ChoiceNetwork


def require_classes_and_members(classes: int | Literal["auto"], by: ClassesBy, members: int | Literal["auto"]) -> None:
    """Raise ConfigError unless the options of a model with latent classes and averaged networks are valid."""
    require_word("by", by, get_args(ClassesBy))
    if classes != "auto":
        require_number("classes", classes, whole=True, low=1)
    if members != "auto":
        require_number("members", members, whole=True, low=1, high=MAX_MEMBERS)
    if members not in ("auto", 1) and classes != 1:
        raise ConfigError(f"members={members} needs classes=1: classes of different networks do not match.")


def one_network(config: Any) -> dict[str, int]:
    """Return the option ``members=1`` if ``members`` is "auto", for callers that average models themselves."""
    return {"members": 1} if getattr(config, "members", 1) == "auto" else {}


class LatentClassNetwork(ChoiceNetwork):
    """Network that maps a batch to the log-probabilities (B, J) of a mixture of K latent classes."""

    classes: int

    @abstractmethod
    def classwise(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits a + A I (B, K) of the class shares, and the probabilities (B, K, J) in each class."""

    def log_membership(self, batch: Batch) -> Tensor:
        """Return the logarithms (B, K) of the prior class shares."""
        return self.classwise(batch)[0].log_softmax(-1)

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities, with -inf for padding."""
        logits, p = self.classwise(batch)
        return log_probabilities((logits.softmax(-1).unsqueeze(-1) * p).sum(1), batch.mask)

    def set_losses(self, batch: Batch) -> Tensor:
        """Return the loss (B,) of each set: its NLL, or an equal share of the joint NLL of its person's choices."""
        if not self.batches_by_person or batch.person is None:
            return super().set_losses(batch)
        logits, p = self.classwise(batch)
        chosen = p.gather(2, batch.chosen.view(-1, 1, 1).expand(-1, self.classes, 1)).squeeze(2)  # (B, K)
        return joint_losses(logits, chosen.clamp(min=torch.finfo(p.dtype).tiny).log(), batch.person)


def joint_losses(logits: Tensor, log_p: Tensor, person: Tensor) -> Tensor:  # (B, K), (B, K), (B,) -> (B,)
    """Return the negative joint log-likelihood of each person's choices, divided equally among the person's sets.

    The sets of a person must be adjacent. ``log_p`` holds the log-probabilities of the chosen alternatives in each
    class.
    """
    # 1. Number the persons from 0. The sums below have B rows; rows after the last person stay 0.
    changes = person[1:] != person[:-1]
    number = torch.cat([changes.new_zeros(1), changes]).cumsum(0)

    def summed(values: Tensor) -> Tensor:
        return torch.zeros_like(values).index_add(0, number, values)

    # 2. Compute the mean logits of the shares, and the log-likelihood in each class, over the sets of a person.
    sets = summed(torch.ones_like(log_p[:, :1])).clamp(min=1)  # (B, 1)
    joint = ((summed(logits) / sets).log_softmax(-1) + summed(log_p)).logsumexp(-1, keepdim=True)
    # 3. Divide the loss of a person equally among the sets.
    return -(joint / sets)[number].squeeze(1)


class MixtureModel(NeuralModel, LatentClasses):
    """A network model whose options include ``classes``, ``by`` and ``members``."""

    config: Any

    @one_thread_per_operation(math.inf)
    def _fit(self, train: Sets, valid: Sets | None, run: FitRun) -> FittedNetwork:
        config = self.config
        is_split = isinstance(train, ScannedData) or current_group().size > 1
        if config.classes != 1 and config.by == "person" and train.schema.person is not None and is_split:
            raise ConfigError(
                "by='person' is not supported for tables larger than memory or for fits by several processes: read the "
                "table into memory and fit it in one process, or use by='set'."
            )
        return fit_network(
            self._trainer(train, valid, run),
            train,
            valid,
            classes=config.classes,
            members=config.members,
            average=self.average_class,
        )

    @property
    def n_classes_(self) -> int:
        """Number of latent classes."""
        return self.spec_.classes

    def _log_membership(self, sets: ChoiceData) -> Floats:
        log_shares, network = np.zeros((len(sets), self.n_classes_)), self.network_
        if isinstance(network, LatentClassNetwork):
            for positions, values in self._predict_batches(sets, network.log_membership):
                log_shares[positions] = values.double().cpu().numpy()
        return log_shares

    def _class_log_p(self, data: ChoiceData) -> Floats:
        network = self.network_
        if not isinstance(network, LatentClassNetwork):
            return self._log_proba(data)[:, None]
        log_p = np.empty((len(data.rows), self.n_classes_))
        for positions, p in self._predict_batches(data, lambda batch: network.classwise(batch)[1]):  # (B, K, J)
            sizes = data.sizes[positions]
            real = np.arange(p.shape[2]) < sizes[:, None]  # (B, J)
            with np.errstate(divide="ignore"):
                rows = consecutive_indices(data.offsets[positions], sizes)
                log_p[rows] = np.log(p.double().cpu().numpy().swapaxes(1, 2)[real])
        return log_p

    def _more_facts(self) -> dict[str, str]:
        facts, spec, trials = {}, self.spec_, self.record_.class_trials
        if self.config.classes != 1:
            facts["classes"] = f"{spec.classes}" + (", one chain each" if spec.classes > 1 else "")
        if trials:
            gains = (f"{t.value:g} classes {t.gain:+.4f} ± {t.standard_error:.4f}" for t in trials[1:])
            facts["classes"] += f"; gain in held-out NLL: {', '.join(gains)}"
        if spec.members > 1:
            with_bins = sum(bins > 0 for bins in spec.bins)
            note = f"; {with_bins} also use piecewise-linear inputs" if with_bins else ""
            facts["networks"] = f"average of {spec.members}{note}"
        return facts
