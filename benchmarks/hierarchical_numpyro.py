"""Sample the hierarchical logit with NUTS: ``python benchmarks/hierarchical_numpyro.py PROBLEM DRAWS OPTIONS``.

Run it with the interpreter of an environment that has numpyro; it imports only numpy, jax and numpyro. PROBLEM is an
npz file with the differences z (N, T, J - 1, K) of the alternatives that were not chosen from the chosen one. DRAWS is
the npz file to write: draws of the means (C, R, K) and covariances (C, R, K, K), and CPU and wall seconds of
compilation, warm-up and sampling. OPTIONS is JSON: ``centred``, ``chains``, ``warmup``, ``samples`` and ``seed``.

The model is that of ``HierarchicalMNL``, with its prior of Huang and Wand (2013):

    b_n ~ N(m, S)        m ~ N(0, S / 0.01)
    p(S) ~ |S|^(-(nu + 2 K) / 2) prod_k (nu (S^-1)_kk + A^-2)^(-(nu + K) / 2)
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular
from numpyro.infer import NUTS, init_to_value

NU, A = 2, 5.0  # degrees of freedom and scale of the half-t prior
MEAN_SCALE = 10.0  # sqrt(1 / 0.01)
CHUNK = 25  # steps of NUTS in one compiled call


def model(z: Any, *, centred: bool) -> None:
    """Declare the posterior; without ``centred``, part-worths are the mean plus the factor times standard normals."""
    N, _, _, K = z.shape
    # 1. Covariance S = sd R sd. LKJCholesky(1) is uniform over correlation matrices R. Replace the prior of (sd, R) by
    #    that of pcmcnet. The Jacobian of S is prod sd^K, up to a constant.
    half_cauchy = dist.HalfCauchy(1.0).expand([K]).to_event(1)
    sd = numpyro.sample("sd", half_cauchy)
    L = numpyro.sample("L", dist.LKJCholesky(K, 1.0))
    inverse = solve_triangular(L, jnp.eye(K), lower=True)
    precision = (inverse**2).sum(0) / sd**2
    log_determinant = 2 * jnp.log(sd).sum() + 2 * jnp.log(jnp.diagonal(L)).sum()
    log_prior = -(NU + 2 * K) / 2 * log_determinant - (NU + K) / 2 * jnp.log(NU * precision + A**-2).sum()
    numpyro.factor("prior", log_prior + K * jnp.log(sd).sum() - half_cauchy.log_prob(sd))
    # 2. Means, which the choices of all persons determine well, and part-worths.
    factor = sd[:, None] * L
    mean = numpyro.sample("mean", dist.MultivariateNormal(jnp.zeros(K), scale_tril=MEAN_SCALE * factor))
    if centred:
        b = numpyro.sample("b", dist.MultivariateNormal(mean, scale_tril=factor).expand([N]).to_event(1))
    else:
        e = numpyro.sample("e", dist.Normal(0, 1).expand([N, K]).to_event(2))
        b = mean + e @ factor.T
    numpyro.deterministic("covariance", factor @ factor.T)
    # 3. Choices.
    v = jnp.einsum("ntjk,nk->ntj", z, b)
    numpyro.factor("choices", -jax.nn.softplus(jax.scipy.special.logsumexp(v, axis=2)).sum())


class Clock:
    """CPU and wall seconds since the last lap."""

    def __init__(self) -> None:
        self.lap()

    def lap(self) -> np.ndarray:
        """Return CPU and wall seconds since the last call."""
        now = np.array([time.process_time(), time.perf_counter()])
        taken, self.last = now - getattr(self, "last", now), now
        return taken


def sample(z: np.ndarray, options: dict[str, Any]) -> dict[str, np.ndarray]:
    """Run NUTS; return draws and times."""
    K = z.shape[3]
    start = init_to_value(values={"sd": jnp.full(K, 0.5), "L": jnp.eye(K)})
    kernel = NUTS(model, init_strategy=start)
    data, keywords = (jnp.asarray(z, jnp.float32),), {"centred": options["centred"]}
    keys = jax.random.split(jax.random.PRNGKey(options["seed"]), options["chains"])

    def step(state: Any, _: None) -> tuple[Any, Any]:
        state = kernel.sample(state, data, keywords)
        return state, (state.z, state.num_steps, state.diverging)

    # 1. Compile a chunk of steps, which serves warm-up and sampling.
    clock, times = Clock(), np.zeros((3, 2))
    first = [kernel.init(key, options["warmup"], None, data, keywords) for key in keys]
    chunk = jax.jit(lambda state: jax.lax.scan(step, state, None, length=CHUNK)).lower(first[0]).compile()
    times[0] = clock.lap()
    # 2. One chain after the other: warm-up, then draws.
    positions, steps, diverging = [], 0, 0
    for state in first:
        for _ in range(options["warmup"] // CHUNK):
            state, _ = chunk(state)
        jax.block_until_ready(state)
        times[1] += clock.lap()
        parts = []
        for _ in range(options["samples"] // CHUNK):
            state, part = chunk(state)
            parts.append(part)
        jax.block_until_ready(parts)
        times[2] += clock.lap()
        positions.append(jax.tree.map(lambda *a: jnp.concatenate(a), *[z for z, _, _ in parts]))
        steps += sum(int(n.sum()) for _, n, _ in parts)
        diverging += sum(int(d.sum()) for _, _, d in parts)
    # 3. Unconstrained draws to means and covariances.
    convert = jax.jit(jax.vmap(kernel.postprocess_fn(data, keywords)))
    draws = [convert(position) for position in positions]
    total = options["chains"] * options["samples"]
    return {
        "means": np.stack([np.asarray(d["mean"], float) for d in draws]),
        "covariances": np.stack([np.asarray(d["covariance"], float) for d in draws]),
        "times": times,
        "steps": np.array([steps / total, diverging / total]),
        "version": np.array(version("numpyro")),
    }


def main() -> None:
    """Read the problem, sample, and write the draws."""
    problem, out, options = sys.argv[1:]
    np.savez(out, **sample(np.load(problem)["z"], json.loads(options)))


if __name__ == "__main__":
    main()
