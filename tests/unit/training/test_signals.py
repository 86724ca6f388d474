"""SIGINT and SIGTERM stop training after the current step."""

import signal

import pytest
from accelerate import Accelerator

from vanilla_transformer.training.signals import StopSignal


@pytest.fixture
def accelerator():
    return Accelerator(cpu=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop_signal_stops_at_next_check(accelerator, number):
    with StopSignal(accelerator) as stop:
        assert not stop.check(finished=False)
        signal.raise_signal(number)
        assert stop.check(finished=False) and stop.interrupted


def test_stop_signal_distinguishes_end_from_interruption(accelerator):
    with StopSignal(accelerator) as stop:
        assert stop.check(finished=True) and not stop.interrupted


@pytest.fixture
def default_interrupt():
    """Let SIGINT raise KeyboardInterrupt, also in a background job, which ignores it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_stop_signal_leaves_second_signal_to_previous_handler(accelerator, default_interrupt):
    with StopSignal(accelerator) as stop:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.received


def test_stop_signal_restores_handlers(accelerator):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with StopSignal(accelerator):
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
