"""SIGINT and SIGTERM stop training after the current step."""

import signal
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from vanilla_transformer.training import signals
from vanilla_transformer.training.signals import StopSignal


@pytest.fixture
def accelerator():
    return Accelerator(cpu=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop_signal_stops_at_next_check_and_restores_the_handler(accelerator, number):
    before = signal.getsignal(number)
    with StopSignal(accelerator) as stop:
        assert not stop.check(1, finished=False) and signal.getsignal(number) != before
        signal.raise_signal(number)
        assert stop.check(1, finished=False) and stop.interrupted
    assert signal.getsignal(number) == before
    with StopSignal(accelerator) as stop:
        assert stop.check(1, finished=True) and not stop.interrupted


@pytest.fixture
def default_interrupt():
    """Let SIGINT raise KeyboardInterrupt, also in a background job, which ignores it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_a_second_signal_is_for_the_previous_handler(accelerator, default_interrupt):
    with StopSignal(accelerator) as stop:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.received


class TwoProcesses:
    """Two processes that make the same wishes, on a clock that the test sets; counts how often they
    talk.
    """

    def __init__(self, monkeypatch):
        self.talks, self.seconds = 0, 0.0
        monkeypatch.setattr(signals, "sum_over_processes", self._sum)
        monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: self.seconds))
        self.stop = StopSignal(SimpleNamespace(num_processes=2))

    def _sum(self, accelerator, values):
        self.talks += 1
        return 2 * torch.tensor(values, dtype=torch.float64)

    def run(self, steps, seconds_per_step):
        for step in steps:
            assert not self.stop.check(step, finished=False)
            self.seconds += seconds_per_step


PACES = [(1000, 0.05, 50, 55), (20, 3.0, 20, 20)]


@pytest.mark.parametrize(("steps", "seconds", "least", "most"), PACES)
def test_processes_talk_once_a_second_or_step(monkeypatch, steps, seconds, least, most):
    two = TwoProcesses(monkeypatch)
    two.run(range(steps), seconds)
    assert least <= two.talks <= most
    assert two.stop.due(steps + 20) and two.stop.due(steps + 1) == (seconds > 1)


def test_stop_signal_of_processes_stops_when_it_is_due_or_at_once(monkeypatch):
    two = TwoProcesses(monkeypatch)
    two.run(range(100), 0.1)
    two.stop.received = True
    stops = [step for step in range(100, 120) if two.stop.check(step, finished=False)]
    assert 100 <= stops[0] < 111 and two.stop.interrupted
    two = TwoProcesses(monkeypatch)
    two.run(range(101), 0.1)
    assert not two.stop.due(101)
    assert two.stop.check(101, finished=True, at_once=True)
    assert not two.stop.interrupted
