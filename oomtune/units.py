"""Parse and format sizes, durations and shares as people write them: `2GiB`, `1500MB`, `10m`, `5%`."""

from __future__ import annotations

import math
import re

MIB = 1024**2

_BYTES = {
    "": 1, "b": 1,
    "k": 1024, "kb": 1000, "kib": 1024,
    "m": 1024**2, "mb": 1000**2, "mib": 1024**2,
    "g": 1024**3, "gb": 1000**3, "gib": 1024**3,
    "t": 1024**4, "tb": 1000**4, "tib": 1024**4,
}  # fmt: skip
_SECONDS = {"": 1, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def _parse(text: str, factors: dict[str, int], examples: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2].lower() not in factors:
        raise ValueError(f"expected {examples}")
    return float(match[1]) * factors[match[2].lower()]


def parse_bytes(text: str) -> int:
    size = _parse(text, _BYTES, "a size such as 2GiB or 1500MB")
    if not 1 <= size < 2**60:
        raise ValueError("expected a size above zero, such as 2GiB or 1500MB")
    return int(size)


def parse_seconds(text: str) -> float:
    seconds = _parse(text, _SECONDS, "a duration such as 90s, 10m or 2h")
    if not 0 < seconds < 1e9:
        raise ValueError("expected a duration above zero, such as 90s, 10m or 2h")
    return seconds


def format_bytes(size: float, more_digits: int = 0) -> str:
    """Return a size in a readable unit, with two or three significant figures plus `more_digits`."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(size) >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    unit = units[0]
    if unit == "B":
        return f"{size:.0f} B"
    return f"{size:.{(0 if abs(size) >= 100 else 1) + more_digits}f} {unit}"


def format_bytes_apart(size: int, other: int) -> tuple[str, str]:
    """Return two sizes with enough figures to tell them apart."""
    for more_digits in range(3):
        text, other_text = format_bytes(size, more_digits), format_bytes(other, more_digits)
        if text != other_text or size == other:
            return text, other_text
    return f"{size:,} B", f"{other:,} B"


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun: `1 trial`, `2 trials`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_ms(milliseconds: float) -> str:
    return f"{milliseconds:,.1f} ms"


def format_seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def parse_share(text: str) -> float:
    """Parse `0.05` or `5%`. Reject a bare number above one, because `5` more likely means 5% than 500%."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 10:
        raise ValueError("expected a share such as 0.05 or 5%")
    if share > 1 and number == text.strip():
        raise ValueError(f"expected a share such as 0.05 or 5%; for {number} percent write {number}%")
    return share


def format_share(share: float) -> str:
    """Return a percentage with as many figures as it needs: `5%`, `0.5%`."""
    return f"{share * 100:.4g}%"
