"""Messages about wrong command lines, with the remedy.

Options of a model, such as epochs, are not options of a command: they are passed with ``--set``. Their names are copied
here, because the models that define them are slow to import. A test compares them with the registry.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from pcmcnet.cli.help import option_names
from pcmcnet.errors import did_you_mean

_NAMES = """
    activation antithetic base batch_size bidirectional bins blocks bounds classes clip cluster common_logsum components
    correlated draws dropout em_steps epochs epsilon errors fixed floor folds formula heads hidden initialisation l2
    labels layers leaves lr max_classes max_depth max_features max_iter means members membership memory min_chosen
    min_delta monotone nests noise offset order pair_budget patience precision prior random rank rate reference refit
    restarts ridge samples scale schedule smoothing speeds start starts subsample tails tolerance trees utility warmup
    weight_decay width wtp_space
"""
MODEL_OPTIONS = frozenset(_NAMES.split())
_OTHER_COMMANDS = {
    **dict.fromkeys(["train", "run", "learn", "estimate", "train-model"], "fit"),
    **dict.fromkeys(["test", "score", "eval", "metrics"], "evaluate"),
    **dict.fromkeys(["describe", "validate", "inspect", "info"], "check"),
    **dict.fromkeys(["summary", "print", "coefficients"], "show"),
    **dict.fromkeys(["list", "list-models"], "models"),
    **dict.fromkeys(["cv", "cross-validate", "benchmark"], "compare"),
    **dict.fromkeys(["report", "interpret"], "explain"),
    **dict.fromkeys(["optimize"], "optimise"),
    **dict.fromkeys(["whatif", "what-if", "simulator"], "scenario"),
    **dict.fromkeys(["server", "web", "app"], "serve"),
    **dict.fromkeys(["search", "hyperopt"], "tune"),
}
_OTHER_OPTIONS = {  # names of options in other programs
    **dict.fromkeys(["random-state", "random-seed"], "--seed"),
    **dict.fromkeys(["id", "id-column", "set", "group", "case", "choice-id"], "--choice-set"),
    **dict.fromkeys(["target", "label", "y", "choice", "response"], "--chosen"),
    **dict.fromkeys(["x", "columns", "covariates", "variables", "attributes"], "--features"),
    **dict.fromkeys(["alt", "alternatives", "mode", "item"], "--alternative"),
    **dict.fromkeys(["out", "output-dir", "save", "to"], "--output"),
    **dict.fromkeys(["gpu", "cuda"], "--device"),
    **dict.fromkeys(["weights", "sample-weight"], "--weight"),
    **dict.fromkeys(["user", "panel", "respondent", "individual-id"], "--person"),
    **dict.fromkeys(["force", "replace"], "--overwrite"),
    **dict.fromkeys(["validation", "validation-split", "val"], "--valid"),
    **dict.fromkeys(["members", "n-models"], "--ensemble"),
}
_OTHER_MODEL_OPTIONS = {"learning-rate": "lr", "n-epochs": "epochs", "max-epochs": "epochs", "alpha": "weight_decay"}
_TEST_OPTIONS = ("test", "test-size", "test-share", "split")


def usage_message(error: Any, words: Sequence[str]) -> str:
    """Return the message for a wrong command line, with the remedy.

    Parameters
    ----------
    error
        A usage error of the command-line parser.
    words
        The words of the command line.
    """
    context = error.ctx
    command = context.command_path if context else "pcmcnet"
    if option := getattr(error, "option_name", None):
        options = sorted({name for p in context.command.params for name in p.opts} if context else error.possibilities)
        message = f"{command} has no option {option}{_instead_of_option(option, options, words, command)}"
    elif getattr(error, "param", None) is not None and type(error).__name__ == "MissingParameter":
        message = f"{command} needs {_described(error.param)}."
    elif match := re.match(r"Invalid value for '(--[\w-]+).*valid (integer|number|float)", error.format_message()):
        noun = "a whole number" if match[2] == "integer" else "a number"
        message = f"{match[1]}: expected {noun}, got {_value_after(match[1], words)!r}."
    elif match := re.match(r"No such command '(.*?)'", error.format_message()):
        names = context.command.list_commands(context)
        message = f"pcmcnet has no command {match[1]!r}." + did_you_mean(match[1], names, _OTHER_COMMANDS)
    elif match := re.match(r"Got unexpected extra arguments? ?(?:\(s\) )?\((.*)\)", error.format_message()):
        first = match[1].split()[0]
        message = (
            f"unexpected word {first!r}. Separate the entries of a list by commas without blanks, as in "
            f"--features price,time, and put names with blanks in quotes."
        )
    elif error.format_message().startswith("Missing command"):
        message = f"{command} needs a command: {', '.join(context.command.list_commands(context))}."
    else:
        message = f"{error.format_message().rstrip('.')}."
    return f"{message} See {command} --help."


def _described(parameter: Any) -> str:
    """Return an option or an argument with its meaning."""
    meaning = " ".join(str(getattr(parameter, "help", "") or "").replace("`", "").split()).rstrip(".")
    is_option = parameter.param_type_name == "option"
    name = option_names(parameter).strip() if is_option else str(parameter.metavar)
    return (
        f"{name} ({meaning[:1].lower()}{meaning[1:]})"
        if meaning and not meaning[:2].isupper()
        else f"{name} ({meaning})"
    )


def _instead_of_option(option: str, known: Sequence[str], words: Sequence[str], command: str) -> str:
    """Return the end of the message about an unknown option: the remedy."""
    plain = option.lstrip("-").lower().replace("_", "-")
    name = _OTHER_MODEL_OPTIONS.get(plain, plain.replace("-", "_"))
    if f"--{plain}" in known:
        return f". Did you mean --{plain}?"
    if "--set" in known and name in MODEL_OPTIONS:
        model = "" if command.endswith((" fit", " tune")) else "MODEL."
        value = _value_after(option, words)
        setting = f"{model}{name}={value.partition('~')[2].strip() or value if name == 'formula' else value}"
        return f", but models have an option {name}. Write --set {shlex.quote(setting)}."
    if plain in _TEST_OPTIONS and command.endswith(" split"):
        return ". Write the shares of the parts, as in --shares 0.8,0.2."
    if plain in _TEST_OPTIONS:
        return ". Divide the table with 'pcmcnet split TABLE', fit to the training part, and evaluate on the test part."
    if (other := _OTHER_OPTIONS.get(plain)) in known:
        return f". Did you mean {other}?"
    near = get_close_matches(f"--{plain}", known, n=1, cutoff=0.7)
    return f". Did you mean {near[0]}?" if near else "."


def _value_after(option: str, words: Sequence[str]) -> str:
    """Return the value that was written after an option, or VALUE."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and following and not following.startswith("--"):
            return following
    return "VALUE"


