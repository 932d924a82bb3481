"""Every public name is described where users read it: `help(pn.PCMCNet)` and the reference need no other page."""

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import pcmcnet as pn

MODULES = ("pcmcnet", "pcmcnet.plots", "pcmcnet.layers", "pcmcnet.cluster", "pcmcnet.datasets.packaged")
UNNAMED = {"self", "cls"}
HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)


def sections(text: str) -> dict[str, str]:
    """Return the sections of a numpydoc docstring by their headings; the text before them has the key ''."""
    parts = HEADING.split(text)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def described(text: str) -> set[str]:
    """Return the parameters that a docstring describes: names at the margin, with an indented text below."""
    body = sections(text).get("Parameters", "") + sections(text).get("Attributes", "")
    names: set[str] = set()
    for heading, explanation in re.findall(r"^(\S[^\n]*)\n((?:[ ]+\S[^\n]*\n?)+)", body, re.MULTILINE):
        if explanation.strip():
            names.update(name.strip(" *") for name in heading.split(" : ")[0].split(","))
    return names


def public_callables() -> Iterator[tuple[str, Any]]:
    """Yield functions, classes and public methods that users reach, each once."""
    seen: set[int] = set()
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not callable(value) or id(value) in seen or not value.__module__.startswith("pcmcnet"):
                continue
            seen.add(id(value))
            yield f"{module_name}.{name}", value
            if inspect.isclass(value):
                for method_name, method in inspect.getmembers(value, inspect.isroutine):
                    owner = getattr(method, "__module__", None) or ""
                    if method_name.startswith("_") or id(method) in seen or not owner.startswith("pcmcnet"):
                        continue
                    seen.add(id(method))
                    yield f"{module_name}.{name}.{method_name}", method
                    DOCUMENTED[id(method)] = "\0".join(_docs_of_bases(value, method_name))


DOCUMENTED: dict[int, str] = {}  # docstrings of a method in all classes that define it: an override may repeat nothing


def _docs_of_bases(kind: type, name: str) -> Iterator[str]:
    for base in kind.__mro__:
        if name in vars(base):
            yield inspect.getdoc(getattr(base, name)) or ""


def parameters(value: Any) -> list[str]:
    """Return the names of the parameters of a function, or of the constructor of a class."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # a class without a constructor of its own
        return []
    return [name for name in signature.parameters if name not in UNNAMED]


CASES = list(public_callables())


@pytest.mark.parametrize(("name", "value"), CASES, ids=[name for name, _ in CASES])
def test_every_parameter_is_described(name: str, value: Any) -> None:
    text = inspect.getdoc(value) or ""
    assert text.strip(), f"{name} has no docstring"
    if issubclass(value, Exception) if inspect.isclass(value) else False:
        return
    documented = described(text) | {
        entry for doc in DOCUMENTED.get(id(value), "").split("\0") for entry in described(doc)
    }
    missing = [parameter for parameter in parameters(value) if parameter not in documented]
    assert not missing, f"{name} does not describe {', '.join(missing)}"


def test_the_check_notices_what_is_missing() -> None:
    parameters = "Parameters\n----------\ntrain, valid\n    Choice sets.\nseed\n"
    text = f"Fit.\n\n{parameters}\nReturns\n-------\nSelf\n    The model.\n"
    assert described(text) == {"train", "valid"}
    names = {name for name, _ in CASES}
    assert {"pcmcnet.PCMCNet", "pcmcnet.ChoiceData.from_long", "pcmcnet.evaluate", "pcmcnet.cluster.fit"} <= names
    assert any(name.endswith(".predict_proba") for name in names)


@pytest.mark.parametrize("model", [pn.PCMCNet, pn.MNL, pn.PCMC, pn.Boosted, pn.Ensemble])
def test_help_of_a_model_lists_its_options(model: Any) -> None:
    assert set(parameters(model)) <= described(inspect.getdoc(model) or "")
