"""What rematerialisation is seen to do to a model: a plan is not yet a part that was computed again."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensorflow.python.eager import record

NOT_DENSE = "what it is given is sparse, ragged or no tensor"
NOT_REPEATABLE = "it draws random numbers or keeps tensors or state where Keras does not know of them"


@dataclass(slots=True)
class Recomputed:
    """Filled when the model is run for the sake of gradients."""

    how: str
    names: list[str] = field(default_factory=list)
    """The parts that are computed again, each by the layers that it begins and ends with."""
    left: dict[str, str] = field(default_factory=dict)
    """What was to be computed again and is not, with the reason."""
    looked: bool = False
    """Is it known what there is to compute again? A model that is not built shows that when it first runs."""
    planned: bool = False
    """Was there anything?"""

    def ran(self, name: str) -> None:
        if record.could_possibly_record() and name not in self.names:
            self.names.append(name)
            self.left.pop(name, None)

    def skipped(self, name: str, reason: str) -> None:
        if record.could_possibly_record() and name not in self.names:
            self.left[name] = reason

    def plan(self, found: bool) -> None:
        self.looked = True
        self.planned = self.planned or found

    def missed(self) -> str:
        """What is not computed again although it was asked for, in words; empty when all is."""
        if self.left:
            return "; ".join(f"{name} is not computed again: {reason}" for name, reason in self.left.items())
        if self.names:
            return ""
        if self.looked and not self.planned:
            return "nothing here is worth computing again"
        return "nothing is computed again: the training step runs layers of the model, and never the model itself"
