"""Choices between pictures: a network that sees pixels alone learns what the pictures stand for, and how it counts.

Each choice set holds five handwritten digits (those of scikit-learn, 8 x 8 pixels). People leave a digit for larger
ones and, on a circle of ten, for those up to four above it rather than for those below. So what is chosen depends on
the company, which no multinomial logit can say. The pictures of the test part are other ones than those of the training
part. Run it by ``python examples/plot_digits.py``.
"""

from __future__ import annotations

import argparse
import io
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

import pcmcnet as pn

Floats = NDArray[np.float64]

SIZE = 5  # pictures of a set
CIRCLE, LARGER = 1.2, 0.2  # how strongly the circle counts, and the value itself
SEEN = 1500  # pictures of the training part; the other 297 are for the test part


class Digits(NamedTuple):
    """Handwritten digits."""

    values: NDArray[np.int64]  # (P,)
    pixels: NDArray[np.uint8]  # (P, 8, 8)
    files: NDArray[Any]  # (P,) as PNG

    def take(self, index: NDArray[np.int64]) -> Digits:
        """Take some of them."""
        return Digits(self.values[index], self.pixels[index], self.files[index])


class Result(NamedTuple):
    """One model on the test part."""

    nll: float
    seconds: float
    model: Any


def digits() -> Digits:
    """Return all 1,797 digits of scikit-learn, each as a PNG file in memory."""
    found = load_digits()
    pixels = (found.images * (255 / 16)).astype(np.uint8)
    files = np.empty(len(pixels), object)
    files[:] = [_png(picture) for picture in pixels]
    return Digits(found.target.astype(np.int64), pixels, files)


def probabilities(values: Floats) -> Floats:
    """(S, J) digits -> (S, J) choice probabilities: the stationary law of the chain of their preferences."""
    above = values[:, None, :] - values[:, :, None]  # (S, J, J): how much larger the one entered is
    rates = np.exp(CIRCLE * np.sin(2 * np.pi * above / 10) + LARGER * above)
    law = pn.stationary_distribution(torch.from_numpy(rates), torch.ones(values.shape, dtype=torch.bool))
    return law.numpy()


def simulate(pool: Digits, sets: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return a long table of choice sets of pictures from a pool."""
    picked = np.stack([rng.choice(len(pool.values), SIZE, replace=False) for _ in range(sets)])
    p = probabilities(pool.values[picked].astype(np.float64))
    chosen = (p.cumsum(1) > rng.random((sets, 1))).argmax(1)
    flat = picked.ravel()
    table = {
        "set": np.repeat(np.arange(sets), SIZE),
        "chosen": (np.arange(SIZE) == chosen[:, None]).astype(int).ravel(),
        "picture": pool.files[flat],
        "value": pool.values[flat],
        "true_probability": p.ravel(),
    }
    pixels = pool.pixels[flat].reshape(len(flat), -1) / 255
    return table | {f"pixel {k}": pixels[:, k] for k in range(pixels.shape[1])}


def read(table: dict[str, Any], *features: str, **kinds: Any) -> pn.ChoiceData:
    """Read some columns as features."""
    return pn.ChoiceData.from_long(table, choice_set="set", chosen="chosen", features=features, kinds=kinds)


def compare(sets: int = 12_000, test: int = 2_000, seed: int = 0, **options: Any) -> tuple[dict[str, Result], Floats]:
    """Fit a network to pictures, the same to the digits' values, and a logit to pixels; also the test sets' truth."""
    options = {"lr": 0.002, **options}
    rng = np.random.default_rng(seed)
    every = digits()
    order = rng.permutation(len(every.values))
    train = simulate(every.take(order[:SEEN]), sets, rng)
    held_out = simulate(every.take(order[SEEN:]), test, rng)
    pixels = [name for name in train if name.startswith("pixel ") and len(np.unique(train[name])) > 8]
    asked: dict[str, tuple[Any, tuple[str, ...], dict[str, Any]]] = {
        "PCMC-Net on the digits' values": (pn.PCMCNet(**options), ("value",), {}),
        "PCMC-Net on pictures": (pn.PCMCNet(**options), ("picture",), {"picture": "image"}),
        "MNL on pixels": (pn.MNL(), tuple(pixels), {}),
    }
    found = {}
    for name, (model, features, kinds) in asked.items():
        began = time.perf_counter()
        model.fit(read(train, *features, **kinds), seed=seed, progress=False)
        nll = -model.score(read(held_out, *features, **kinds))
        found[name] = Result(nll, time.perf_counter() - began, model)
    chosen = held_out["true_probability"][held_out["chosen"] == 1]
    return found, -np.log(chosen)


def copies(model: Any, pool: Digits) -> float:
    """Return how far a set with each picture four times is from sharing the probabilities evenly."""
    once = {"set": [0] * 3, "picture": pool.files[:3]}
    many = {"set": [0] * 12, "picture": np.repeat(pool.files[:3], 4)}
    return float(np.abs(np.repeat(model.predict_proba(once) / 4, 4) - model.predict_proba(many)).max())


def main() -> None:
    """Fit the models, print what they come to, and draw some test sets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/digits"), help="folder for the picture")
    parser.add_argument("--sets", type=int, default=12_000, help="choice sets to train on")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of the networks")
    parser.add_argument("--seed", type=int, default=0, help="of the pictures' parts, the choices and the networks")
    arguments = parser.parse_args()
    found, truth = compare(arguments.sets, seed=arguments.seed, epochs=arguments.epochs)
    for name, (nll, seconds, _) in found.items():
        print(f"{name:32} NLL {nll:.4f} after {seconds:.0f} s")
    print(f"{'the truth':32} NLL {truth.mean():.4f}; by chance {np.log(SIZE):.4f}")
    model = found["PCMC-Net on pictures"].model
    print(f"{'copies of pictures':32} share evenly to {copies(model, digits()):.1e}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    draw(model, digits().take(np.arange(40)), arguments.output / "digits.png")


def draw(model: Any, pool: Digits, path: Path) -> None:
    """Draw sets of pictures, with the true probability of each and that of the model."""
    from matplotlib import pyplot as plt

    table = simulate(pool, 4, np.random.default_rng(1))
    p = model.predict_proba({"set": table["set"], "picture": table["picture"]})
    figure, axes = plt.subplots(4, SIZE, figsize=(7, 7))
    for k, axis in enumerate(axes.flat):
        axis.imshow(Image.open(io.BytesIO(table["picture"][k])), cmap="gray_r")
        axis.set_title(f"{p[k]:.2f} (true {table['true_probability'][k]:.2f})", fontsize=8)
        axis.axis("off")
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


if __name__ == "__main__":
    main()
