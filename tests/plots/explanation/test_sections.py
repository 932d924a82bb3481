"""Which sections a report has, and what they must not leave unsaid."""

from dataclasses import replace

import pytest

from pcmcnet import Explanation
from pcmcnet.insight.explanation import PARTS
from pcmcnet.plots.explanation.sections import sections_of
from pcmcnet.reports.markdown import to_markdown
from pcmcnet.reports.sections import Dot, Facts, Figure, Intervals, Section, Table, Text, Tiles
from pcmcnet.reports.tables import markdown_table


def by_name(found: Explanation) -> dict[str, Section]:
    return {section.name: section for section in sections_of(found)}


def text_of(section: Section) -> str:
    return " ".join(block.text for block in section.blocks if isinstance(block, Text))


@pytest.mark.parametrize("name", ["chain", "logit", "ranking", "unknown", "table"])
def test_there_is_a_section_for_every_part_that_is_there(name: str, explained: dict[str, Explanation]) -> None:
    found = explained[name]
    there = [part for part in PARTS if getattr(found, part) is not None]
    first, *names, last = by_name(found)
    assert (first, last) == ("findings" if found.findings else "glance", "made")
    assert sorted({*names, first} - {"findings", "glance"}) == sorted(there)
    made = by_name(found)["made"].blocks[0]
    assert isinstance(made, Facts)
    assert {f"no section on {part}": why for part, why in found.left_out.items()}.items() <= made.pairs.items()


def test_in_sample_figures_are_called_so(explained: dict[str, Explanation]) -> None:
    found = explained["chain"]
    sections = by_name(found)
    for name in ("glance", "fit"):
        assert "This is the table that the model was trained on" in text_of(sections[name])
    table = next(block for block in sections["fit"].blocks if isinstance(block, Table))
    assert [row[-1] for row in table.cells] == ["measured", "in-sample", *["out of sample, 5 folds"] * 2]
    assert found.fit is not None
    assert table.cells[1][1].startswith(f"{found.fit.report.nll:.4f} [")
    assert "columns that the model has memorised" in text_of(sections["importance"])


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ("most", "mostly in-sample"),
        ("some", "perhaps in part in-sample"),
        ("none known", "This is not the table that the model was trained"),
    ],
)
def test_other_tables_are_told_apart(seen: str, words: str, explained: dict[str, Explanation]) -> None:
    found = explained["chain"]
    assert found.fit is not None
    warning = None if seen == "none known" else f"It is {words}."
    fit = replace(found.fit, seen=seen, warning=warning)  # type: ignore[arg-type]
    section = by_name(replace(found, fit=fit))["fit"]
    assert words in text_of(section)
    if warning is not None:
        table = next(block for block in section.blocks if isinstance(block, Table))
        assert table.cells[1][-1] == words
    assert "This is the table" not in text_of(section)


def test_a_logit_is_said_to_have_no_context_effects(explained: dict[str, Explanation]) -> None:
    (only,) = by_name(explained["logit"])["context"].blocks
    assert isinstance(only, Text)
    assert only.text.startswith("None. ")
    tiles = by_name(explained["logit"])["glance"].blocks[0]
    assert isinstance(tiles, Tiles)
    assert ("strongest context effect", "none", "change of a log-ratio") in tiles.tiles


def test_the_axioms_obeyed_are_named(explained: dict[str, Explanation]) -> None:
    found = explained["logit"].axioms
    assert found is not None
    assert f"Obeyed in all cases looked at: {', '.join(found.obeyed)}." in text_of(
        by_name(explained["logit"])["axioms"]
    )


def test_a_ranking_has_accuracies_alone(explained: dict[str, Explanation]) -> None:
    section = by_name(explained["ranking"])["fit"]
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert table.cells[1][1] == "-"
    assert "has no NLL" in text_of(section)


def test_caveats_stand_at_the_top(explained: dict[str, Explanation]) -> None:
    found = explained["chain"]
    assert found.model is not None
    marked = replace(found, model=replace(found.model, caveats=("the search was stopped",)))
    assert "Caveat: the search was stopped." in text_of(by_name(marked)["glance"])


def test_the_report_has_all_tables_and_no_markup_of_the_table(explained: dict[str, Explanation]) -> None:
    for found in explained.values():
        sections = sections_of(found)
        text = to_markdown(found.title, sections)
        for section in sections:
            assert f"\n## {section.title}\n" in text
            for block in section.blocks:
                if isinstance(block, Table):
                    assert markdown_table(block.cells) in text
                if isinstance(block, Figure):
                    assert markdown_table(block.numbers) in text
        assert "<a " not in text.replace("\\<", "")


def test_the_model_is_drawn_beside_the_baselines_and_hollow_in_sample(
    explained: dict[str, Explanation],
) -> None:
    fit = explained["chain"].fit
    assert fit is not None
    assert fit.baselines is not None
    (drawn,) = [block for block in by_name(explained["chain"])["fit"].blocks if isinstance(block, Intervals)]
    assert drawn.labels == ("this model", *(row.label for row in fit.baselines.rows))
    assert drawn.dots[0] == Dot(0, fit.report.values["nll"], *fit.report.intervals["nll"], marked=True)
    assert not any(dot.marked for dot in drawn.dots[1:])
    assert drawn.caption == "NLL with intervals; hollow: in-sample."
    ranking = by_name(explained["ranking"])["fit"].blocks
    assert [block.metric for block in ranking if isinstance(block, Intervals)] == ["TOP 1"]
