"""From what happened in the engine to metric observations: the same facts the result files are made from."""

from cluster.load import LoadView
from cluster.request import Status
from cluster.role import Phase, Role
from cluster.step_log import StepRow
from metrics.latency import e2e_s, tpot_s, ttft_s, ttst_s
from metrics.prometheus import MetricStore
from metrics.records import Column, FloatArray
from metrics.slo import SloSpec, meets


def observe_requests(store: MetricStore, records: FloatArray, slo: SloSpec) -> int:
    """Count requests that ended and the latencies of those that finished; returns how many were good.

    records: (requests, metrics.records.Column).
    """
    for status in records[:, Column.STATUS]:
        store.add("baton_requests", 1, Status(int(status)).name.lower())
    store.add("baton_prompt_tokens", float(records[:, Column.PROMPT_TOKENS].sum()))
    store.add("baton_generation_tokens", float(records[:, Column.GENERATED_TOKENS].sum()))
    num_good = int(meets(records, slo).sum())
    store.add("baton_good_requests", num_good)
    for name, latency_s in (
        ("baton_time_to_first_token_seconds", ttft_s),
        ("baton_time_per_output_token_seconds", tpot_s),
        ("baton_e2e_request_latency_seconds", e2e_s),
        ("baton_inter_token_latency_seconds", ttst_s),
    ):
        for value in latency_s(records):
            if value == value:
                store.observe(name, float(value))
    return num_good


def observe_step(store: MetricStore, row: StepRow) -> None:
    """Count the token gaps of one step, except first gaps, which come with the request."""
    if not row.decodes:
        return
    name = "baton_inter_token_latency_seconds"
    if row.continuing:
        store.observe(name, row.start_s + row.first_s - row.last_token_s, times=row.continuing)
    if row.iterations > 1:
        store.observe_affine(name, row.first_s + row.slope_s, row.slope_s, row.iterations - 1, row.decodes)


def set_instance_gauges(store: MetricStore, name: str, load: LoadView) -> None:
    """Everything that is a level rather than a sum. Both sides of the role series are always set."""
    store.set("baton_num_requests_running", load.num_prefilling + load.num_decoding, name)
    store.set("baton_num_requests_waiting", load.num_waiting + load.num_offers, name)
    store.set("baton_queued_prompt_tokens", load.queued_tokens, name)
    store.set("baton_kv_cache_usage_ratio", load.kv_use, name)
    store.set("baton_num_handoffs", load.num_outgoing, name, "out")
    store.set("baton_num_handoffs", load.num_incoming, name, "in")
    store.set("baton_instance_draining", float(load.phase is not Phase.SERVING), name)
    store.set("baton_instance_epoch", load.epoch, name)
    for role in Role:
        store.set("baton_instance_role", float(role is load.role), name, role)
