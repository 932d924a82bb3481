"""What pairwise choice Markov chains can say, and that a network can say all of it: numbers and pictures.

The properties of PCMC-Net as its paper lists them (Lhéritier, 2020), each computed from rates: a circle of preferences,
contractibility, uniform expansion, regularity and stochastic transitivity broken, and the theorem that a network on
one-hot alternatives comes as close as one likes to any chain. Run it by ``python examples/plot_properties.py``.
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
from properties_chains import Floats, by_hand, distance, fit_to, law, laws_of, one_layer, predictions, rates_of

from pcmcnet.datasets import mlba
from pcmcnet.storage import write_bytes


def main() -> None:
    """Compute every property, print the numbers, and write report and pictures to a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/properties"), help="folder for report and pictures")
    parser.add_argument("--epochs", type=int, help="epochs of each training, other than the example's own")
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
    print(f"all of it took {time.perf_counter() - began:.0f} s; report and pictures: {arguments.output}")


# -- the properties -----------------------------------------------------------------------------------------------


class Circle(NamedTuple):
    """Paper beats rock, scissors beat paper, rock beats scissors."""

    alpha: float
    two_units: Floats  # (3,) probability of the winner in each pair, by two hidden units set by hand
    one_neuron: Floats  # (3,) the same by a single neuron, trained
    all_three: Floats  # (3,) probabilities of rock, paper and scissors together

    def text(self) -> str:
        """Say what was found."""
        return (
            f"Each of rock, paper and scissors beats one other with probability {self.alpha}. Two hidden units on "
            f"one-hot alternatives say so: {_list(self.two_units)}. A single neuron, trained, ends at "
            f"{_list(self.one_neuron)}: it orders the alternatives, and an order has no circle. All three together are "
            f"chosen {_list(self.all_three)}: the loser of a pair gains from the arrival of the third."
        )


def rock_paper_scissors(alpha: float = 0.9, *, epochs: int = 100) -> Circle:
    """Set two hidden units so that rock (0) is left for paper (1), paper for scissors (2), scissors for rock.

    a_i + b_j is 2, -1, -1 at these moves and 0 at the opposite ones, so max(0, .) / 2 + max(0, -.) tells them apart.
    """
    a, b, gap, epsilon = np.array([2.0, 1, 0]), np.array([-1.0, 0, -2]), 2 * alpha - 1, 0.01
    net = one_layer([a, -a], [b, -b], [0, 0], [gap / 2, gap], 1 - alpha - epsilon, epsilon=epsilon)
    laws = laws_of(rates_of(net, np.eye(3)))
    pairs = {s: p for s, p in laws.items() if len(s) == 2}
    features = {s: np.eye(3)[list(s)] for s in pairs}
    neuron = predictions(fit_to(pairs, features, hidden=(), epochs=epochs), features)
    wins = [np.array([p[0, 1][1], p[1, 2][1], p[0, 2][0]]) for p in (laws, neuron)]  # paper, scissors, rock
    return Circle(alpha, *wins, laws[0, 1, 2])


class Contractibility(NamedTuple):
    """A car and buses of several colours, with all rates between the car and a bus 1."""

    odds: Floats  # (m,) blue against red, when only these two are there
    shares: Floats  # (m, 3) probabilities of car, red and blue
    logit: Floats  # (m,) probability of the car by a logit with these odds, and car and red alike
    colours: NDArray[np.int64]  # (k,) numbers of colours
    car: Floats  # (k,) probability of the car among so many colours

    def text(self) -> str:
        """Say what was found."""
        return (
            f"Car and bus are chosen alike in pairs. Whatever the odds of blue against red, from {self.odds[0]:g} to "
            f"{self.odds[-1]:g}, the car keeps {self.shares[0, 0]:.4f} of {{car, red, blue}} "
            f"(spread {np.ptp(self.shares[:, 0]):.0e}); by a logit with these odds it falls from {self.logit[0]:.3f} "
            f"to {self.logit[-1]:.3f}. The number of colours does count: among {_list(self.colours, '{}')} colours the "
            f"car has {_list(self.car)}, as in a logit."
        )


def red_bus_blue_bus() -> Contractibility:
    """Change the rates between buses, which contractibility says cannot matter to the car, and their number."""
    odds = np.logspace(-2, 2, 41)
    shares = np.array([law(np.array([[0, 1, 1], [1, 0, r**0.5], [1, r**-0.5, 0]])) for r in odds])
    colours = np.arange(1, 7)
    car = np.array([law(np.ones((k + 1, k + 1)))[0] for k in colours])
    return Contractibility(odds, shares, 1 / (2 + odds), colours, car)


