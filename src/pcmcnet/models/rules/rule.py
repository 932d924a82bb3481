"""What rules have in common: nothing is estimated, and nothing is saved beside the options."""

from __future__ import annotations

from collections.abc import Mapping

from pcmcnet.models.interface.choice_model import ChoiceModel


class Rule(ChoiceModel):
    """A model without parameters."""

    @property
    def num_parameters(self) -> int:
        """None are estimated."""
        _ = self.schema
        return 0

    def _facts(self) -> dict[str, str]:
        _ = self.schema
        return {"seen": "{choice_sets:,} choice sets, {alternatives:,} alternatives".format(**self.training_)}

    def _files(self) -> dict[str, bytes]:
        return {}

    def _restore(self, files: Mapping[str, bytes]) -> None:
        pass
