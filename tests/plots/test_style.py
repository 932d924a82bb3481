from matplotlib.figure import Figure

from pcmcnet.plots import style


def test_a_dollar_sign_begins_no_formula() -> None:
    figure = Figure()
    axes = figure.subplots()
    style.name_lines(axes, ["$a$", "b"])
    style.set_title(figure, "costs $5 or $6")
    assert [label.get_text() for label in axes.get_yticklabels()] == [r"\$a\$", "b"]
    assert figure.get_suptitle() == r"costs \$5 or \$6"


def test_the_first_name_stands_on_top_and_no_title_leaves_no_room() -> None:
    figure = Figure()
    axes = figure.subplots()
    style.name_lines(axes, ["a", "b", "c"])
    style.set_title(figure, "")
    assert axes.get_ylim() == (2.5, -0.5)
    assert figure.get_suptitle() == ""


def test_colours_differ() -> None:
    assert len(set(style.COLOURS)) == len(style.COLOURS)
