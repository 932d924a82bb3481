"""Start a network that knows labels alone as the chain of items, PCMC: its log-rates at their penalised maximum.

Without features a chain has one log-rate for each ordered pair of labels and nothing else to learn. Their likelihood is
flat in many directions, in which gradient descent hardly moves and L-BFGS over the distinct sets does not mind. So the
table of log-rates is fitted first (:mod:`pcmcnet.models.items.pcmc`) and the network learns what to add to it. The
ridge that pulls it towards Bradley-Terry's chain goes with the weight decay, and so is learnt from the table.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pcmcnet.data.batches import EncodedSets
from pcmcnet.data.encoding import Encoder
from pcmcnet.models.items.pcmc_estimation import SMOOTHING, ChainOptions, bradley_terry_chain, fit_chain
from pcmcnet.models.items.universe import DistinctSets

MOST_LABELS = 50  # 2,450 log-rates
SETS = 100_000  # that a start is learnt from
RIDGE = 2.0  # for a weight decay of 1
STEPS = 200  # of L-BFGS, at most


def labels_alone(encoder: Encoder) -> int | None:
    """Return the number of codes of the labels, where nothing else is known of alternatives and individuals."""
    who, what = encoder.individual, encoder.features
    alone = not who and not what.n_numeric and not what.contents and len(what.cardinalities) == 1
    return what.cardinalities[0] + 1 if alone and what.cardinalities[0] <= MOST_LABELS else None


@torch.no_grad()
def start_as_items(log_rates: Tensor, data: EncodedSets, decay: float) -> None:
    """Set the table of log-rates (n, n), by codes, to that of the chain of items."""
    data = data.to(torch.device("cpu"))
    starts = np.append(data.starts.numpy(), len(data.categorical))
    items, weights = data.categorical[:, 0].numpy(), data.weight.double() / data.weight.double().mean()
    options = ChainOptions(speeds=1.0, restarts=1, max_iter=STEPS)
    sets = DistinctSets.of_items(items, starts, data.chosen.numpy(), weights.numpy()).smoothed(SMOOTHING)
    with torch.enable_grad():
        prior = bradley_terry_chain(sets, len(log_rates))
        chain = fit_chain(sets, prior, RIDGE * decay, options, np.random.default_rng(0))
    log_rates.copy_(torch.from_numpy(chain.log_rates))
