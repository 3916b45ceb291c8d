from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from cluster.scheduling import EngineConfig
from metrics.slo import SloSpec
from planner.config import LoadThresholds, PlannerConfig
from scenario.loading import dump_scenario, load_scenario, to_plain
from scenario.spec import InstanceCounts, Scenario
from scenario.strict_yaml import parse_yaml
from scenario.validation import validate
from workload.spec import Lengths, Phase, WorkloadSpec

BASE = """
model: opt-13b
gpu: a100-80gb
link: ethernet-25
instances: {prefill: 1, decode: 1}
workload:
  phases:
    - {duration_s: 10, request_rate: 0.5, prompt: {mean: 100}, output: {mean: 1e1, kind: fixed}}
"""


def load(folder: Path, text: str) -> Scenario:
    (folder / "a.yaml").write_text(text)
    return load_scenario(folder / "a.yaml")


def test_names_and_defaults(tmp_path: Path) -> None:
    scenario = load(tmp_path, BASE)
    assert scenario.name == "a"
    assert (scenario.model.num_layers, scenario.gpu.name, scenario.link.name) == (40, "a100-80gb", "ethernet-25")
    assert scenario.gpu_link.name == "nvlink-a100"
    assert scenario.workload.phases == [
        Phase(duration_s=10.0, request_rate=0.5, prompt=Lengths(mean=100.0), output=Lengths(mean=10.0, kind="fixed"))
    ]
    assert (scenario.planner, scenario.slo, scenario.seed) == (PlannerConfig(), SloSpec(), 0)


def test_specs_spelled_out_and_in_files(tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "slow.yaml").write_text("bandwidth_bytes_s: 1e9\nalpha_s: 1e-3\n")
    text = BASE.replace(
        "link: ethernet-25", "link: nets/slow.yaml\ngpu_link: {name: own, bandwidth_bytes_s: 2, alpha_s: 0}"
    )
    scenario = load(tmp_path, text)
    assert (scenario.link.name, scenario.link.bandwidth_bytes_s, scenario.link.alpha_s) == ("slow", 1e9, 1e-3)
    assert (scenario.gpu_link.name, scenario.gpu_link.bandwidth_bytes_s) == ("own", 2.0)


def test_own_configs_come_before_bundled_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, named = tmp_path / "configs" / "links", tmp_path / "mine" / "links"
    for folder, alpha_s in ((beside, 1), (named, 2)):
        folder.mkdir(parents=True)
        (folder / "ethernet-25.yaml").write_text(f"bandwidth_bytes_s: 1e9\nalpha_s: {alpha_s}\n")
    monkeypatch.setenv("BATON_CONFIGS", str(tmp_path / "mine"))
    assert load(tmp_path, BASE).link.alpha_s == 1
    (beside / "ethernet-25.yaml").unlink()
    assert load(tmp_path, BASE).link.alpha_s == 2
    monkeypatch.setenv("BATON_CONFIGS", str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match="which is no folder; unset it or create the folder"):
        load(tmp_path, BASE)


def test_scenarios_see_the_configs_they_lie_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("scenarios", "links"):
        (tmp_path / "configs" / kind).mkdir(parents=True)
    (tmp_path / "configs" / "links" / "wet-string.yml").write_text("bandwidth_bytes_s: 1\nalpha_s: 1\n")
    (tmp_path / "configs" / "scenarios" / "mine.yaml").write_text(BASE.replace("ethernet-25", "wet-string"))
    monkeypatch.chdir(tmp_path)
    assert load_scenario("mine").link.name == "wet-string"


def test_trace_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    head = BASE.partition("workload")[0]
    assert load(tmp_path, head + "workload: {trace: t.csv}").workload.trace == f"{tmp_path}/t.csv"
    assert load(tmp_path, head + "workload: {trace: /x/t.csv}").workload.trace == "/x/t.csv"
    overridden = load_scenario(tmp_path / "a.yaml", ["workload.trace=u.csv"])
    assert overridden.workload.trace == f"{tmp_path}/here/u.csv"


