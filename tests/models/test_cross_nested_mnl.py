"""Cross-nested logit: Biogeme's estimates, special cases, recovery of simulated allocations, and invalid input."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import log_sum_exp_by_set
from pcmcnet.datasets import packaged
from pcmcnet.errors import ConfigError, DatasetError, InputError, NotFittedError
from pcmcnet.models import MNL, CrossNestedMNL, NestedMNL, load
from pcmcnet.models.cross_nested_mnl import CrossNestedMNLConfig
from pcmcnet.models.interface.parse_options import parse_option

MODES = np.array(["car", "bus", "metro", "train"])
NESTS = {"street": ["car", "bus"], "public": ["bus", "metro"], "rail": ["metro", "train"]}


def make(sets: int = 1500, seed: int = 0, **roles: Any) -> ChoiceData:
    """Simulate four modes of utility -x with log-sums of 0.4 and allocations of 0.3 (bus) and 0.8 (metro)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(sets, 4)).astype(np.float32).astype(np.float64)
    alpha = np.array([[1, 0, 0], [0.3, 0.7, 0], [0, 0.8, 0.2], [0, 0, 1]])
    y = (alpha * np.exp(-x)[:, :, None]) ** (1 / 0.4)  # (S, J, M)
    nest = y.sum(1) ** 0.4
    p = (y / y.sum(1, keepdims=True) * (nest / nest.sum(1, keepdims=True))[:, None]).sum(2)
    chosen = (rng.random((sets, 1)) > p.cumsum(1)).sum(1)
    table = {
        "trip": np.repeat(np.arange(sets), 4),
        "took": (chosen[:, None] == np.arange(4)).ravel(),
        "mode": np.tile(MODES, sets),
        "x": x.ravel(),
    }
    return ChoiceData.from_long(
        table, **{"choice_set": "trip", "chosen": "took", "alternative": "mode", "features": ["x"], **roles}
    )


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return make()


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> CrossNestedMNL:
    fitted: CrossNestedMNL = CrossNestedMNL(nests=NESTS, formula="x").fit(data)
    return fitted


def test_swissmetro_has_the_estimates_of_biogeme() -> None:
    """Biogeme 3.2.14 run on the same table; its documentation has -5214.049, alpha .495, mu 2.51 and 4.11."""
    try:
        table = packaged.load("swissmetro")
    except DatasetError as error:
        pytest.skip(str(error))
    column = {name: table[name].to_numpy() for name in table.column_names}
    pays = column["GA"] != 1
    for mode in ("TRAIN", "SM", "CAR"):
        column[f"{mode}_TIME"] = column[f"{mode}_TT"] / 100
        column[f"{mode}_COST"] = column[f"{mode}_CO"] * (pays | (mode == "CAR")) / 100
    data = ChoiceData.from_wide(
        column,
        chosen="CHOICE",
        alternatives={"TRAIN": 1, "SM": 2, "CAR": 3},
        features={"time": "{alternative}_TIME", "cost": "{alternative}_COST"},
        available="{alternative}_AV",
    )
    nests = {"existing": ["TRAIN", "CAR"], "public": ["TRAIN", "SM"]}
    model = CrossNestedMNL(nests=nests, errors="robust").fit(data)
    # Biogeme prints six decimals, and our tables hold prices in float32.
    assert model.estimates_.log_likelihood == pytest.approx(-5214.049195, abs=1e-4)
    expected = {
        "time": (-0.776846, 0.102380),
        "cost": (-0.818885, 0.058972),
        "constant[CAR]": (-0.240458, 0.053450),
        "constant[TRAIN]": (0.098278, 0.069978),
        "alpha[TRAIN,existing]": (0.495072, 0.034752),
    }
    for name, (value, error) in expected.items():
        assert model.coefficients[name] == pytest.approx(value, abs=1e-5)
        assert model.standard_errors()[name] == pytest.approx(error, abs=1e-5)
    mu, errors = model.estimates_.delta(lambda b: 1 / b[4:6], "robust")
    np.testing.assert_allclose(mu, [2.514876, 4.113615], atol=5e-5)
    np.testing.assert_allclose(errors, [0.248326, 0.496730], atol=5e-5)


