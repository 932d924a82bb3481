import re

from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.reports.tables import latex_cell, latex_table, latex_text

CELLS = [["coefficient", "a_1"], ["cost & time", "-1.278***"], ["", "(0.050)"], ["[x]", "inf"]]


def test_tables_use_booktabs_and_protect_leading_brackets() -> None:
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


def test_a_caption_or_label_adds_a_table_environment() -> None:
    lines = latex_table(CELLS, caption="Models & fits", label="tab:fits").splitlines()
    assert lines[:4] == [r"\begin{table}", r"\centering", r"\caption{Models \& fits}", r"\label{tab:fits}"]
    assert lines[-1] == r"\end{table}"


def test_short_rows_are_filled_and_single_columns_have_facts() -> None:
    assert r"x &  \\" in latex_table([["a", "b"], ["x"]]).splitlines()
    assert r"n: 3 \\" in latex_table([["a"]], facts={"n": "3"}).splitlines()


def test_only_whole_numbers_get_a_minus_sign() -> None:
    assert latex_cell("-0.5 to 0.3") == "-0.5 to 0.3"
    assert latex_cell("1,024") == "1,024"
    assert latex_cell("-1e-05") == "$-$1e-05"
    assert latex_cell("12%") == r"12\%"


@given(st.text(max_size=30))
def test_every_special_character_is_escaped(text: str) -> None:
    """Without the known escapes, no special character and no line end is left."""
    escaped = latex_text(text)
    escapes = r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}|\\[&%$#_{}]"
    rest = re.sub(escapes, "", escaped)
    assert not re.search(r"[\\~^<>|&%$#_{}\r\n]", rest)
