from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomtune.units import (
    format_bytes,
    format_bytes_apart,
    format_count,
    format_seconds,
    parse_bytes,
    parse_seconds,
    parse_share,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2 * 1024**3), ("1500MB", 1_500_000_000), ("64 MiB", 64 * 1024**2), ("1.5g", 3 * 1024**3 // 2), ("7", 7)],
)
def test_parses_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "0", "2 parsecs", "1e99GiB", "nan", "9" * 400])
def test_the_error_for_a_bad_size_shows_a_good_one(text: str) -> None:
    with pytest.raises(ValueError, match="such as 2GiB"):
        parse_bytes(text)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1.5 min", 90), ("30", 30)])
def test_parses_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "0"])
def test_the_error_for_a_bad_duration_shows_a_good_one(text: str) -> None:
    with pytest.raises(ValueError, match="such as 90s"):
        parse_seconds(text)


@given(st.integers(min_value=1, max_value=2**50))
def test_a_formatted_size_parses_back_within_its_precision(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.06)


def test_long_times_are_formatted_with_their_units() -> None:
    assert [format_seconds(s) for s in (4.4, 75, 3700)] == ["4 s", "1 min 15 s", "1 h 01 min"]


@given(st.integers(min_value=1, max_value=2**50), st.integers(min_value=1, max_value=2**12))
def test_different_sizes_are_formatted_apart(size: int, more: int) -> None:
    less, larger = format_bytes_apart(size, size + more)
    assert less != larger
    assert format_bytes_apart(size, size)[0] == format_bytes_apart(size, size)[1] == format_bytes(size)


def test_sizes_have_no_more_figures_than_they_need_to_differ() -> None:
    mib = 1024**2
    assert format_bytes_apart(100 * mib, 200 * mib) == ("100 MiB", "200 MiB")
    assert format_bytes_apart(int(121.8 * mib), int(121.6 * mib)) == ("121.8 MiB", "121.6 MiB")
    assert format_bytes_apart(122 * mib, 122 * mib + 1) == ("127,926,272 B", "127,926,273 B")


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("0.05", 0.05), ("1", 1.0), ("300%", 3.0), (" 0.5 % ", 0.005)]
)
def test_parses_shares_as_people_write_them(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["5", "1.5", "10"])
def test_a_share_above_one_must_be_a_percentage(text: str) -> None:
    with pytest.raises(ValueError, match=f"for {text} percent write {text}%"):
        parse_share(text)


def test_a_count_of_one_has_a_singular_noun() -> None:
    assert [format_count(many, "trial") for many in (0, 1, 2, 1200)] == [
        "0 trials",
        "1 trial",
        "2 trials",
        "1,200 trials",
    ]
