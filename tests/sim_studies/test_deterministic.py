"""Studies that leave nothing to chance: every claim, and which come out otherwise."""

from functools import partial

import pytest

from sim.parallel import map_parallel
from sim.studies import exercises, queueing, steptime, transfer
from sim.studies.steps import Steps
from sim.studies.study import Study, Verdict, printed

HERE = partial(map_parallel, jobs=1)


@pytest.fixture(scope="module")
def studies() -> dict[str, Study]:
    return {study.name: study for study in (one.run(HERE) for one in (steptime, transfer, queueing, exercises))}


@pytest.mark.parametrize(
    ("name", "num_claims", "others"),
    [
        (
            "steptime",
            18,
            {
                "LLaMA2-70B at the A100's": Verdict.SAME_DIRECTION,
                "in practice, because of fixed": Verdict.NOT_MODELLED,
                "Sarathi-Serve measured on Yi": Verdict.SAME_DIRECTION,
                "a chunk of 257": Verdict.NOT_MODELLED,
                "Falcon-180B in two": Verdict.SAME_DIRECTION,
            },
        ),
        (
            "transfer",
            14,
            {
                "OPT-66B: KV of 512": Verdict.DIFFERS,
                "grouped-query attention": Verdict.SAME_DIRECTION,
                "OPT-175B, chat": Verdict.SAME_DIRECTION,
                "what a handoff adds to": Verdict.SAME_DIRECTION,
                "layer by layer, what": Verdict.SAME_DIRECTION,
                "layer by layer, a handoff": Verdict.SAME_DIRECTION,
            },
        ),
        ("queueing", 8, {}),
        ("exercises", 19, {"disaggregated above colocated": Verdict.DIFFERS}),
    ],
)
def test_claims(studies: dict[str, Study], name: str, num_claims: int, others: dict[str, Verdict]) -> None:
    study = studies[name]
    assert len(study.claims) == num_claims
    came_out = {claim.statement: claim.verdict for claim in study.claims if claim.verdict is not Verdict.REPRODUCED}
    told = list(came_out.items())
    assert [verdict for _, verdict in told] == list(others.values())
    assert all(one.startswith(start) for (one, _), start in zip(told, others, strict=True))
    assert study.holds
    assert all(figure["data"] for figure in study.figures.values())


@pytest.mark.parametrize(
    ("published", "ours", "text", "verdict"),
    [
        ("2.6 to 3.5 times", [2.6178, 3.4801], "2.6 to 3.5 times", Verdict.REPRODUCED),
        ("1,234 B", [1234.4], "1,234 B", Verdict.REPRODUCED),
        ("0.02 %", [0.026], "0.03 %", Verdict.DIFFERS),
    ],
)
def test_printed_digits(published: str, ours: list[float], text: str, verdict: Verdict) -> None:
    claim = printed("A", "b", published, ours, reason="because")
    assert (claim.ours, claim.verdict, claim.reason) == (text, verdict, "because" if text != published else "")


def test_chunks_of_a_prompt_add_up() -> None:
    steps = Steps.of("llama-3-8b", "h100-sxm")
    first, second = steps.step_s(0, 0, 400, ends=False), steps.step_s(0, 0, 400, past=400, ends=False)
    last = steps.step_s(0, 0, 200, past=800)
    assert steps.prefill_s(1000, 400) == pytest.approx(first + second + last)
    assert steps.prefill_s(1000) == pytest.approx(steps.step_s(0, 0, 1000))
