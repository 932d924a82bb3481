"""What the training loop may ask of a network: one base class declares all of it.

    loss of a network = sum_s w_s l_s / sum_s w_s  +  1/S sum_k theta_k^2 / 2

l_s is the loss of choice set s (:meth:`ChoiceNetwork.set_losses`, the negative log-likelihood of its choice unless a
network says otherwise), w_s its weight, S the number of training sets, and theta_k are the weights with a standard
normal prior (``prior_weights``); all other weights have weight decay. The loop, the steps and prediction know no model.
They ask a network for what is declared here, and every answer has a default: a subclass defines ``forward`` alone, and
overrides what is different for it.
Shapes: a batch of B choice sets with up to J alternatives -> log-probabilities (B, J), losses (B,).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from torch import Tensor, nn

from pcmcnet.data.batches import Batch, EncodedSets
from pcmcnet.layers.likelihood import choice_nll

if TYPE_CHECKING:
    from pcmcnet.training.compiled_steps import CompiledForm


class SignConstrained(Protocol):
    """A part of a network some of whose weights have a sign."""

    def project_(self) -> None:
        """Set weights of the wrong sign to 0, in place."""


class ChoiceNetwork(nn.Module):
    """A network that maps a batch of choice sets to log-probabilities, and declares what the loop may ask of it.

    Attributes
    ----------
    batches_by_person
        Whether a batch holds all sets of a person, as a loss of persons needs it. No by default.
    supports_cuda_graphs
        Whether a training step launches the same kernels for every batch of a shape and never waits for the device: on
        a GPU its steps are then recorded and replayed. No by default.
    takes_generators
        Whether all random numbers of ``forward`` are drawn by the modules of :mod:`pcmcnet.layers`, which ask for the
        run's own generators. If not, the default, each operator that draws is redirected to them, which takes longer.
    """

    batches_by_person: bool = False
    supports_cuda_graphs: bool = False
    takes_generators: ClassVar[bool] = False

    def forward(self, batch: Batch) -> Tensor:
        """Return the log-probabilities of the alternatives (B, J); padding gets -inf."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward(batch).")

    def probabilities(self, batch: Batch) -> Tensor:
        """Return the probabilities of the alternatives (B, J); padding gets 0."""
        p: Tensor = self(batch).exp()
        return p

    def prepare(self, sets: EncodedSets, pair_budget: int) -> None:
        """Look at some training sets before training: check that the network can learn. Nothing by default.

        Raises
        ------
        InputError
            If there is nothing to learn.
        """

    def set_starting_values(self, sample: Callable[[int], EncodedSets], decay: float) -> None:
        """Set weights by a quick estimate before training; nothing by default.

        Parameters
        ----------
        sample
            Returns at most so many encoded training sets.
        decay
            The weight decay of the training.
        """

    def set_losses(self, batch: Batch) -> Tensor:
        """Return the loss of each set of a batch (B,): by default the negative log-likelihood of its choice.

        Training minimises the mean of these losses, weighted by set. The losses of held-out sets are always negative
        log-likelihoods.
        """
        return choice_nll(self(batch), batch.chosen)

    @property
    def loss_is_nll(self) -> bool:
        """Whether ``set_losses`` is the default, so that steps may compute the mean loss in one fused kernel."""
        return type(self).set_losses is ChoiceNetwork.set_losses

    @property
    def prior_weights(self) -> Sequence[nn.Parameter]:
        """Parameters with a standard normal prior in place of weight decay; none by default."""
        return ()

    @property
    def sign_constrained(self) -> Sequence[SignConstrained]:
        """Parts whose weights are projected to their signs after each step; none by default."""
        return ()

    @property
    def compiled_form(self) -> CompiledForm | None:
        """The weights by their part in the formula of the C training steps; None, the default, if it is another one."""
        return None

    @property
    def computes_in_chunks(self) -> bool:
        """Whether a large batch takes little more memory than a small one; prediction on a GPU then takes large ones.

        No by default.
        """
        return False
