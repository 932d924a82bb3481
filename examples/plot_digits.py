"""Choices between pictures: a network that sees only pixels learns which digits people prefer.

Each choice set has five pictures of handwritten digits (from scikit-learn, 8 x 8 pixels). People prefer larger digits
and, on a circle of ten, digits up to four steps above rather than below. So a choice depends on the other digits in the
set, which a multinomial logit cannot represent. Training and test part share no pictures. Run it with
``python examples/plot_digits.py``.
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

SIZE = 5  # pictures per choice set
CIRCLE, LARGER = 1.2, 0.2  # weights of the circle and of the value itself
TRAIN_PICTURES = 1500  # the other 297 pictures are for the test part


class Digits(NamedTuple):
    """Handwritten digits."""

    values: NDArray[np.int64]  # (P,)
    pixels: NDArray[np.uint8]  # (P, 8, 8)
    files: NDArray[Any]  # (P,) as PNG

    def take(self, index: NDArray[np.int64]) -> Digits:
        """Return a subset."""
        return Digits(self.values[index], self.pixels[index], self.files[index])


class Result(NamedTuple):
    """Result of one model on the test part."""

    nll: float
    seconds: float
    model: Any


def digits() -> Digits:
    """Return all 1,797 digits of scikit-learn, each as a PNG file in memory."""
    dataset = load_digits()
    pixels = (dataset.images * (255 / 16)).astype(np.uint8)
    files = np.empty(len(pixels), object)
    files[:] = [_png(picture) for picture in pixels]
    return Digits(dataset.target.astype(np.int64), pixels, files)


def probabilities(values: Floats) -> Floats:
    """(S, J) digits -> (S, J) choice probabilities: the stationary distribution of a chain of preferences."""
    difference = values[:, None, :] - values[:, :, None]  # (S, J, J): entered digit minus left digit
    rates = np.exp(CIRCLE * np.sin(2 * np.pi * difference / 10) + LARGER * difference)
    p = pn.stationary_distribution(torch.from_numpy(rates), torch.ones(values.shape, dtype=torch.bool))
    return p.numpy()


def simulate(pool: Digits, sets: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return a table in long format: choice sets of pictures from a pool."""
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
    """Read a table with these columns as features."""
    return pn.ChoiceData.from_long(table, choice_set="set", chosen="chosen", features=features, kinds=kinds)


def compare(sets: int = 12_000, test: int = 2_000, seed: int = 0, **options: Any) -> tuple[dict[str, Result], Floats]:
    """Fit a network to pictures, a network to the values of the digits, and a logit to pixels.

    Returns their results, and the negative log-likelihoods of the test choices under the true probabilities.
    """
    options = {"lr": 0.002, **options}
    rng = np.random.default_rng(seed)
    pictures = digits()
    order = rng.permutation(len(pictures.values))
    train = simulate(pictures.take(order[:TRAIN_PICTURES]), sets, rng)
    held_out = simulate(pictures.take(order[TRAIN_PICTURES:]), test, rng)
    pixels = [name for name in train if name.startswith("pixel ") and len(np.unique(train[name])) > 8]
    models: dict[str, tuple[Any, tuple[str, ...], dict[str, Any]]] = {
        "PCMC-Net on the digits' values": (pn.PCMCNet(**options), ("value",), {}),
        "PCMC-Net on pictures": (pn.PCMCNet(**options), ("picture",), {"picture": "image"}),
        "MNL on pixels": (pn.MNL(), tuple(pixels), {}),
    }
    results = {}
    for name, (model, features, kinds) in models.items():
        began = time.perf_counter()
        model.fit(read(train, *features, **kinds), seed=seed, progress=False)
        nll = -model.score(read(held_out, *features, **kinds))
        results[name] = Result(nll, time.perf_counter() - began, model)
    chosen = held_out["true_probability"][held_out["chosen"] == 1]
    return results, -np.log(chosen)


def copies(model: Any, pool: Digits) -> float:
    """Return the largest deviation from equal shares if each picture is in the set four times."""
    once = {"set": [0] * 3, "picture": pool.files[:3]}
    many = {"set": [0] * 12, "picture": np.repeat(pool.files[:3], 4)}
    return float(np.abs(np.repeat(model.predict_proba(once) / 4, 4) - model.predict_proba(many)).max())


def main() -> None:
    """Fit the models, print their results and draw some choice sets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/digits"), help="folder for the picture")
    parser.add_argument("--sets", type=int, default=12_000, help="number of training choice sets")
    parser.add_argument("--epochs", type=int, default=20, help="number of training epochs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split, the choices and the networks")
    arguments = parser.parse_args()
    results, truth = compare(arguments.sets, seed=arguments.seed, epochs=arguments.epochs)
    for name, (nll, seconds, _) in results.items():
        print(f"{name:32} NLL {nll:.4f} after {seconds:.0f} s")
    print(f"{'the truth':32} NLL {truth.mean():.4f}; by chance {np.log(SIZE):.4f}")
    model = results["PCMC-Net on pictures"].model
    print(f"{'copies of pictures':32} share evenly to {copies(model, digits()):.1e}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    draw(model, digits().take(np.arange(40)), arguments.output / "digits.png")


def draw(model: Any, pool: Digits, path: Path) -> None:
    """Draw choice sets with the true and the predicted probability of each picture."""
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
