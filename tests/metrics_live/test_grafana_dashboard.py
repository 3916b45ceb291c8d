"""The dashboard is up to date, and every expression in it has data for a run with role changes."""

import json
from pathlib import Path

import pytest
import yaml

import configs
from metrics.grafana import PANELS, ROLE_CHANGES, dashboard_json
from tests.metrics_live.conftest import Watched

CONFIGS = Path(configs.__file__).parent
DASHBOARD = CONFIGS / "grafana/dashboards/baton.json"
EXPRESSIONS = [expression for panel in PANELS for expression, _ in panel.queries]


def test_file_is_up_to_date() -> None:
    assert DASHBOARD.read_text() == dashboard_json(), f"run: python -m metrics.grafana > {DASHBOARD}"


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not taken & cells, panel["title"]
        taken |= cells


@pytest.mark.ray
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression_has_data(expression: str, watched: Watched) -> None:
    series = watched.over_run(expression.replace("$__rate_interval", "4s"))
    values = [float(value) for one in series for _, value in one["values"]]
    assert any(value == value for value in values)


@pytest.mark.ray
def test_annotations_are_the_role_changes(watched: Watched) -> None:
    """Each instance is annotated with the roles it changed to, and with no first role."""
    found = {(one["metric"]["instance_name"], one["metric"]["role"]) for one in watched.over_run(ROLE_CHANGES)}
    names = watched.result.instance_names
    assert found == {(names[change.instance], change.new_role) for change in watched.result.role_changes}


def test_provisioning_and_compose_fit_together() -> None:
    """Files that are mounted exist, and the port that Grafana asks is the one Prometheus listens on."""
    compose = yaml.safe_load((CONFIGS / "docker-compose.yml").read_text())
    prometheus, grafana = compose["services"]["prometheus"], compose["services"]["grafana"]
    mounts = [mount for mount in prometheus["volumes"] + grafana["volumes"] if isinstance(mount, str)]
    local = [mount.split(":")[0] for mount in mounts if mount.startswith(".")]
    assert len(local) == 4
    assert all((CONFIGS / path).exists() for path in local)
    source = yaml.safe_load((CONFIGS / "grafana/provisioning/datasources/prometheus.yml").read_text())
    address = source["datasources"][0]["url"].removeprefix("http://")
    assert f"--web.listen-address={address}" in prometheus["command"]
    provider = yaml.safe_load((CONFIGS / "grafana/provisioning/dashboards/baton.yml").read_text())
    assert f"./grafana/dashboards:{provider['providers'][0]['options']['path']}:ro" in grafana["volumes"]