def test_simulated_allocations_and_log_sums_are_recovered(model: CrossNestedMNL) -> None:
    truth = {"alpha[bus,street]": 0.3, "alpha[metro,public]": 0.8, "x": -1.0}
    truth |= {f"logsum[{nest}]": 0.4 for nest in NESTS}
    errors = model.standard_errors()
    for name, value in truth.items():
        assert abs(model.coefficients[name] - value) < 3 * errors[name]
        assert errors[name] < 0.2
    parts = model.allocations
    assert parts["car"] == {"street": 1.0}
    assert parts["bus"]["public"] == pytest.approx(1 - model.coefficients["alpha[bus,street]"])
    assert all(sum(of.values()) == pytest.approx(1) for of in parts.values())


def test_one_nest_per_alternative_is_the_nested_logit(data: ChoiceData) -> None:
    nested = NestedMNL(nests={"car": "a", "bus": "b", "metro": "b", "train": "c"}, formula="x").fit(data)
    cross = CrossNestedMNL(nests={"a": ["car"], "b": ["bus", "metro"], "c": ["train"]}, formula="x").fit(data)
    assert cross.coefficients == pytest.approx(nested.coefficients, rel=1e-5, abs=1e-6)
    given = CrossNestedMNL(
        nests={"a": {"car": 1, "bus": 0}, "b": {"bus": 1, "metro": 1}, "c": {"train": 1}}, formula="x"
    )
    assert given.fit(data).coefficients == cross.coefficients


def test_log_sums_of_1_are_the_multinomial_logit(data: ChoiceData) -> None:
    plain = MNL(formula="x").fit(data)
    ones = {f"logsum[{nest}]": 1.0 for nest in NESTS}
    parts = {"alpha[bus,street]": 0.3, "alpha[metro,public]": 0.6}
    cross = CrossNestedMNL(nests=NESTS, formula="x", fixed=ones | parts).fit(data)
    np.testing.assert_allclose(cross.predict_proba(data), plain.predict_proba(data), rtol=1e-6)
    assert cross.num_parameters == plain.num_parameters


def test_the_log_sum_of_a_set_is_that_of_the_logit_if_log_sums_are_1(data: ChoiceData) -> None:
    plain = MNL(formula="x").fit(data)
    cross = CrossNestedMNL(nests=NESTS, formula="x", fixed={f"logsum[{nest}]": 1.0 for nest in NESTS}).fit(data)
    expected = log_sum_exp_by_set(plain.utilities(data), data.offsets)
    np.testing.assert_allclose(cross._log_sums(data)[0][:, 0], expected, rtol=1e-6)


def test_unidentified_allocations_are_reported(data: ChoiceData) -> None:
    free = CrossNestedMNL(nests=NESTS, formula="x", fixed={f"logsum[{nest}]": 1.0 for nest in NESTS}).fit(data)
    assert free.standard_errors()["alpha[bus,street]"] == np.inf
    assert "alpha[bus,street]" in free.summary().facts["no finite estimate"]


def test_given_allocations_are_fixed(data: ChoiceData, model: CrossNestedMNL) -> None:
    nests = {
        "street": {"car": 1, "bus": 0.3},
        "public": {"bus": 0.7, "metro": 0.8},
        "rail": {"metro": 0.2, "train": 1},
    }
    one = CrossNestedMNL(nests=nests, formula="x").fit(data)
    parts = {"alpha[bus,street]": 0.3, "alpha[metro,public]": 0.8}
    other = CrossNestedMNL(nests=NESTS, formula="x", fixed=parts).fit(data)
    assert one.estimates_.log_likelihood == pytest.approx(other.estimates_.log_likelihood, rel=1e-9)
    assert one.allocations["bus"] == pytest.approx({"street": 0.3, "public": 0.7})
    assert one.num_parameters == other.num_parameters == model.num_parameters - 2
    assert one.estimates_.log_likelihood < model.estimates_.log_likelihood


def test_an_alternative_may_be_in_three_nests(data: ChoiceData) -> None:
    nests = {"a": ["car", "bus"], "b": ["bus", "metro"], "c": ["bus", "train"]}
    fixed = {"alpha[bus,a]": 0.5, "rest[bus,b]": 0.4, "logsum[a]": 0.5, "logsum[b]": 0.6, "logsum[c]": 0.7}
    model = CrossNestedMNL(nests=nests, formula="x", fixed=fixed).fit(data)
    assert model.allocations["bus"] == pytest.approx({"a": 0.5, "b": 0.2, "c": 0.3})
    free = CrossNestedMNL(nests=nests, formula="x", common_logsum=True).fit(data)
    assert sum(free.allocations["bus"].values()) == pytest.approx(1)
    assert free.num_parameters == 4 + 1 + 2


