"""Every figure of a report by a method, on the axes and in the style of the caller."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from cycler import cycler
from matplotlib.axes import Axes

from choice_tables import trips
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.evaluation import compare, evaluate
from pcmcnet.insight.explanation import Explanation, explain
from pcmcnet.insight.feature_effects import numeric_effects
from pcmcnet.models import MNL, Ensemble, PCMCNet, Uniform
from pcmcnet.plots.report import explanation_sections
from pcmcnet.reports.sections import Figure, Intervals

pytestmark = pytest.mark.filterwarnings("ignore:More than 20 figures:RuntimeWarning")
# Figures of the report by the start of their captions.
CAPTIONS = {
    "sizes": "Number of alternatives",
    "history": "Loss by epoch",
    "fit": "NLL with intervals",
    "calibration": "The most probable alternative of each set",
    "importance": "Increase in prediction error",
    "demand": "Predicted share of each alternative",
    "categories": "Predicted share of an alternative with each",
    "preference_map": "Share of",
    "probabilities": "Predicted probabilities",
    "attribution": "Effect of each rival",
    "chain": "",
}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    table = trips(40, sizes=(2, 4), mixed=True)
    features = ["price", "comfort"]
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", individual=["income"], features=features)


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> PCMCNet:
    return PCMCNet(hidden=(4,), epochs=3, weight_decay=1.0).fit(data, data, progress=False)


@pytest.fixture(scope="module")
def explanation(model: PCMCNet, data: ChoiceData) -> Explanation:
    return explain(model, data, sets=10, baselines={"uniform": Uniform()}, progress=False)


@pytest.fixture(autouse=True)
def closed() -> object:
    yield
    plt.close("all")


def test_every_figure_of_the_report_is_drawn_by_a_method(explanation: Explanation) -> None:
    """Each figure of the report is drawn by a method, on the given axes."""
    captions = [
        block.caption
        for section in explanation_sections(explanation)
        for block in section.blocks
        if isinstance(block, Figure | Intervals)
    ]
    beginnings = {name: CAPTIONS[name] for name in explanation.plot.names() if CAPTIONS.get(name)}
    unknown = [
        caption
        for caption in captions
        if not caption.startswith((*beginnings.values(), "All alternatives.", "The Markov chain"))
    ]
    assert not unknown
    for name in explanation.plot.names():
        assert explanation.plot.numbers(name) is not None
        _, ax = plt.subplots()
        assert getattr(explanation.plot, name)(ax=ax) is ax
        assert ax.has_data() or ax.texts
        new = getattr(explanation.plot, name)()
        assert isinstance(new, Axes)
        assert new.figure is not ax.figure
        new.figure.canvas.draw()


def test_figures_are_selected_by_column_example_and_kind(explanation: Explanation) -> None:
    names = list(explanation.elasticities.demand)  # type: ignore[union-attr]
    assert names[-1] in explanation.plot.demand(names[-1]).get_xlabel()
    assert explanation.plot.calibration(which="alternatives").get_title() == "all alternatives"
    assert explanation.plot.chain(what="rates").get_ylabel() == "alternative left"
    last = len(explanation.examples or ()) - 1
    assert str(explanation.examples[last].choice_set) in explanation.plot.probabilities(example=last).get_title()  # type: ignore[index]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda plot: plot.demand("prise"), "'prise'. Did you mean 'price'?"),
        (lambda plot: plot.chain(example=7), "example: expected a number from 0 to 2, got 7"),
        (lambda plot: plot.numbers("importence"), "unknown figure 'importence'. Did you mean 'importance'?"),
        (lambda plot: plot.calibration(which="last"), "unknown which 'last'. Known: alternatives, first."),
    ],
)
def test_unknown_figures_are_rejected(explanation: Explanation, call: object, message: str) -> None:
    with pytest.raises((InputError, ConfigError)) as error:
        call(explanation.plot)  # type: ignore[operator]
    assert message in str(error.value)


def test_demand_curves_are_predicted_for_any_numeric_column(data: ChoiceData) -> None:
    """The explanation has curves of three features; those of others, and of the individual, come when drawn."""
    effects = numeric_effects(MNL(formula="price | 0").fit(data), data, None)
    few, title = replace(effects, demand={}), "the favourite of each set"
    assert few.curves_of("price")[title].shares.tolist() == effects.demand["price"][title].shares.tolist()
    by_income = few.curves_of("income")[title]
    np.testing.assert_allclose(by_income.shares, np.broadcast_to(by_income.now[:, None], by_income.shares.shape))
    with pytest.raises(InputError, match="there is no feature or individual-level column 'prise'"):
        few.curves_of("prise")
    with pytest.raises(InputError, match=r"no demand curve for 'price'"):
        replace(few, predict_curves=None).curves_of("price")


def test_axes_are_not_a_column(explanation: Explanation) -> None:
    _, ax = plt.subplots()
    with pytest.raises(InputError, match="expected the name of a column, got Axes; pass axes as ax="):
        explanation.plot.demand(ax)  # type: ignore[arg-type]


def test_a_missing_part_gives_its_reason(data: ChoiceData) -> None:
    parts = ("fit", "calibration", "elasticities", "categories", "trade_offs", "context", "axioms", "examples", "model")
    few = explain(MNL().fit(data), data, sets=5, skip=parts, progress=False)
    assert few.plot.names() == ["sizes", "importance"]
    assert repr(few.plot) == "figures: sizes, importance; draw one with .plot.sizes()"
    with pytest.raises(InputError, match=r"figure 'context' is not available: the part 'context' is missing \(skipped"):
        few.plot.context()


def test_figures_follow_the_style_of_the_caller(explanation: Explanation) -> None:
    with plt.rc_context({"axes.prop_cycle": cycler(color=["#123456", "#abcdef"]), "font.size": 20}):
        before = dict(plt.rcParams)
        axes = explanation.plot.importance()
        assert dict(plt.rcParams) == before
        assert axes.patches[0].get_facecolor()[:3] == pytest.approx((0x12 / 255, 0x34 / 255, 0x56 / 255))
        assert axes.xaxis.label.get_fontsize() == 20
    assert explanation.plot.importance().patches[0].get_facecolor()[:3] == pytest.approx((0, 0x72 / 255, 0xB2 / 255))


def test_other_results_have_plot_methods(model: PCMCNet, data: ChoiceData) -> None:
    _, panels = plt.subplots(1, 4)
    report, both = evaluate(model, data), compare({"a": Uniform(), "b": MNL()}, data, 2, progress=False)
    drawn = [
        report.plot(panels[0]),
        both.plot(ax=panels[1]),
        model.plot_history(panels[2]),
        both.plot("top_1", panels[3]),
    ]
    assert drawn == list(panels)
    assert [text.get_text() for text in panels[0].get_yticklabels()] == ["NLL", "TOP 1", "BRIER"]
    assert [text.get_text() for text in panels[1].get_yticklabels()] == ["a", "b"]
    assert np.allclose(panels[2].lines[0].get_ydata(), [entry["train_loss"] for entry in model.history])
    with pytest.raises(ConfigError, match="unknown metric 'nll2'"):
        both.plot("nll2")


def test_an_ensemble_draws_the_history_of_its_members(data: ChoiceData) -> None:
    ensemble = Ensemble(PCMCNet(hidden=(2,), epochs=2, weight_decay=1.0), 2).fit(data, progress=False)
    labels = [line.get_label() for line in ensemble.plot_history().lines]
    assert labels == ["training (member 1)", "training (member 2)"]
    with pytest.raises(InputError, match="MNL has no history: it is not fitted, or does not train in epochs"):
        MNL().plot_history()