FAULTS = [
    ("tpp: 1", "tpp is not a known key; did you mean pp or tp?"),
    ("engine: {token_budgt: 4}", "engine.token_budgt is not a known key; did you mean token_budget?"),
    ("live: {zzz: 4}", "live.zzz is not a known key; use compute, kv_between_nodes, kv_budget_bytes, kv_bytes_scale, kv_lease_s, metrics_host, metrics_port, report_delay_s, silence_timeout_s, time_scale"),
    ("live: {kv_between_nodes: udp}", "live.kv_between_nodes is 'udp'; use object_store or tcp"),
    ("1: 2", "1 is not a known key; use engine, gpu, gpu_link, gpus_per_node, handoff, hardware, instances, link, live, max_context, "
     "model, name, planner, power_cap, pp, router, sample_interval_s, seed, slo, stage_link, tp, workload"),
    ("seed: -1", "seed is -1; it must not be negative"),
    ("sample_interval_s: 1e-9", "sample_interval_s is 1e-09; it must be at least 0.001"),
    ("planner: {interval_s: 1e-7}", "planner.interval_s is 1e-07; it must be at least 0.001"),
    ("tp: true", "tp is true, expected an integer"),
    ("tp: '4'", 'tp is "4", expected an integer'),
    ("tp: 4.5", "tp is 4.5, expected an integer"),
    ("tp: null", "tp is null, expected an integer"),
    ("sample_interval_s: yes", 'sample_interval_s is "yes", expected a number'),
    ("sample_interval_s: .inf", "sample_interval_s is Infinity, expected a finite number"),
    ("name: 5", "name is 5, expected text"),
    ("engine: [1]", "engine is [1], expected a mapping"),
    ("engine: {max_batch: x, block_size: x}", 'engine.max_batch is "x", expected an integer (and 1 more)'),
    ("slo: {ttft_ms: -1}", "slo.ttft_ms is -1.0; it must be above 0"),
    ("tp: 0", "tp is 0; it must be at least 1"),
    ("router: {decode_policy: jsk}", "router.decode_policy is 'jsk'; did you mean jsq?"),
    ("planner: {policy: throughtput}", "planner.policy is 'throughtput'; did you mean throughput or throughput_corrected?"),
    ("gpu_link: {name: n, bandwidth_bytes_s: 0, alpha_s: 0}", "gpu_link: link n: bandwidth_bytes_s is 0.0; it must be above 0"),
    ("gpu_link: {name: n, alpha_s: 0}", "gpu_link.bandwidth_bytes_s is missing"),
    ("gpu_link: nvlink", "there is no link named 'nvlink'; did you mean nvlink-a100 or nvlink-h100?"),
    ("slo: zzz", "there is no slo named 'zzz'; use chatbot-opt-13b, chatbot-opt-175b, chatbot-opt-66b, "
     "code-completion-opt-66b, summarization-opt-66b"),
    ("planner: {load: {votes: 3}}", "planner.load has no effect while planner.policy is static; remove it or change planner.policy"),
    ("stage_link: ethernet-25", "stage_link has no effect while pp is 1; remove it or change pp"),
    ("engine: {block_size: 8}", "engine.block_size has no effect while engine.admission is reserve_output; "
     "remove it or change engine.admission"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "sentence"), FAULTS)
def test_faults_are_one_sentence(tmp_path: Path, line: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, BASE + line)
    assert str(caught.value) == f"{tmp_path}/a.yaml: {sentence}"


PHASE = "{duration_s: 1, request_rate: 1, prompt: {mean: 9}, output: {mean: 9}}"
WORKLOAD_FAULTS = [
    ("{trace_unit: s}", "workload.trace_unit has no effect without workload.trace; leave it out"),
    ("{num_requests: 0}", "workload.num_requests is 0; it must be at least 1"),
    (f"{{trace: t, phases: [{PHASE}]}}", "workload has both a trace and phases; keep one of them"),
    ("{phases: {}}", "workload.phases is {}, expected a list"),
    ("{phases: [{duration: 1}]}", "workload.phases.0.duration is not a known key; did you mean duration_s? (and 4 more)"),
    (f"{{phases: [{PHASE.replace('mean: 9', 'mean: 0', 1)}]}}", "workload.phases.0.prompt: lengths mean is 0.0; it must be a finite number of at least 1 token"),
    (f"{{phases: [{PHASE.replace('}', ', sgma: 1}', 1)}]}}", "workload.phases.0.prompt.sgma is not a known key; did you mean sigma?"),
    (f"{{phases: [{PHASE.replace('mean: 9', 'mean: 9, kind: fixed, sigma: 1', 1)}]}}", "workload.phases.0.prompt.sigma has no "
     "effect while workload.phases.0.prompt.kind is fixed; remove it or change workload.phases.0.prompt.kind"),
    (f"{{phases: [{PHASE}, {PHASE[:-1]}, burstiness: 2}}]}}", "workload.phases.1.burstiness has no effect while "
     "workload.phases.1.arrivals is poisson; remove it or change workload.phases.1.arrivals"),
]  # fmt: skip


