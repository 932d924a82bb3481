"""Properties of pairwise choice Markov chains, with numbers and pictures.

The properties of PCMC-Net in its paper (Lhéritier, 2020), each computed from rates: a circle of preferences,
contractibility, uniform expansion, violations of regularity and of stochastic transitivity, and the theorem that a
network on one-hot alternatives can approximate any chain. Run it with ``python examples/plot_properties.py``.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import properties_pictures as pictures
from numpy.typing import NDArray
from properties_chains import (
    Floats,
    by_hand,
    distance,
    fit_to,
    one_layer,
    predictions,
    probabilities,
    probabilities_by_set,
    rates_of,
)

from pcmcnet.datasets import mlba
from pcmcnet.storage import write_bytes


def main() -> None:
    """Compute every property, print the results, and write a report with pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/properties"), help="folder for report and pictures")
    parser.add_argument("--epochs", type=int, help="number of epochs of every fit (default: as in the docs)")
    arguments = parser.parse_args()
    options = {} if arguments.epochs is None else {"epochs": arguments.epochs}
    began = time.perf_counter()

    arguments.output.mkdir(parents=True, exist_ok=True)
    parts = {
        "circle": rock_paper_scissors(**options),
        "contractibility": red_bus_blue_bus(),
        "expansion": uniform_expansion(),
        "regularity": attraction(**options),
        "transitivity": stochastic_transitivity(),
        "approximation": approximation(**options),
    }
    sections = []
    for name, part in parts.items():
        getattr(pictures, f"draw_{name}")(part, arguments.output / f"{name}.png")
        print(f"{part.text()}\n")
        sections.append(f"## {name.capitalize()}\n\n{part.text()}\n\n![{name}]({name}.png)\n")
    text = "\n".join(["# Properties of pairwise choice Markov chains\n", *sections])
    write_bytes(arguments.output / "report.md", text.encode())
    print(f"finished in {time.perf_counter() - began:.0f} s; report and pictures: {arguments.output}")


# -- properties ---------------------------------------------------------------------------------------------------


class Circle(NamedTuple):
    """Paper beats rock, scissors beat paper, rock beats scissors."""

    alpha: float
    two_units: Floats  # (3,) probability of the winner in each pair: two hidden units, weights set by hand
    one_neuron: Floats  # (3,) the same for a trained single neuron
    all_three: Floats  # (3,) probabilities of rock, paper and scissors in one set

    def text(self) -> str:
        """Return the results as a sentence."""
        return (
            f"Each of rock, paper and scissors beats one other with probability {self.alpha}. Two hidden units on "
            f"one-hot alternatives reproduce this: {_list(self.two_units)}. A trained single neuron gives "
            f"{_list(self.one_neuron)}: it orders the alternatives, and an order has no circle. If all three are "
            f"offered, their probabilities are {_list(self.all_three)}: the loser of a pair gains from the third."
        )


def rock_paper_scissors(alpha: float = 0.9, *, epochs: int = 100) -> Circle:
    """Set two hidden units so that rock (0) is left for paper (1), paper for scissors (2), scissors for rock.

    a_i + b_j is 2, -1, -1 for these moves and 0 for the opposite moves. So max(0, .) / 2 + max(0, -.) is 1 or 0.
    """
    a, b, gap, epsilon = np.array([2.0, 1, 0]), np.array([-1.0, 0, -2]), 2 * alpha - 1, 0.01
    net = one_layer([a, -a], [b, -b], [0, 0], [gap / 2, gap], 1 - alpha - epsilon, epsilon=epsilon)
    chain = probabilities_by_set(rates_of(net, np.eye(3)))
    pairs = {s: p for s, p in chain.items() if len(s) == 2}
    features = {s: np.eye(3)[list(s)] for s in pairs}
    neuron = predictions(fit_to(pairs, features, hidden=(), epochs=epochs), features)
    wins = [np.array([p[0, 1][1], p[1, 2][1], p[0, 2][0]]) for p in (chain, neuron)]  # paper, scissors, rock
    return Circle(alpha, *wins, chain[0, 1, 2])


class Contractibility(NamedTuple):
    """A car and buses of several colours; all rates between the car and a bus are 1."""

    odds: Floats  # (m,) blue against red in the pair
    shares: Floats  # (m, 3) probabilities of car, red and blue
    logit: Floats  # (m,) probability of the car in a logit with these odds and equal utilities of car and red
    colours: NDArray[np.int64]  # (k,) numbers of colours
    car: Floats  # (k,) probability of the car by number of colours

    def text(self) -> str:
        """Return the results as a sentence."""
        return (
            f"In pairs, car and bus have probability 1/2. For odds of blue against red from {self.odds[0]:g} to "
            f"{self.odds[-1]:g}, the car has a share of {self.shares[0, 0]:.4f} in {{car, red, blue}} "
            f"(range {np.ptp(self.shares[:, 0]):.0e}); in a logit with these odds it falls from {self.logit[0]:.3f} "
            f"to {self.logit[-1]:.3f}. The number of colours does matter: with {_list(self.colours, '{}')} colours the "
            f"share of the car is {_list(self.car)}, as in a logit."
        )


