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
