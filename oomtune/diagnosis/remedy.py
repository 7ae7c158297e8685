"""One thing to do, with the line of spec or code that does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oomtune.diagnosis.spec_entry import set_flag, spec_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    what: str
    key: str = ""
    """A dotted key of the spec."""
    value: Any = None
    code: str = ""

    @property
    def spec_line(self) -> str:
        """The line of YAML that does it in a spec without such a section."""
        return spec_line(self.key, self.value) if self.key else ""

    @property
    def set_flag(self) -> str:
        """The same for any spec."""
        return set_flag(self.key, self.value) if self.key else ""

    @property
    def flag(self) -> str:
        """What to add to a command line, for someone who has a spec."""
        return self.set_flag or self.code