class Expansion(NamedTuple):
    """The mass of each alternative when copies arrive."""

    copies: NDArray[np.int64]  # (k,)
    all_copied: Floats  # (k, 3) every alternative so many times
    one_copied: Floats  # (k, 3) only the first so many times

    def text(self) -> str:
        """Say what was found."""
        off = np.abs(self.all_copied - self.all_copied[0]).max()
        return (
            f"A network with random weights gives three alternatives {_list(self.all_copied[0])}. With every one "
            f"offered up to {self.copies[-1]} times, the copies together keep these shares (largest change {off:.0e}). "
            f"Copies of the first alone raise it from {self.one_copied[0, 0]:.3f} to {self.one_copied[-1, 0]:.3f}."
        )


def uniform_expansion(copies: Sequence[int] = range(1, 9), *, seed: int = 2) -> Expansion:
    """Offer the three alternatives of a random network again and again."""
    rng = np.random.default_rng(seed)
    draw = [rng.normal(size=shape) for shape in ((8, 2), (8, 2), 8, 8)]
    net, x = one_layer(*draw, 0.0, epsilon=0.1), rng.normal(size=(3, 2))

    def mass(times: Sequence[int]) -> Floats:
        p = law(rates_of(net, np.repeat(x, times, axis=0)))
        return np.array([part.sum() for part in np.split(p, np.cumsum(times)[:-1])])

    both = np.array([[mass((k, k, k)), mass((k, 1, 1))] for k in copies])  # (k, 2, 3)
    return Expansion(np.array(copies), both[:, 0], both[:, 1])


class Regularity(NamedTuple):
    """P(a) among a = (4, 6), b = (6, 4) and c, by the place of c."""

    axis: Floats  # (m,) places on each attribute
    truth: Floats  # (m, m) by the MLBA, rows by the second attribute
    network: Floats  # (m, m) by the network trained on it
    pair: float  # P(a) of {a, b} by the network
    decoy: tuple[float, float]  # a c that a dominates
    with_decoy: float

    def text(self) -> str:
        """Say what was found."""
        broken = [float((p > 0.5).mean()) for p in (self.truth, self.network)]
        return (
            f"The network gives a {self.pair:.3f} of {{a, b}}, and {self.with_decoy:.3f} once a decoy at {self.decoy} "
            f"joins them. A random utility model is regular: no third alternative could raise a above its share of the "
            f"pair. Here a rises above 1/2 for {broken[1]:.0%} of the places of c (truth: {broken[0]:.0%})."
        )


def attraction(*, epochs: int = 150, size: int = 33) -> Regularity:
    """Train on the exact laws of the MLBA, pair and triples, and ask for P(a) by the place of c."""
    a, b, decoy = (4.0, 6.0), (6.0, 4.0), (3.0, 5.0)
    known = {(x, y): np.array([a, b, (x, y)]) for x, y in itertools.product(np.linspace(1, 9, 13), repeat=2)}
    features = {**known, "pair": np.array([a, b])}
    laws = dict(zip(known, mlba.probabilities(np.stack(list(known.values()))), strict=True))
    laws["pair"] = 20 * mlba.probabilities(features["pair"][None])[0]  # seen as often as 20 of the 169 triples
    model = fit_to(laws, features, hidden=(16, 16), epochs=epochs, lr=0.01)

    axis = np.linspace(1, 9, size)
    asked = {(y, x): np.array([a, b, (x, y)]) for y, x in itertools.product(axis, repeat=2)}
    truth = mlba.probabilities(np.stack(list(asked.values())))[:, 0].reshape(size, size)
    found = np.array([p[0] for p in predictions(model, asked).values()]).reshape(size, size)
    ends = predictions(model, {"pair": features["pair"], "decoy": np.array([a, b, decoy])})
    return Regularity(axis, truth, found, float(ends["pair"][0]), decoy, float(ends["decoy"][0]))


