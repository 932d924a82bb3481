"""The diagram of a fitted network: its content is correct, and it is legible."""

import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import pcmcnet as pn
from choice_tables import picture
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError, NotFittedError
from pcmcnet.layers.representation import encoder_width
from pcmcnet.models import PCMCNet, load
from pcmcnet.models.networks.diagram import SIZE, WIDTH, text_width

MakeMlba = Callable[..., ChoiceData]
DOCS = Path(__file__).parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


class Part(NamedTuple):
    """A box of the diagram: its frame and its texts with positions."""

    x: float
    y: float
    width: float
    height: float
    texts: list[tuple[float, float, str]]

    @property
    def words(self) -> list[str]:
        return [text for _, _, text in self.texts]


def parts(svg: str) -> list[Part]:
    """Parse the boxes of a diagram."""
    result = []
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        frame = group.find(f"{SVG}rect")
        assert frame is not None
        texts = [(float(t.attrib["x"]), float(t.attrib["y"]), t.text or "") for t in group.iter(f"{SVG}text")]
        result.append(Part(*(float(frame.attrib[k]) for k in ("x", "y", "width", "height")), texts))
    return result


def counts(svg: str) -> list[int]:
    """Return the parameter counts of all boxes."""
    result = [re.fullmatch(r"([\d,]+) parameters?", word) for part in parts(svg) for word in part.words]
    return [int(m[1].replace(",", "")) for m in result if m]


def fit_wide(individual: int, features: int, *, name: str = "column", **options: Any) -> PCMCNet:
    """Fit to a table with given numbers of columns, alternately numeric and categorical."""
    rng, sets = np.random.default_rng(0), 20
    table: dict[str, Any] = {"s": np.repeat(np.arange(sets), 3), "took": np.tile([1, 0, 0], sets)}
    for side, many in (("I", individual), ("S", features)):
        size = sets if side == "I" else 3 * sets
        for k in range(many):
            values = rng.normal(size=size) if k % 2 == 0 else np.array(list("abcdefg"))[rng.integers(7, size=size)]
            table[f"{name} {side}{k}"] = np.repeat(values, 3) if side == "I" else values
    names = [[n for n in table if n.startswith(f"{name} {side}")] for side in "IS"]
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", individual=names[0], features=names[1])
    model: PCMCNet = PCMCNet(**{"hidden": (8,), "epochs": 1, "weight_decay": 0.1} | options).fit(data, progress=False)
    return model


# -- content ------------------------------------------------------------------------------------------------------


def test_diagrams_name_the_parts_of_a_network_with_their_sizes(fitted: PCMCNet) -> None:
    """Purpose has 2 categories: 1 wide and 3 weights with the unseen; comfort 3: 2 wide, 8 weights; mode 5: 3 wide, 18.

    16 inputs. The utility: 4 + 6 constants, 2 slopes, 7 of S_j, 2 x 7 of I and S_j.
    """
    assert [part.words for part in parts(fitted.diagram())] == [
        ["individual I", "income", "purpose"],
        ["alternative S_i", "mode", "price", "minutes", "comfort"],
        ["2 wide", "number", "category, 2 → 1", "3 parameters"],
        ["7 wide", "label, 5 → 3", "number", "number", "category, 3 → 2", "26 parameters"],
        ["all pairs i, j", "I ⊕ S_i ⊕ S_j", "2 + 7 + 7", "= 16 wide", "0 parameters"],
        ["16 → 8", "leaky_relu", "dropout 0.2", "136 parameters"],
        ["8 → 1", "g = exp(f)", "9 parameters"],
        ["utility u_j", "linear in columns of j", "and S_j, I × S_j", "q = g exp(u_j)", "33 parameters"],
        ["probabilities", "π Q = 0", "Σ π_i = 1", "Q: the rates", "0 parameters"],
    ]
    assert "<title>PCMC-Net, 207 parameters in all</title>" in fitted.diagram()


def test_labels_and_utility_are_drawn_only_if_used(trips: ChoiceData, quick: dict[str, Any]) -> None:
    """10 inputs: 2 of the individual, 4 of each alternative."""
    model = PCMCNet(**quick | {"labels": False, "utility": "none", "epochs": 1}).fit(trips, progress=False)
    words = [part.words for part in parts(model.diagram())]
    assert words[1] == ["alternative S_i", "price", "minutes", "comfort"]
    assert words[3] == ["4 wide", "number", "number", "category, 3 → 2", "8 parameters"]
    assert words[5:-1] == [
        ["10 → 8", "leaky_relu", "dropout 0.2", "88 parameters"],
        ["8 → 1", "q = exp(f)", "9 parameters"],
    ]


