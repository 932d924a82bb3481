"""Mutation testing of the quick tests: ``python -m tools.mutation_sample``.

A mutation changes one place of the library: ``<`` to ``<=``, ``+`` to ``-``, a constant, ``min`` to ``max``, or it
removes a ``not`` or a call. The sample is fixed. The place of a mutation has a pseudo-random number u, a hash of the
seed, the file and the statement. The mutations with the smallest -log(u) / w are drawn; w is the weight of the folder.
So a change of one file does not affect the sample of other files.

Each mutation is applied to a copy of the repository. There the quick tests of the file run, then a few tests of the
model contract. If a test fails, the mutation is caught. If a mutation survives, it is equivalent to the code, or a test
is missing.

Results are appended to ``runs/mutations.json``; mutations with a result are not run again. ``--tests`` uses the tests
of another checkout, to compare two versions of the tests on the same mutations. ``--since COMMIT`` only runs mutations
whose tests changed since that commit.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
SEED, SAMPLE, TIMEOUT = 0, 60, 600  # seconds; a timeout counts as caught, because a mutation may cause an endless loop
WEIGHTS = {"layers": 4.0, "training": 8.0, "data": 4.0, "models": 2.0, "evaluation": 4.0}  # models/ has most code
EXCLUDED = ("cluster/", "layers/kernel_launch", "/triton/", "triton", "plots/")  # they need Ray, a GPU or a human eye
CONTRACT = ["tests/test_contract.py", "-k", "pcmcnet or [mnl or nested-mnl"]
SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "<<": ">>", ">>": "<<"}
SWAPS |= {"is": "is not", "is not": "is", "in": "not in", "not in": "in"}
SWAPS |= {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "**": "*", "%": "*", "and": "or", "or": "and"}
NAMES = {"min": "max", "max": "min", "argmin": "argmax", "argmax": "argmin", "any": "all", "all": "any"}
OPERATOR = re.compile(rb"\b(?:and|or|is not|is|not in|in)\b|[<>=!]=|<<|>>|//|\*\*|[<>+*/%-]")
LARGE = 1000  # larger constants are sizes and limits, where adding one has no effect


@dataclass(frozen=True)
class Mutation:
    """A change of one place: bytes ``begin`` to ``end`` of a file become ``after``."""

    file: str  # below src/pcmcnet
    line: int
    begin: int
    end: int
    before: str
    after: str
    place: str  # text of the line and position in it; independent of the line number

    @property
    def key(self) -> str:
        """Name of the mutation in the results."""
        return f"{self.file}: {self.place}: {self.before} -> {self.after or 'nothing'}"

    def rank(self) -> float:
        """Return -log(u) / w. The smallest ranks are a weighted sample with weights w."""
        digest = hashlib.sha256(f"{SEED} {self.key}".encode()).digest()
        u = (int.from_bytes(digest[:8], "big") + 1) / 2**64
        return -math.log(u) / WEIGHTS.get(self.file.partition("/")[0], 1.0)


def mutations(file: str, source: str) -> Iterator[Mutation]:
    """Yield all mutations of a file, outside annotations, messages and lists of public names."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = b"".join(lines)

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def change(line: int, begin: int, end: int, after: str) -> Mutation:
        place = f"{lines[line - 1].decode().strip()} [{begin - starts[line - 1]}]"
        return Mutation(file, line, begin, end, text[begin:end].decode(), after, place)

    def between(left: ast.expr, right: ast.expr) -> Iterator[Mutation]:
        operator = OPERATOR.search(text, span(left)[1], span(right)[0])
        if operator and (after := SWAPS.get(operator[0].decode())):
            yield change(1 + text.count(b"\n", 0, operator.start()), *operator.span(), after)

    for node in _code(ast.parse(source)):
        if isinstance(node, ast.Compare):
            if not any(isinstance(side, ast.Constant) and side.value is None for side in node.comparators):
                yield from between(node.left, node.comparators[0])
        elif isinstance(node, ast.BinOp):
            yield from between(node.left, node.right)
        elif isinstance(node, ast.BoolOp):
            yield from between(node.values[0], node.values[1])
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield change(node.lineno, span(node)[0], span(node.operand)[0], "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield change(node.lineno, *span(node), repr(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value < LARGE:
            yield change(node.lineno, *span(node), repr(node.value + 1))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield change(node.lineno, *span(node), "pass")
        elif isinstance(node, ast.Call) and (name := _name(node.func)) in NAMES:
            end = span(node.func)[1]
            yield change(node.func.end_lineno or node.lineno, end - len(name), end, NAMES[name])


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of function bodies and module constants, without annotations, messages and overloads."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "keywords" if isinstance(tree, ast.ClassDef) else ""):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
                yield node
                yield from _code(node)


def sample(root: Path = ROOT) -> list[Mutation]:
    """Draw the sample of a checkout."""
    source = root / "src" / "pcmcnet"
    names = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.py"))
    by_key = {  # identical lines have the same key and count once
        mutation.key: mutation
        for name in names
        if not any(part in name for part in EXCLUDED)
        for mutation in mutations(name, (source / name).read_text("utf-8"))
    }
    return sorted(by_key.values(), key=Mutation.rank)[:SAMPLE]


def mirror(file: str, root: Path) -> list[str]:
    """Return the tests of a file: the test file of the same name, or all tests of the nearest folder."""
    path = Path("tests") / file
    test = path.with_name(f"test_{path.name}")
    while not (root / test).exists():
        test = test.parent
        if test.name == "tests":
            return []
        test = test if (root / test).exists() else test.parent / f"test_{test.name}.py"
    return [test.as_posix()]


def concerns(changed: list[str], file: str, root: Path) -> bool:
    """Return True if one of the changed tests is run for a file."""
    tests = [Path(name) for name in (*mirror(file, root), CONTRACT[0])]
    return any(test == path or test in path.parents for path in map(Path, changed) for test in tests)


def caught(mutation: Mutation, copy: Path) -> str:
    """Apply a mutation to the copy, run its tests, and revert it; return the failed test or an empty text."""
    path = copy / "src" / "pcmcnet" / mutation.file
    before = path.read_bytes()
    path.write_bytes(before[: mutation.begin] + mutation.after.encode() + before[mutation.end :])
    try:
        tests = mirror(mutation.file, copy)
        return (run(tests, copy) if tests else "") or run(CONTRACT, copy)
    finally:
        path.write_bytes(before)


def run(tests: list[str], copy: Path) -> str:
    """Run quick tests until one fails; return the failed test or an empty text."""
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow and not gpu", "--tb=no"]
    places = os.pathsep.join([str(copy / "src"), str(copy)])
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    if done.returncode in (0, 5):  # 5: no tests were collected
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else f"pytest ended with {done.returncode}: {done.stdout[-300:]}{done.stderr[-300:]}"


def main() -> None:
    """Run the mutations without a result, and print which were caught and which survived."""
    parser = argparse.ArgumentParser(description="Count how many of a fixed sample of mutations the quick tests catch.")
    parser.add_argument("--first", type=int, default=SAMPLE, help="number of mutations to run")
    parser.add_argument("--tests", type=Path, default=ROOT, help="checkout whose tests are run")
    parser.add_argument("--since", metavar="COMMIT", help="only mutations whose tests changed since this commit")
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "mutations.json")
    arguments = parser.parse_args()
    results: dict[str, str] = json.loads(arguments.results.read_text("utf-8")) if arguments.results.exists() else {}
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    drawn = sample()[: arguments.first]
    if arguments.since:
        command = ["git", "-C", str(arguments.tests), "diff", "--name-only", arguments.since, "--", "tests/**test_*.py"]
        changed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        drawn = [mutation for mutation in drawn if concerns(changed, mutation.file, arguments.tests)]
    with TemporaryDirectory() as place:
        copy = Path(place) / "copy"
        ignored = shutil.ignore_patterns(".git", ".venv*", "runs", "site", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(arguments.tests, copy, ignore=ignored)
        shutil.rmtree(copy / "src")
        shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
        for mutation in drawn:
            if mutation.key not in results:
                results[mutation.key] = caught(mutation, copy)
                arguments.results.write_text(json.dumps(results, indent=1), "utf-8")
            state = "caught  " if results[mutation.key] else "SURVIVED"
            sys.stdout.write(f"{state} {mutation.file}:{mutation.line} {mutation.before!r} -> {mutation.after!r}\n")
            sys.stdout.flush()
    number = sum(bool(results[mutation.key]) for mutation in drawn)
    sys.stdout.write(f"{number} of {len(drawn)} caught\n")


if __name__ == "__main__":
    main()
