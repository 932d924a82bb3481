from pcmcnet.reports.sections import Facts, Section, Table, Text, note
from pcmcnet.reports.text import to_text


def test_a_terminal_shows_paragraphs_tables_and_notes() -> None:
    first = Section(
        title="One", blocks=(Text("Words."), Table(cells=[["a", "b"], ["x", "10"]]), note("n1"), note("n2"))
    )
    second = Section(title="Two", blocks=(Facts({"seed": 0}), Text("More.")))
    assert to_text("Title", [first, second]) == "Title\n\nWords.\n\na   b\nx  10\n\nn1\nn2\n\nMore."
