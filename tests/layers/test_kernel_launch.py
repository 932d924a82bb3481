"""Kernels that are launched early touch nothing before they have waited."""

import ast
from pathlib import Path

import pcmcnet

WAIT = "wait_for_earlier()"


def test_whatever_waits_does_so_first() -> None:
    """What a kernel did before would be done while earlier ones still write."""
    found = 0
    for file in Path(pcmcnet.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if WAIT not in text or file.name == "kernel_launch.py":
            continue
        for kernel in ast.walk(ast.parse(text)):
            if isinstance(kernel, ast.FunctionDef) and WAIT in (ast.get_source_segment(text, kernel) or ""):
                first = kernel.body[ast.get_docstring(kernel) is not None]
                assert ast.unparse(first) == WAIT, f"{file.name}: {kernel.name}"
                found += 1
    assert found > 30
