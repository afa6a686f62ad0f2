"""Turns: one thread at a time, what people wait for first."""

from __future__ import annotations

import threading
import time

import pytest

from edpbrl_gym.study.turns import Turns


def test_turns_are_given_by_number_then_in_order_and_never_to_two_at_once():
    turns, got, inside = Turns(), [], []

    def take(number, name):
        with turns.turn(number):
            inside.append(name)
            assert len(inside) == 1
            got.append(name)
            inside.remove(name)

    threads = []
    with turns.turn(0):
        for number, name in ((2, "think"), (1, "style"), (0, "first"), (0, "second")):
            threads.append(threading.Thread(target=take, args=(number, name)))
            threads[-1].start()
            while len(turns._waiting) < len(threads):
                time.sleep(0.001)
        assert got == []
    for thread in threads:
        thread.join(10)
    assert got == ["first", "second", "style", "think"]


def test_an_error_gives_the_turn_back():
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns.turn(0):
        _ = 1 / 0
    with turns.turn(5):
        pass