class Transitivity(NamedTuple):
    """P(a over c), given P(a over b) and P(b over c)."""

    ab: float
    bc: float
    wanted: Floats  # (m,) P(a over c) asked for
    found: Floats  # (m,) P(a over c) of the network
    kept: float  # largest error of the other two
    logit: float  # the one value that a logit allows

    def text(self) -> str:
        """Say what was found."""
        off = np.abs(self.found - self.wanted).max()
        return (
            f"P(a over b) = {self.ab} and P(b over c) = {self.bc} are fixed. Stochastic transitivity asks for P(a over "
            f"c) of at least {max(self.ab, self.bc)}, and a logit for {self.logit:.3f}. The network gives whatever is "
            f"wanted from {self.wanted[0]:g} to {self.wanted[-1]:g}, off by {off:.0e} at most, and keeps the other two "
            f"to {self.kept:.0e}."
        )


def stochastic_transitivity(ab: float = 0.8, bc: float = 0.7) -> Transitivity:
    """Take the rate of leaving i for j to be P(j over i): every pair is free."""
    wanted = np.linspace(0.02, 0.98, 25)
    found = []
    for ac in wanted:
        rates = np.array([[0, 1 - ab, 1 - ac], [ab, 0, 1 - bc], [ac, bc, 0]])
        laws = laws_of(rates_of(by_hand(rates, epsilon=1e-9), np.eye(3)))
        found.append([laws[pair][0] for pair in ((0, 1), (1, 2), (0, 2))])
    p = np.array(found)
    odds = ab / (1 - ab) * bc / (1 - bc)
    return Transitivity(ab, bc, wanted, p[:, 2], float(np.abs(p[:, :2] - (ab, bc)).max()), odds / (1 + odds))


class Approximation(NamedTuple):
    """How close networks come to random chains with zero rates; distances are the largest over all choice sets."""

    epsilon: Floats  # (e,) in units of the smallest positive rate
    by_hand: Floats  # (chains, e) distances of the proof's construction
    units: NDArray[np.int64]  # (w,) hidden units trained; 0 is a single neuron
    trained: Floats  # (w,) distances to the first chain
    true: Floats  # probabilities of all alternatives of all choice sets of the first chain
    found: Floats  # the same, by the last network trained

    def text(self) -> str:
        """Say what was found."""
        worst = zip(self.epsilon[::2], self.by_hand.max(0)[::2], strict=True)
        hand = "; ".join(f"{d:.0e} at {e:.0e}" for e, d in worst)
        learnt = "; ".join(f"{d:.4f} by {u}" for u, d in zip(self.units, self.trained, strict=True))
        return (
            f"Random chains on five alternatives, with zero rates, and the networks that the proof sets by hand: the "
            f"largest total variation over all 26 choice sets and {len(self.by_hand)} chains, by epsilon in units of "
            f"the smallest positive rate, is {hand}. Networks trained on the exact probabilities of the first chain, "
            f"by number of hidden units: {learnt}; 0 is a single neuron, a logit."
        )


def random_chain(n: int, seed: int) -> Floats:
    """Return log-normal rates, one of two zero for about half of all pairs, in units of the smallest positive one."""
    rng = np.random.default_rng(seed)
    rates = rng.lognormal(size=(n, n))
    for pair in itertools.combinations(range(n), 2):
        if rng.random() < 0.5:
            rates[pair if rng.random() < 0.5 else pair[::-1]] = 0
    np.fill_diagonal(rates, 0)
    return rates / rates[rates > 0].min()


def approximation(chains: int = 5, *, units: Sequence[int] = (0, 2, 8, 32), epochs: int = 500) -> Approximation:
    """Come close to random chains: by the proof's construction as epsilon falls, by training as the network grows."""
    n = 5
    rates = [random_chain(n, seed) for seed in range(chains)]
    epsilon = np.logspace(0, -8, 9)
    by_construction = [
        [distance(laws_of(q), laws_of(rates_of(by_hand(q, epsilon=e), np.eye(n)))) for e in epsilon] for q in rates
    ]
    truth = laws_of(rates[0])
    features = {s: np.eye(n)[list(s)] for s in truth}
    networks = [fit_to(truth, features, hidden=(u,) if u else (), epochs=epochs) for u in units]
    found = [predictions(model, features) for model in networks]
    return Approximation(
        epsilon,
        np.array(by_construction),
        np.array(units),
        np.array([distance(truth, laws) for laws in found]),
        np.concatenate(list(truth.values())),
        np.concatenate(list(found[-1].values())),
    )


def _list(values: Any, form: str = "{:.3f}") -> str:
    return ", ".join(form.format(v) for v in values)


if __name__ == "__main__":
    main()
