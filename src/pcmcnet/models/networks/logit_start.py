"""Start a network as the logit inside it: its plain weights b at their penalised maximum likelihood.

    minimise over b:   - sum_s w_s log softmax(u_s)[chosen]  +  |b|^2 / 2

with weights w_s of mean 1 and a standard normal prior, and b within the signs that the utility gives its coefficients.
The problem is convex, and L-BFGS in float64 solves it in a moment, whatever the number of categories or words. Threads
that share its small products wait for each other much longer than that, on a busy machine a hundred times.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pcmcnet.arrays import Floats
from pcmcnet.data.batches import Distinct, EncodedSets
from pcmcnet.layers.inner_logit import LinearUtility
from pcmcnet.models.logits.estimation.parallel import products_in_one_thread

SETS = 4_000  # that a start is learnt from: what is missing after it is learnt in training
FROM_DECAY = 2.0  # on which a network, held that firmly, is a correction of the logit inside it
STEPS = 100  # of L-BFGS, at most


def start_as_logit(utility: LinearUtility, data: EncodedSets) -> None:
    """Set the plain weights to those of the logit that fits the choices best; the sets lie one after another."""
    from scipy.optimize import Bounds, minimize  # slow to import

    data = data.to(torch.device("cpu"))
    double = deepcopy(utility).cpu().double()
    inputs = data.numeric.double(), data.categorical, [Distinct(c.table, c.codes) for c in data.contents]
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
    with products_in_one_thread():
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS})
    with torch.no_grad():
        vector_to_parameters(torch.from_numpy(found.x), double.plain_weights)
        for weights, values in zip(utility.plain_weights, double.plain_weights, strict=True):
            weights.copy_(values)
