"""The files that a check leaves for a pipeline: looked at before it runs, written however it ends."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oomtune.storage.atomic import append, check_apart, check_appendable, check_writable, has_mark, write_whole

if TYPE_CHECKING:
    from oomtune.report.pipelines import Told

_HINT = "make room or give another file, and check again"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFiles:
    """`summary` is added to, as GitHub's has to be; the others are written over where they are ours."""

    junit: Path | None = None
    summary: Path | None = None
    code_quality: Path | None = None

    def check(self, checked: Path, *, force: bool) -> None:
        """Raise unless each can be written without losing anything, what is checked least of all."""
        asked = {"--junit": self.junit, "--summary": self.summary, "--code-quality": self.code_quality}
        wanted = [(flag, path) for flag, path in asked.items() if path is not None]
        check_apart(wanted, {checked: "the file that is checked"})
        for flag, path in wanted:
            if path is self.summary:
                check_appendable(path, flag=flag)
            else:
                check_writable(path, flag=flag, force=force, is_ours=_KINDS[flag])

    def write(self, told: Told) -> None:
        """Write what was asked for; on GitHub also mark the line."""
        from oomtune.report import pipelines

        if self.junit is not None:
            write_whole(self.junit, pipelines.junit(told), hint=_HINT)
        if self.summary is not None:
            append(self.summary, pipelines.markdown(told), hint=_HINT)
        if self.code_quality is not None:
            shown = pipelines.code_quality(_from_the_root(told, "CI_PROJECT_DIR"))
            write_whole(self.code_quality, shown, hint=_HINT)
        annotation = pipelines.annotation(_from_the_root(told, "GITHUB_WORKSPACE"))
        if annotation is not None and os.environ.get("GITHUB_ACTIONS") == "true":
            print(annotation, file=sys.stderr)


def _from_the_root(told: Told, variable: str) -> Told:
    """The same with its path as the service knows the file: from the root of the checkout, if it is in it."""
    root = os.environ.get(variable)
    path = Path(told.path).resolve()
    if not root or not path.is_relative_to(Path(root).resolve()):
        return told
    return dataclasses.replace(told, path=path.relative_to(Path(root).resolve()).as_posix())


def _wrote_junit(path: Path) -> bool:
    from oomtune.report.marks import COMMENT

    return has_mark(path, COMMENT.encode())


def _wrote_code_quality(path: Path) -> bool:
    from oomtune.report.pipelines import is_code_quality

    return is_code_quality(path.read_text(encoding="utf-8", errors="replace"))


_KINDS: dict[str, Callable[[Path], bool]] = {"--junit": _wrote_junit, "--code-quality": _wrote_code_quality}
