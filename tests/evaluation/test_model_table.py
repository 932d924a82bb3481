import numpy as np
import pytest

from choice_tables import logit_choices, read
from pcmcnet import MNL, ChoiceData, LatentClassMNL, NestedMNL, Uniform, bootstrap_errors, calibrate_constants, table
from pcmcnet.errors import InputError, NotFittedError, SchemaError


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    choices = logit_choices(300, {"x": 1.0, "y": 0.5}, sizes=(3, 4), constants=[0.0, 0.5, -0.5, 0.2])
    return read(choices, alternative="mode", features=["x", "y"])


def test_rows_hold_coefficients_errors_and_goodness_of_fit(data: ChoiceData) -> None:
    small, large = MNL(formula="x | 0").fit(data), MNL(formula="x + y | 0", fixed={"y": 0.5}).fit(data)
    lines = str(table([small, large], names=["one", "two"], errors="robust")).splitlines()
    b, se = small.coefficients["x"], small.standard_errors("robust")["x"]
    assert lines[3].split() == ["one", "two"]
    assert lines[5].split()[:2] == ["x", f"{b:.4g}***"]
    assert lines[6].split()[0] == f"({se:.3g})"
    assert lines[7].split() == ["y", "0.5"]
    assert lines[8].split() == ["(fixed)"]
    assert set(lines[9]) == {"-"}
    assert lines[10].split() == ["log-likelihood", *(f"{m.estimates_.log_likelihood:.3f}" for m in (small, large))]
    assert lines[-2:] == ["* p < 0.1, ** p < 0.05, *** p < 0.01", "Standard errors in parentheses: robust."]
    assert "constants-only" not in str(table([small]))  # rows without values are omitted


def test_rows_are_renamed_ordered_and_dropped(data: ChoiceData) -> None:
    small, large = MNL(formula="x").fit(data), MNL(formula="x + y/2").fit(data)
    options = {"rename": {"y/2": "Effect of y", "x": "Effect of x", "log-likelihood": "LL"}, "order": ["y/2", "x"]}
    plain, result = table([small, large]), table([small, large], drop=["constant", "BIC"], **options)
    assert plain.names[:2] == ["x", "constant[A]"]
    assert result.names == ["Effect of y", "Effect of x"]
    assert result.columns[1].rows["Effect of y"] == plain.columns[1].rows["y/2"]
    text = str(result)
    assert "\nLL  " in text
    assert "\nlog-likelihood" not in text
    assert "BIC" not in text
    assert f"Not shown: {', '.join(name for name in plain.names if name.startswith('constant['))}." in text
    assert "Effect of y" in result.to_latex()
    frame = result.to_frame()
    assert list(frame["name"][:2]) == ["Effect of x", "LL"]  # the first model lacks y
    assert list(table(large, order=["constant"]).names[-2:]) == ["x", "y/2"]
    assert table(large, order=["Effect of y"], rename=options["rename"]).names[0] == "Effect of y"


