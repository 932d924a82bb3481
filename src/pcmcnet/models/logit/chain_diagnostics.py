"""Convergence of Markov chains: split R-hat and bulk effective sample size.

Each of C chains with R draws is divided into halves, and all draws are replaced by the normal scores of their ranks
(Vehtari, Gelman, Simpson, Carpenter & Buerkner, 2021). With M = 2 C halves of n draws, let W be the mean of the
variances within the halves, and B / n the variance of their means:

    V = (n - 1) / n W + B / n        R-hat = sqrt(V / W)

R-hat is the larger of the values for the draws and for their distances from the median, which differ between chains of
different spread. The bulk effective sample size is M n / tau, with tau = 1 + 2 sum_t rho_t. The autocorrelations
rho_t = 1 - (W - mean autocovariance at lag t) / V are summed up to the first pair with a negative sum, and the sums of
pairs may not rise (Geyer, 1992).
"""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Floats

_ENDS = 0.375  # of the ranks, in Blom's normal scores
_MIN_DRAWS = 4  # in a half of a chain


def split_rhat(draws: Floats) -> float:  # (C, R)
    """Return the split R-hat of a parameter, or NaN if there are too few draws. A constant has the value 1."""
    halves = _halves(draws)
    if halves.shape[1] < _MIN_DRAWS:
        return float("nan")
    folded = np.abs(halves - np.median(halves))
    return max(_rhat(_normal_scores(halves)), _rhat(_normal_scores(folded)))


def bulk_effective_size(draws: Floats) -> float:  # (C, R)
    """Return the bulk effective sample size of a parameter, or NaN if there are too few draws."""
    halves = _normal_scores(_halves(draws))
    M, n = halves.shape
    if n < _MIN_DRAWS:
        return float("nan")
    # 1. Autocovariances of each half, by the fast Fourier transform.
    centred = halves - halves.mean(1, keepdims=True)
    length = 2 ** int(np.ceil(np.log2(2 * n)))
    transformed = np.fft.rfft(centred, length)
    covariances = np.fft.irfft(np.abs(transformed) ** 2, length)[:, :n] / n
    within = covariances[:, 0].mean() * n / (n - 1)
    variance = within * (n - 1) / n + halves.mean(1).var(ddof=1)
    if variance <= 0:
        return float(M * n)
    # 2. Sums of pairs of autocorrelations, while they are positive, made monotone.
    correlations = 1 - (within - covariances.mean(0)) / variance
    correlations[0] = 1.0
    pairs = correlations[: n // 2 * 2].reshape(-1, 2).sum(1)
    negative = np.flatnonzero(pairs < 0)
    positive = pairs[: negative[0]] if len(negative) else pairs
    tau = max(2 * np.minimum.accumulate(positive).sum() - 1, 1 / np.log10(M * n))
    return float(M * n / tau)


def _halves(draws: Floats) -> Floats:  # (C, R) -> (2 C, R / 2)
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _normal_scores(values: Floats) -> Floats:
    from scipy.special import ndtri
    from scipy.stats import rankdata

    ranks = rankdata(values, method="average").reshape(values.shape)
    scores: Floats = ndtri((ranks - _ENDS) / (values.size - 2 * _ENDS + 1))
    return scores


def _rhat(halves: Floats) -> float:
    n = halves.shape[1]
    within = halves.var(axis=1, ddof=1).mean()
    between = halves.mean(1).var(ddof=1)
    if within <= 0:
        return 1.0 if between <= 0 else float("inf")
    return float(np.sqrt((n - 1) / n + between / within))
