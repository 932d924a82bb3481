"""Draws the pictures of plot_properties.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from pcmcnet.plots.style import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from plot_properties import Approximation, Circle, Contractibility, Expansion, Regularity, Transitivity

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "0.45"  # colours of Okabe and Ito
DPI = 110


def _panels(count: int, *, width: float = 8.4, height: float = 3.5, **options: Any) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1)
    panels = list(figure.subplots(1, count, squeeze=False, **options).ravel())
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def draw_circle(result: Circle, path: Path) -> Path:
    """Draw the circle of preferences, and the probabilities from two hidden units and from a single neuron."""
    figure, (graph, bars) = _panels(2)
    angles = np.pi / 2 - 2 * np.pi * np.arange(3) / 3
    places = np.column_stack([np.cos(angles), np.sin(angles)])
    for k, name in enumerate(("rock", "paper", "scissors")):
        start, end = places[k], places[(k + 1) % 3]
        arrow = {"arrowstyle": "-|>", "color": BLUE, "lw": 1.6, "shrinkA": 34, "shrinkB": 34, "mutation_scale": 16}
        graph.annotate("", end, start, arrowprops=arrow)
        middle = (start + end) / 2
        graph.text(*(middle * 1.55), f"{result.two_units[k]:.2f}", ha="center", va="center", color=BLUE, fontsize=11)
        graph.text(*places[k], f"{name}\n{result.all_three[k]:.3f}", ha="center", va="center", fontsize=11)
    graph.set(xlim=(-1.5, 1.5), ylim=(-1.0, 1.4), aspect="equal")
    graph.set_axis_off()
    graph.set_title(
        "arrows: to the winner of a pair, with its probability\nbelow the names: probability among three", fontsize=10
    )
    x = np.arange(3)
    bars.bar(x - 0.2, result.two_units, 0.38, color=BLUE, label="two hidden units, set by hand")
    bars.bar(
        x + 0.2, result.one_neuron, 0.38, color=ORANGE, hatch="//", edgecolor="white", label="single neuron, trained"
    )
    bars.axhline(0.5, color=GREY, ls="--", lw=1)
    bars.set_xticks(x, ["paper\nover rock", "scissors\nover paper", "rock\nover scissors"])
    bars.set(ylim=(0, 1.3), yticks=np.linspace(0, 1, 5), ylabel="probability in the pair")
    bars.legend(frameon=False, loc="upper left", fontsize=9.5)
    return save_picture(figure, path, dpi=DPI)


def draw_contractibility(result: Contractibility, path: Path) -> Path:
    """Draw the shares of car and buses by the odds between buses, and the share of the car by number of colours."""
    figure, (within, number) = _panels(2)
    for k, (name, colour, line) in enumerate(
        (("car", "black", "-"), ("red bus", ORANGE, "-"), ("blue bus", BLUE, "-"))
    ):
        within.plot(result.odds, result.shares[:, k], line, color=colour, lw=2, label=name)
    within.plot(result.odds, result.logit, "--", color="black", lw=1.2, label="car, logit")
    within.set(xscale="log", ylim=(0, 0.82), xlabel="odds of blue against red in the pair")
    within.set_ylabel("probability among three")
    within.legend(frameon=False, ncols=2, loc="upper center", fontsize=9.5)
    within.set_title("rates between buses do not matter to the car", fontsize=10)
    number.plot(result.colours, result.car, "o-", color="black", label="chain, equal rates")
    number.plot(
        result.colours, 1 / (1 + result.colours), "x--", color=ORANGE, ms=9, label="logit, equal utilities: 1 / (1 + k)"
    )
    number.set(xlabel="k, number of colours", ylabel="probability of the car", ylim=(0, 0.6), xticks=result.colours)
    number.legend(frameon=False, fontsize=9.5)
    number.set_title("the number of buses does", fontsize=10)
    return save_picture(figure, path, dpi=DPI)


def draw_expansion(result: Expansion, path: Path) -> Path:
    """Draw the total probability of the copies of each alternative, by number of copies."""
    figure, panels = _panels(2, sharey=True)
    titles = ("copies of every alternative", "copies of the first alternative only")
    for axes, shares, title in zip(panels, (result.all_copied, result.one_copied), titles, strict=True):
        styles = ((BLUE, "o", "first"), (ORANGE, "s", "second"), (GREEN, "^", "third"))
        for k, (colour, marker, name) in enumerate(styles):
            axes.plot(result.copies, shares[:, k], marker=marker, color=colour, label=name)
        axes.set(xlabel="copies", xticks=result.copies, ylim=(0, 1))
        axes.set_title(title, fontsize=10)
    panels[0].set_ylabel("total probability of the copies")
    panels[1].legend(frameon=False, fontsize=9.5, loc="center right")
    return save_picture(figure, path, dpi=DPI)


def draw_regularity(result: Regularity, path: Path) -> Path:
    """Draw P(a) by the position of c. Regularity is violated above 1/2, which is the share of a in {a, b}."""
    figure, panels = _panels(2, width=7.6, height=3.9, sharey=True)
    for axes, values, title in zip(panels, (result.truth, result.network), ("truth (MLBA)", "PCMC-Net"), strict=True):
        image = axes.pcolormesh(result.axis, result.axis, values, cmap="RdBu", vmin=0, vmax=1, rasterized=True)
        axes.contour(result.axis, result.axis, values, levels=[0.5], colors="black", linewidths=1.2)
        marks = (("a", (4, 6), (6, 3)), ("b", (6, 4), (6, 3)), ("decoy", result.decoy, (-6, -15)))
        for name, (x, y), (dx, dy) in marks:
            axes.plot(x, y, "o", color="black", markeredgecolor="white")
            box = {"boxstyle": "round,pad=.15", "facecolor": "white", "alpha": 0.8, "edgecolor": "none"}
            axes.annotate(name, (x, y), (dx, dy), textcoords="offset points", fontsize=10, bbox=box)
        axes.set(xlabel="attribute 1 of c", aspect="equal")
        axes.set_title(title, fontsize=10)
    panels[0].set_ylabel("attribute 2 of c")
    figure.colorbar(image, ax=panels, label="probability of a among a, b, c", shrink=0.85)
    figure.suptitle("inside the black line, a is above its share of 1/2 in {a, b}: regularity is violated", fontsize=10)
    return save_picture(figure, path, dpi=DPI)


def draw_transitivity(result: Transitivity, path: Path) -> Path:
    """Draw P(a over c) of the network against its target."""
    figure, (axes,) = _panels(1, width=5.6, height=4.0)
    bound = max(result.ab, result.bc)
    axes.axhspan(bound, 1, color=GREEN, alpha=0.15, lw=0)
    axes.text(0.02, bound + 0.03, "stochastic transitivity holds", color="#006B4E", fontsize=10)
    axes.axhspan(0, 0.5, color=ORANGE, alpha=0.1, lw=0)
    axes.text(0.98, 0.06, "a circle: a over b over c over a", color="#A84900", ha="right", fontsize=10)
    axes.plot(result.target, result.network, "o-", color=BLUE, ms=4, label="network")
    axes.axhline(result.logit, color="black", ls="--", lw=1.2, label="logit")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="P(a over c), target", ylabel="P(a over c), model")
    axes.set_title(f"P(a over b) = {result.ab}, P(b over c) = {result.bc}", fontsize=10)
    axes.legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.35), fontsize=9.5)
    return save_picture(figure, path, dpi=DPI)


def draw_approximation(result: Approximation, path: Path) -> Path:
    """Draw the distance by epsilon, the distance by size of a trained network, and predicted probabilities."""
    figure, (hand, size, scatter) = _panels(3, width=10.5)
    for k, line in enumerate(result.by_hand):
        hand.plot(result.epsilon, line, color=BLUE, lw=1.2, alpha=0.8, label=None if k else "random chains")
    hand.set(xscale="log", yscale="log", xlabel="ε / smallest positive rate", ylabel="largest total variation")
    hand.set_title("set by hand, as in the proof", fontsize=10)
    x = np.arange(len(result.units))
    size.plot(x, result.trained, "o-", color=ORANGE)
    size.set_xticks(x, [str(u) if u else "none" for u in result.units])
    size.set(yscale="log", xlabel="hidden units", ylabel="largest total variation")
    size.set_title("trained on exact probabilities", fontsize=10)
    for axes in (hand, size):
        axes.axhline(0.01, color=GREY, ls="--", lw=1)
        axes.annotate(
            ".01",
            (0.98, 0.01),
            (0, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            color=GREY,
        )
    scatter.plot([0, 1], [0, 1], color=GREY, lw=1)
    scatter.plot(result.true, result.predicted, "o", ms=4, color=ORANGE, alpha=0.7, mew=0)
    scatter.set(xlabel="probability, true", ylabel="probability, network", aspect="equal")
    scatter.set_title(f"{result.units[-1]} units: all alternatives of all sets", fontsize=10)
    return save_picture(figure, path, dpi=DPI)
