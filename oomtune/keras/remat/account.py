"""Record which parts of a model were really recomputed, and why others were not."""

from __future__ import annotations

from dataclasses import dataclass, field

from oomtune.keras.private_tensorflow import record

NOT_DENSE = "its input is sparse, ragged or not a tensor"
NOT_REPEATABLE = "it draws random numbers, or keeps tensors or state that Keras does not know of"


@dataclass(slots=True)
class Recomputed:
    """What rematerialisation did to one model. It fills up when the model runs under a gradient tape."""

    how: str
    names: list[str] = field(default_factory=list)
    """The recomputed parts, each named by its first and last layer."""
    skipped_parts: dict[str, str] = field(default_factory=dict)
    """The planned parts that were not recomputed, each with its reason."""
    is_examined: bool = False
    """Whether the model was searched for parts. A model that is not built yet is searched on its first run."""
    has_plan: bool = False
    """Whether the search chose any part."""

    def ran(self, name: str) -> None:
        if record.could_possibly_record() and name not in self.names:
            self.names.append(name)
            self.skipped_parts.pop(name, None)

    def skipped(self, name: str, reason: str) -> None:
        if record.could_possibly_record() and name not in self.names:
            self.skipped_parts[name] = reason

    def plan(self, has_parts: bool) -> None:
        self.is_examined = True
        self.has_plan = self.has_plan or has_parts

    def missed(self) -> str:
        """Explain which requested parts were not recomputed, and why; empty if all were."""
        if self.skipped_parts:
            return "; ".join(f"{name} is not recomputed: {reason}" for name, reason in self.skipped_parts.items())
        if self.names:
            return ""
        if self.is_examined and not self.has_plan:
            return "no part of this model is worth recomputing"
        return "nothing is recomputed: the training step calls layers of the model, but never the model itself"
