"""Starting values of networks: a start that can learn, the chain of items for labels alone, the logit inside."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pcmcnet.arrays import Floats
from pcmcnet.data.batches import DistinctContents, EncodedSets
from pcmcnet.data.encoder import Encoder
from pcmcnet.layers.inner_logit import LinearUtility
from pcmcnet.layers.pairwise.pairwise_rates import PairwiseRates
from pcmcnet.layers.tensor_ops import real_pairs
from pcmcnet.models.items.pcmc_estimation import SMOOTHING, ChainOptions, fit_chain
from pcmcnet.models.items.universe import DistinctSets
from pcmcnet.models.logit.maximum_likelihood import single_threaded_blas

# -- Dead starts ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def revive_dead_rates(rates: PairwiseRates, individual: Tensor, alternatives: Tensor, mask: Tensor) -> bool:
    """Return whether most relu rates of a batch start without a gradient; raise the output bias if so.

    If most pairs start without a gradient, the few that have one may die in training: on MLBA data 8 of 90 starts of
    the paper's kind did so within 15 epochs, and none with the median score raised to 1.
    """
    if rates.rate != "relu":
        return False
    scores = rates.scores(individual, alternatives, mask)[real_pairs(mask)]
    if not scores.numel() or bool(scores.median() > 0):
        return False
    rates.output.bias.add_(1 - scores.median())
    return True


# -- Item start --------------------------------------------------------------------------------------------------------
# Start a network that knows labels alone as the chain of items, PCMC: its log-rates at their penalised maximum.
#
# Without features a chain has one log-rate for each ordered pair of labels and nothing else to learn. Their likelihood
# is flat in many directions, in which gradient descent hardly moves and L-BFGS over the distinct sets does not mind. So
# the table of log-rates is fitted first (`pcmcnet.models.pcmc`) and the network learns what to add to it. The ridge
# that pulls it towards Bradley-Terry's chain goes with the weight decay, and so is learnt from the table.

MAX_ITEM_LABELS = 50  # 2,450 log-rates
MAX_ITEM_SETS = 100_000  # that a start is learnt from
RIDGE_PER_DECAY = 2.0  # for a weight decay of 1
ITEM_STEPS = 200  # of L-BFGS, at most


def label_codes_if_alone(encoder: Encoder) -> int | None:
    """Return the number of codes of the labels, where nothing else is known of alternatives and individuals."""
    who, what = encoder.individual, encoder.features
    alone = not who and not what.n_numeric and not what.contents and len(what.cardinalities) == 1
    return what.cardinalities[0] + 1 if alone and what.cardinalities[0] <= MAX_ITEM_LABELS else None


@torch.no_grad()
def start_as_items(log_rates: Tensor, data: EncodedSets, decay: float) -> None:
    """Set the table of log-rates (n, n), by codes, to that of the chain of items."""
    from pcmcnet.models.items.pcmc_estimation import bradley_terry_chain

    data = data.to(torch.device("cpu"))
    starts = np.append(data.starts.numpy(), len(data.categorical))
    items, weights = data.categorical[:, 0].numpy(), data.weight.double() / data.weight.double().mean()
    options = ChainOptions(speeds=1.0, restarts=1, max_iter=ITEM_STEPS)
    sets = DistinctSets.of_items(items, starts, data.chosen.numpy(), weights.numpy()).smoothed(SMOOTHING)
    with torch.enable_grad():
        prior = bradley_terry_chain(sets, len(log_rates))
        chain = fit_chain(sets, prior, RIDGE_PER_DECAY * decay, options, np.random.default_rng(0))
    log_rates.copy_(torch.from_numpy(chain.log_rates))


# -- Start a network as the logit inside it: its plain weights b at their penalised maximum likelihood -----------------
#
#     minimise over b:   - sum_s w_s log softmax(u_s)[chosen]  +  |b|^2 / 2
#
# with weights w_s of mean 1 and a standard normal prior, and b within the signs that the utility gives its
# coefficients. The problem is convex, and L-BFGS in float64 solves it in a moment, whatever the number of categories or
# words. Threads that share its small products wait for each other much longer than that, on a busy machine a hundred
# times.

MAX_LOGIT_SETS = 4_000  # that a start is learnt from: what is missing after it is learnt in training
LOGIT_START_DECAY = 2.0  # on which a network, held that firmly, is a correction of the logit inside it
LOGIT_STEPS = 100  # of L-BFGS, at most


def start_as_logit(utility: LinearUtility, data: EncodedSets) -> None:
    """Set the plain weights to those of the logit that fits the choices best; the sets lie one after another."""
    from scipy.optimize import Bounds, minimize  # slow to import

    data = data.to(torch.device("cpu"))
    double = deepcopy(utility).cpu().double()
    inputs = data.numeric.double(), data.categorical, [DistinctContents(c.table, c.codes) for c in data.contents]
    weight = data.weight.double() / data.weight.double().mean()
    of_set = torch.repeat_interleave(torch.arange(len(data)), data.counts)
    chosen = data.starts + data.chosen

    def loss(at: Floats) -> tuple[float, Floats]:
        vector_to_parameters(torch.from_numpy(at), double.plain_weights)
        u = double.plain(*inputs)
        top = torch.full_like(weight, -torch.inf).scatter_reduce(0, of_set, u.detach(), "amax")[of_set]
        sums = torch.zeros_like(weight).index_add(0, of_set, (u - top).exp())
        nll = weight @ (sums.log() - (u - top)[chosen])
        found = torch.autograd.grad(nll, double.plain_weights)
        return nll.item() + 0.5 * float(at @ at), parameters_to_vector(found).numpy() + at

    start = parameters_to_vector(double.plain_weights).detach().numpy()
    limits = double.plain_bounds
    bounds = None if limits is None else Bounds(*(parameters_to_vector(side).numpy() for side in limits))
    with single_threaded_blas():
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": LOGIT_STEPS})
    with torch.no_grad():
        vector_to_parameters(torch.from_numpy(found.x), double.plain_weights)
        for weights, values in zip(utility.plain_weights, double.plain_weights, strict=True):
            weights.copy_(values)
