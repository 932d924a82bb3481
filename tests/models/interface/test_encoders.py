"""Networks that use vectors, timestamps and lists, and models that ignore them."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from choice_tables import picture
from pcmcnet.data import ChoiceData
from pcmcnet.data.kinds.frozen import Frozen
from pcmcnet.errors import ArtifactError, ConfigError, InputError, SchemaError
from pcmcnet.evaluation import compare
from pcmcnet.evaluation.predictions import training_overlap
from pcmcnet.insight.elasticity import elasticity
from pcmcnet.insight.importance import importance
from pcmcnet.insight.queries import compose_sets, with_values
from pcmcnet.models import MNL, Calibrated, Ensemble, PCMCNet, PointerNetwork, RandomForest, Uniform, load
from pcmcnet.tuning import tune

KINDS = {"v": "vector", "has": "multi", "at": "datetime"}
WORDS = [["wifi"], ["pool", "wifi"], [], ["spa"]]
ROLES: dict[str, Any] = {
    "choice_set": "id",
    "chosen": "y",
    "features": ["price", "v", "has"],
    "individual": ["at"],
    "kinds": KINDS,
}


def table(sets: int = 60, n: int = 3, seed: int = 0) -> dict[str, Any]:
    """Cheap alternatives with wifi and vectors in the direction (1, -1) are preferred. There are 12 vectors."""
    rng = np.random.default_rng(seed)
    pool = np.random.default_rng(7).normal(size=(12, 2))
    item, has = rng.integers(12, size=(sets, n)), rng.integers(4, size=(sets, n))
    price = rng.uniform(1, 2, (sets, n))
    utility = 3 * (pool[item] @ [1, -1] + np.array([1, 1, 0, 0])[has] - price) + rng.gumbel(size=(sets, n))
    return {
        "id": np.repeat(np.arange(sets), n),
        "y": (utility == utility.max(1, keepdims=True)).ravel().astype(int),
        "price": price.ravel(),
        "v": pool[item].reshape(-1, 2),
        "has": [WORDS[k] for k in has.ravel()],
        "at": np.repeat(np.datetime64("2024-01-01T08:00", "s") + rng.integers(10**6, size=sets), n),
    }


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return ChoiceData.from_long(table(), **ROLES)


@pytest.fixture(scope="module")
def fitted(data: ChoiceData) -> PCMCNet:
    return PCMCNet(hidden=(16,), epochs=12, weight_decay=0.0, lr=0.02).fit(data, progress=False)


def test_a_network_learns_from_contents(fitted: PCMCNet) -> None:
    """On new sets it is better than chance, log 1/3 = -1.10, and than a logit of prices alone."""
    test = ChoiceData.from_long(table(seed=1), **ROLES)
    train = ChoiceData.from_long(table(), **ROLES)
    assert fitted.score(test) > -0.85
    assert fitted.score(test) > MNL().fit(train).score(test) + 0.15


def test_a_saved_network_gives_the_same_probabilities(fitted: PCMCNet, data: ChoiceData, tmp_path: Path) -> None:
    loaded = load(fitted.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict_proba(data), fitted.predict_proba(data))
    assert loaded.schema == fitted.schema
    assert loaded.schema.kinds == KINDS


def test_a_table_is_read_with_the_schema_of_the_model(fitted: PCMCNet, data: ChoiceData) -> None:
    rows = {name: values for name, values in table().items() if name != "y"}
    assert np.array_equal(fitted.predict_proba(rows), fitted.predict_proba(data))


def test_the_same_seed_gives_the_same_model(data: ChoiceData) -> None:
    first, second = (
        PCMCNet(hidden=(8,), epochs=2, weight_decay=0.0).fit(data, seed=3, progress=False) for _ in range(2)
    )
    assert np.array_equal(first.predict_proba(data), second.predict_proba(data))


def test_unseen_contents_have_probabilities(fitted: PCMCNet) -> None:
    new = table(seed=2) | {"v": np.random.default_rng(3).normal(size=(180, 2)), "has": [["sauna", "wifi"]] * 180}
    p = fitted.predict_proba(new)
    np.testing.assert_allclose(p.reshape(-1, 3).sum(1), 1, rtol=0, atol=1e-6)


def test_copies_of_an_alternative_share_its_probability(fitted: PCMCNet, data: ChoiceData) -> None:
    """Uniform expansion: two copies of an alternative have half of its probability each."""
    once = fitted.predict_proba(compose_sets(data, [[0, 1, 2]], [0]))
    copied = fitted.predict_proba(compose_sets(data, [[0, 0, 1, 1, 2, 2]], [0]))
    np.testing.assert_allclose(copied, np.repeat(once / 2, 2), rtol=0, atol=1e-6)


def test_a_prediction_refuses_vectors_of_another_size(fitted: PCMCNet) -> None:
    with pytest.raises(SchemaError, match="'v': expected vectors of 2 numbers, as in training, got 3"):
        fitted.predict_proba(table() | {"v": np.zeros((180, 3))})


def test_a_column_of_another_kind_is_refused(fitted: PCMCNet) -> None:
    other = ChoiceData.from_long(table(), **ROLES | {"kinds": {"v": "multi", "has": "multi", "at": "datetime"}})
    with pytest.raises(SchemaError, match="'v': expected vector as in training, got multi"):
        fitted.predict_proba(other)


def test_missing_contents_are_accepted() -> None:
    rows = table()
    rows["v"] = [None if k % 5 == 0 else list(v) for k, v in enumerate(rows["v"])]
    data = ChoiceData.from_long(rows, **ROLES, missing="indicator")
    model = PCMCNet(hidden=(8,), epochs=2, weight_decay=0.0).fit(data, progress=False)
    assert np.isfinite(model.score(data))


def test_contents_alone_can_be_fitted_unless_they_are_constant() -> None:
    alone = ChoiceData.from_long(table(), choice_set="id", chosen="y", features=["v"], kinds={"v": "vector"})
    assert np.isfinite(PCMCNet(hidden=(8,), epochs=1, weight_decay=0.0).fit(alone, progress=False).score(alone))
    constant = ChoiceData.from_long(
        table() | {"v": np.ones((180, 2))}, choice_set="id", chosen="y", features=["v"], kinds={"v": "vector"}
    )
    with pytest.raises(InputError, match="no feature differs between the alternatives"):
        PCMCNet().fit(constant, progress=False)


@pytest.mark.parametrize(
    "kind", [PointerNetwork, lambda **o: Ensemble(PCMCNet(**o), 2), lambda **o: Calibrated(PCMCNet(**o))]
)
def test_other_networks_and_wrappers_use_contents(kind: Any, data: ChoiceData, tmp_path: Path) -> None:
    train, valid = data.split((0.7, 0.3))
    model = kind(epochs=2).fit(train, valid, progress=False)
    assert model.schema.kinds == KINDS
    assert np.array_equal(load(model.save(tmp_path / "model")).predict_proba(valid), model.predict_proba(valid))


@pytest.mark.parametrize("kind", [MNL, Uniform, RandomForest, lambda: Ensemble(MNL(), 2)])
def test_other_models_ignore_contents_with_a_warning(
    kind: Any, data: ChoiceData, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        model = kind().fit(data, progress=False)
    assert "ignored: v (vector), has (multi), at (datetime)" in caplog.text
    assert model.schema.features == ("price",)
    plain = kind().fit(data.without_contents(), progress=False)
    assert np.array_equal(model.predict_proba(data), plain.predict_proba(data.without_contents()))


def test_a_logit_on_contents_alone_is_refused() -> None:
    alone = ChoiceData.from_long(table(), choice_set="id", chosen="y", features=["v"], kinds={"v": "vector"})
    with pytest.raises(InputError, match="feature"):
        MNL().fit(alone)


def test_models_with_and_without_contents_can_be_compared(data: ChoiceData) -> None:
    result = compare(
        {"logit": MNL(), "network": PCMCNet(hidden=(8,), epochs=2, weight_decay=0.0)},
        data,
        split=(0.7, 0.3),
        progress=False,
    )
    assert "network" in str(result)


def test_importance_shuffles_contents(fitted: PCMCNet, data: ChoiceData) -> None:
    result = importance(fitted, data, repeats=2)
    assert result["v"].value > result["at"].value
    assert result["v"].value > 0.1


def test_unsupported_uses_of_contents_are_refused(fitted: PCMCNet, data: ChoiceData) -> None:
    with pytest.raises(InputError, match="'v': expected a numeric column"):
        elasticity(fitted, data, "v")
    with pytest.raises(InputError, match="'has' is of kind multi: only numbers and categories can be changed"):
        with_values(data, "has", np.zeros(180))


def test_the_training_table_is_recognised(fitted: PCMCNet, data: ChoiceData) -> None:
    assert training_overlap(fitted, data) == training_overlap(MNL().fit(data), data) == "all"
    assert training_overlap(fitted, data.subset(np.arange(40))) == "some"
    assert training_overlap(fitted, ChoiceData.from_long(table(seed=5), **ROLES)) == "none known"


def test_the_diagram_names_the_kinds(fitted: PCMCNet) -> None:
    text = fitted.diagram()
    assert "vector, 2 → 2" in text
    assert "multi, 3 → 2" in text
    assert "datetime → 7" in text


# -- custom encoders -------------------------------------------------------------------------------------------------


class Ring(nn.Module):
    """Nodes on a ring. The vector of a node is the mean of its embedding and those of its neighbours."""

    def __init__(self, nodes: int = 12, width: int = 4) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.nodes = nn.Parameter(torch.randn(nodes, width, generator=generator))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return (self.nodes + self.nodes.roll(1, 0) + self.nodes.roll(-1, 0))[ids] / 3


class Other(Ring):
    pass


def graph(seed: int = 0) -> ChoiceData:
    """Return choices of the node with the largest number on a ring of 12."""
    rng = np.random.default_rng(seed)
    node = np.stack([rng.permutation(12)[:3] for _ in range(80)])
    table = {
        "id": np.repeat(np.arange(80), 3),
        "y": (node == node.max(1, keepdims=True)).ravel().astype(int),
        "node": node.ravel(),
    }
    return ChoiceData.from_long(table, choice_set="id", chosen="y", features=["node"], kinds={"node": "id"})


@pytest.fixture(scope="module")
def ring_model() -> PCMCNet:
    return PCMCNet(encoders={"node": Ring()}, hidden=(16,), epochs=10, weight_decay=0.0, lr=0.02).fit(
        graph(), progress=False
    )


def test_a_custom_encoder_is_trained_with_the_network(ring_model: PCMCNet) -> None:
    assert ring_model.score(graph(1)) > -0.5
    trained = dict(ring_model.network_.named_parameters())["alternative.encoders.0.nodes"]
    assert not torch.equal(trained, Ring().nodes)
    assert torch.equal(ring_model.encoders["node"].nodes, Ring().nodes)  # a copy is trained


def test_a_custom_encoder_is_saved_without_code_and_passed_to_load(ring_model: PCMCNet, tmp_path: Path) -> None:
    folder, data = ring_model.save(tmp_path / "model"), graph(1)
    loaded = load(folder, encoders={"node": Ring()})
    assert np.array_equal(loaded.predict_proba(data), ring_model.predict_proba(data))
    message = r"custom encoder for column 'node', of class Ring: use load\(folder, encoders=\{'node': Ring"
    with pytest.raises(ArtifactError, match=message):
        load(folder)
    with pytest.raises(ArtifactError, match="of class Ring for column 'node', as in the fit, got one of class Other"):
        load(folder, encoders={"node": Other()})
    with pytest.raises(ArtifactError, match="without a custom encoder for column 'x': leave it out"):
        load(folder, encoders={"node": Ring(), "x": Ring()})
    with pytest.raises(ArtifactError, match="the saved weights do not match"):
        load(folder, encoders={"node": Ring(width=5)})
    with pytest.raises(ConfigError, match="encoders are not supported by MNL"):
        load(MNL().fit(ChoiceData.from_long(table(), **ROLES)).save(tmp_path / "logit"), encoders={"node": Ring()})


def test_weights_without_gradient_are_not_trained() -> None:
    frozen = Ring().requires_grad_(False)
    model = PCMCNet(encoders={"node": frozen}, hidden=(8,), epochs=2, weight_decay=0.0).fit(graph(), progress=False)
    assert torch.equal(model.network_.alternative.encoders[0].nodes, Ring().nodes)


def test_a_fit_resumes_only_with_the_same_encoder(tmp_path: Path) -> None:
    def stop(entry: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    options: dict[str, Any] = {"hidden": (8,), "epochs": 2, "weight_decay": 0.0}
    with pytest.raises(KeyboardInterrupt):
        PCMCNet(encoders={"node": Ring()}, **options).fit(graph(), progress=False, run_folder=tmp_path, on_epoch=stop)
    resume: dict[str, Any] = {"progress": False, "run_folder": tmp_path, "resume": True}
    with pytest.raises(InputError, match="encoders"):
        PCMCNet(encoders={"node": Other()}, **options).fit(graph(), **resume)
    resumed = PCMCNet(encoders={"node": Ring()}, **options).fit(graph(), **resume)
    whole = PCMCNet(encoders={"node": Ring()}, **options).fit(graph(), progress=False)
    assert np.array_equal(resumed.predict_proba(graph()), whole.predict_proba(graph()))


def test_a_comparison_uses_the_custom_encoder() -> None:
    result = compare(
        {"ring": PCMCNet(encoders={"node": Ring()}, epochs=1, weight_decay=0.0)},
        graph(),
        split=(0.7, 0.3),
        progress=False,
    )
    assert "ring" in str(result)


@pytest.mark.slow
def test_a_search_over_options_uses_the_custom_encoder(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    base = PCMCNet(encoders={"node": Ring()}, epochs=1, weight_decay=0.0)
    settings: dict[str, Any] = {"space": {"lr": [0.01, 0.02]}, "folder": tmp_path / "search", "progress": False}
    result = [
        tune(base, graph(), trials=trials, **settings).model for trials in (1, 2)
    ]  # the second continues the first
    assert all(list(model.extras["encoders"]) == ["node"] for model in result)


@pytest.mark.parametrize(
    ("encoders", "message"),
    [
        ({"node": Ring}, "expected a torch module for column 'node', got the class Ring"),
        ({"node": "Ring"}, "expected a torch module for column 'node', got 'Ring'"),
        ([Ring()], "encoders must map columns to modules"),
    ],
)
def test_objects_that_are_not_modules_are_refused(encoders: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PCMCNet(encoders=encoders)


def tied() -> nn.Module:
    module = nn.Sequential(nn.Embedding(12, 3), nn.Linear(3, 3))
    return module.append(module[1])


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (tied(), "Sequential for column 'node' shares weights"),
        (nn.LazyLinear(3), "LazyLinear for column 'node' has lazy weights"),
    ],
)
def test_weights_that_cannot_be_saved_are_refused_before_the_fit(module: nn.Module, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PCMCNet(encoders={"node": module})


class Few(nn.Module):
    """A module whose output has the right shape for a few contents only."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return ids.float().unsqueeze(1).expand(-1, 2 if len(ids) < 5 else 3)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Embedding(5, 3), r"column 'node': Embedding failed on [\d,]+ values: IndexError"),
        (Few(), r"column 'node': expected Few to return vectors of shape \(12, 2\), got \(12, 3\)"),
    ],
)
def test_errors_of_an_encoder_name_its_column(module: nn.Module, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PCMCNet(encoders={"node": module}, epochs=1, weight_decay=0.0).fit(graph(), progress=False)


def test_an_encoder_may_be_float64(tmp_path: Path) -> None:
    model = PCMCNet(encoders={"node": Ring().double()}, hidden=(8,), epochs=2, weight_decay=0.0).fit(
        graph(), progress=False
    )
    loaded = load(model.save(tmp_path / "model"), encoders={"node": Ring().double()})
    assert np.array_equal(loaded.predict_proba(graph(1)), model.predict_proba(graph(1)))


def test_an_encoder_for_another_column_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"encoders includes 'nod', which is not a content column.* Did you mean 'node'"
    ):
        PCMCNet(encoders={"nod": Ring()}).fit(graph(), progress=False)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: Ensemble(model, 2),
        lambda model: Calibrated(model),
        lambda model: Calibrated(Ensemble(model, 2)),
    ],
)
def test_custom_encoders_work_inside_wrappers(wrap: Any, tmp_path: Path) -> None:
    model = wrap(PCMCNet(encoders={"node": Ring()}, hidden=(8,), epochs=1, weight_decay=0.0))
    train, valid = graph().split((0.7, 0.3))
    model.fit(train, valid, progress=False)
    folder = model.save(tmp_path / "model")
    loaded = load(folder, encoders={"node": Ring()})
    assert np.array_equal(loaded.predict_proba(valid), model.predict_proba(valid))
    assert type(model)(**asdict(model.config), **model.extras).identity == model.identity
    assert model.identity != wrap(PCMCNet(encoders={"node": Other()}, hidden=(8,), epochs=1, weight_decay=0.0)).identity
    with pytest.raises(ArtifactError, match=r"of class Ring: use load\(folder, encoders=\{'node': Ring"):
        load(folder)


