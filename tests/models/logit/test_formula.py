import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.errors import ConfigError
from pcmcnet.models.logit.formula import Factor, Formula, Term, parse_formula, plain_number


def terms(*texts: str) -> tuple[Term, ...]:
    return tuple(Term(tuple(Factor(name) for name in text.split(":"))) for text in texts)


# -- valid formulas ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cost", Formula(terms("cost"), False)),
        (" cost+time ", Formula(terms("cost", "time"), False)),
        ("cost:income + time", Formula(terms("cost:income", "time"), False)),
        (".", Formula((), True)),
        (". + cost:income", Formula(terms("cost:income"), True)),
        ("|", Formula((), False)),
        ("| 1", Formula((), False, constants=True)),
        ("cost | 0", Formula(terms("cost"), False, constants=False)),
        ("cost | income", Formula(terms("cost"), False, terms("income"))),
        ("cost | 0 + income", Formula(terms("cost"), False, terms("income"), constants=False)),
        ("cost | . | wait", Formula(terms("cost"), False, (), True, None, terms("wait"))),
        ("0 | income", Formula((), False, terms("income"))),
        ("1 | income", Formula((), False, terms("income"))),
        ("0 | 0 + income | 0", Formula((), False, terms("income"), constants=False)),
        ("cost | 1 | 0", Formula(terms("cost"), False, constants=True)),
        ("cost || wait", Formula(terms("cost"), False, specific=terms("wait"))),
        (
            "cost + time:income | income + 1 | wait",
            Formula(terms("cost", "time:income"), False, terms("income"), False, True, terms("wait")),
        ),
    ],
)
def test_up_to_three_parts_are_read(text: str, expected: Formula) -> None:
    assert parse_formula(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cost/100", Factor("cost", divisor=100)),
        ("cost/-2.5e-3", Factor("cost", divisor=-0.0025)),
        ("cost/.5", Factor("cost", divisor=0.5)),
        ("log(cost)", Factor("cost", "log")),
        ("sqrt(cost)/10", Factor("cost", "sqrt", divisor=10)),
        ("square(cost)", Factor("cost", "square")),
        ("standardise(cost)", Factor("cost", "standardise")),
        ("relative(cost)", Factor("cost", "relative")),
        ("piecewise(time, 30)", Factor("time", "piecewise", (30.0,))),
        ("piecewise( time , -1, 0,2.5 )/60", Factor("time", "piecewise", (-1.0, 0.0, 2.5), 60)),
        ("log", Factor("log")),  # a column may have the name of a transformation
        ("log(log)", Factor("log", "log")),
        ("`total price`", Factor("total price")),
        ("log(`total price`)", Factor("total price", "log")),
        ("`1`", Factor("1")),
        ("`a + b | c`", Factor("a + b | c")),
        ("`back``tick`", Factor("back`tick")),
        ("Größe", Factor("Größe")),
        ("価格/100", Factor("価格", divisor=100)),
    ],
)
def test_a_factor_is_a_column_transformed_or_divided(text: str, expected: Factor) -> None:
    (term,) = parse_formula(text).generic
    assert term.factors == (expected,)
    assert parse_formula(str(term)).generic == (term,)


