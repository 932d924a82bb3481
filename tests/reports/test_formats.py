from pcmcnet.reports.formats import InEveryFormat, Printed, Summary

EVIL = "<b>_x_ & \x1b[2J"


class Result(InEveryFormat):
    def _printed(self) -> Printed:
        return Printed(
            title="Toy",
            facts={"sets": "3", "formula": "a + " * 12 + "b"},
            cells=[["name", "value"], ["x", "-1.5*"], [EVIL, "2"]],
            notes=("* p < 0.05",),
            rules=frozenset({1}),
        )


def test_text_has_the_title_facts_table_with_rules_and_notes() -> None:
    lines = str(Result()).split("\n")
    assert lines[:3] == ["Toy", "===", "sets     3"]
    assert lines[5:] == [
        "name              value",
        "-----------------------",
        "x                 -1.5*",
        "-----------------------",
        r"<b>_x_ & \x1b[2J      2",
        "",
        "* p < 0.05",
    ]


def test_html_is_a_part_of_a_page_with_every_text_escaped_and_is_what_a_notebook_shows() -> None:
    html = Result().to_html()
    assert html == Result()._repr_html_()
    assert html.startswith('<div class="pcmcnet">')
    assert r"&lt;b&gt;_x_ &amp; \x1b[2J" in html
    assert '<tr class="rule"><th scope="row">&lt;b&gt;' in html
    assert "<html" not in html
    assert '<p class="note">* p &lt; 0.05</p>' in html


def test_markdown_has_the_same_and_latex_puts_long_facts_below_the_table() -> None:
    assert "- sets: 3" in Result().to_markdown()
    assert r"| x | -1.5\* |" in Result().to_markdown()
    latex = Result().to_latex()
    assert r"sets & \multicolumn{1}{r}{3} \\" in latex
    assert r"\textless{}b\textgreater{}\_x\_ \& \textbackslash{}x1b[2J & 2 \\" in latex
    below = latex.split(r"\end{tabular}")[1]
    assert "formula: a + a + " in below
    assert r"* p \textless{} 0.05" in below


def test_a_summary_prints_its_facts_and_an_aligned_table() -> None:
    summary = Summary(
        "Toy",
        {"trained on": "3 sets", "epochs": "12"},
        ("weights", "shape"),
        (("rate", "16 x 2"), ("a longer name", "1")),
    )
    assert str(summary).split("\n") == [
        "Toy",
        "===",
        "trained on  3 sets",
        "epochs      12",
        "",
        "weights         shape",
        "---------------------",
        "rate           16 x 2",
        "a longer name       1",
    ]


def test_a_summary_may_have_no_facts_and_no_rows_and_shows_itself() -> None:
    summary = Summary("Toy", {}, ("weights",), ())
    assert repr(summary) == str(summary) == "Toy\n===\n\nweights\n-------"


def test_a_summary_is_written_for_a_paper_a_page_and_a_notebook() -> None:
    summary = Summary("Toy", {"log-likelihood": "-12.5"}, ("coefficient", "estimate"), (("cost_eur", "-1.5"),))
    assert r"cost\_eur & $-$1.5 \\" in summary.to_latex()
    assert "<td>-1.5</td>" in summary.to_html() == summary._repr_html_()
    assert r"| cost\_eur | -1.5 |" in summary.to_markdown()
