"""Compare the time of an out-of-memory trial with one that fits at a similar size: `make bench-oom` prints both.

Each is the median of several trials in this run.
"""

from __future__ import annotations

import statistics
import sys

from oomtune.devices import resolve
from oomtune.domain import Candidate, Kind, Search
from oomtune.spec import load_spec
from oomtune.trials.local import ForkRunner

# (spec, sequence length, a batch that fits, one that does not)
CASES = [
    ("configs/lstm.yaml", 96, 200, 300),
    ("configs/transformer.yaml", 128, 40, 80),
    ("configs/cnn.yaml", None, 200, 500),
]
REPEATS = 5


def main() -> int:
    print(f"{'spec':26} {'fits':>8} {'out of memory':>15} {'bound':>8}")
    within = True
    for path, length, small, large in CASES:
        spec = load_spec(path).spec
        found = resolve(spec.device, ())
        runner = ForkRunner(spec=spec, device=found.device, budget=found.budget, notice=print)
        try:
            fits = _median(runner, Candidate(batch_size=small, sequence_length=length), Kind.FITS)
            out = _median(runner, Candidate(batch_size=large, sequence_length=length), Kind.DEVICE_OOM)
        finally:
            runner.close()
        bound = 1.5 * fits + 0.5
        within = within and out <= bound
        print(f"{path:26} {fits:6.2f} s {out:13.2f} s {bound:6.2f} s")
    return 0 if within else 1


def _median(runner: ForkRunner, candidate: Candidate, kind: Kind) -> float:
    times = []
    for _ in range(REPEATS):
        outcome = runner.run(Search(candidate=candidate))
        assert outcome.kind is kind, f"{candidate}: {outcome.kind} {outcome.error}"
        times.append(outcome.duration_s)
    return statistics.median(times[1:])  # the first also waits for TensorFlow


if __name__ == "__main__":
    sys.exit(main())
