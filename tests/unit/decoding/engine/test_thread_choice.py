"""The choice of the number of threads by the times of steps."""

from vanilla_transformer.decoding.engine.thread_choice import ThreadChoice


def choices(choice, count, seconds):
    """Return the numbers of threads that are chosen, given the seconds of a step on each."""
    numbers = []
    for _ in range(count):
        numbers.append(choice.choose())
        choice.add(numbers[-1], seconds[numbers[-1]])
    return numbers


def test_thread_choice_follows_the_machine():
    choice = ThreadChoice(4, 1)
    assert choices(choice, 10, {4: 1.0, 1: 2.0}) == [4, 1, *[4] * 8]
    assert choices(choice, 10, {4: 9.0, 1: 3.0}) == [4, 4, *[1] * 8]  # other programs began
    idle_again = choices(choice, 600, {4: 1.0, 1: 2.0})
    assert idle_again.count(4) > 200 and idle_again[-1] == 4


def test_trials_of_slower_numbers_take_a_hundredth_of_the_time():
    for seconds in ({2: 1.0, 1: 1.3}, {2: 1.0, 1: 30.0}, {2: 1.0, 1: 0.5}):
        numbers = choices(ThreadChoice(2, 1), 10_000, seconds)
        taken = sum(seconds[number] for number in numbers)
        lost = taken - len(numbers) * min(seconds.values())
        assert 0.005 < lost / taken < 0.02


def test_thread_choice_ignores_single_hiccups():
    choice = ThreadChoice(2, 1)
    choices(choice, 4, {2: 1.0, 1: 2.0})
    assert choices(choice, 1, {2: 50.0}) == [2]
    assert choices(choice, 3, {2: 1.0}) == [2, 2, 2]


def test_thread_choice_of_one_thread():
    assert choices(ThreadChoice(1, 1), 200, {1: 1.0}) == [1] * 200