def test_encoders_are_refused_by_models_without_contents(tmp_path: Path) -> None:
    named = Ensemble("pcmcnet", 2, options={"epochs": 1}, encoders={"node": Ring()})
    assert list(named.extras["encoders"]) == ["node"]
    with pytest.raises(ConfigError, match="MNL does not accept custom encoders: leave them out"):
        Ensemble("mnl", 2, encoders={"node": Ring()})
    with pytest.raises(ConfigError, match="encoders can only be passed with the name of a model"):
        Calibrated(PCMCNet(), encoders={"node": Ring()})
    folder = Ensemble("mnl", 2).fit(ChoiceData.from_long(table(), **ROLES)).save(tmp_path / "logits")
    with pytest.raises(ConfigError, match="MNL does not accept custom encoders: leave them out"):
        load(folder, encoders={"node": Ring()})


# -- frozen encoders -------------------------------------------------------------------------------------------------


class Light(nn.Module):
    """The mean of a picture's values, or the last number of a text. It counts the contents that it encodes."""

    encoded = 0

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        Light.encoded += len(pictures)
        return self.weight * pictures.flatten(1).mean(1, keepdim=True)

    def encode(self, texts: list[str]) -> torch.Tensor:
        Light.encoded += len(texts)
        return self.weight * torch.tensor([[float(text.split()[-3])] for text in texts])


