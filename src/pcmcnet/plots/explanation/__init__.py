"""What was found of a model on a table -> one page with figures to explore, and the same in Markdown and JSON."""

from pcmcnet.plots.explanation.files import write
from pcmcnet.plots.explanation.notebook import section_of

__all__ = ["section_of", "write"]