names = st.text(min_size=1, max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
factors = st.one_of(
    st.builds(Factor, names, st.sampled_from([None, "log", "relative"]), divisor=numbers.filter(bool)),
    st.builds(
        Factor,
        names,
        st.just("piecewise"),
        st.lists(numbers.map(lambda x: x + 0.0), min_size=1, max_size=3, unique=True).map(sorted).map(tuple),
    ),
)


@given(st.lists(factors, min_size=1, max_size=3, unique=True), st.lists(names, max_size=3, unique=True))
def test_terms_with_any_names_and_numbers_survive_writing(factors: list[Factor], labels: list[str]) -> None:
    term = Term(tuple(factors), tuple(labels))
    assert parse_formula(f"{term} | 1").generic == (term,)


def test_terms_do_not_depend_on_the_order_of_factors() -> None:
    one, other = parse_formula("a:b + c:d").generic[0], parse_formula("b:a").generic[0]
    assert one.key == other.key


def test_terms_with_different_labels_in_brackets_differ() -> None:
    plain, one, other, same = parse_formula("x + x[car, 1] + x[`1`] | 0 | x").terms
    assert (one.labels, other.labels) == (("car", "1"), ("1",))
    assert len({plain.key, one.key, other.key}) == 3
    assert plain == same
    assert str(one) == "x[car,`1`]"
    assert parse_formula("x[`1`, car]").generic[0].key == one.key


def test_a_formula_survives_writing() -> None:
    for text in ("cost + log(time):income[car,bus] | income + 1 | wait", " | 0 | ", "cost | 1 | "):
        assert str(parse_formula(text)) == text


def test_numbers_are_written_in_full() -> None:
    assert [plain_number(x) for x in (100.0, 0.1, -3.0, 1e22)] == ["100", "0.1", "-3", "1e+22"]


# -- invalid formulas ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", r"formula must be a string such as 'cost \+ log\(time\)', or '.' for all features, got ''"),
        ("  ", "formula must be a string"),
        (None, "formula must be a string .* got None"),
        ("cost + 1", r"0 and 1 belong in the second part, as in 'cost \| 0'"),
        ("cost | 1 | 1", "0 and 1 belong in the second part"),
        ("cost + 0 | income", "0 and 1 belong in the second part"),
        ("0 + . | income", "0 and 1 belong in the second part"),
        ("1", "0 and 1 belong in the second part"),
        ("0", "0 and 1 belong in the second part"),
        ("cost | 0 + 1", r"specify 0 \(no constants\)"),
        ("cost | 1 | .", "'.' is not supported in the third part"),
        ("cost | 1 | wait | x", r"expected at most three parts separated by '\|', got 4"),
        ("cost time", r"expected at most three parts of terms joined by '\+', got 'time'"),
        ("cost - time", r"unexpected '- time'. Terms are joined by '\+': leave out the terms"),
        ("cost * time", r"Write 'cost \+ time \+ cost:time'"),
        ("cost + `time", "unexpected '`time'"),
        ("cost + ", "expected the name of a column, but the formula ends there"),
        ("cost:", "expected the name of a column, but the formula ends there"),
        ("cost + 3", "expected the name of a column, got '3'"),
        ("cost + + time", r"expected the name of a column, got '\+'"),
        ("cost/0", "cost is divided by 0"),
        ("cost/1e999", "1e999 is too large"),
        ("cost/time", "expected a number, got 'time'"),
        ("lgo(cost)", r"unknown transformation 'lgo'. Did you mean 'log'\?"),
        (
            "exp(cost)",
            "unknown transformation 'exp'. Known: boxcox, log, piecewise, relative, sqrt, square, standardise",
        ),
        ("x[car", r"expected '\]', but the formula ends there"),
        ("x[]", r"expected the label of an alternative, got '\]'"),
        ("x[a, a]", r"a label occurs twice in \[a,a\]"),
        ("x[a] + x[a]", r"the term x\[a\] occurs twice"),
        (
            "x | y[a]",
            r"after '\|' have a coefficient for each alternative: use labels in brackets only in the first part",
        ),
        ("x | 1 | y[a]", "use labels in brackets only in the first part"),
        ("log()", r"expected a column in log\(...\), got '\)'"),
        ("log(cost", r"expected '\)', but the formula ends there"),
        ("log(cost time)", r"expected '\)', got 'time'"),
        ("log(cost, 2)", "log takes only a column"),
        ("piecewise(time)", r"piecewise takes increasing knots, as in piecewise\(time, 30, 60\)"),
        ("piecewise(time, 60, 30)", "piecewise takes increasing knots"),
        ("piecewise(time, 30, 30)", "piecewise takes increasing knots"),
        ("piecewise(time, x)", "expected a number, got 'x'"),
        ("cost + cost", "the term cost occurs twice"),
        ("a:b + b:a", "the term b:a occurs twice"),
        ("cost:cost", r"cost:cost contains a factor twice: use square\(COLUMN\)"),
    ],
)
def test_an_invalid_formula_is_refused_with_position_and_reason(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_formula(text)


@given(st.text(alphabet="ab01.+:|/(),` -éx\n", max_size=15))
def test_any_text_is_a_formula_or_is_refused(text: str) -> None:
    try:
        formula = parse_formula(text)
    except ConfigError:
        return
    for term in (*formula.generic, *formula.individual, *formula.specific):
        assert parse_formula(str(term)).generic == (term,)