FROZEN: dict[str, tuple[str, Any]] = {
    "photo": ("image", lambda **more: Frozen(Light(), **more)),
    "words": ("text", lambda **more: Frozen(Light().encode, **more)),
}


def shade_data(column: str, seed: int = 0, **more: Any) -> ChoiceData:
    roles: dict[str, Any] = {"choice_set": "id", "chosen": "y", "features": [column]}
    return ChoiceData.from_long(shades(seed=seed), **roles, kinds={column: FROZEN[column][0]}, **more)


@pytest.mark.parametrize("column", FROZEN)
def test_a_frozen_encoder_is_run_once_for_each_content(column: str, tmp_path: Path) -> None:
    """240 rows have 25 shades. With a cache, neither a second fit nor a prediction encodes any of them."""
    build, data = FROZEN[column][1], shade_data(column)
    Light.encoded = 0
    model = PCMCNet(encoders={column: build()}, hidden=(8,), epochs=8, weight_decay=0.0, lr=0.02).fit(
        data, progress=False
    )
    assert Light.encoded == 25
    assert model.score(shade_data(column, 1)) > -0.5
    assert model.encoder_.encode(data).contents[0].table.shape == (25, 1)
    assert (
        model.num_parameters
        == PCMCNet(hidden=(8,), members=1).fit(table_of_one_number(), progress=False).num_parameters
    )
    Light.encoded = 0
    cached = [
        PCMCNet(encoders={column: build(cache=tmp_path)}, hidden=(8,), epochs=8, weight_decay=0.0, lr=0.02).fit(
            data, progress=False
        )
        for _ in range(2)
    ]
    assert np.array_equal(cached[1].predict_proba(data), model.predict_proba(data))
    assert Light.encoded == 25


