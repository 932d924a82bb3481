"""Declarations of the public tables, by what was chosen: journeys, things for the household, groceries."""

from pcmcnet.datasets.tables.groceries import GROCERIES
from pcmcnet.datasets.tables.household import HOUSEHOLD
from pcmcnet.datasets.tables.packaged_table import Form, PackagedTable, Use
from pcmcnet.datasets.tables.travel import TRAVEL

__all__ = ["TABLES", "Form", "PackagedTable", "Use"]

TABLES: dict[str, PackagedTable] = {t.name: t for t in (*TRAVEL, *HOUSEHOLD, *GROCERIES)}
"""The tables by name."""
