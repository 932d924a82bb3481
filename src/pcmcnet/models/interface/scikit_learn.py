"""Models as the tools of scikit-learn take them: options by name, unfitted copies, and whether a model is fitted.

With these, ``clone``, ``cross_val_score``, ``GridSearchCV`` and others work on a model and its ``ChoiceData``, which is
indexed by choice sets. No class of scikit-learn is a base of models: its tools ask for methods.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Self


class Estimator:
    """Options that can be read, changed and handed on; a model's ``config`` and ``extras`` hold them."""

    config: Any
    extras: Any
    fitted_: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the options, and what no option can hold, by name: all that another model of the kind is made from.

        Parameters
        ----------
        deep
            Whether to list the options of a model inside, too, as ``options__name``.
        """
        options = {field.name: getattr(self.config, field.name) for field in fields(self.config)}
        return {**options, **self.extras}

    def set_params(self, **params: Any) -> Self:
        """Change options by name; the model is then not fitted. An unknown name is refused."""
        if params:
            fresh = type(self)(**{**self.get_params(deep=False), **params})
            self.__dict__.clear()
            self.__dict__.update(fresh.__dict__)
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return self.fitted_ is not None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))
