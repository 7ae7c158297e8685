"""How far a trial has come, kept up to date so that a reply can be made at any moment, from any thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from oomtune.domain import AllocatorState, Anatomy, Finding, Point, RaisedError, Reply, Stage


@dataclass(slots=True)
class Progress:
    note: Callable[[Reply], None]
    """Keeps a reply that was not sent, in case the process is ended without one."""
    stage: Stage = Stage.BUILD
    batch_size: int | None = None
    jit_compile: bool | None = None
    parameters: int | None = None
    validated: bool = False
    peak_bytes: int | None = None
    step_ms: list[float] = field(default_factory=list)
    memory_after_step_bytes: list[int] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    anatomy: Anatomy | None = None
    findings: dict[tuple[str, str, str], Finding] = field(default_factory=dict)
    """By kind, line and what it is about: what is known of one may grow with each step."""
    loss_was_finite: bool = False
    """Did a step of this process end with a loss that is a number?"""
    allocator: AllocatorState | None = None
    finished: Reply | None = None
    """What was seen of the candidate, once all its steps have run. What comes then are larger sizes."""

    def found(self, finding: Finding, *, about: str | None = None) -> None:
        """Take note of it, in the place of an earlier one about the same."""
        self.findings[finding.kind, finding.where, finding.message if about is None else about] = finding

    def found_first(self, finding: Finding) -> None:
        """Take note of it, unless one of its kind was found before."""
        self.findings.setdefault((finding.kind, finding.where, ""), finding)

    def finish(self) -> None:
        """The candidate has run: whatever comes now, this stands."""
        self.finished = self.reply(None)
        self.note(self.finished)

    def reply(self, error: RaisedError | None) -> Reply:
        if self.finished is not None:
            further = tuple(self.points)
            return replace(self.finished, further=further, further_at=self.batch_size, further_error=error)
        return Reply(
            stage=self.stage,
            peak_bytes=self.peak_bytes,
            step_ms=tuple(self.step_ms),
            memory_after_step_bytes=tuple(self.memory_after_step_bytes),
            points=tuple(self.points),
            batch_size=self.batch_size,
            jit_compile=self.jit_compile,
            parameters=self.parameters,
            validated=self.validated,
            anatomy=self.anatomy,
            findings=tuple(self.findings.values()),
            allocator=self.allocator,
            error=error,
        )