@pytest.mark.parametrize(("workload", "sentence"), WORKLOAD_FAULTS)
def test_workload_faults(tmp_path: Path, workload: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"{BASE.partition('workload')[0]}workload: {workload}")
    assert str(caught.value) == f"{tmp_path}/a.yaml: {sentence}"


def test_faults_in_a_named_file_name_that_file(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("num_layers: 4\nhiden_size: 8\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, BASE.replace("opt-13b", "m.yaml"))
    assert (
        str(caught.value) == f"{tmp_path}/m.yaml: hiden_size is not a known key; did you mean hidden_size? (and 9 more)"
    )


def test_missing_files_and_names(tmp_path: Path) -> None:
    for reference, sentence in (
        ("demi", "there is no scenario named 'demi'; did you mean demo?"),
        (f"{tmp_path}/demo.yaml", f"cannot read {tmp_path}/demo.yaml: No such file or directory"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_scenario(reference)
        assert str(caught.value) == sentence


def test_data_that_is_no_tree() -> None:
    knot: list[object] = []
    knot.append(knot)
    for data in (knot, {"ttft_ms": {1, 2}}, {"ttft_ms": parse_yaml("&a [*a]", "x")}):
        with pytest.raises(ConfigError, match="x holds something other than mappings, lists and plain values"):
            validate(SloSpec, data, "x")


DEMO = load_scenario("demo")
counts = st.integers(1, 1000)
positive = st.floats(1e-9, 1e15)
maybe = st.none() | positive
words = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])) | st.sampled_from(["no", "1e-6", "010", "null"])
lengths = st.builds(Lengths, mean=st.floats(1, 1e6), sigma=st.floats(0, 3), maximum=st.none() | counts) | st.builds(
    Lengths, mean=st.floats(1, 1e6), kind=st.just("fixed")
)
phases = st.builds(
    Phase, name=words, duration_s=st.floats(1e-9, 1e4), request_rate=st.floats(1e-9, 1e3), prompt=lengths, output=lengths,
    arrivals=st.just("gamma"), burstiness=positive,
)  # fmt: skip
workloads = st.builds(WorkloadSpec, phases=st.lists(phases, max_size=3), num_requests=st.none() | counts) | st.builds(
    WorkloadSpec, trace=words.map("/{}".format), trace_unit=st.sampled_from([None, "s", "ms"])
)
scenarios = st.builds(
    replace,
    st.just(DEMO),
    name=words,
    workload=workloads,
    instances=st.builds(InstanceCounts, prefill=counts, decode=counts, mixed=counts),
    slo=st.builds(SloSpec, ttft_ms=maybe, tpot_ms=maybe, e2e_ms=maybe),
    engine=st.builds(EngineConfig, token_budget=st.none() | counts, max_batch=counts)
    | st.builds(EngineConfig, admission=st.just("preempt_recompute"), block_size=counts),
    planner=st.just(PlannerConfig())
    | st.builds(PlannerConfig, policy=st.just("load"), load=st.builds(LoadThresholds, votes=counts)),
    max_context=st.none() | counts,
    seed=st.integers(min_value=0),
)


@given(scenarios)
def test_plain_data_gives_the_scenario_back(scenario: Scenario) -> None:
    assert validate(Scenario, to_plain(scenario), "x") == scenario
    assert parse_yaml(dump_scenario(scenario), "x") == to_plain(scenario)


def test_dumped_scenario_loads_from_anywhere(tmp_path: Path) -> None:
    scenario = load(tmp_path, BASE)
    (tmp_path / "elsewhere").mkdir()
    dumped = tmp_path / "elsewhere" / "scenario.yaml"
    dumped.write_text(dump_scenario(scenario))
    assert load_scenario(dumped) == scenario
