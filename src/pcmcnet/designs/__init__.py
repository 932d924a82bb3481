"""Designs of choice experiments: tasks that tell most about coefficients, willingness to pay or context effects."""

from pcmcnet.designs.choice_design import ChoiceDesign
from pcmcnet.designs.optimal_design import design, read_options

__all__ = ["ChoiceDesign", "design", "read_options"]
