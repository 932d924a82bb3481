from pcmcnet.reports.formats import InEveryFormat, Printed

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
