"""Draw a fitted PCMC-Net as SVG, in the style of Figure 1 of the paper, with sizes and parameter counts.

    columns of the table -> representation -> pairs -> layers of the rate network -> stationary distribution
                                    |-----------> utility of the alternative entered --^

The boxes are computed from the model, then placed, then written as SVG. The drawing is 800 units wide, with 12-unit
text on a white background. The height of the drawing depends on the boxes. Long lists are shortened. Text is truncated
to the width of its box, using estimated letter widths of common sans-serif fonts. The SVG file is self-contained.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from torch import nn

from pcmcnet.data.encoder import Encoder, SideEncoder
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.kinds.category import CategoryCode, embedding_width
from pcmcnet.data.kinds.contents import FrozenCode
from pcmcnet.data.kinds.number import NumericCode
from pcmcnet.layers import Representation
from pcmcnet.layers.factored import FactoredRates
from pcmcnet.layers.representation import encoder_width

if TYPE_CHECKING:
    from pcmcnet.models.networks.chain_network import ChainNetwork
    from pcmcnet.models.pcmcnet import PCMCNetConfig

WIDTH, SIZE, LINE, MARGIN, GAP, PAD = 800, 12, 17, 12, 22, 9  # in units of the drawing
_COLUMNS = {"table": 150, "representation": 154, "pairs": 118, "layer": 160, "law": 106}  # widths, from left to right
_COLOURS = {
    "table": ("#eef3fa", "#7d9cc4"),
    "representation": ("#e4f2ec", "#6aa88c"),
    "pairs": ("#fdf4e0", "#c79f4b"),
    "layer": ("#fcebe3", "#cf8564"),
    "law": ("#f0eaf8", "#9a80c0"),
}
_MAX_COLUMNS, _MAX_LAYERS = 8, 5  # boxes or lines that are drawn
_UNPRINTABLE = re.compile("[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # not allowed in XML, or line breaks


class Box(NamedTuple):
    """Box for one part of the network, with its number of parameters (None hides the number)."""

    kind: str
    title: str
    lines: tuple[str, ...]
    parameters: int | None = None
    many: bool = False  # drawn as a pile: one for each alternative, or for each pair

    @property
    def height(self) -> int:
        """Height of the box with all its lines."""
        return 2 * PAD + LINE * (1 + len(self.lines) + (self.parameters is not None)) - 4


class PlacedBox(NamedTuple):
    """A box with the coordinates of its upper left corner."""

    box: Box
    x: float
    y: float

    @property
    def width(self) -> int:
        """Width of the box, which depends on its kind."""
        return _COLUMNS[self.box.kind]

    @property
    def middle(self) -> float:
        """Vertical position of the arrows to and from the box."""
        return self.y + self.box.height / 2


def draw_network(encoder: Encoder, members: Sequence[ChainNetwork], config: PCMCNetConfig) -> str:
    """Return an SVG drawing of a network, or of the first of several averaged networks."""
    network = members[0]
    label = [str(encoder.schema.alternative)] if encoder.labels else []
    sides = [
        _side(names, codes, representation, title, label, many=many)
        for names, codes, representation, title, many in (
            (encoder.schema.individual, encoder.individual, network.individual, "individual I", False),
            ([*label, *encoder.schema.features], encoder.features, network.alternative, "alternative S_i", True),
        )
        if names
    ]
    middle = [_pairs(network)]
    total = sum(p.numel() for member in members for p in member.parameters())
    rates = _layers(network, config), _utility(network, config)
    of = f", of {len(members)} networks" if len(members) > 1 else ""
    return _write(sides, middle, *rates, [_probabilities(network)], f"{_count(total)} in all{of}")


# -- boxes --------------------------------------------------------------------------------------------------------


def _side(
    names: Sequence[str], codes: SideEncoder, module: Representation, title: str, labels: Sequence[str], *, many: bool
) -> tuple[Box, Box]:
    """Return a box for the columns of the alternative or the individual, and a box for their representations."""
    plain: tuple[NumericCode | CategoryCode, ...] = (*codes.numeric, *codes.categorical)
    by_name = {code.name: (_input_words(code, labels), _input_width(code)) for code in plain}
    for k, curve_width in module.curved.items():
        kind, width = by_name[codes.numeric[k].name]
        by_name[codes.numeric[k].name] = f"{kind} → {width + curve_width}", width + curve_width
    for code, encoder in zip(codes.contents, module.encoders, strict=True):
        kind, width = (
            code.kind if isinstance(code, FrozenCode) else KINDS[code.kind].label(code),
            encoder_width(encoder, code),
        )
        by_name[code.name] = f"{kind} → {width}", width
    # Show all columns, or the first ones and a line for the others.
    shown = list(names if len(names) <= _MAX_COLUMNS else names[: _MAX_COLUMNS - 1])
    lines = [by_name[name][0] for name in shown]
    if len(shown) < len(names):
        rest = len(names) - len(shown)
        wide = module.width - sum(by_name[name][1] for name in shown)
        shown, lines = [*shown, f"and {rest} more"], [*lines, f"{wide} wide"]
    parameters = sum(p.numel() for p in module.parameters())
    table = Box("table", title, (*shown, ""), many=many)  # an empty line, to be as high as its neighbour
    return table, Box("representation", f"{module.width} wide", tuple(lines), parameters, many)


def _input_width(code: NumericCode | CategoryCode) -> int:
    return 1 + int(code.indicator) if isinstance(code, NumericCode) else embedding_width(len(code.categories))


def _input_words(code: NumericCode | CategoryCode, labels: Sequence[str]) -> str:
    """Return the line that describes the representation of a column."""
    if isinstance(code, NumericCode):
        return code.curve or ("number, or missing" if code.indicator else "number")
    kind = "label" if code.name in labels else "category"
    return f"{kind}, {len(code.categories):,} → {_input_width(code)}"


def _pairs(network: ChainNetwork) -> Box:
    """Return the box for the concatenated inputs of the first layer."""
    individual, alternative, classes = network.individual.width, network.alternative.width, network.classes
    parts = [("I", individual)] * (individual > 0) + [("k", classes)] * (classes > 1) + [("S_i", alternative)]
    if not isinstance(network.rates, FactoredRates):
        parts.append(("S_j", alternative))
    names, widths = " ⊕ ".join(name for name, _ in parts), [width for _, width in parts]
    title = "each i" if isinstance(network.rates, FactoredRates) else "all pairs i, j"
    return Box("pairs", title, (names, " + ".join(map(str, widths)), f"= {sum(widths)} wide"), 0, many=True)


def _probabilities(network: ChainNetwork) -> Box:
    """Return the box for the stationary distribution and, in a mixture, for the class shares."""
    lines = ("π Q = 0", "Σ π_i = 1", "Q: the rates")
    if network.classes == 1:
        return Box("law", "probabilities", lines, 0)
    mixed = (*lines, "Σ_k m_k π^k", f"{network.classes} classes k")
    return Box("law", "probabilities", mixed, sum(p.numel() for p in network.share_weights))


def _layers(network: ChainNetwork, config: PCMCNetConfig) -> list[Box]:
    """Return the boxes for the layers of the rate network, with a single box for the parts of the first layer."""
    rates = network.rates
    alternatives = [rates.what] if isinstance(rates, FactoredRates) else [rates.leave, rates.enter]
    first = [part for part in (rates.who, *alternatives) if part is not None]
    inputs = network.individual_width + len(alternatives) * network.alternative.width
    counts = [_weights(first), *(_weights([layer]) for layer in rates.layers)]
    widths = [inputs, *config.hidden, 2 * rates.rank if isinstance(rates, FactoredRates) else 1]
    inner = (config.activation, *([f"dropout {config.dropout:g}"] if config.dropout else []))
    form = {"relu": "max(0, f)", "softplus": "softplus(f)", "exp": "exp(f)"}[config.rate]
    last = f"{'q' if network.utility is None else 'g'} = {form}"
    if isinstance(rates, FactoredRates):
        last = f"{'q' if network.utility is None else 'g'} = Σ_k u_ik v_jk"
    if network.utility is None or config.rate != "exp":  # otherwise epsilon is added to the product with the utility
        last += _added(config.epsilon)
    boxes = [
        Box("layer", f"{widths[k]:,} → {widths[k + 1]:,}", (last,) if k == len(config.hidden) else inner, count)
        for k, count in enumerate(counts)
    ]
    if len(boxes) <= _MAX_LAYERS:
        return boxes
    left_out = boxes[_MAX_LAYERS - 2 : -1]
    rest = Box("layer", f"and {len(left_out)} more", (), sum(box.parameters or 0 for box in left_out))
    return [*boxes[: _MAX_LAYERS - 2], rest, boxes[-1]]


def _utility(network: ChainNetwork, config: PCMCNetConfig) -> list[Box]:
    """Return the box for the utility, which multiplies the rates, or an empty list if the network has no utility."""
    utility = network.utility
    if utility is None:
        return []
    terms = ["S_j"] if utility.taste is None else ["S_j", "I × S_j"]
    first, *more = ["columns of j", *terms] if any(p.numel() for p in utility.plain_weights) else terms
    rate = "q = g exp(u_j)" + (_added(config.epsilon) if config.rate == "exp" else "")
    lines = (f"linear in {first}", *([f"and {', '.join(more)}"] if more else []), rate)
    return [Box("layer", "utility u_j", lines, _weights(network.utilities))]


def _added(epsilon: float) -> str:
    return f" + {epsilon:g}" if epsilon else ""


def _weights(modules: Iterable[nn.Module]) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def _count(parameters: int) -> str:
    return f"{parameters:,} parameter{'' if parameters == 1 else 's'}"


# -- layout -------------------------------------------------------------------------------------------------------


def _write(
    sides: list[tuple[Box, Box]], pairs: list[Box], layers: list[Box], utility: list[Box], law: list[Box], total: str
) -> str:
    """Place five columns of boxes, each vertically centred, and return them with their arrows as SVG."""
    stacks = [[side[0] for side in sides], [side[1] for side in sides], pairs, [*layers, *utility], law]
    below = sum(box.height + GAP for box in utility)  # room below the pairs for the arrow to the utility
    filled = [sum(box.height for box in stack) + GAP * (len(stack) - 1) for stack in stacks]
    heights = [height + (below if stack is pairs else 0) for stack, height in zip(stacks, filled, strict=True)]
    top, tallest = MARGIN + LINE + 6, max(heights)
    columns: list[list[PlacedBox]] = []
    x = float(MARGIN)
    for stack, height, width in zip(stacks, heights, _COLUMNS.values(), strict=True):
        columns.append(_place(stack, x, top + (tallest - height) / 2))
        x += width + GAP
    table, represented, (pair,), rates, (final,) = columns
    arrows = [_across(a, b) for a, b in zip(table, represented, strict=True)]
    arrows += [_across(a, pair) for a in represented]
    arrows += [_across(pair, rates[0]), _across(rates[-1], final)]
    arrows += [_down(a, b) for a, b in pairwise(rates)]
    arrows += [_across(represented[-1], rates[-1], before=pair) for _ in utility]
    height = top + tallest + LINE + 2 * MARGIN
    heads = zip(("columns", "representation", "pairs", "rate network", "choice"), columns, strict=True)
    body = [_text(column[0].x, MARGIN + SIZE, name, "head") for name, column in heads]
    body += [_box(placed) for column in columns for placed in column] + arrows
    body.append(f'<text x="{WIDTH - MARGIN}" y="{height - MARGIN:g}" class="total">{escape(total)}</text>')
    return _page(height, f"PCMC-Net, {total}", body)


def _place(stack: list[Box], x: float, y: float) -> list[PlacedBox]:
    placed = []
    for box in stack:
        placed.append(PlacedBox(box, x, y))
        y += box.height + GAP
    return placed


# -- SVG ----------------------------------------------------------------------------------------------------------


def _page(height: float, title: str, body: list[str]) -> str:
    style = (
        f"text{{font:{SIZE}px system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif;fill:#1a1a1a}}"
        ".title{font-weight:600}.head,.count{fill:#5c5c5c}.total{font-weight:600;text-anchor:end}"
        ".arrow{fill:none;stroke:#5c5c5c;stroke-width:1.2;marker-end:url(#tip)}"
    )
    tip = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#5c5c5c"/></marker>'
    )
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{style}</style><defs>{tip}</defs>",
        f'<rect width="{WIDTH}" height="{height:g}" rx="8" fill="#fff"/>',
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(placed: PlacedBox) -> str:
    """Return the SVG of a box with its texts, each cut to the width of the box."""
    box, (fill, stroke) = placed.box, _COLOURS[placed.box.kind]
    texts = [("title", box.title), *(("", line) for line in box.lines)]
    if box.parameters is not None:
        texts.append(("count", _count(box.parameters)))
    room, x, y = placed.width - 2 * PAD, placed.x + PAD, placed.y + PAD + SIZE - 2
    written = [_text(x, y + k * LINE, _fit(text, room), kind) for k, (kind, text) in enumerate(texts) if text]
    frame = f'x="{placed.x:g}" y="{placed.y:g}" width="{placed.width}" height="{box.height}"'
    pile = [_sheet(placed, step) for step in (6, 3)] if box.many else []
    return f'<g>{"".join(pile)}<rect {frame} rx="6" fill="{fill}" stroke="{stroke}"/>{"".join(written)}</g>'


def _sheet(placed: PlacedBox, step: int) -> str:
    """Return the visible edge of a box that lies behind another box of the same stack."""
    right, top, bottom = placed.x + placed.width, placed.y - step, placed.y + placed.box.height - step
    edge = f"M{placed.x + step + 3:g} {top:g}H{right + step - 6:g}q6 0 6 6V{bottom - 3:g}"
    return f'<path d="{edge}" fill="none" stroke="{_COLOURS[placed.box.kind][1]}"/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{attribute}>{escape(text)}</text>'


def _across(a: PlacedBox, b: PlacedBox, before: PlacedBox | None = None) -> str:
    """Return an arrow from box a to box b, which bends before b or before the box ``before``."""
    turn = (before or b).x - 9
    return f'<path class="arrow" d="M{a.x + a.width:g} {a.middle:g}H{turn:g}V{b.middle:g}H{b.x:g}"/>'


def _down(a: PlacedBox, b: PlacedBox) -> str:
    return f'<path class="arrow" d="M{a.x + a.width / 2:g} {a.y + a.box.height:g}V{b.y:g}"/>'


def text_width(text: str) -> int:
    """Return an upper bound on the width of a string in common fonts."""
    wide = [unicodedata.east_asian_width(letter) in ("W", "F") or letter in "MW@%mw⊕Σ→…" for letter in text]
    widths = (5 if letter in " fijlrt,.:;|!'()[]" else 9 if letter.isupper() else 7 for letter in text)
    return sum(SIZE if is_wide else width for is_wide, width in zip(wide, widths, strict=True))


def _fit(text: str, width: float) -> str:
    """Truncate text to a width, ending in "…", and replace characters that XML does not allow with �."""
    text = _UNPRINTABLE.sub("�", " ".join(text.split()))
    if text_width(text) <= width:
        return text
    while text and text_width(text + "…") > width:
        text = text[:-1]
    return text + "…"
