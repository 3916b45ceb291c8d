"""Dollars and joules, computed by hand."""

import numpy as np
import pytest
from made_runs import records, run

from cluster.step_log import StepRow
from metrics.cost import cost_of
from metrics.run import RunningCost

COST = RunningCost(usd_per_hour=36.0, prefill_w=1000.0, decode_w=600.0, idle_w=100.0)


def steps(*rows):
    """A step log from dictionaries of field names; what is not given is 0."""
    return np.array([[row.get(field, 0) for field in StepRow._fields] for row in rows]).reshape(
        -1, len(StepRow._fields)
    )


def test_every_instance_is_paid_for_from_start_to_end():
    made = run(records({}), duration_s=100.0, running_costs=[COST, COST])
    assert cost_of(made, completed=500)["cost_usd"] == pytest.approx(2.0)
    assert cost_of(made, completed=500)["usd_per_1k_requests"] == pytest.approx(4.0)


def test_energy_by_what_the_steps_were():
    prefill_3_s = {"start_s": 0.0, "end_s": 3.0, "prefill_tokens": 512}
    decode_4_s = {"start_s": 3.0, "end_s": 7.0, "decodes": 8}
    made = run(
        records({}),
        duration_s=10.0,
        running_costs=[COST, COST],
        step_logs=[[steps(prefill_3_s, decode_4_s)], [steps()]],
    )
    assert cost_of(made, completed=1000)["energy_j"] == pytest.approx(3 * 1000 + 4 * 600 + 3 * 100 + 10 * 100)


@pytest.mark.parametrize(("price", "power", "known"), [(0.0, 1.0, "energy_j"), (1.0, 0.0, "cost_usd")])
def test_what_is_not_known_is_none(price, power, known):
    cost = RunningCost(usd_per_hour=price, prefill_w=power, decode_w=power, idle_w=0.0)
    figures = cost_of(run(records({}), running_costs=[cost, cost]), completed=1)
    assert {name for name in ("energy_j", "cost_usd") if figures[name] is not None} == {known}


def test_no_requests_cost_something_but_have_no_price_each():
    figures = cost_of(run(records(), running_costs=[COST, COST]), completed=0)
    assert figures["cost_usd"] > 0
    assert figures["usd_per_1k_requests"] is None