@settings(max_examples=10)
@given(seed=st.integers(0, 2**16))
def test_an_added_alternative_raises_no_other_probability(seed: int, model: CrossNestedMNL) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.permutation(4)
    table = {"trip": np.zeros(4), "took": rows == rows[0], "mode": MODES[rows], "x": 3 * rng.normal(size=4)}
    roles = {"choice_set": "trip", "chosen": "took", "alternative": "mode", "features": ["x"]}
    whole = model.predict_proba(ChoiceData.from_long(table, **roles))
    less = model.predict_proba(ChoiceData.from_long({k: v[:3] for k, v in table.items()}, **roles))
    assert whole.sum() == pytest.approx(1)
    assert (whole[:3] <= less + 1e-7).all()  # probabilities may be float32


def test_a_saved_model_is_loaded_unchanged(model: CrossNestedMNL, data: ChoiceData, tmp_path: Path) -> None:
    back = load(model.save(tmp_path / "model"))
    assert isinstance(back, CrossNestedMNL)
    assert back.allocations == model.allocations
    np.testing.assert_array_equal(back.predict_proba(data), model.predict_proba(data))


def test_nests_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "nests.toml"
    file.write_text('street = ["car", "bus"]\npublic = ["bus", "metro"]\nrail = ["metro", "train"]\n')
    name, nests = parse_option(CrossNestedMNLConfig, f"nests={file}")
    assert CrossNestedMNL(**{name: nests}).config.nests == NESTS


@pytest.mark.parametrize(
    ("nests", "problem"),
    [
        ("group", "nests must map the name of each nest to its labels, got 'group'"),
        ({"car": "road"}, r"nests\['car'\]: expected labels, such as \['train', 'car'\], or labels with shares"),
        ({"a": []}, r"nests\['a'\]: expected labels"),
        ({"a": ["car", "car"]}, r"nests\['a'\] contains 'car' twice: remove one"),
        ({"a": {"car": 2}}, r"nests\['a'\]: the share of 'car' must be from 0 to 1, got 2"),
        ({"a": {"car": True}}, "the share of 'car' must be from 0 to 1, got True"),
        ({"a": {"car": 0.5}, "b": ["car"]}, "the share of 'car' is given in 1 of 2 nests: give it in all of them"),
        ({"a": {"car": 0.5}, "b": {"car": 0.4}}, "the shares of 'car' sum to 0.9, but must sum to 1"),
    ],
)
def test_invalid_nests_are_refused(nests: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        CrossNestedMNL(nests=nests)


def test_labels_without_alternatives_are_reported(data: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pcmcnet"):
        CrossNestedMNL(nests={"a": ["car", "bus", "trian"], "b": ["metro", "train"]}, formula="x").fit(data)
    assert caplog.text.count("nests contains labels that are not in the table: 'trian'. Did you mean 'train'?") == 1


def test_nests_that_do_not_match_the_table_are_refused(data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=r"nests is required: pass nests=\{NEST: \[LABEL, ...\], ...\}"):
        CrossNestedMNL().fit(data)
    with pytest.raises(InputError, match="nests assigns no nest to 2 alternatives: 'metro', 'train'"):
        CrossNestedMNL(nests={"a": ["car", "bus"]}).fit(data)
    with pytest.raises(InputError, match="the table has no labels"):
        CrossNestedMNL(nests=NESTS).fit(make(20, alternative=None))
    with pytest.raises(InputError, match="all alternatives belong to the same nest"):
        CrossNestedMNL(nests={"a": MODES.tolist()}, formula="x").fit(data)
    with pytest.raises(ConfigError, match=r"fixed\['alpha\[bus,street\]'\] = 1.5 is outside its bounds, 0 to 1"):
        CrossNestedMNL(nests=NESTS, formula="x", fixed={"alpha[bus,street]": 1.5}).fit(data)
    with pytest.raises(NotFittedError):
        _ = CrossNestedMNL(nests=NESTS).allocations
