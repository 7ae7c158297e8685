"""The numbers of the search, in one place.

They decide how many trials an answer takes, never what counts as one. Unless its sentence says "not fitted", a number
was chosen for few trials over the recorded curves in `tests/benchmarks/recordings`. Before changing one, run
`tests/unit/search/test_recorded_curves.py`, which referees the search.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Numbers to choose trials by. Shares are of the batch size, unless a sentence names something else."""

    # The climb: one process that goes through many sizes.
    rung: float = 0.02
    """A climb chooses among sizes this far apart; larger ends it further from the edge."""
    leap: float = 4.0
    """A climb's next size is at most this many times the last; larger skips more of the flat part and risks a failure
    far above the edge, which ends the climb."""
    near_budget: float = 0.96
    """From this share of the budget on, the climb steps over the edge; larger costs it more sizes on the way there."""
    slow_step_ms: float = 5_000
    """A climb ends after a step slower than this, because another size would cost more than it shows. Not fitted."""
    most_sizes: int = 16
    """No process runs more sizes than this; larger lets one trial take longer. Not fitted."""
    foothold: float = 0.4
    """Where other lanes predict the edge, a climb begins at this share of it; larger saves sizes and may begin too
    high."""

    # The line through the peaks of a lane.
    baseline: float = 0.7
    """A line goes through the largest batch and one of at most this share of it: two that are closer say more about
    noise than about slope."""
    rise: float = 1.2
    """Two peaks show a slope when one is this many times the other; noise is up to 1.03 times in the recordings."""

    # The belief about the edge of a lane.
    noise: float = 0.015
    """Two runs of one batch differ by about this share in their peak, as recorded; larger trusts single peaks less."""
    drift: float = 0.09
    """A peak predicts the edge this much worse for each doubling up to it; larger trusts small batches less."""
    edge_doubt: float = 0.05
    """No edge is known better than to this share; larger comes down from a failure in longer steps."""
    even_share: float = 0.05
    """This share of the belief lies evenly over all that is possible; larger turns to bisection sooner."""

    # The next size in a lane.
    sure: float = 0.8
    """If a lane is less likely than this to win, its next trial only shows whether it can; larger asks more often."""
    widening: float = 3.0
    """Each surprise in a row makes the next step this many times as long; larger overshoots more and bisects more."""
    even_from: int = 6
    """In half precision even batches are preferred where the resolution is more than this many samples. Not fitted."""

    # What a climb and other lanes prove.
    climb_trust: float = 0.97
    """After a failure in a fresh process, sizes of a climb above this share of it no longer count as fits; larger
    trusts climbs that end too high."""
    climb_doubt: float = 1.1
    """While no fresh process has fitted, up to this many times the end of a climb may fit; larger asks more lanes
    whether they can win, smaller misses lanes that can."""
    room_doubt: float = 1.05
    """A failure after another size is doubted when a fresh process shows room for this many times the batch; smaller
    repeats more sizes."""
    line_doubt: float = 1.08
    """A lane's own line may be wrong by this factor before the lane is given up; smaller misses the best lane."""
    vague: float = 0.04
    """If the predicted edge of a lane may be off by more than this share, a climb measures the lane first."""
    half_precision_least: float = 0.45
    """In half precision a sample takes at least this share of its float32 memory: half of it has been seen."""
    half_precision_most: float = 1.05
    """In half precision a sample takes at most this share: models have been seen to save nothing."""
    alike_precision: float = 0.85
    """In another precision of the same width a sample takes at least this share, and at most its inverse."""

    # The answer.
    last_share: float = 0.6
    """A batch that fits while larger ones are open is the answer this often, over recorded curves; larger runs more
    trials at full length at once."""
    divisor_from: float = 0.9
    """A divisor of the effective batch is preferred if it is at least this share of the largest batch. Not fitted."""

    # Buckets, which take turns in one process. None of these is fitted.
    bucket_multiple: int = 8
    """Boundaries are multiples of this, as hardware likes its shapes."""
    bucket_worth: float = 0.1
    """Buckets have to save this share of all tokens, or they are not worth their trials."""
    bucket_most_shrinks: int = 10
    """After this many shrinks the buckets are given up."""
    bucket_ample: float = 0.25
    """A first turn at this share of what may fit shows whether the model allows buckets. Where this share of the budget
    stays free, one turn at full size is proof enough."""
    bucket_shrink: float = 0.95
    """After turns at full size, or when they need too much, every batch shrinks by this."""
    bucket_turns: int = 3
    """This many turns in a row have to fit, each in another order and smaller than the one before."""

    # The forecast of the remaining time. None of these is fitted.
    steps_per_size: int = 6
    """A size takes about as long as this many steps, validation included."""
    steps_to_fail: int = 2
    """A size that does not fit takes about as long as this many steps."""
    cut_short: float = 0.5
    """A trial that does not fit takes about this share of the overhead of a whole one."""
    plays: int = 9
    """The search is played to its end this many times; larger is steadier and slower."""


TUNING = Tuning()
