"""Advice when nothing in a spec fits: three remedies that the spec does not use yet."""

from __future__ import annotations

from oomtune.diagnosis.nothing_fits import advice_for
from oomtune.domain import Budget, TrialError
from tests.support.crashes import GPU
from tests.support.sessions import EXACT_SPEC
from tests.support.specs import small_probe_spec


def test_the_advice_follows_the_error_of_the_failed_trial() -> None:
    spec = small_probe_spec(training__optimizer="adam")
    budget, smallest = Budget(limit_bytes=64 << 20), spec.space.lanes()[0].at(1)
    plain = advice_for(spec, budget, smallest, 80 << 20)
    assert (len(plain), "--memory-limit 110MiB" in plain[0]) == (3, True)
    of_a_slot = (
        f"OOM when allocating tensor with shape[30522,768] and type float on {GPU} by allocator GPU_0_bfc\n"
        "\t [[node Adam/Adam/update_3/mul_1]]"
    )

    def error_with(text: str) -> TrialError:
        return TrialError(code="device_oom", message=text)

    lines = advice_for(spec, budget, smallest, 80 << 20, error_with(of_a_slot))
    assert lines[1].endswith("--set training.optimizer=sgd")
    assert "an optimizer's slot" in lines[2]
    host = advice_for(spec, budget, smallest, None, error_with("MemoryError: Unable to allocate 1.0 GiB for an array"))
    assert "an array of 1.0 GiB" in host[0]
    assert len(advice_for(spec, budget, smallest, None, error_with("no words that are known"))) == 3


def test_rematerialisation_comes_before_changes_to_what_is_trained() -> None:
    spec = small_probe_spec(training__optimizer="adam")
    budget, lane = Budget(limit_bytes=64 << 20), spec.space.lanes()[0]
    lines = advice_for(spec, budget, lane.at(8), 80 << 20)
    assert "smaller batches than 8" in lines[1]
    assert "search.remat=[none, full]" in lines[2]
    lines = advice_for(spec, budget, lane.at(1), 80 << 20)
    assert "search.remat=[none, full]" in lines[1]
    assert "half precision" in lines[2]
    done = small_probe_spec(search__remat=["none", "full"])
    assert not any("remat" in line for line in advice_for(done, budget, done.space.lanes()[0].at(1), 80 << 20))


def test_fragmentation_puts_the_allocator_setting_first() -> None:
    spec = small_probe_spec()
    error = TrialError(code="fragmentation", message="fragmentation: 30% is free", hint="set device.allocator")
    lines = advice_for(spec, Budget(limit_bytes=64 << 20), spec.space.lanes()[0].at(1), None, error)
    assert (lines[0], len(lines)) == ("set device.allocator", 3)


def test_no_remedy_comes_twice_or_is_in_the_spec_already() -> None:
    spec = small_probe_spec(search__precision=["float32", "mixed_bfloat16"])
    lines = advice_for(spec, Budget(limit_bytes=64 << 20), spec.space.lanes()[0].at(1), None)
    assert not any("half precision" in line or "optimizer" in line for line in lines)
    assert len(set(lines)) == len(lines)


def test_advice_has_three_remedies_that_the_spec_does_not_use_yet() -> None:
    budget = Budget(limit_bytes=64 * 1024**2)
    smallest = EXACT_SPEC.space.lanes()[0].at(1)
    advice = advice_for(EXACT_SPEC, budget, smallest, 80 * 1024**2)
    assert len(advice) == 3
    assert "--memory-limit 110MiB" in advice[0]
    assert "checkpoint" in advice[1]
    assert "half precision" in advice[2]
    assert not any("optimizer" in line for line in advice)  # it has plain SGD already