def test_coefficients_of_different_models_share_a_renamed_row(data: ChoiceData) -> None:
    one, two = MNL(formula="x | 0").fit(data), MNL(formula="x/10 | 0").fit(data)
    result = table([one, two], rename={"x": "x", "x/10": "x"})
    assert result.names == ["x"]
    both = MNL(formula="x + square(x) | 0").fit(data)
    with pytest.raises(InputError, match="MNL has two coefficients with the new name 'x'"):
        table(both, rename={"square(x)": "x"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rename": {"why": "y"}}, "rename: 'why' is not in the table"),
        ({"order": ["constnt"]}, "order: 'constnt' is not in the table"),
        ({"order": ["BIC"]}, "order: 'BIC' is not in the table"),
        ({"drop": ["BIK"]}, "drop: 'BIK' is not in the table. Did you mean 'BIC'"),
        ({"drop": "x"}, "drop must be a list of names"),
        ({"rename": ["x"]}, "rename must map names"),
    ],
)
def test_unknown_rows_are_refused(data: ChoiceData, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        table(MNL(formula="x").fit(data), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("p", "mark"), [(0.005, "***"), (0.02, "**"), (0.07, "*"), (0.2, ""), (float("nan"), "")])
def test_stars_mark_small_p_values(data: ChoiceData, p: float, mark: str) -> None:
    result = table([MNL(formula="x | 0").fit(data)])
    row = result.columns[0].rows["x"]._replace(p=p, estimate=1.5)
    assert result._estimate(row) == f"1.5{mark}"
    assert table([MNL(formula="x | 0").fit(data)], stars=False)._estimate(row) == "1.5"


def test_classes_are_columns_and_log_sums_are_rows(data: ChoiceData) -> None:
    nests = {"A": "one", "B": "one", "C": "two", "D": "two"}
    classes = LatentClassMNL(formula="x | 0", classes=2, membership="1", starts=2).fit(data)
    result = table({"nested": NestedMNL(formula="x | 0", nests=nests).fit(data), "classes": classes})
    assert [(column.model, column.part) for column in result.columns] == [
        ("nested", ""),
        ("classes", "class 1"),
        ("classes", "class 2"),
    ]
    assert result.names == ["x", "logsum[one]", "logsum[two]", "membership: constant"]
    assert result.columns[2].rows["x"].estimate == classes.coefficients["class 2: x"]
    assert result.columns[1].fit["parameters"] == classes.num_parameters
    assert result.columns[2].fit == {}
    assert "Log-sums are tested against 1." in result.notes
    assert r"nested & classes: class 1 & classes: class 2 \\" in result.to_latex()


def test_sets_of_one_alternative_do_not_change_bic(data: ChoiceData) -> None:
    choices = logit_choices(300, {"x": 1.0}, sizes=(2, 3))
    more = {name: np.append(values, values[:50]) for name, values in choices.items()}
    more |= {"trip": np.append(choices["trip"], 1000 + np.arange(50)), "took": np.append(choices["took"], np.ones(50))}
    plain, longer = (MNL(formula="x").fit(read(table, features=["x"])) for table in (choices, more))
    assert (longer.estimates_.n_sets, longer.estimates_.n_single) == (350, 50)
    result = table([plain, longer])
    assert result.columns[0].fit["BIC"] == pytest.approx(result.columns[1].fit["BIC"], rel=1e-12)
    assert "BIC counts only the choice sets with at least two alternatives." in result.notes
    assert not any("BIC" in note for note in table([plain]).notes)


def test_other_models_show_only_their_goodness_of_fit(data: ChoiceData) -> None:
    models = [MNL(formula="x | 0").fit(data), Uniform().fit(data)]
    result = table(models, data=data)
    assert result.columns[1].rows == {}
    assert result.columns[1].fit["log-likelihood"] == pytest.approx(-np.log(data.sizes).sum())
    assert result.notes[-1] == "Goodness of fit: computed on data, from the probabilities of each choice set."
    assert result.columns[0].fit == pytest.approx(table(models).columns[0].fit)
    assert table(models).notes[-1] == "Log-likelihood of Uniform: not computed; pass data to compute it."
    assert "p < 0.1" not in str(table(models[1:]))


def test_a_test_part_determines_the_whole_goodness_of_fit(data: ChoiceData) -> None:
    """Both columns have the log-likelihood and the number of the 60 test sets; AIC and BIC belong to the 240 others."""
    train, test = data[:240], data[240:]
    models = {"logit": MNL(formula="x | 0").fit(train), "network": Uniform().fit(train), "all": MNL().fit(data)}
    result = table(models, data=test)
    for column, model in zip(result.columns, models.values(), strict=True):
        assert column.fit["log-likelihood"] == pytest.approx(60 * model.score(test))
        assert column.fit["choice sets"] == 60
    shown = [line.split("  ")[0] for line in str(result).splitlines()]
    assert not {"AIC", "BIC", "adjusted rho-squared", "constants-only log-likelihood"} & set(shown)
    assert result.notes[1] == "Goodness of fit: computed on data, from the probabilities of each choice set."
    assert result.notes[2].startswith("Left out for logit, all: constants-only log-likelihood, adjusted rho-squared,")


def test_goodness_of_fit_is_computed_on_tables_that_the_schema_reads() -> None:
    choices = logit_choices(60, {"x": 1.0})
    model = MNL(formula="x").fit(read(choices, features=["x"]))
    of_table, of_training = table([model], data=choices), table([model])
    assert of_table.columns[0].fit == pytest.approx(of_training.columns[0].fit)
    with pytest.raises(SchemaError, match=r"missing\.csv"):
        table([model], data="missing.csv")


def test_errors_may_differ_by_model_or_come_from_the_bootstrap(data: ChoiceData) -> None:
    model = MNL(formula="x | 0").fit(data)
    boot = bootstrap_errors(model, data, draws=5, progress=False)
    result = table([model, model], errors=[boot, None])
    assert result.columns[0].rows["x"].std_error == boot.standard_errors["x"]
    assert result.columns[0].rows["x"].z == pytest.approx(model.coefficients["x"] / boot.standard_errors["x"])
    assert result.columns[1].rows["x"].std_error == model.standard_errors()["x"]
    assert result.notes[0] == (
        "Standard errors in parentheses: bootstrap over choice sets (MNL (1)), classical (MNL (2))."
    )
    with pytest.raises(InputError, match="belongs to another model"):
        table([MNL(formula="y | 0").fit(data)], errors=[boot])


def test_tables_are_written_in_every_format(data: ChoiceData) -> None:
    pytest.importorskip("pandas")
    result = table([MNL().fit(data), MNL(formula="y").fit(data.subset(np.arange(200)))])
    assert result.notes[-1] == "The models were fitted to different tables: their log-likelihoods are not comparable."
    assert "constant[C]" in result.to_latex()
    assert r"\midrule" in result.to_latex()
    assert '<tr class="rule"><th scope="row">log-likelihood</th>' in result.to_html() == result._repr_html_()
    assert "| log-likelihood |" in result.to_markdown()
    frame = result.to_frame()
    assert frame.query("model == 'MNL (1)' and name == 'x'")["estimate"].item() == result.columns[0].rows["x"].estimate
    assert frame.query("model == 'MNL (2)' and name == 'choice sets'")["estimate"].item() == 200


def test_invalid_lists_of_models_are_refused(data: ChoiceData) -> None:
    model = MNL().fit(data)
    with pytest.raises(InputError, match=r"expected a list of fitted models, got \[\]"):
        table([])
    with pytest.raises(InputError, match="names: expected one entry for each of 1 models, got 2"):
        table([model], names=["a", "b"])
    with pytest.raises(InputError, match="errors: expected one entry for each of 1 models, got 2"):
        table([model], errors=["robust", "classical"])
    with pytest.raises(NotFittedError):
        table([MNL()])


def test_one_model_and_one_bootstrap_need_no_lists(data: ChoiceData) -> None:
    model = MNL(formula="x | 0").fit(data)
    assert str(table(model)) == str(table([model]))
    boot = bootstrap_errors(model, data, draws=5, progress=False)
    assert str(table(model, errors=boot)) == str(table([model], errors=[boot]))


def test_calibrated_constants_have_neither_errors_nor_stars(data: ChoiceData) -> None:
    model = MNL(formula="x").fit(data)
    moved = calibrate_constants(model, data, {"A": 0.05, "B": 0.6, "C": 0.05, "D": 0.3})
    result = table({"fitted": model, "moved": moved})
    row = result.columns[1].rows["constant[D]"]
    assert row.state == "calibrated"
    assert np.isnan([row.std_error, row.z, row.p, row.lower, row.upper]).all()
    assert result._estimate(row) == f"{row.estimate:.4g}"
    assert result.columns[1].rows["x"] == result.columns[0].rows["x"]
    assert "(calibrated)" in str(result)
    assert result.notes[-2:] == (
        "The constants of moved were calibrated to known shares after the fit and have no standard errors.",
        "The goodness of fit of moved is that before calibration.",
    )
    assert not any("moved" in note for note in table(model).notes)
    on_data = table({"moved": moved}, data=data)
    assert on_data.columns[0].fit["log-likelihood"] == pytest.approx(len(data) * moved.score(data))
    assert not any("before calibration" in note for note in on_data.notes)
