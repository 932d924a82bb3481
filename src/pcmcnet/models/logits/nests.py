"""Nests as people write them -> the path of nests that leads to each alternative.

A nest for each label, ``{"car": "road", "bus": "road", "train": "rail"}``; a tree, ``{"land": {"road": ["car", "bus"],
"rail": ["train"]}, "air": ["plane"]}``; the path of a TOML file with either; or the name of a feature whose values are
the nests. Shapes: R leaves, of which each alternative is one, or several where nests share it.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Categorical, Numeric
from pcmcnet.errors import ConfigError, InputError, SchemaError, did_you_mean
from pcmcnet.models.logits.estimation.identification import listed
from pcmcnet.models.logits.estimation.nested_likelihood import Nests

log = logging.getLogger("pcmcnet")

NestPath = tuple[str, ...]  # nests from the top down


class Leaves(NamedTuple):
    """The ends of paths that a table's alternatives are."""

    alternative: Ints  # (R,) which row of the table each is of, in order
    code: Ints  # (R,) which path leads to it
    paths: Sequence[NestPath]  # by code


class Tree(NamedTuple):
    """The nests of a table, parents first."""

    names: tuple[str, ...]  # (M,)
    parents: tuple[int, ...]  # (M,) -1 at the top

    @classmethod
    def of(cls, leaves: Leaves) -> Tree:
        """Find the nests above some leaves."""
        present = [leaves.paths[code] for code in np.unique(leaves.code)]
        nodes = sorted({path[:depth] for path in present for depth in range(1, len(path) + 1)})
        place = {node: k for k, node in enumerate(nodes)}
        return cls(tuple(node[-1] for node in nodes), tuple(place.get(node[:-1], -1) for node in nodes))

    def nests(self, leaves: Leaves, offsets: Ints) -> Nests:
        """Place leaves of sets in the tree; refuses nests that it does not have."""
        place = {name: k for k, name in enumerate(self.names)}
        for code in np.unique(leaves.code):
            for name in leaves.paths[code]:
                if name not in place:
                    raise InputError(
                        f"nest {name!r} was not in training, so it has no log-sum parameter; "
                        f"known: {', '.join(map(str, self.names))}."
                    )
        nodes = np.full((len(leaves.paths), max(map(len, leaves.paths))), -1)
        for code, path in enumerate(leaves.paths):
            nodes[code, : len(path)] = [place.get(name, -1) for name in path]
        return Nests.find(nodes[leaves.code], np.searchsorted(leaves.alternative, offsets))

    def counts(self, parameter: Sequence[int], n_parameters: int) -> Floats:  # (M,) -> (M, F)
        """Count how often each parameter occurs from the top to each nest, by the parameter of each, -1 for none."""
        counts = np.zeros((len(self.names), n_parameters))
        for node, (parent, own) in enumerate(zip(self.parents, parameter, strict=True)):
            counts[node] = counts[parent] if parent >= 0 else 0.0
            if own >= 0:
                counts[node, own] += 1
        return counts


def require_nests(nests: Nests, n_nodes: int) -> Bools:
    """Tell which nests have a log-sum to estimate; refuse nests that are none."""
    free = nests.with_two(n_nodes)
    if not free.any():
        raise InputError("no nest has two alternatives in any choice set: there is no log-sum to estimate.")
    if (np.diff(nests.levels[-1].offsets) == 1).all():
        raise InputError("every choice set lies in a single nest: nests are to part the alternatives of a set.")
    return free


