"""Starting values of networks: relu rates with nonzero gradients, a PCMC fitted to labels, and the inner logit."""

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
    """Increase the output bias if most relu rates of a batch have zero gradient, and return True if it was increased.

    If most rates start with zero gradient, the gradients of the other rates may vanish in training. On MLBA data, the
    gradients of 8 of 90 networks with the paper's initialisation vanished within 15 epochs. No gradients vanished after
    the median score was raised to 1.
    """
    if rates.rate != "relu":
        return False
    scores = rates.scores(individual, alternatives, mask)[real_pairs(mask)]
    if not scores.numel() or bool(scores.median() > 0):
        return False
    rates.output.bias.add_(1 - scores.median())
    return True


# -- Start from PCMC ---------------------------------------------------------------------------------------------------
# If labels are the only inputs, a network starts from the penalised maximum likelihood estimate of PCMC.
#
# Without features a chain has one log-rate for each ordered pair of labels. Its likelihood is flat in many directions,
# in which gradient descent is slow; L-BFGS on the distinct choice sets is not. So the table of log-rates is fitted
# first (`pcmcnet.models.pcmc`), and the network learns a correction of it. The ridge towards the Bradley-Terry model is
# proportional to the weight decay, which is learnt from the table.

MAX_ITEM_LABELS = 50  # 2,450 log-rates
MAX_ITEM_SETS = 100_000  # choice sets of the estimate
RIDGE_PER_DECAY = 2.0
ITEM_STEPS = 200  # maximum number of L-BFGS iterations


def label_codes_if_alone(encoder: Encoder) -> int | None:
    """Return the number of label codes, or None if there are other inputs or too many labels."""
    features = encoder.features
    is_only_input = not (encoder.individual or features.n_numeric or features.contents)
    if not is_only_input or len(features.cardinalities) != 1 or features.cardinalities[0] > MAX_ITEM_LABELS:
        return None
    return features.cardinalities[0] + 1  # one more for unseen labels


@torch.no_grad()
def start_as_items(log_rates: Tensor, data: EncodedSets, decay: float) -> None:
    """Set the log-rates (n, n) of all pairs of label codes to their PCMC estimates."""
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


# -- Start from the logit inside ---------------------------------------------------------------------------------------
# The plain weights b of the linear utility start at their penalised maximum likelihood estimate:
#
#     minimise over b:   - sum_s w_s log softmax(u_s)[chosen]  +  |b|^2 / 2
#
# with weights w_s of mean 1, a standard normal prior, and the signs that the utility imposes on its coefficients. If
# alternatives are a sample, the logarithms of their expansion factors are added to u. The problem is convex, and L-BFGS
# in float64 solves it quickly for any number of categories or words. It uses one thread: threads that share such small
# products wait for each other, and on a busy machine that takes a hundred times longer.

MAX_LOGIT_SETS = 4_000  # choice sets of the estimate, which training improves
LOGIT_START_DECAY = 2.0  # from this weight decay on, a network is a small correction of the logit inside
LOGIT_STEPS = 100  # maximum number of L-BFGS iterations


def start_as_logit(utility: LinearUtility, data: EncodedSets) -> None:
    """Set the weights of the inner logit to their penalised maximum likelihood estimates."""
    from scipy.optimize import Bounds, minimize  # slow to import

    data = data.to(torch.device("cpu"))
    double = deepcopy(utility).cpu().double()
    inputs = data.numeric.double(), data.categorical, [DistinctContents(c.table, c.codes) for c in data.contents]
    weight = data.weight.double() / data.weight.double().mean()
    of_set = torch.repeat_interleave(torch.arange(len(data)), data.counts)
    chosen = data.starts + data.chosen
    correction = 0.0 if data.log_expansion is None else data.log_expansion.double()

    def loss(at: Floats) -> tuple[float, Floats]:
        vector_to_parameters(torch.from_numpy(at), double.plain_weights)
        u = double.plain(*inputs) + correction
        top = torch.full_like(weight, -torch.inf).scatter_reduce(0, of_set, u.detach(), "amax")[of_set]
        sums = torch.zeros_like(weight).index_add(0, of_set, (u - top).exp())
        nll = weight @ (sums.log() - (u - top)[chosen])
        gradient = parameters_to_vector(torch.autograd.grad(nll, double.plain_weights)).numpy()
        return nll.item() + 0.5 * float(at @ at), gradient + at

    start = parameters_to_vector(double.plain_weights).detach().numpy()
    limits = double.plain_bounds
    bounds = None if limits is None else Bounds(*(parameters_to_vector(side).numpy() for side in limits))
    with single_threaded_blas():
        result = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": LOGIT_STEPS})
    with torch.no_grad():
        vector_to_parameters(torch.from_numpy(result.x), double.plain_weights)
        for weights, values in zip(utility.plain_weights, double.plain_weights, strict=True):
            weights.copy_(values)