def table_of_one_number() -> ChoiceData:
    rows = {"id": [0, 0], "y": [0, 1], "x": [1.0, 2.0]}
    return ChoiceData.from_long(rows, choice_set="id", chosen="y", features=["x"])


@pytest.mark.parametrize("column", FROZEN)
def test_a_loaded_model_needs_the_same_frozen_encoder(column: str, tmp_path: Path) -> None:
    build, data = FROZEN[column][1], shade_data(column, missing="indicator")
    model = PCMCNet(encoders={column: build()}, hidden=(8,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    folder = model.save(tmp_path / "model")
    loaded = load(folder, encoders={column: build(cache=tmp_path / "cache")})
    assert np.array_equal(loaded.predict_proba(data), model.predict_proba(data))
    with pytest.raises(ArtifactError, match=rf"encoders=\{{'{column}': Frozen\(Light"):
        load(folder)
    other = Frozen(Light(2.0) if column == "photo" else Light(2.0).encode)
    with pytest.raises(ArtifactError, match=r"was fitted with another Frozen.*, or with other weights"):
        load(folder, encoders={column: other})
    frozen = model.encoders[column]
    assert isinstance(frozen, Frozen)
    with torch.no_grad():
        frozen._module.weight.fill_(3)  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="has changed since the model was fitted"):
        model.predict_proba(data)


def by_letters(texts: list[str]) -> list[list[float]]:
    return [[float(text.count(letter)) for letter in "0123456789"] for text in texts]


@pytest.mark.parametrize("named", [None, "letters 1"])
@pytest.mark.parametrize("inside", [False, True])
def test_another_function_of_the_same_name_is_refused(named: str | None, inside: bool, tmp_path: Path) -> None:
    """Names do not identify a function: its vectors of training contents are compared."""

    def other(texts: list[str]) -> Any:
        return [row[::-1] for row in by_letters(texts)]

    other.__qualname__ = by_letters.__qualname__
    data = shade_data("words")
    frozen = Frozen(by_letters, name=named)
    model: Any = PCMCNet(encoders={"words": frozen}, hidden=(8,), epochs=1, weight_decay=0.0)
    folder = (Ensemble(model, 2) if inside else model).fit(data, progress=False).save(tmp_path / "model")
    assert Frozen(other, name=named).identity == frozen.identity
    assert load(folder, encoders={"words": Frozen(by_letters, name=named)}).predict_proba(data).all()
    with pytest.raises(ArtifactError, match=r"another Frozen\(by_letters\): this encoder returns different vectors"):
        load(folder, encoders={"words": Frozen(other, name=named)})


def test_another_function_is_refused_despite_a_cache(tmp_path: Path) -> None:
    data, cache = shade_data("words"), tmp_path / "cache"
    frozen = Frozen(by_letters, name="letters", cache=cache)
    folder = (
        PCMCNet(encoders={"words": frozen}, hidden=(8,), epochs=1, weight_decay=0.0)
        .fit(data, progress=False)
        .save(tmp_path / "model")
    )

    def other(texts: list[str]) -> Any:
        return [[x + 1 for x in row] for row in by_letters(texts)]

    other.__qualname__ = by_letters.__qualname__
    with pytest.raises(ArtifactError, match="returns different vectors for the training values"):
        load(folder, encoders={"words": Frozen(other, name="letters", cache=cache)})


def test_another_transform_of_the_same_name_is_refused(tmp_path: Path) -> None:
    def darker(image: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(image)) / 510

    def plain(image: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(image)) / 255

    darker.__qualname__ = plain.__qualname__
    data = shade_data("photo")
    model = PCMCNet(encoders={"photo": Frozen(Light(), transform=plain)}, hidden=(8,), epochs=1, weight_decay=0.0)
    folder = model.fit(data, progress=False).save(tmp_path / "model")
    assert load(folder, encoders={"photo": Frozen(Light(), transform=plain)}).predict_proba(data).all()
    with pytest.raises(ArtifactError, match="returns different vectors for the training values"):
        load(folder, encoders={"photo": Frozen(Light(), transform=darker)})


def test_frozen_encoders_work_inside_wrappers_with_missing_values(tmp_path: Path) -> None:
    rows = shades()
    rows["photo"] = [None if k % 9 == 0 else photo for k, photo in enumerate(rows["photo"])]
    roles: dict[str, Any] = {"choice_set": "id", "chosen": "y", "features": ["photo"], "missing": "indicator"}
    data = ChoiceData.from_long(rows, **roles, kinds={"photo": "image"})
    frozen = Frozen.pictures(Light(), lambda image: torch.from_numpy(np.array(image)) / 255, cache=tmp_path / "cache")
    model = Ensemble(PCMCNet(encoders={"photo": frozen}, hidden=(8,), epochs=1, weight_decay=0.0), 2).fit(
        data, progress=False
    )
    loaded = load(model.save(tmp_path / "model"), encoders={"photo": frozen})
    assert np.array_equal(loaded.predict_proba(data), model.predict_proba(data))


def test_each_content_of_a_scanned_table_is_encoded_once(tmp_path: Path) -> None:
    rows = shades()
    file = tmp_path / "table.parquet"
    pq.write_table(pa.table({name: rows[name] for name in ("id", "y", "words")}), file)
    roles: dict[str, Any] = {"choice_set": "id", "chosen": "y", "features": ["words"], "kinds": {"words": "text"}}
    whole = ChoiceData.from_long(file, **roles)
    scanned = ChoiceData.scan(file, memory="1 MiB", **roles)
    Light.encoded = 0
    model = PCMCNet(
        encoders={"words": Frozen(Light().encode, cache=tmp_path / "cache")}, hidden=(8,), epochs=2, weight_decay=0.0
    )
    model.fit(scanned, progress=False)
    assert Light.encoded == 25
    np.testing.assert_array_equal(model.predict_proba(scanned), model.predict_proba(whole))


def test_a_function_that_is_not_frozen_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"expected a torch module for column 'words', .* Freeze a function: Frozen"):
        PCMCNet(encoders={"words": Light().encode})  # type: ignore[dict-item]


