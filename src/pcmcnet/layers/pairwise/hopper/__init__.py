"""The last hidden layer on a Hopper chip, for activations that are a line on each side of 0: act(x) = c x, c its slope.

    scores    f_p = sum_u w_u c_pu x_pu,   x = h weight^T + bias             the slopes c, 0 where dropped, may be kept
    backward  with g_p = dL/df_p:   G = sum_p g_p c_p h_p^T  and  s = sum_p g_p c_p   give all gradients of the layer:
              d weight = w G,   d bias = w s,   d w = rows of (weight G) + bias s,   d h_p = g_p (c_p (w weight))

So nothing but the slopes is kept of x, and no pass over pairs and units stands between the products. In all kernels
there are two groups of four warps: while one works on its numbers, the other keeps the matrix units busy.
"""

from pcmcnet.layers.pairwise.hopper.forward import last_layer_forward
from pcmcnet.layers.pairwise.hopper.input_gradient import last_layer_input_gradient
from pcmcnet.layers.pairwise.hopper.matrix_product import unit_tiles
from pcmcnet.layers.pairwise.hopper.scaled_weights import scaled_weights
from pcmcnet.layers.pairwise.hopper.tiles import fits
from pcmcnet.layers.pairwise.hopper.weight_gradient import last_layer_gradients

__all__ = [
    "fits",
    "last_layer_forward",
    "last_layer_gradients",
    "last_layer_input_gradient",
    "scaled_weights",
    "unit_tiles",
]