# -- Python syntax -----------------------------------------------------------------------------------------------------

_WORD_ROLES = ("missing", "conflict", "outside", "person", "available", "weight", "chosen", "alternative")
_LIST_ROLES = ("features", "individual", "categorical", "keep")
_FIT_ARGUMENTS = ("device", "seed", "valid")


def with_options(message: str) -> str:
    """Return a message with Python arguments, such as ``missing='indicator'``, replaced by options of commands.

    Examples
    --------
    >>> with_options("Drop them or declare missing='indicator'.")
    'Drop them or add --missing indicator.'
    >>> with_options("read the table with keep=['region'].")
    'read the table with --keep region.'
    >>> with_options("declare signs={'price': '-'} and fit again")
    'add --signs price=- and fit again'
    """
    roles = "|".join((*_WORD_ROLES, *_FIT_ARGUMENTS))
    message = re.sub(rf"\b({roles})=(?:'([^']*)'|<(\w+)>)", lambda m: f"--{m[1]} {m[2] or m[3].upper()}", message)
    roles = "|".join(_LIST_ROLES)
    message = re.sub(rf"\b({roles})=\[([^]]*)\]", lambda m: f"--{m[1]} {_without_quotes(m[2])}", message)
    message = re.sub(
        r"\b(signs|kinds)=\{([^}]*)\}", lambda m: f"--{m[1]} {_without_quotes(m[2]).replace(':', '=')}", message
    )
    names = "|".join(sorted(MODEL_OPTIONS))
    message = re.sub(
        rf"\b(use|with|raise|set|keep|needs?|or|by|and) ({names})=(?:'([^']*)'|([\w.]+))",
        lambda m: f"{m[1]} --set {m[2]}={m[3] or m[4]}",
        message,
    )
    return re.sub(r"\b(?:declare|pass|write) (?=--)", "add ", message)


def _without_quotes(text: str) -> str:
    return text.replace("'", "").replace(", ", ",").replace(": ", ":")
