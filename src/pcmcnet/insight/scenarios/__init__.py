"""Scenarios: a table with changes -> what a fitted model says of shares, revenue and surplus."""

from pcmcnet.insight.scenarios.constants import calibrate_constants
from pcmcnet.insight.scenarios.scenario import Scenario, scenario

__all__ = ["Scenario", "calibrate_constants", "scenario"]
