"""promtool accepts configuration and rules, and alerts fire when they should and not before."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import configs
from metrics.prometheus import SPECS
from tests.metrics_live.conftest import promtool

HERE = Path(__file__).parent
CONFIGS = Path(configs.__file__).parent
RULES = CONFIGS / "prometheus_rules.yml"


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "--lint-fatal", str(CONFIGS / "prometheus.yml")),
        ("check", "rules", "--lint-fatal", str(RULES)),
        ("test", "rules", str(HERE / "prometheus_rules_test.yml")),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_promtool(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([promtool(), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    tests = yaml.safe_load((HERE / "prometheus_rules_test.yml").read_text())["tests"]
    assert {case["alertname"] for test in tests for case in test.get("alert_rule_test", [])} == alerts


def test_rules_know_their_metrics() -> None:
    """Every metric that a rule names is one that is exported."""
    expressions = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    named = set(re.findall(r"\bbaton_\w+", " ".join(expressions)))
    bases = {re.sub("_(total|bucket|count)$", "", name) for name in named}
    assert bases <= set(SPECS)
    assert len(bases) > 8