def read_nests(path: Path) -> dict[str, Any]:
    """Read nests from a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"nests: cannot read {path}: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"nests: {path} is no TOML file: {error}.") from error


def checked_tree(nests: Any) -> dict[str, Any]:
    """Check nests by label, or a tree of them, and write all names as text.

    Raises
    ------
    ConfigError
        Saying where something is neither a name, a list of labels nor nests within a nest; or what is there twice.
    """
    if not isinstance(nests, Mapping):
        raise ConfigError(f"nests must be a feature's name, or map labels to nests; got {nests!r}.")
    if all(isinstance(value, str | int | float) for value in nests.values()):
        return {str(label): str(nest) for label, nest in nests.items()}
    tree = _checked_node(nests, "nests")
    nest_of: dict[str, str] = {}
    above: dict[str, NestPath] = {}
    for path, label in _walk(tree):
        if label in nest_of:
            raise ConfigError(
                f"nests: {label!r} is in two nests, {nest_of[label]!r} and {path[-1]!r}: take one out, or let "
                f"cross-nested-mnl share it between them."
            )
        nest_of[label] = path[-1]
        for depth, name in enumerate(path):
            if above.setdefault(name, path[:depth]) != path[:depth]:
                raise ConfigError(f"nests: two nests are called {name!r}: give each a name of its own.")
    return tree


def _checked_node(node: Any, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, below in node.items():
        here = f"{where}[{str(name)!r}]"
        if isinstance(below, Mapping) and below:
            found[str(name)] = _checked_node(below, here)
        elif isinstance(below, list | tuple) and below and not any(isinstance(v, list | tuple | dict) for v in below):
            found[str(name)] = labels_of_nest(below, here)
        else:
            raise ConfigError(f"{here} must hold labels, such as ['car', 'bus'], or nests by name; got {below!r}.")
    return found


def labels_of_nest(labels: Sequence[Any], where: str) -> list[str]:
    """Write the labels of a nest as text; refuses one that is there twice."""
    names = [str(label) for label in labels]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{where} names {twice!r} twice: take one out.")
    return names


def _walk(tree: Mapping[str, Any], above: NestPath = ()) -> Iterator[tuple[NestPath, str]]:
    """Yield the path of nests above each label."""
    for name, below in tree.items():
        if isinstance(below, Mapping):
            yield from _walk(below, (*above, name))
        else:
            yield from (((*above, name), label) for label in below)


def paths_by_label(nests: Mapping[str, Any]) -> dict[str, NestPath]:
    """Return the path to each label of checked nests."""
    if all(isinstance(value, str) for value in nests.values()):
        return {label: (nest,) for label, nest in nests.items()}
    return {label: path for path, label in _walk(nests)}


def leaves_by_feature(name: str, data: ChoiceData) -> Leaves:
    """Take the values of a feature for nests."""
    if name not in data.features:
        raise SchemaError(f"nests names {name!r}, which is no feature." + did_you_mean(name, data.features))
    column, every = data.features[name], np.arange(data.offsets[-1])
    if isinstance(column, Categorical):
        return Leaves(every, column.codes.astype(np.int64), [(category,) for category in column.categories])
    assert isinstance(column, Numeric)  # contents are left out
    values, codes = np.unique(column.values, return_inverse=True)
    if np.isnan(values).any():
        gaps = int(np.isnan(column.values).sum())
        raise InputError(f"nests: column {name!r} has {gaps} missing values: every alternative needs a nest.")
    return Leaves(every, codes, [(f"{value:.9g}",) for value in values])  # all digits of a float32


def leaves_by_label(paths: Mapping[str, NestPath], data: ChoiceData) -> Leaves:
    """Look up the path of each alternative's label."""
    labels = require_labels(paths, data)
    every = np.arange(data.offsets[-1])
    return Leaves(every, labels.codes.astype(np.int64), [paths.get(label, ()) for label in labels.categories])


def note_unknown(known: Iterable[str], data: ChoiceData) -> None:
    """Warn of labels in nests that no alternative of a table has."""
    lost = [] if data.labels is None else [label for label in known if label not in data.labels.categories]
    if lost and data.labels is not None:
        hint = did_you_mean(lost[0], data.labels.categories)
        log.warning("nests names %s, which no alternative of the table is.%s", listed(lost), hint)


def require_labels(known: Mapping[str, Any], data: ChoiceData) -> Categorical:
    """Return the labels of a table's alternatives, all of which must have a nest."""
    if data.labels is None:
        raise InputError("nests by label need labels: read the table with alternative=<column>.")
    labels = data.labels
    lost = [labels.categories[k] for k in np.unique(labels.codes) if labels.categories[k] not in known]
    if lost:
        raise InputError(
            f"nests names no nest for {len(lost)} alternative{'s' * (len(lost) > 1)}: {listed(lost)}. "
            f"Give each label a nest; a nest of one alternative is allowed."
        )
    return labels
