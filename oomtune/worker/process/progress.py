"""The state of a running trial. Any thread can turn it into a reply at any moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from oomtune.domain import AllocatorState, Anatomy, Finding, Point, RaisedError, Reply, Stage


@dataclass(slots=True)
class Progress:
    save: Callable[[Reply], None]
    """Keeps a partial reply, in case the process is killed before it can send one."""
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
    """Findings by kind, line and subject."""
    loss_was_finite: bool = False
    """Whether a step of this process ended with a finite loss."""
    allocator: AllocatorState | None = None
    candidate_reply: Reply | None = None
    """The reply for the candidate once all its steps have run. Larger sizes only add to it."""

    def add_finding(self, finding: Finding, *, subject: str | None = None, keep_first: bool = False) -> None:
        """Record the finding. It replaces an earlier one about the same subject unless `keep_first` is set."""
        key = (finding.kind, finding.where, finding.message if subject is None else subject)
        if not (keep_first and key in self.findings):
            self.findings[key] = finding

    def finish_candidate(self) -> None:
        """Freeze the candidate's reply, so that failures of the larger sizes that follow can't change it."""
        self.candidate_reply = self.reply()
        self.save(self.candidate_reply)

    def reply(self, error: RaisedError | None = None) -> Reply:
        """Return the observations so far, with the error that ended the trial, if any."""
        if self.candidate_reply is not None:
            points = tuple(self.points)
            return replace(self.candidate_reply, further=points, further_at=self.batch_size, further_error=error)
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
