from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from oomtune.domain import Aim, BucketTurns, Candidate, Climb, Confirm, Purpose, RematLayers, Search, Trial, WorkOrder
from tests.support.specs import small_work_order

LANE = Candidate(batch_size=1, sequence_length=64, precision="mixed_bfloat16", remat=RematLayers(("block_*",))).lane
TRIALS: list[Trial] = [
    Climb(lane=LANE, sizes=(1, 2, 4), every_size=True),
    Climb(lane=LANE, sizes=(8,), aim=Aim.BUCKETS),
    Search(candidate=LANE.at(8)),
    Search(candidate=LANE.at(8), further=(9, 10), further_within_s=4.0),
    Search(candidate=LANE.at(8), shows_anatomy=True),
    Search(candidate=LANE.at(8), aim=Aim.TIMING),
    Confirm(candidate=LANE.at(8), further=(9,)),
    BucketTurns(purpose=Purpose.SEARCH, lane=LANE, buckets=((32, 16), (64, 8))),
    BucketTurns(purpose=Purpose.CONFIRM, lane=LANE, buckets=((32, 16), (64, 8))),
]


@pytest.mark.parametrize("trial", TRIALS)
def test_an_order_keeps_its_trial_on_the_way_to_the_worker(trial: Trial) -> None:
    orders = TypeAdapter(WorkOrder)
    order = small_work_order(trial)
    assert orders.validate_json(orders.dump_json(order)).trial == trial


@pytest.mark.parametrize("trial", TRIALS)
def test_every_trial_has_a_candidate_in_its_lane(trial: Trial) -> None:
    assert trial.candidate.lane == LANE
    assert trial.candidate.batch_size in (1, 8)
