"""Records and runs made by hand, and one served by a real instance."""

from dataclasses import replace
from math import inf, nan

import numpy as np

from cluster.cost import DecodeRun
from cluster.events import Finished
from cluster.instance import Instance
from cluster.request import Request, Status
from cluster.role import Role
from cluster.scheduling import EngineConfig
from metrics.records import WIDTH, Column, Records
from metrics.run import RoleChange, RoleSpan, RunResult
from metrics.samples import SAMPLE_FIELDS

NO_STEPS = np.empty((0, 9))
NO_SAMPLES = np.empty((0, len(SAMPLE_FIELDS)))

# A request handed from instance 0 to instance 1: every part of its latency is a different number of milliseconds.
FAULT = {
    "kind": "kill-router",
    "at_s": 1.0,
    "target": "router",
    "injected_s": 1.0,
    "detection_s": 0.1,
    "recovery_s": 2.0,
    "disturbed": 1,
    "resumed": 1,
    "cancelled": 0,
    "failed": 0,
    "recomputed_tokens": 500,
}
"""As summary.json has it under live.faults."""
HANDED_OVER = {
    "arrival_s": 1.0,
    "prompt_tokens": 100,
    "output_tokens": 11,
    "generated_tokens": 11,
    "prefill_instance": 0,
    "decode_instance": 1,
    "prefill_start_s": 1.05,
    "first_token_s": 1.15,
    "transfer_start_s": 1.16,
    "kv_arrived_s": 1.18,
    "decode_start_s": 1.21,
    "second_token_s": 1.25,
    "finished_s": 2.15,
}
COLOCATED = {
    "arrival_s": 2.0,
    "prompt_tokens": 50,
    "output_tokens": 3,
    "generated_tokens": 3,
    "prefill_instance": 0,
    "prefill_start_s": 2.0,
    "first_token_s": 2.1,
    "second_token_s": 2.14,
    "finished_s": 2.2,
}
ONE_TOKEN = {
    "arrival_s": 3.0,
    "prompt_tokens": 10,
    "output_tokens": 1,
    "generated_tokens": 1,
    "prefill_instance": 0,
    "prefill_start_s": 3.1,
    "first_token_s": 3.3,
    "finished_s": 3.3,
}
NO_TOKEN = {"arrival_s": 4.0, "prompt_tokens": 10, "output_tokens": 0, "finished_s": 4.0}
REJECTED = {"status": Status.REJECTED, "arrival_s": 5.0, "prompt_tokens": 9999, "output_tokens": 7, "finished_s": 5.0}
ABORTED = {**COLOCATED, "status": Status.ABORTED, "generated_tokens": 2}


def records(*rows):
    """A table of records from dictionaries of lower-case column names; ids count up, times default to nan."""
    table = np.full((len(rows), WIDTH), nan)
    for request_id, row in enumerate(rows):
        counts = {"prefill_instance": -1, "decode_instance": -1, "generated_tokens": 0, "num_preemptions": 0}
        for name, value in {"request_id": request_id, "status": Status.FINISHED, **counts, **row}.items():
            table[request_id, Column[name.upper()]] = value
    return table


def run(table, **fields):
    """A run of two instances that changed one role, from `table` and whatever `fields` replace."""
    made = RunResult(
        driver="simulate",
        scenario={"name": "made <by> hand", "seed": 7},
        num_requests=len(table),
        duration_s=10.0,
        instance_names=["zero", "one"],
        num_gpus=4,
        records=table,
        step_logs=[[NO_STEPS], [NO_STEPS]],
        extra_gaps_s=[],
        role_spans=[
            RoleSpan(0, "prefill", "serving", 0.0, 10.0),
            RoleSpan(1, "prefill", "serving", 0.0, 4.0),
            RoleSpan(1, "prefill", "draining", 4.0, 5.0),
            RoleSpan(1, "decode", "serving", 5.5, 10.0),
        ],
        role_changes=[RoleChange(1, "prefill", "decode", "KV <full>", 4.0, 5.0, 5.5)],
        samples=[
            np.array([[1.0, 300, 2, 0, 50, 1], [2.0, 100, 1, 0, 75, 0]]),
            np.array([[1.0, 0, 0, 4, 20, 0], [2.0, 0, 0, 8, 200, 0]]),
        ],
        kv_capacity_tokens=[100, 400],
        kv_bytes_moved=3_000_000_000,
        num_transfers=1,
        starved_steps=0,
        cpu_s=0.5,
        wall_s=0.6,
    )
    return replace(made, **fields)


class LinearCost:
    """10 ms a step, 10 us a new token, 1 us a token of KV read."""

    def step_s(self, new_tokens, num_logits, attention_tokens, kv_tokens):
        return 0.010 + 1e-5 * new_tokens + 1e-6 * kv_tokens

    def decode_run(self, batch, context):
        return DecodeRun(self.step_s(batch, batch, context, context), 1e-6 * batch)

    def saturation_tokens(self):
        return 512


def serve(arrivals, *, capacity=10_000, **engine):
    """What a mixed instance makes of (arrival_s, prompt, output) triples; output is at least 1."""
    instance = Instance(0, Role.MIXED, cost=LinearCost(), capacity=capacity, config=EngineConfig(**engine))
    todo = [Request(index, *triple) for index, triple in enumerate(sorted(arrivals))][::-1]
    ended = Records()
    while todo or instance.in_flight:
        end_s = instance.in_flight[0].end_s if instance.in_flight else inf
        if todo and todo[-1].arrival_s < end_s:
            now = todo[-1].arrival_s
            instance.submit(todo.pop(), now)
        else:
            now = end_s
            for event in instance.complete(now):
                if isinstance(event, Finished):
                    ended.add(event.request)
        instance.plan(now)
    logs = [np.array(log.values).reshape(-1, log.WIDTH) for log in instance.logs]
    return run(
        ended.table(),
        step_logs=[logs],
        extra_gaps_s=instance.extra_gaps,
        instance_names=["only"],
        samples=[NO_SAMPLES],
        kv_capacity_tokens=[capacity],
        role_spans=[RoleSpan(0, "mixed", "serving", 0.0, 10.0)],
        role_changes=[],
    )
