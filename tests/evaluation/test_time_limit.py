import signal
import threading
import time
from typing import Any

import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.evaluation.cross_validation import model_identity
from pcmcnet.evaluation.time_limit import TooSlowError, limited, time_limit
from pcmcnet.models import MNL


def test_a_block_that_takes_too_long_is_interrupted_and_the_clock_is_put_back() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TooSlowError, match=r"not fitted within 0.05 s: allow more seconds"), time_limit(0.05):
        time.sleep(20)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with time_limit(0.05):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_outside_the_main_thread_there_is_no_limit() -> None:
    done: list[int] = []

    def work() -> None:
        with time_limit(0.01):
            time.sleep(0.05)
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]


def test_a_limited_model_is_the_same_model(trips: ChoiceData, kinds: dict[str, Any]) -> None:
    model = MNL(formula="x", min_chosen=3)
    timed = limited(model, 100.0)
    assert model_identity(timed) == model_identity(model)
    assert isinstance(timed, MNL)
    assert timed.fit(trips).score(trips) == model.fit(trips).score(trips)


def test_a_fit_that_is_too_slow_ends(trips: ChoiceData, kinds: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds["Tilt"], "_fit", lambda *_: time.sleep(20))
    with pytest.raises(TooSlowError, match=r"not fitted within 0\.05 s"):
        limited(kinds["Tilt"](), 0.05).fit(trips)
