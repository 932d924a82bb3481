import json

import pytest

from pcmcnet.errors import ConfigError
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome, chi_squared_p, require_significance


def outcome(**changes: object) -> Outcome:
    entries: dict[str, object] = {
        "test": "Toy test",
        "statistic": 3.84,
        "degrees_of_freedom": 1,
        "p_value": 0.0501,
        "hypothesis": "the toy model",
        "significance": 0.05,
        "decision": "go on",
        "notes": ("few sets",),
    }
    return Outcome(**{**entries, **changes})  # type: ignore[arg-type]


def test_it_prints_the_decision_as_a_sentence_with_notes() -> None:
    assert str(outcome()) == (
        "Toy test: chi-squared = 3.840 with 1 degree of freedom, p = 0.050. The toy model is not rejected at "
        "the 0.05 level: go on.\nNote: few sets."
    )
    text = str(outcome(p_value=1e-9, degrees_of_freedom=None, notes=()))
    assert text == "Toy test: z = 3.840, p < 0.001. The toy model is rejected at the 0.05 level: go on."
    assert "2 degrees of freedom" in repr(outcome(degrees_of_freedom=2))


def test_an_outcome_survives_json() -> None:
    restored = json.loads(json.dumps(outcome(details={"n": 3}).to_dict(), allow_nan=False))
    assert (restored["rejected"], restored["notes"], restored["details"]) == (False, ["few sets"], {"n": 3})


def test_chi_squared_with_two_degrees_of_freedom_is_exponential() -> None:
    """P(X > x) = exp(-x / 2)."""
    assert chi_squared_p(4.0, 2) == pytest.approx(0.1353352832366127, rel=1e-12)
    assert chi_squared_p(-1e-9, 2) == 1.0


@pytest.mark.parametrize("level", [0, 1, -0.1, "5%"])
def test_an_invalid_level_is_refused(level: float) -> None:
    with pytest.raises(ConfigError, match="significance must be a number above 0 and below 1"):
        require_significance(level)
