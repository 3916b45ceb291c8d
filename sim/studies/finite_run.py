"""What a finite run of an overloaded system seems to carry: attainment alone overrates it while an SLO is loose."""

from dataclasses import dataclass
from math import inf

from metrics.slo import SloSpec
from scenario.spec import Scenario
from sim.goodput import find_goodput
from sim.probe import Probe
from sim.studies.serving import TOLERANCE, Task, search
from sim.studies.study import Claim, judge, told
from sim.sustain import Verdict as JudgedRun
from sim.sustain import judge as judge_run

SOURCE = "Lecture 7, section 5.1"
NUM_REQUESTS = 400


@dataclass(frozen=True, slots=True)
class Trap:
    """Requests/s per GPU that a finite run seems to carry, the median wait of its prompts, and what is sustained."""

    naive: float
    delay_s: float
    sustained: float


def fall_for(scenario: Scenario) -> Trap:
    """Search by the attainment of a finite run alone, and as everywhere else."""
    probe = Probe(scenario)
    attainment_only = SloSpec(ttft_ms=scenario.slo.ttft_ms, tpot_ms=scenario.slo.tpot_ms)

    def at(request_rate: float) -> JudgedRun:
        records = probe.simulate(request_rate, NUM_REQUESTS).records
        return judge_run(records, attainment_only, drift_limit=inf, max_delay_s=inf)

    naive = find_goodput(at, hint=10.0, relative_tolerance=TOLERANCE).request_rate or 0.0
    delay_s = judge_run(probe.simulate(naive, NUM_REQUESTS).records, attainment_only, drift_limit=inf).delay_s
    return Trap(naive / scenario.num_gpus, delay_s, search(Task(scenario)).request_rate / scenario.num_gpus)


def trap_claims(trap: Trap) -> list[Claim]:
    return [
        Claim(
            source=SOURCE,
            statement=f"summarisation, 3P2D: goodput per GPU by {NUM_REQUESTS} requests and their attainment alone",
            published="10.09 req/s",
            ours=f"{trap.naive:.2f} req/s",
            verdict=judge(10.09, [trap.naive], holds=trap.naive > 1.5 * trap.sustained),
            reason="how far a finite run is wrong hangs on its requests",
        ),
        told(
            SOURCE,
            "at that rate the queue grows, and the run ends before a TTFT of 15 s is missed",
            "overloaded",
            f"half of the prompts wait longer than {trap.delay_s:.1f} s; sustained are {trap.sustained:.2f} req/s",
            holds=trap.delay_s > 2 and 0 < trap.sustained < 0.67 * trap.naive,
        ),
    ]
