import re

from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.reports.tables import latex_cell, latex_table, latex_text

CELLS = [["coefficient", "a_1"], ["cost & time", "-1.278***"], ["", "(0.050)"], ["[x]", "inf"]]


def test_a_table_has_the_rules_of_booktabs_and_a_row_never_begins_with_a_bracket() -> None:
    assert latex_table(CELLS, rules=frozenset({2}), facts={"BIC": "-3.5"}, notes=["50% of it"]).splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"coefficient & a\_1 \\",
        r"\midrule",
        r"cost \& time & $-$1.278$^{***}$ \\",
        r" & (0.050) \\",
        r"\midrule",
        r"{[x]} & inf \\",
        r"\midrule",
        r"BIC & \multicolumn{1}{r}{$-$3.5} \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip{\footnotesize 50\% of it}",
    ]


def test_a_caption_or_a_label_makes_it_a_table_of_its_own() -> None:
    lines = latex_table(CELLS, caption="Models & fits", label="tab:fits").splitlines()
    assert lines[:4] == [r"\begin{table}", r"\centering", r"\caption{Models \& fits}", r"\label{tab:fits}"]
    assert lines[-1] == r"\end{table}"


def test_a_short_row_is_filled_and_one_column_has_facts_too() -> None:
    assert r"x &  \\" in latex_table([["a", "b"], ["x"]]).splitlines()
    assert r"n: 3 \\" in latex_table([["a"]], facts={"n": "3"}).splitlines()


def test_words_that_look_like_numbers_in_part_stay_words() -> None:
    assert latex_cell("-0.5 to 0.3") == "-0.5 to 0.3"
    assert latex_cell("1,024") == "1,024"
    assert latex_cell("-1e-05") == "$-$1e-05"
    assert latex_cell("12%") == r"12\%"


@given(st.text(max_size=30))
def test_no_text_leaves_a_sign_that_latex_obeys(text: str) -> None:
    """What remains after taking the known escapes away has no special sign, and no line end."""
    escaped = latex_text(text)
    known = r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}|\\[&%$#_{}]"
    rest = re.sub(known, "", escaped)
    assert not re.search(r"[\\~^<>|&%$#_{}\r\n]", rest)
