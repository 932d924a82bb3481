"""Kernels that are launched early wait before they touch memory."""

import ast
from pathlib import Path

import pcmcnet

WAIT = "wait_for_earlier()"


def test_waiting_kernels_wait_first() -> None:
    """Work before the wait would run while earlier kernels still write."""
    waiting_kernels = 0
    for file in Path(pcmcnet.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if WAIT not in text or file.name == "kernel_launch.py":
            continue
        for kernel in ast.walk(ast.parse(text)):
            if isinstance(kernel, ast.FunctionDef) and WAIT in (ast.get_source_segment(text, kernel) or ""):
                first = kernel.body[ast.get_docstring(kernel) is not None]
                assert ast.unparse(first) == WAIT, f"{file.name}: {kernel.name}"
                waiting_kernels += 1
    assert waiting_kernels > 30
