"""Designs of choice experiments: tasks for precise coefficients, willingness to pay or context effects."""

from pcmcnet.designs.choice_design import ChoiceDesign
from pcmcnet.designs.optimal_design import design, read_options
from pcmcnet.designs.power import DesignPower, PowerRow, design_power

__all__ = ["ChoiceDesign", "DesignPower", "PowerRow", "design", "design_power", "read_options"]