def test_a_label_that_is_also_a_feature_is_drawn_once(
    make_trips: Callable[..., Any], roles: dict[str, Any], quick: dict[str, Any]
) -> None:
    for features, column in (([], "label, 5 → 3"), (["mode"], "category, 5 → 3")):
        data = ChoiceData.from_long(make_trips(), **roles | {"features": features, "individual": []})
        words = [part.words for part in parts(PCMCNet(**quick).fit(data, progress=False).diagram())]
        assert words[0] == ["alternative S_i", "mode"]
        assert words[1] == ["3 wide", column, "18 parameters"]


@pytest.mark.parametrize(
    ("rate", "epsilon", "inner", "outer"),
    [
        ("exp", 0.0, "g = exp(f)", "q = g exp(u_j)"),
        ("exp", 0.125, "g = exp(f)", "q = g exp(u_j) + 0.125"),
        ("relu", 0.5, "g = max(0, f) + 0.5", "q = g exp(u_j)"),
        ("softplus", 0.25, "g = softplus(f) + 0.25", "q = g exp(u_j)"),
    ],
)
def test_the_diagram_shows_the_formula_of_the_rate(rate: str, epsilon: float, inner: str, outer: str) -> None:
    model = fit_wide(0, 1, hidden=(), rate=rate, epsilon=epsilon)
    layer, utility = (part.words for part in parts(model.diagram())[-3:-1])
    assert layer == ["2 → 1", inner, "3 parameters"]
    assert utility == ["utility u_j", "linear in columns of j", "and S_j", outer, "2 parameters"]


def test_the_papers_network_is_drawn_without_individual(make_mlba: MakeMlba) -> None:
    model = PCMCNet.paper(epochs=1).fit(make_mlba(20), progress=False)
    words = [part.words for part in parts(model.diagram())]
    assert words[0][0] == "alternative S_i"
    assert words[2][:3] == ["all pairs i, j", "S_i ⊕ S_j", "2 + 2"]
    assert words[-2] == ["16 → 1", "q = max(0, f) + 0.5", "17 parameters"]
    assert counts(model.diagram()) == [0, 0, 80, 272, 272, 17, 0]


@pytest.mark.parametrize("hidden", [(), (4,), (8, 4), (4,) * 9], ids=str)
@pytest.mark.parametrize(("individual", "features"), [(0, 1), (1, 2), (12, 30)])
def test_parameter_counts_add_up(individual: int, features: int, hidden: tuple[int, ...]) -> None:
    model = fit_wide(individual, features, hidden=hidden)
    assert sum(counts(model.diagram())) == model.num_parameters


def test_long_lists_are_truncated() -> None:
    """30 columns, alternately numbers and categories of 7: 15 + 15 x 4 = 75 inputs; the 7 shown have 16. I has 6."""
    drawing = fit_wide(3, 30, hidden=(4,) * 9).diagram()
    words = [part.words for part in parts(drawing)]
    assert words[1][-1] == "and 23 more"
    assert words[3][0] == "75 wide"
    assert words[3][-2] == "59 wide"
    assert len(words[1]) - 1 == len(words[3]) - 2 == 8
    assert [w[0] for w in words[5:-1]] == ["156 → 4", "4 → 4", "4 → 4", "and 6 more", "4 → 1", "utility u_j"]
    assert words[-4] == ["and 6 more", "120 parameters"]


def test_a_column_with_missing_values_has_a_second_input() -> None:
    table = {"s": [0, 0, 1, 1], "took": [1, 0, 0, 1], "x": [1.0, np.nan, 2.0, 3.0]}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["x"], missing="indicator")
    drawing = PCMCNet(hidden=(), epochs=1, weight_decay=0.1).fit(data, progress=False).diagram()
    assert parts(drawing)[1].words == ["2 wide", "number, or missing", "0 parameters"]


def test_a_loaded_model_has_the_same_diagram(fitted: PCMCNet, saved: Path) -> None:
    assert load(saved).diagram() == fitted.diagram()


# -- legibility ---------------------------------------------------------------------------------------------------

NAMES = ["column", "W" * 40, "a<b>&\"c'", "客户所在的国家和地区名称", "tab\tand\nline \x01"]


@pytest.mark.parametrize("name", NAMES, ids=["plain", "wide", "markup", "chinese", "control"])
def test_texts_stay_in_their_boxes_and_boxes_do_not_overlap(name: str) -> None:
    drawing = fit_wide(3, 11, name=name, hidden=(512, 512, 256, 8, 8, 8), dropout=0.25).diagram()
    boxes = parts(drawing)
    height = float(ET.fromstring(drawing).attrib["height"])
    for box in boxes:
        assert 0 <= box.x <= box.x + box.width <= WIDTH
        assert 0 <= box.y <= box.y + box.height <= height
        lines = [y for _, y, _ in box.texts]
        assert all(b - a >= SIZE for a, b in itertools.pairwise(lines))
        for x, y, text in box.texts:
            assert box.x < x
            assert x + text_width(text) < box.x + box.width
            assert box.y + SIZE <= y + 3  # capitals are lower than the font size
            assert y + 3 <= box.y + box.height
    for a, b in itertools.combinations(boxes, 2):
        apart_in_x = a.x + a.width < b.x or b.x + b.width < a.x
        assert apart_in_x or a.y + a.height < b.y or b.y + b.height < a.y