# -- text and pictures -----------------------------------------------------------------------------------------------


def shades(sets: int = 80, seed: int = 0) -> dict[str, Any]:
    """Return choices of the lightest of three grey pictures. A text describes the lightness of each."""
    light = np.random.default_rng(seed).permuted(np.tile(np.arange(20, 220, 8), (sets, 1)), axis=1)[:, :3]
    return {
        "id": np.repeat(np.arange(sets), 3),
        "y": (light == light.max(1, keepdims=True)).ravel().astype(int),
        "photo": [picture(int(value), (8, 8)) for value in light.ravel()],
        "words": [f"A grey of {value} in 255" for value in light.ravel()],
    }


@pytest.mark.parametrize(("column", "kind"), [("photo", "image"), ("words", "text")])
def test_networks_learn_from_pictures_and_text(column: str, kind: str, tmp_path: Path) -> None:
    """Far above chance, log 1/3 = -1.10, on new sets of known pictures or texts."""
    roles: dict[str, Any] = {"choice_set": "id", "chosen": "y", "features": [column], "kinds": {column: kind}}
    train, test = (ChoiceData.from_long(shades(seed=seed), **roles) for seed in (0, 1))
    model = PCMCNet(hidden=(16,), epochs=20, weight_decay=0.0, lr=0.02).fit(train, progress=False)
    assert model.score(test) > -0.4
    again = load(model.save(tmp_path / "model"))
    assert np.array_equal(again.predict_proba(test), model.predict_proba(test))
    assert training_overlap(again, train.subset(np.arange(len(train) - 1))) == "some"
    copied = model.predict_proba(compose_sets(test, [[0, 0, 0, 1, 1, 1, 2, 2, 2]], [0]))
    once = model.predict_proba(compose_sets(test, [[0, 1, 2]], [0]))
    np.testing.assert_allclose(copied, np.repeat(once / 3, 3), rtol=0, atol=1e-6)


