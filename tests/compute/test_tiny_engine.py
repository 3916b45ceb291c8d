"""The tiny model behind instances of the core: whatever they decide, every text is that of a single process."""

import pytest
import torch

from cluster.agenda import Agenda
from cluster.events import Ejected, Event, Finished, PrefillDone, PrefillStarted
from cluster.handoff import Handoff
from cluster.instance import Instance
from cluster.request import Request, Status
from cluster.role import Role
from cluster.runner import Runner
from compute.kv_layout import Layers
from compute.proof import wrong_texts
from compute.tiny_engine import TinyEngine
from scenario.build import build_instance
from scenario.loading import load_scenario

PROMPTS = [40, 90, 17, 64, 33]
OUTPUT = 24


class Pair:
    """Two instances and their engines on one agenda; KV goes from the first to the second, or from who ejects."""

    def __init__(self, roles: tuple[Role, Role], *, layerwise: bool = False, **changes: object) -> None:
        counts = (
            {"instances": {"prefill": 1, "decode": 1}}
            if Role.MIXED not in roles
            else {"instances": {"mixed": 2, "prefill": 0, "decode": 0}}
        )
        scenario = load_scenario("demo", {"model": "llama-3-8b", "tp": 1, **counts, **changes})
        self.agenda = Agenda()
        self.engines = [TinyEngine(), TinyEngine()]
        self.instances = [build_instance(scenario, index, role) for index, role in enumerate(roles)]
        self.runners = [
            Runner(one, self.agenda, self.on_event, tells_prefill_starts=layerwise) for one in self.instances
        ]
        self.layers: dict[int, list[torch.Tensor]] = {}
        self.texts: dict[int, bytes] = {}
        self.num_moved = 0

    def on_event(self, event: Event, instance: Instance, now: float) -> None:
        engine = self.engines[instance.index]
        match event:
            case PrefillStarted(request):
                self.follow()
                self.layers[request.request_id] = [self.compute(engine, request, layer) for layer in range(4)]
            case PrefillDone(request) | Ejected(request):
                engine.settle(request)
                self.move(request, instance.index, now)
            case Finished(request):
                engine.settle(request)
                self.texts[request.request_id] = request.text

    def compute(self, engine: TinyEngine, request: Request, layer: int) -> torch.Tensor:
        """One layer of a prompt that is being computed, as it leaves."""
        engine.compute_layers(request, layer + 1)
        out = torch.empty(engine.layout.shape(request.target, Layers(layer, layer + 1)), dtype=engine.layout.dtype)
        engine.write_kv(request, Layers(layer, layer + 1), out)
        return out

    def move(self, request: Request, source: int, now: float) -> None:
        early = self.layers.pop(request.request_id, None)
        layers = early or [self.compute(self.engines[source], request, layer) for layer in range(4)]
        target = 1 - source
        handoff = Handoff(request, source, target, 0, 1)
        assert self.runners[target].accept(handoff, now)
        handoff.begin(now)
        self.runners[source].release(request, now)
        self.engines[source].forget(request.request_id)
        self.engines[target].take_kv(request, torch.cat(layers))
        self.runners[target].receive(handoff, now)
        self.num_moved += 1

    def follow(self) -> None:
        for engine, instance in zip(self.engines, self.instances, strict=True):
            engine.follow(instance)

    def run(self, until: float = float("inf")) -> None:
        """One thing after another, the engines following each."""
        while self.agenda.next_s <= until and self.agenda.has_work:
            self.agenda.run(self.agenda.next_s)
            self.follow()

    def start(self) -> list[Request]:
        requests = [Request(index, 0.0, prompt, OUTPUT) for index, prompt in enumerate(PROMPTS)]
        for request in requests:
            self.runners[0].submit(request, 0.0)
        return requests

    def check(self) -> None:
        assert [len(self.texts[index]) for index in range(len(PROMPTS))] == [OUTPUT] * len(PROMPTS)
        assert wrong_texts(self.texts, PROMPTS, seed=0) == []


@pytest.mark.parametrize("layerwise", [False, True])
def test_disaggregated(layerwise) -> None:
    pair = Pair((Role.PREFILL, Role.DECODE), layerwise=layerwise)
    pair.start()
    pair.run()
    pair.check()
    assert pair.num_moved == len(PROMPTS)


def test_in_chunks_and_after_preemption() -> None:
    tight = {"gpu.memory_bytes": 17.87e9, "engine.admission": "preempt_recompute"}
    chunks = {"engine.policy": "chunked_prefill", "engine.token_budget": 24}
    pair = Pair((Role.MIXED, Role.MIXED), **tight, **chunks)
    requests = pair.start()
    pair.run()
    pair.check()
    assert sum(request.num_preemptions for request in requests) > 0


def test_after_migration() -> None:
    pair = Pair((Role.MIXED, Role.MIXED))
    requests = pair.start()
    pair.run(until=0.1)
    moving = [request for request in requests if request.status is Status.DECODE]
    for request in moving:
        pair.runners[0].eject(request, pair.agenda.now)
    pair.run()
    pair.check()
    assert pair.num_moved == len(moving) > 0


def test_after_a_death() -> None:
    """What had been delivered comes along; the rest is generated elsewhere, once."""
    pair = Pair((Role.MIXED, Role.MIXED))
    requests = pair.start()
    pair.run(until=0.1)
    for request in [one for one in requests if one.status is Status.DECODE]:
        survivor = Request(request.request_id, 0.0, request.prompt_tokens, OUTPUT)
        survivor.text = request.text
        survivor.generated = len(request.text)
        survivor.target = survivor.prompt_tokens + survivor.generated
        assert 0 < survivor.generated < OUTPUT
        pair.runners[1].submit(survivor, pair.agenda.now)
    pair.run()
    pair.check()
