from pcmcnet.models.interface.summary import Summary


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
