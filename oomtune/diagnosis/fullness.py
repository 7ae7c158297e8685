"""How full the memory was, from one account of it: figures of two allocators, or of an allocator and the driver, don't
add up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from oomtune.units import parse_bytes

SIZE = r"[\d.,]+ ?(?:[KMGT]?i?B|bytes|[KMGT])?"
# One line with all of it: what is in use and the limit, or what is free of it. The first are an allocator's own.
_WHOLE = (
    re.compile(rf"\bused (?P<used>{SIZE}) of (?P<limit>{SIZE}) hbm", re.I),
    re.compile(rf"with (?P<used>{SIZE}) of (?P<limit>{SIZE}) in use", re.I),
    re.compile(rf"(?P<limit>{SIZE}) total capacity; (?P<used>{SIZE}) already allocated", re.I),
    re.compile(rf"total capacity of (?P<limit>{SIZE}) of which (?P<free>{SIZE}) is free", re.I),
    re.compile(r"memory limit \((?P<used_kb>\d+) > (?P<limit_kb>\d+)\)", re.I),
    re.compile(rf"(?P<used>{SIZE}) of (?P<limit>{SIZE}) (?:physical|virtual) memory used", re.I),
    re.compile(r"anon-rss:(?P<used_kb>\d+)kB", re.I),
)
_OF_THE_CARD = (
    re.compile(r"memory usage: (?P<free>\d+) bytes free, (?P<limit>\d+) bytes total", re.I),
    re.compile(r"free memory/total memory: (?P<free>\d+)/(?P<limit>\d+)", re.I),
)
# Allocators spread theirs over the lines of a dump.
_PARTS = (
    re.compile(r"(?:^|stats:)\s*limit:\s+(?P<limit>\d+)\s*$", re.I),
    re.compile(r"^\s*inuse:\s+(?P<used>\d+)\s*$", re.I),
    re.compile(r"memory_limit_: (?P<limit>\d+)", re.I),
    re.compile(rf"sum total of in-use chunks: (?P<used>{SIZE})", re.I),
)
_OWNER = re.compile(r"allocator \((?P<name>[^)]+)\)|by allocator (?P<by>[\w./:-]+)|(?P<gpu_async>gpu_async_\d+)", re.I)


@dataclass(slots=True)
class _Account:
    """What one allocator says in one dump, or one line."""

    owner: str | None
    line: int
    used: int | None = None
    limit: int | None = None
    of_the_card: bool = False

    @property
    def complete(self) -> bool:
        return self.used is not None and self.limit is not None


def allocator_in(text: str) -> str | None:
    found = _OWNER.search(text)
    return next(filter(None, found.groups())) if found else None


def how_full(lines: Sequence[tuple[int, str]], line: int, allocator: str | None) -> tuple[int | None, int | None]:
    """Bytes in use and the limit, by the account of this allocator that is nearest to the line."""
    accounts = _accounts(sorted(lines))
    if not accounts:
        return None, None

    def fits(account: _Account) -> tuple[bool, bool, bool, int]:
        others = account.owner is not None and allocator is not None and account.owner.lower() != allocator.lower()
        return others, not account.complete, account.of_the_card, abs(account.line - line)

    best = min(accounts, key=fits)
    return best.used, best.limit


def _accounts(lines: Sequence[tuple[int, str]]) -> list[_Account]:
    found: list[_Account] = []
    owner = None
    dump: _Account | None = None
    for number, text in lines:
        if named := allocator_in(text):
            # The next dump, also where it is the same allocator's.
            owner, dump = named, None
        for pattern in (*_WHOLE, *_OF_THE_CARD):
            if match := pattern.search(text):
                used, limit = _used_and_limit(match.groupdict())
                found.append(_Account(owner, number, used, limit, of_the_card=pattern in _OF_THE_CARD))
        for pattern in _PARTS:
            if match := pattern.search(text):
                if dump is None:
                    dump = _Account(owner, number)
                    found.append(dump)
                used, limit = _used_and_limit(match.groupdict())
                # The statistics come last and are exact; sums come before them, rounded.
                dump.used, dump.limit = used if used is not None else dump.used, limit if limit else dump.limit
    return found


def _used_and_limit(said: dict[str, str | None]) -> tuple[int | None, int | None]:
    used = in_bytes(said.get("used"))
    used = in_bytes(said.get("used_kb"), unit="KiB") if used is None else used
    limit = in_bytes(said.get("limit")) or in_bytes(said.get("limit_kb"), unit="KiB")
    free = in_bytes(said.get("free"))
    return limit - free if used is None and limit is not None and free is not None else used, limit


def in_bytes(size: str | None, *, unit: str = "") -> int | None:
    """A size as runtimes write it: `2.18GiB`, `15.48G`, `1,024 bytes`; None for what is none."""
    if not size:
        return None
    try:
        return parse_bytes(size.replace(",", "").removesuffix("bytes").strip().rstrip(".") + unit)
    except ValueError:
        return None
