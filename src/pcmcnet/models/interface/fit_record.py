"""The history of a fit: one entry per epoch, of models that train in epochs, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pcmcnet.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class History:
    """A model with one entry per epoch of its fit, and of the fits of its members if it has some."""

    @property
    def members_(self) -> Sequence[Any]:
        """The fitted models whose probabilities are averaged, if there are some."""
        return ()

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per epoch."""
        raise NotImplementedError

    def plot_history(self, ax: Axes | None = None) -> Axes:
        """Draw the loss by epoch; ``history`` has the numbers.

        Parameters
        ----------
        ax
            Where to draw; a new figure if None.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        InputError
            When the model is not fitted, or does not train in epochs.
        """
        members = {f"member {k}": m.history for k, m in enumerate(self.members_, start=1) if m.history}
        if not self.history and not members:
            raise InputError(f"{type(self).__name__} has no history: it is not fitted, or does not train in epochs.")
        from pcmcnet.plots.quality import plot_learning_curve

        return plot_learning_curve(members or self.history, ax)
