"""How far a trial has come, kept up to date so that a reply can be made at any moment, from any thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from oomtune.domain import Point, RaisedError, Reply, Stage


@dataclass(slots=True)
class Progress:
    note: Callable[[Reply], None]
    """Keeps a reply that was not sent, in case the process is ended without one."""
    stage: Stage = Stage.BUILD
    batch_size: int | None = None
    jit_compile: bool | None = None
    validated: bool = False
    peak_bytes: int | None = None
    step_ms: list[float] = field(default_factory=list)
    memory_after_step_bytes: list[int] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)

    def reply(self, error: RaisedError | None) -> Reply:
        return Reply(
            stage=self.stage,
            peak_bytes=self.peak_bytes,
            step_ms=tuple(self.step_ms),
            memory_after_step_bytes=tuple(self.memory_after_step_bytes),
            points=tuple(self.points),
            batch_size=self.batch_size,
            jit_compile=self.jit_compile,
            validated=self.validated,
            error=error,
        )