def red_bus_blue_bus() -> Contractibility:
    """Vary the rates between buses, which do not affect the car by contractibility, and the number of buses."""
    odds = np.logspace(-2, 2, 41)
    shares = np.array([probabilities(np.array([[0, 1, 1], [1, 0, r**0.5], [1, r**-0.5, 0]])) for r in odds])
    colours = np.arange(1, 7)
    car = np.array([probabilities(np.ones((k + 1, k + 1)))[0] for k in colours])
    return Contractibility(odds, shares, 1 / (2 + odds), colours, car)


class Expansion(NamedTuple):
    """Total probability of the copies of each alternative, by number of copies."""

    copies: NDArray[np.int64]  # (k,)
    all_copied: Floats  # (k, 3) all alternatives copied
    one_copied: Floats  # (k, 3) only the first alternative copied

    def text(self) -> str:
        """Return the results as a sentence."""
        change = np.abs(self.all_copied - self.all_copied[0]).max()
        return (
            f"A network with random weights gives three alternatives the shares {_list(self.all_copied[0])}. If each "
            f"is offered up to {self.copies[-1]} times, its copies keep its share (largest change {change:.0e}). If "
            f"only the first is copied, its share rises from {self.one_copied[0, 0]:.3f} to "
            f"{self.one_copied[-1, 0]:.3f}."
        )


def uniform_expansion(copies: Sequence[int] = range(1, 9), *, seed: int = 2) -> Expansion:
    """Copy the three alternatives of a random network."""
    rng = np.random.default_rng(seed)
    draw = [rng.normal(size=shape) for shape in ((8, 2), (8, 2), 8, 8)]
    net, x = one_layer(*draw, 0.0, epsilon=0.1), rng.normal(size=(3, 2))

    def mass(times: Sequence[int]) -> Floats:
        p = probabilities(rates_of(net, np.repeat(x, times, axis=0)))
        return np.array([copy.sum() for copy in np.split(p, np.cumsum(times)[:-1])])

    both = np.array([[mass((k, k, k)), mass((k, 1, 1))] for k in copies])  # (k, 2, 3)
    return Expansion(np.array(copies), both[:, 0], both[:, 1])


class Regularity(NamedTuple):
    """P(a) among a = (4, 6), b = (6, 4) and c, by the position of c."""

    axis: Floats  # (m,) values of each attribute of c
    truth: Floats  # (m, m) MLBA; rows are values of the second attribute
    network: Floats  # (m, m) network trained on the MLBA
    pair: float  # P(a) in {a, b}, network
    decoy: tuple[float, float]  # position of c that a dominates
    with_decoy: float

    def text(self) -> str:
        """Return the results as a sentence."""
        broken = [float((p > 0.5).mean()) for p in (self.truth, self.network)]
        return (
            f"The network gives a the probability {self.pair:.3f} in {{a, b}}, and {self.with_decoy:.3f} with a decoy "
            f"at {self.decoy}. A random utility model is regular: a third alternative cannot raise a above its share "
            f"of the pair. Here a is above 1/2 for {broken[1]:.0%} of the positions of c (truth: {broken[0]:.0%})."
        )


def attraction(*, epochs: int = 150, size: int = 33) -> Regularity:
    """Train on exact probabilities of the MLBA, for a pair and triples, and predict P(a) by the position of c."""
    a, b, decoy = (4.0, 6.0), (6.0, 4.0), (3.0, 5.0)
    triples = {(x, y): np.array([a, b, (x, y)]) for x, y in itertools.product(np.linspace(1, 9, 13), repeat=2)}
    features = {**triples, "pair": np.array([a, b])}
    weights = dict(zip(triples, mlba.probabilities(np.stack(list(triples.values()))), strict=True))
    weights["pair"] = 20 * mlba.probabilities(features["pair"][None])[0]  # counts as much as 20 of the 169 triples
    model = fit_to(weights, features, hidden=(16, 16), epochs=epochs, lr=0.01)

    axis = np.linspace(1, 9, size)
    grid = {(y, x): np.array([a, b, (x, y)]) for y, x in itertools.product(axis, repeat=2)}
    truth = mlba.probabilities(np.stack(list(grid.values())))[:, 0].reshape(size, size)
    network = np.array([p[0] for p in predictions(model, grid).values()]).reshape(size, size)
    p = predictions(model, {"pair": features["pair"], "decoy": np.array([a, b, decoy])})
    return Regularity(axis, truth, network, float(p["pair"][0]), decoy, float(p["decoy"][0]))


