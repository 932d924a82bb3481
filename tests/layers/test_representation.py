"""Encoders of contents: each distinct content is encoded once, independently of all others."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from choice_tables import objects, picture
from pcmcnet.data.batches import CodedContents, DistinctContents
from pcmcnet.data.encoder import SideEncoder
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.kinds.category import embedding_width
from pcmcnet.data.kinds.networks import BagEncoder
from pcmcnet.errors import ConfigError
from pcmcnet.layers.perceptron import Dropout
from pcmcnet.layers.representation import CURVES, Piecewise, Representation, Spline, build_representation, encoder_width

png = partial(picture, size=(9, 6))
TABLES = {
    "vector": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32),
    "datetime": np.array(["2024-01-01", "2024-02-05", "2024-05-05", "2025-01-01"], "datetime64[us]"),
    "multi": objects(("a", "b"), ("c",), ("a", "d"), ()),
    "text": objects("a quiet room for 20", "pool", "", "a pool for 3 and more"),
    "image": objects(*(png(value) for value in (1, 50, 100, 255))),
}


def prepared(kind: str) -> tuple[Any, torch.Tensor]:
    code = KINDS[kind].code.learn("x", TABLES[kind])
    table = torch.from_numpy(code.prepare(TABLES[kind]))
    return code, CodedContents(torch.arange(len(table)), table).at(torch.arange(len(table))).values


@pytest.mark.parametrize("kind", TABLES)
def test_contents_are_encoded_independently_with_known_width(kind: str) -> None:
    code, values = prepared(kind)
    encoder = KINDS[kind].encoder(code).eval()
    actual = encoder(values)
    assert actual.shape == (4, encoder_width(encoder, code))
    torch.testing.assert_close(encoder(values[2:3]), actual[2:3], rtol=0, atol=1e-6)  # sums in another order


def test_the_vector_of_a_text_does_not_depend_on_other_texts() -> None:
    _, values = prepared("text")
    encoder = KINDS["text"].encoder(None)
    torch.testing.assert_close(encoder(values[1:2, :1]), encoder(values)[1:2], rtol=0, atol=1e-6)
    longer = torch.cat([values, torch.zeros(4, 9, 4)], 1)
    torch.testing.assert_close(encoder(longer), encoder(values), rtol=0, atol=1e-6)  # sums in another order


def test_pixels_are_numbers_from_0_to_1() -> None:
    _, values = prepared("image")
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.amax((1, 2, 3)), torch.tensor([1, 50, 100, 255]) / 255)


def test_dropout_of_encoders_uses_the_network_generators() -> None:
    code, _ = prepared("image")
    (encoder,) = build_representation(SideEncoder((), (), (code,))).encoders
    assert [module.p for module in encoder.modules() if isinstance(module, Dropout)] == [0.3]
    assert not any(isinstance(module, nn.Dropout) for module in encoder.modules())


def test_ids_need_a_user_module() -> None:
    with pytest.raises(ConfigError, match="'x' is of kind id, which needs an encoder module"):
        build_representation(SideEncoder((), (), (KINDS["id"].code.learn("x", np.arange(3)),)))


def test_a_user_module_is_copied_with_its_weights() -> None:
    module = nn.Embedding(5, 3)
    side = SideEncoder((), (), (KINDS["id"].code.learn("x", np.arange(3)),))
    (copied,) = build_representation(side, custom={"x": module}).encoders
    assert copied is not module
    assert torch.equal(copied.weight, module.weight)


class Odd(nn.Module):
    def __init__(self, give: Any) -> None:
        super().__init__()
        self.give = give

    def forward(self, values: torch.Tensor) -> Any:
        return self.give(values)


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda x: x.sum(), r"to vectors of shape \(2, width\), got \(\)\."),
        (lambda x: x[:1], r"got \(1, 3\)\."),
        (lambda x: x.long(), r"got \(2, 3\)\."),
        (lambda x: None, "got NoneType"),
        (lambda x: 1 / 0, "but it raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_without_vector_output_is_refused(give: Any, message: str) -> None:
    code, _ = prepared("vector")
    with pytest.raises(
        ConfigError, match=r"column 'x': expected Odd to map two contents of kind vector \(torch.float32"
    ):
        encoder_width(Odd(give), code)
    with pytest.raises(ConfigError, match=message):
        encoder_width(Odd(give), code)


def test_measuring_the_width_does_not_change_a_module() -> None:
    code, _ = prepared("vector")
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 4))
    state = torch.random.get_rng_state()
    assert encoder_width(module, code) == 4
    assert module.training
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(("size", "width"), [(3, 3), (64, 64), (384, 64)])
def test_a_wide_vector_is_projected_to_fewer_dimensions(size: int, width: int) -> None:
    code = KINDS["vector"].code.learn("x", np.random.default_rng(0).normal(size=(5, size)))
    assert encoder_width(KINDS["vector"].encoder(code), code) == width


def test_each_distinct_content_is_encoded_once() -> None:
    encoded = []

    class Watched(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            encoded.append(len(values))
            return values * 10

    layer = Representation(1, encoders=[(Watched(), 2)])
    column = CodedContents(torch.tensor([2, 0, 2, 2]), torch.tensor([[1.0, 2], [3, 4], [5, 6]]))
    numbers = torch.tensor([[[0.5], [1.5]], [[2.5], [3.5]]])
    actual = layer(numbers, torch.zeros(2, 2, 0), [column.at(torch.tensor([[0, 1], [2, 3]]))])
    assert encoded == [2]
    assert actual.tolist() == [[[50, 60, 0.5], [10, 20, 1.5]], [[50, 60, 2.5], [50, 60, 3.5]]]
    assert layer.width == 3


def test_gradients_of_shared_contents_are_summed() -> None:
    encoder = nn.Linear(1, 1, bias=False)
    layer = Representation(0, encoders=[(encoder, 1)])
    layer(
        torch.zeros(3, 0), torch.zeros(3, 0), [DistinctContents(torch.tensor([[2.0]]), torch.zeros(3, dtype=int))]
    ).sum().backward()
    assert encoder.weight.grad is not None
    assert encoder.weight.grad.item() == 6


def test_columns_are_categories_then_contents_then_numbers() -> None:
    side = SideEncoder((), (), (prepared("multi")[0], prepared("vector")[0]))
    layer = build_representation(side)
    assert layer.width == 2 + 3
    assert [type(encoder) for encoder in layer.encoders] == [BagEncoder, nn.Identity]


# -- Curves ------------------------------------------------------------------------------------------------------------
# Curves: values by hand, sum to one, continuity, and linear extrapolation.


KNOTS = (-1.0, 0.0, 0.5, 2.0)
KNOT_LISTS = st.lists(st.integers(-200, 200), min_size=2, max_size=10, unique=True).map(
    lambda found: [k / 50 for k in sorted(found)]
)


def test_a_number_fills_the_bins_below_it() -> None:
    """Bins of widths 1, .5 and 1.5: at .25 the first is 1 and the second 1/2; they extrapolate beyond the ends."""
    actual = Piecewise(KNOTS)(torch.tensor([0.25, -3.0, 5.0]))
    assert actual.tolist() == [[1, 0.5, 0], [-2, 0, 0], [1, 1, 3]]


@given(knots=KNOT_LISTS, x=st.floats(-9, 9))
def test_bins_sum_to_the_number(knots: list[float], x: float) -> None:
    """x = x_0 + sum of width times share, also beyond the ends."""
    share = Piecewise(knots).double()(torch.tensor(x, dtype=torch.float64))
    total = knots[0] + float((share * torch.tensor(knots, dtype=torch.float64).diff()).sum())
    assert total == pytest.approx(x, rel=1e-5, abs=1e-5)  # the knots are float32


@given(knots=KNOT_LISTS, x=st.floats(-9, 9))
def test_splines_sum_to_one(knots: list[float], x: float) -> None:
    actual = Spline(knots).double()(torch.tensor(x, dtype=torch.float64))
    assert len(actual) == len(knots) + 2
    # Slopes in the thousands cancel far outside narrow bins, and the knots are float32.
    assert float(actual.sum()) == pytest.approx(1, abs=1e-6 * (1 + float(actual.abs().max())))


def test_splines_match_scipy_between_the_ends() -> None:
    from scipy.interpolate import BSpline

    x = np.linspace(-1, 2, 61)
    t = np.r_[[KNOTS[0]] * 3, KNOTS, [KNOTS[-1]] * 3]
    expected = BSpline.design_matrix(x, t, 3).toarray()
    np.testing.assert_allclose(Spline(KNOTS).double()(torch.from_numpy(x)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", CURVES)
def test_curves_are_continuous_and_linear_beyond_the_ends(kind: str) -> None:
    curve = CURVES[kind](KNOTS).double()
    at = torch.tensor(KNOTS, dtype=torch.float64)
    torch.testing.assert_close(curve(at - 1e-9), curve(at + 1e-9), rtol=0, atol=1e-7)
    for far in (torch.tensor([-9.0, -6.0, -3.0]), torch.tensor([3.0, 6.0, 9.0])):
        low, middle, high = curve(far.double())
        torch.testing.assert_close(middle - low, high - middle, rtol=0, atol=1e-9)
        assert (middle - low).abs().max() > 1


@pytest.mark.parametrize("kind", CURVES)
def test_gradients_are_exact(kind: str) -> None:
    x = torch.tensor([-4.0, -0.7, 0.1, 0.9, 1.4, 7.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(CURVES[kind](KNOTS).double(), x)


@pytest.mark.parametrize("kind", CURVES)
def test_two_knots_make_a_curve(kind: str) -> None:
    actual = CURVES[kind]((0.0, 1.0))(torch.tensor([[0.0], [1.0], [0.5]]))
    assert actual.shape == (3, 1, CURVES[kind]((0.0, 1.0)).width)
    assert torch.isfinite(actual).all()


# -- Module ------------------------------------------------------------------------------------------------------------


NONE = torch.zeros(3, 0, dtype=torch.long)


@pytest.mark.parametrize(
    ("cardinality", "width"), [(1, 1), (2, 1), (3, 2), (4, 2), (97, 49), (98, 49), (99, 50), (100, 50), (101, 50)]
)
def test_an_embedding_has_half_the_cardinality_up_to_50(cardinality: int, width: int) -> None:
    assert embedding_width(cardinality) == width


def test_embeddings_come_first_and_numbers_pass_through() -> None:
    layer = Representation(2, [(5, 3), (101, 50)])
    numeric, categorical = torch.randn(4, 3, 2), torch.randint(0, 6, (4, 3, 2))
    out = layer(numeric, categorical)
    assert layer.width == 3 + 50 + 2
    assert out.shape == (4, 3, layer.width)
    first, second = (layer.get_parameter(f"embeddings.{k}.weight") for k in (0, 1))
    assert torch.equal(out[..., :3], first[categorical[..., 0]])
    assert torch.equal(out[..., 3:53], second[categorical[..., 1]])
    assert torch.equal(out[..., 53:], numeric)


def test_embeddings_have_one_row_for_unseen_categories() -> None:
    layer = Representation(0, [(5, 3)])
    out = layer(torch.zeros(6, 0), torch.arange(6).unsqueeze(1))
    assert out.shape == (6, 3)
    assert len(out.unique(dim=0)) == 6
    assert sum(p.numel() for p in layer.parameters()) == 6 * 3


def test_an_unseen_category_is_zero_and_learns_nothing() -> None:
    """Adam moves every weight that had a gradient; row 0 must have had none."""
    layer = Representation(1, [(4, 2)])
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    numeric, categorical = torch.ones(3, 1), torch.tensor([[0], [2], [0]])
    weight = layer.get_parameter("embeddings.0.weight")
    before = weight.detach().clone()
    for _ in range(3):
        optimiser.zero_grad()
        weight.grad = torch.autograd.grad((layer(numeric, categorical) - 7).square().sum(), weight)[0]
        optimiser.step()
    moved = (weight != before).all(1)
    assert moved.tolist() == [False, False, True, False, False]
    assert layer(numeric, categorical)[0].tolist() == [0, 0, 1]


@pytest.mark.parametrize("n_numeric", [0, 2])
def test_without_categories_the_representation_is_the_numbers(n_numeric: int) -> None:
    layer, numeric = Representation(n_numeric, dropout=0.5), torch.randn(3, n_numeric)
    assert layer.width == n_numeric
    assert torch.equal(layer(numeric, NONE), numeric)
    assert list(layer.parameters()) == []


def test_without_numbers_the_representation_is_the_embeddings() -> None:
    layer = Representation(0, [(3, 2)])
    assert layer(torch.zeros(3, 0), torch.tensor([[1], [2], [3]])).shape == (3, layer.width)


def test_an_empty_batch_keeps_the_width() -> None:
    layer = Representation(2, [(3, 2)])
    assert layer(torch.zeros(0, 5, 2), torch.zeros(0, 5, 1, dtype=torch.long)).shape == (0, 5, layer.width)


def test_dropout_applies_to_embeddings_in_training_only() -> None:
    layer = Representation(1, [(40, 20)], dropout=0.5)
    numeric, categorical = torch.ones(200, 1), torch.full((200, 1), 7)
    in_training = layer(numeric, categorical)
    dropped = in_training[:, :-1] == 0
    assert 0.4 < dropped.float().mean() < 0.6  # 4,000 draws: 0.1 is more than twelve standard deviations
    assert (in_training[:, -1] == 1).all()
    layer.eval()
    expected = layer.get_parameter("embeddings.0.weight")[7].expand(200, -1)
    assert torch.equal(layer(numeric, categorical)[:, :-1], expected)
    assert torch.equal(in_training[:, :-1][~dropped], 2 * expected[~dropped])  # kept ones are scaled by 1 / (1 - 0.5)
