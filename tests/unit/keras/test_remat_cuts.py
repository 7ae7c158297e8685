"""Where a chain of steps is cut so that computing its parts again saves most."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oomtune.keras.remat.cuts import Part, Step, parts


def chain(*inside_bytes: int, handed_on: int = 1) -> list[Step]:
    """Each step hands its one result to the next."""
    return [Step(inside_bytes=size, results=((handed_on, place + 1),)) for place, size in enumerate(inside_bytes)]


def test_blocks_that_hand_on_little_are_cut_apart_and_the_last_is_computed_once() -> None:
    found = parts(chain(*[20] * 6), ends_the_model=True)
    assert [(part.start, part.stop, part.again) for part in found] == [(n, n + 1, n < 5) for n in range(6)]


def test_where_each_step_hands_on_what_it_keeps_several_go_together() -> None:
    found = parts(chain(*[2] * 64, handed_on=2), ends_the_model=True)
    assert 4 <= len(found) <= 16


def test_a_cut_goes_where_least_crosses() -> None:
    steps = [Step(inside_bytes=10, results=((8 if place % 2 else 1, place + 1),)) for place in range(12)]
    again = [part for part in parts(steps, ends_the_model=True) if part.again]
    assert all((part.stop - 1) % 2 == 0 for part in again)


def test_nothing_is_cut_where_one_step_is_all() -> None:
    assert parts(chain(1, 100, 1), ends_the_model=True) == [Part(start=0, stop=3, again=False)]


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, 100), st.integers(1, 9), st.booleans()), max_size=30),
    st.booleans(),
)
def test_every_step_is_in_one_part_and_what_is_not_repeatable_is_never_computed_again(
    drawn: list[tuple[int, int, int, bool]], ends_the_model: bool
) -> None:
    steps = [
        Step(inside_bytes=inside, results=((handed_on, place + reach),), repeatable=repeatable)
        for place, (inside, handed_on, reach, repeatable) in enumerate(drawn)
    ]
    found = parts(steps, ends_the_model=ends_the_model)
    assert [place for part in found for place in range(part.start, part.stop)] == list(range(len(steps)))
    assert all(step.repeatable for part in found if part.again for step in steps[part.start : part.stop])