class Transitivity(NamedTuple):
    """P(a over c) for fixed P(a over b) and P(b over c)."""

    ab: float
    bc: float
    target: Floats  # (m,) target values of P(a over c)
    network: Floats  # (m,) P(a over c) of the network
    pair_error: float  # largest error of the other two probabilities
    logit: float  # the only value possible in a logit

    def text(self) -> str:
        """Return the results as a sentence."""
        error = np.abs(self.network - self.target).max()
        return (
            f"P(a over b) = {self.ab} and P(b over c) = {self.bc} are fixed. Stochastic transitivity requires P(a over "
            f"c) of at least {max(self.ab, self.bc)}; a logit has {self.logit:.3f}. The network gives every target "
            f"value from {self.target[0]:g} to {self.target[-1]:g} with an error of at most {error:.0e}; the other two "
            f"probabilities have an error of at most {self.pair_error:.0e}."
        )


def stochastic_transitivity(ab: float = 0.8, bc: float = 0.7) -> Transitivity:
    """Use P(j over i) as the rate of leaving i for j: then every pair can have any probability."""
    target = np.linspace(0.02, 0.98, 25)
    rows = []
    for ac in target:
        rates = np.array([[0, 1 - ab, 1 - ac], [ab, 0, 1 - bc], [ac, bc, 0]])
        chain = probabilities_by_set(rates_of(by_hand(rates, epsilon=1e-9), np.eye(3)))
        rows.append([chain[pair][0] for pair in ((0, 1), (1, 2), (0, 2))])
    p = np.array(rows)
    odds = ab / (1 - ab) * bc / (1 - bc)
    return Transitivity(ab, bc, target, p[:, 2], float(np.abs(p[:, :2] - (ab, bc)).max()), odds / (1 + odds))


class Approximation(NamedTuple):
    """Distances of networks from random chains with zero rates. A distance is the maximum over all choice sets."""

    epsilon: Floats  # (e,) in units of the smallest positive rate
    by_hand: Floats  # (chains, e) distances of the network in the proof
    units: NDArray[np.int64]  # (w,) numbers of hidden units; 0 is a single neuron
    trained: Floats  # (w,) distances of trained networks from the first chain
    true: Floats  # probabilities of all alternatives of all choice sets in the first chain
    predicted: Floats  # the same for the last trained network

    def text(self) -> str:
        """Return the results as a sentence."""
        worst = zip(self.epsilon[::2], self.by_hand.max(0)[::2], strict=True)
        hand = "; ".join(f"{d:.0e} for {e:.0e}" for e, d in worst)
        learnt = "; ".join(f"{d:.4f} with {u}" for u, d in zip(self.units, self.trained, strict=True))
        return (
            f"Random chains on five alternatives with zero rates, and the networks constructed in the proof. The "
            f"largest total variation over all 26 choice sets and {len(self.by_hand)} chains, for epsilon in units of "
            f"the smallest positive rate: {hand}. The same for networks trained on the exact probabilities of the "
            f"first chain, by number of hidden units: {learnt}; 0 is a single neuron, a logit."
        )


def random_chain(n: int, seed: int) -> Floats:
    """Return log-normal rates in units of the smallest positive rate; half of all pairs have one zero rate."""
    rng = np.random.default_rng(seed)
    rates = rng.lognormal(size=(n, n))
    for pair in itertools.combinations(range(n), 2):
        if rng.random() < 0.5:
            rates[pair if rng.random() < 0.5 else pair[::-1]] = 0
    np.fill_diagonal(rates, 0)
    return rates / rates[rates > 0].min()


def approximation(chains: int = 5, *, units: Sequence[int] = (0, 2, 8, 32), epochs: int = 500) -> Approximation:
    """Approximate random chains: by the construction of the proof with decreasing epsilon, and by training."""
    n = 5
    rates = [random_chain(n, seed) for seed in range(chains)]
    epsilon = np.logspace(0, -8, 9)
    by_construction = [
        [
            distance(probabilities_by_set(q), probabilities_by_set(rates_of(by_hand(q, epsilon=e), np.eye(n))))
            for e in epsilon
        ]
        for q in rates
    ]
    truth = probabilities_by_set(rates[0])
    features = {s: np.eye(n)[list(s)] for s in truth}
    networks = [fit_to(truth, features, hidden=(u,) if u else (), epochs=epochs) for u in units]
    predicted = [predictions(model, features) for model in networks]
    return Approximation(
        epsilon,
        np.array(by_construction),
        np.array(units),
        np.array([distance(truth, p) for p in predicted]),
        np.concatenate(list(truth.values())),
        np.concatenate(list(predicted[-1].values())),
    )


def _list(values: Any, form: str = "{:.3f}") -> str:
    return ", ".join(form.format(v) for v in values)


if __name__ == "__main__":
    main()
