"""The first signal asks, what comes after all is saved interrupts, and Python has its own back at the end."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from townlet.train.signals import ASKING, Signals


@pytest.mark.parametrize("number", ASKING)
def test_the_first_signal_only_asks(number: int) -> None:
    before = signal.getsignal(number)
    with Signals() as signals:
        assert not signals.asked
        os.kill(os.getpid(), number)
        assert signals.asked
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", ASKING)
def test_when_all_is_saved_a_signal_interrupts(number: int) -> None:
    with Signals() as signals:
        signals.urgent = True
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


def test_in_another_thread_nothing_is_taken_over() -> None:
    """Python allows it only in the first thread; training in another one works all the same."""
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def train() -> None:
        with Signals() as signals:
            seen.append((signals.asked, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