# -- GPU -------------------------------------------------------------------------------------------------------------


def of_every_kind(seed: int = 0) -> dict[str, Any]:
    """Return shades with texts, vectors, lists, timestamps and hours that depend on them."""
    rng, rows = np.random.default_rng(seed), shades(seed=seed)
    n = len(rows["id"])
    extra = {
        "v": rng.normal(size=(n, 3)),
        "has": [WORDS[k] for k in rng.integers(4, size=n)],
        "hour": rng.uniform(0, 24, n),
        "age": np.repeat(rng.uniform(20, 80, n // 3), 3),
        "at": np.repeat(np.datetime64("2024-01-01T08:00", "s") + rng.integers(10**6, size=n // 3), 3),
    }
    return rows | extra | {"shade": rows["photo"]}


@pytest.mark.gpu
@pytest.mark.parametrize("frozen_on", ["cpu", "cuda"])
def test_all_kinds_of_columns_give_the_same_on_gpu_and_cpu(frozen_on: str, tmp_path: Path) -> None:
    kinds = {"photo": "image", "shade": "image", "words": "text", "v": "vector", "has": "multi", "at": "datetime"}
    roles: dict[str, Any] = {
        "choice_set": "id",
        "chosen": "y",
        "features": ["photo", "shade", "words", "v", "has", "hour"],
        "individual": ["age", "at"],
        "kinds": kinds | {"hour": "piecewise", "age": "spline"},
    }
    train, test = (ChoiceData.from_long(of_every_kind(seed), **roles) for seed in (0, 1))
    scores = {}
    for device in ("cpu", "cuda"):
        frozen = Frozen(Light().to(frozen_on), cache=tmp_path / device)
        model = PCMCNet(encoders={"shade": frozen}, hidden=(16,), epochs=10, weight_decay=0.0, lr=0.02)
        scores[device] = model.fit(train, device=device, progress=False).score(test)
        assert next(model.network_.parameters()).device.type == device
        here = model.predict_proba(test)
        other = model.network_.to("cpu" if device == "cuda" else "cuda")
        # Float32 convolutions on a GPU keep ten bits of their factors.
        np.testing.assert_allclose(model.predict_proba(test), here, rtol=0, atol=0.02)
        other.cpu()
        again = load(model.save(tmp_path / f"model-{device}"), encoders={"shade": frozen})
        assert np.array_equal(again.predict_proba(test), model.predict_proba(test))
    assert min(scores.values()) > -0.6
    assert abs(scores["cpu"] - scores["cuda"]) < 0.15  # other masks of dropout


@pytest.mark.gpu
def test_cuda_graphs_with_bins_give_the_same_result() -> None:
    rows = of_every_kind()
    roles: dict[str, Any] = {"choice_set": "id", "chosen": "y", "features": ["hour"], "individual": ["age"]}
    data = ChoiceData.from_long(rows, **roles, kinds={"hour": "piecewise", "age": "spline"})
    scores = [
        PCMCNet(hidden=(8,), epochs=5, weight_decay=0.0).fit(data, device=d, progress=False).score(data)
        for d in ("cpu", "cuda")
    ]
    assert abs(scores[0] - scores[1]) < 0.005  # float32 products in another order
