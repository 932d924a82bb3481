"""Scenarios: the predicted effect of changes to a table on shares, revenue and consumer surplus."""

from pcmcnet.insight.scenarios.constants import calibrate_constants
from pcmcnet.insight.scenarios.scenario import Scenario, scenario

__all__ = ["Scenario", "calibrate_constants", "scenario"]
