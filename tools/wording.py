"""Find names and phrases that need a second reading: ``python -m tools.wording [PATH ...]``.

    repeated class    a class name that two modules of the package define
    vague name        a function, class or constant that does not say what it is: ``TOGETHER``, ``opened``
    vague local       a variable that does not say what it holds: ``found``, ``given``
    opening           a docstring that does not open with a verb of the trade: "Tell ...", "Say ..."
    phrase            wording that the field expresses otherwise: "is not to be had"

Each row is a place to look at. ``LIMITS`` are the numbers of today; a test keeps them from growing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TEXTS = ("src", "docs", "README.md", "CONTRIBUTING.md")
LIMITS = {"repeated class": 0, "vague name": 0, "vague local": 60, "opening": 0, "phrase": 150}

_LOCALS = re.compile(
    r"found|given|asked|told|kept|known|there|own|others|seen|what|who|which|heard|made|wanted|said|same|another|meant|"
    r"tried"
)
_NAMES = re.compile(
    r"_?(?:Told|Asked|Drawn|Made|Placed|Sampled|Spilled|Printed|Within|UnderWay|Turn|Given|Kept|Heard|Found|Seen|Wanted|"
    r"TOGETHER|MOST|FEW|SETS|LONGEST|UNTOLD|FURTHEST|APART|LOANS|SOON|MUCH|WORTH|TIMES|together|begun|opened|able|heard|"
    r"walk|tried|mixed|another|telling|meant|itself|after|told|asked|given|kept)"
)
_OPENINGS = re.compile(r"(?:Tell|Say|Let|Notice|Ask|Do the same|Hear|Hold)\b")
_PHRASES = {
    r"is not to be had": "is not available",
    r"\bof (?:one'?s|your) own\b": "custom",
    r"\bso many\b": "this many",
    r"\btold apart\b|\btells? apart\b": "distinguished",
    r"\bbeside\b": "next to, in addition to, with",
    r"\b(?:is|are) none\b": "there is no",
    r"\bnobody\b": "no one",
    r"\bwho (?:would|else|gives|asks|averages)\b": "the caller",
    r"\bcame off course\b": "diverged",
    r"\bto hear of\b|\bis heard\b|\bhears\b": "is reported",
    r"\bgoes? on where\b|\bto go on\b": "continue",
    r"\bis no (?:matter|fault|value|reason|use)\b": "does not matter",
    r"\bmade up for\b|\bmakes up for\b": "trade-off",
    r"\bat (?:its|their) word\b": "well calibrated",
    r"\bwhat becomes? of\b|\bhas become of\b": "the result of",
    r"\bof whom\b|\bof which\b": "split the sentence",
    r"\blikewise\b|\bas above\b|\bthe latter\b|\bthe former\b": "name the thing",
    r"\bwithin which\b|\bby then\b|\bby choice\b": "give the reason",
    r"\bin the place of\b": "instead of",
    r"\bwhere there (?:is|are)\b": "if there is",
    r"\bnot being\b": "reword",
    r"\bput together\b": "combined",
}
_PHRASE_RULES = [(re.compile(pattern, re.IGNORECASE), plain) for pattern, plain in _PHRASES.items()]


class Row(NamedTuple):
    """A place to look at: the rule, where it applies, and what stands there."""

    rule: str
    place: str
    text: str


def rows(paths: Iterable[Path]) -> Iterator[Row]:
    """Yield the places of all rules in files and folders of Python, Markdown, HTML and JavaScript."""
    classes: dict[str, list[str]] = defaultdict(list)
    for path in _files(paths):
        text = path.read_text("utf-8")
        yield from _phrases(path, text)
        if path.suffix != ".py":
            continue
        tree = ast.parse(text)
        yield from _names(path, tree)
        if "src" in path.parts:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    classes[node.name].append(f"{path}:{node.lineno}")
    for name, places in classes.items():
        if len(places) > 1:
            yield Row("repeated class", places[0], f"{name}, also in {', '.join(places[1:])}")


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        suffixes = (".py", ".md", ".html", ".js")
        yield from [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.suffix in suffixes)


def _phrases(path: Path, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, plain in _PHRASE_RULES:
            match = pattern.search(line)
            if match and not match[0].endswith("None"):  # `x is None` is code
                yield Row("phrase", f"{path}:{number}", f"{match[0]} -> {plain}")


def _names(path: Path, tree: ast.AST) -> Iterator[Row]:
    """Yield vague names and locals, and openings of docstrings."""
    for node in ast.walk(tree):
        place = f"{path}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if _NAMES.fullmatch(node.name):
                yield Row("vague name", place, node.name)
            if _OPENINGS.match(ast.get_docstring(node) or ""):
                yield Row("opening", place, (ast.get_docstring(node) or "").splitlines()[0])
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name.isupper() and _NAMES.fullmatch(name):
                yield Row("vague name", place, name)
            elif _LOCALS.fullmatch(name):
                yield Row("vague local", place, name)


def main(arguments: list[str]) -> None:
    """Print the places and how many each rule has."""
    places = list(rows([Path(word) for word in arguments] or [ROOT / name for name in TEXTS]))
    counts = Counter(row.rule for row in places)
    lines = [f"{row.place}: {row.rule}: {row.text}" for row in places]
    lines += [f"{rule}: {counts[rule]}, at most {limit}" for rule, limit in LIMITS.items()]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
