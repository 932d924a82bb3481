"""The base class of networks, which declares every attribute and method that the training loop uses.

    loss of a network = sum_s w_s l_s / sum_s w_s  +  1/S sum_k theta_k^2 / 2

Here l_s is the loss of choice set s (:meth:`ChoiceNetwork.set_losses`, by default the negative log-likelihood of its
choice), w_s its weight, and S the number of training sets. The theta_k are the weights with a standard normal prior
(``prior_weights``). All other weights have weight decay. Training and prediction depend only on this class, and not on
any model. Everything except ``forward`` has a default, which a subclass overrides if needed. Shapes: a batch of B
choice sets with up to J alternatives -> log-probabilities (B, J), losses (B,).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from torch import Tensor, nn

from pcmcnet.arrays import Ints
from pcmcnet.data.batches import Batch, EncodedSets
from pcmcnet.layers.likelihood import choice_nll

if TYPE_CHECKING:
    from pcmcnet.training.compiled_steps import CompiledForm


class SignConstrained(Protocol):
    """Part of a network with sign constraints on some of its weights."""

    def project_(self) -> None:
        """Set weights of the wrong sign to 0, in place."""


class ChoiceNetwork(nn.Module):
    """Base class of networks that map a batch of choice sets to log-probabilities.

    Attributes
    ----------
    batches_by_person
        Whether all sets of a person must be in the same batch, because the loss is computed by person. Default False.
    supports_cuda_graphs
        Whether a training step launches the same kernels for every batch of the same shape and never waits for the
        device. The steps of such a network are captured as CUDA graphs and replayed. Default False.
    takes_generators
        Whether all random numbers of ``forward`` are drawn by modules of :mod:`pcmcnet.layers`, which use the
        generators of the run. If False (default), every operator that draws random numbers is redirected to these
        generators, which is slower.
    """

    batches_by_person: bool = False
    supports_cuda_graphs: bool = False
    takes_generators: ClassVar[bool] = False

    def forward(self, batch: Batch) -> Tensor:
        """Return the log-probabilities of the alternatives.

        Parameters
        ----------
        batch
            B choice sets with up to J alternatives.

        Returns
        -------
        Tensor
            Log-probabilities (B, J), with -inf for padding.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define forward(batch).")

    def probabilities(self, batch: Batch) -> Tensor:
        """Return the probabilities of the alternatives.

        Parameters
        ----------
        batch
            B choice sets with up to J alternatives.

        Returns
        -------
        Tensor
            Probabilities (B, J), with 0 for padding.
        """
        p: Tensor = self(batch).exp()
        return p

    def count_pairs(self, sizes: Ints) -> Ints:
        """Return the number of pairs that the network scores in choice sets of the given sizes.

        Batches limit this number, which determines memory. By default, all ordered pairs of alternatives.

        Parameters
        ----------
        sizes
            Numbers of alternatives.
        """
        return sizes**2

    def count_evaluations(self, sizes: Ints) -> Ints:
        """Return how often the network is evaluated for choice sets of the given sizes.

        This number times the number of weights determines time. By default, once for every pair.

        Parameters
        ----------
        sizes
            Numbers of alternatives.
        """
        return self.count_pairs(sizes)

    def prepare(self, sets: EncodedSets, pair_budget: int) -> None:
        """Check on some training sets that the network can learn. By default, nothing is checked.

        Parameters
        ----------
        sets
            Some encoded training sets.
        pair_budget
            Maximum number of ordered pairs of alternatives in a batch.

        Raises
        ------
        InputError
            If the network cannot learn anything from the sets.
        """

    def set_starting_values(self, sample: Callable[[int], EncodedSets], decay: float) -> None:
        """Set weights to a quick estimate before training. By default, no weights are set.

        Parameters
        ----------
        sample
            Function that returns at most a given number of encoded training sets.
        decay
            Weight decay in training.
        """

    def set_losses(self, batch: Batch) -> Tensor:
        """Return the loss of each choice set: by default the negative log-likelihood of its choice.

        Training minimises the weighted mean of these losses. The losses of held-out sets are always negative
        log-likelihoods.

        Parameters
        ----------
        batch
            B choice sets with up to J alternatives.

        Returns
        -------
        Tensor
            Losses (B,).
        """
        return choice_nll(self(batch), batch.chosen)

    @property
    def loss_is_nll(self) -> bool:
        """Whether ``set_losses`` is the default, so that a fused kernel may compute the mean loss."""
        return type(self).set_losses is ChoiceNetwork.set_losses

    @property
    def prior_weights(self) -> Sequence[nn.Parameter]:
        """Parameters with a standard normal prior instead of weight decay (none by default)."""
        return ()

    @property
    def sign_constrained(self) -> Sequence[SignConstrained]:
        """Modules whose weights are projected to their sign constraints after each step (none by default)."""
        return ()

    @property
    def compiled_form(self) -> CompiledForm | None:
        """The weights in the form of the compiled training steps, or None (default) if the network is not supported."""
        return None

    @property
    def computes_in_chunks(self) -> bool:
        """Whether memory hardly grows with the batch size, so that a GPU can predict large batches.

        Default False.
        """
        return False