def segments(svg: str) -> list[tuple[float, float, float, float]]:
    """Return the straight segments of all arrows, each from left to right or from top to bottom."""
    result = []
    for path in ET.fromstring(svg).iter(f"{SVG}path"):
        if path.attrib.get("class") == "arrow":
            x, y = map(float, re.findall(r"M([\d.]+) ([\d.]+)", path.attrib["d"])[0])
            for direction, to in re.findall(r"([HV])([\d.]+)", path.attrib["d"]):
                a, b = (float(to), y) if direction == "H" else (x, float(to))
                result.append((min(x, a), min(y, b), max(x, a), max(y, b)))
                x, y = a, b
    return result


@pytest.mark.parametrize("utility", ["linear", "none"])
@pytest.mark.parametrize("hidden", [(), (4,), (4,) * 9], ids=str)
@pytest.mark.parametrize(("individual", "features"), [(0, 1), (1, 2), (12, 30)])
def test_no_arrow_crosses_a_box(individual: int, features: int, hidden: tuple[int, ...], utility: str) -> None:
    drawing = fit_wide(individual, features, hidden=hidden, utility=utility).diagram()
    arrows = segments(drawing)
    assert len(arrows) > 6
    for (left, top, right, bottom), box in itertools.product(arrows, parts(drawing)):
        separate = right <= box.x or left >= box.x + box.width
        assert separate or bottom <= box.y or top >= box.y + box.height


def test_names_are_escaped_and_invalid_xml_characters_replaced() -> None:
    words = [w for part in parts(fit_wide(0, 1, name="<&>\x01").diagram()) for w in part.words]
    assert "<&>� S0" in words


def test_parameter_counts_are_never_truncated() -> None:
    drawing = fit_wide(2, 2, hidden=(2000, 2000)).diagram()
    assert 4_002_000 in counts(drawing)
    assert "…" not in drawing


# -- output -------------------------------------------------------------------------------------------------------


def test_the_diagram_is_written_to_the_given_path(fitted: PCMCNet, tmp_path: Path) -> None:
    target = tmp_path / "new" / "network.svg"
    assert fitted.diagram(target) == target.read_text("utf-8")
    assert fitted.diagram(str(target)) == fitted.diagram()
    assert [p.name for p in target.parent.iterdir()] == ["network.svg"]


@pytest.mark.parametrize("path", ["network.png", "network", 3])
def test_a_path_without_svg_ending_is_refused(path: Any, fitted: PCMCNet) -> None:
    with pytest.raises(InputError, match=r"expected a file name that ends in .svg, got"):
        fitted.diagram(path)


def test_a_path_that_cannot_be_written_is_named(fitted: PCMCNet, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/network.svg cannot be written: "):
        fitted.diagram(tmp_path / "file" / "network.svg")


def test_an_unfitted_model_has_no_diagram() -> None:
    with pytest.raises(NotFittedError, match="not fitted"):
        PCMCNet().diagram()


def test_the_diagram_in_the_documentation_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "models" / "pcmcnet.md").read_text("utf-8")
    (block,) = (code for code in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if ".diagram(" in code)
    monkeypatch.chdir(tmp_path)
    exec(block, {"np": np, "pn": pn})
    assert (tmp_path / "diagram.svg").read_text("utf-8") == (DOCS / "diagram.svg").read_text("utf-8")


def test_contents_are_drawn_with_the_sizes_of_their_encoders() -> None:
    rng, n = np.random.default_rng(0), 40
    table = {
        "s": np.repeat(np.arange(n // 2), 2),
        "y": [1, 0] * (n // 2),
        "photo": [picture(9)] * n,
        "about": ["a", "b"] * (n // 2),
        "v": rng.normal(size=(n, 100)),
        "has": [["x", "y"], ["z"]] * (n // 2),
    }
    kinds: dict[str, Any] = {"photo": "image", "about": "text", "v": "vector", "has": "multi"}
    data = ChoiceData.from_long(table, choice_set="s", chosen="y", features=list(kinds), kinds=kinds)
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.1).fit(data, progress=False)
    drawn = parts(str(model.diagram()))
    words = next(part.words for part in drawn if any("vector" in word for word in part.words))
    side = zip(model.encoder_.features.contents, model.network_.alternative.encoders, strict=True)
    given = ["image, 4 × 6", "text", "vector, 100", "multi, 3"]
    widths = [encoder_width(encoder, code) for code, encoder in side]
    assert words[1:5] == [f"{alternatives} → {width}" for alternatives, width in zip(given, widths, strict=True)]
