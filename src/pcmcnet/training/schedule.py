"""The learning rate over a fit: a linear rise, then constant or half a cosine down to 0; or a cool-down."""

from __future__ import annotations

import math

from pcmcnet.training.config import TrainConfig


def learning_rate(config: TrainConfig, progress: float) -> float:
    """Return the learning rate when a share ``progress`` of the epochs is done."""
    if progress < config.warmup:
        return config.lr * (0.05 + 0.95 * progress / config.warmup)
    if config.schedule == "constant":
        return config.lr
    left = (progress - config.warmup) / (1 - config.warmup) if config.warmup < 1 else 1.0
    return config.lr * 0.5 * (1 + math.cos(math.pi * left))


def cooling_rate(config: TrainConfig, done: float, *, since: int) -> float:
    """Return the learning rate after ``done`` epochs of which the first ``since`` came before the cool-down."""
    return learning_rate(config, since / config.passes) * max(1 - (done - since) / config.patience, 0.0)
