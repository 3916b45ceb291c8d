"""Results that are kept by content."""

import pytest

from cluster.errors import ConfigError
from sim.placement.cache import ResultCache


def content(scenario, **more):
    return {"scenario": {"workload": {"trace": scenario}}, **more}


def test_results_are_kept_by_content(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("one")
    cache = ResultCache(tmp_path / "kept", str(trace))
    cache.put(content("a.csv", rate=1.0), {"found": 2.5})
    again = ResultCache(tmp_path / "kept", str(trace))
    assert again.get(content("moved/a.csv", rate=1.0)) == {"found": 2.5}
    assert again.get(content("a.csv", rate=1.5)) is None
    trace.write_text("two")
    assert ResultCache(tmp_path / "kept", str(trace)).get(content("a.csv", rate=1.0)) is None
    (file,) = (tmp_path / "kept").rglob("*.json")
    file.write_text("{")
    trace.write_text("one")
    assert ResultCache(tmp_path / "kept", str(trace)).get(content("a.csv", rate=1.0)) is None
    assert ResultCache(None).get(content("a.csv")) is None


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        ConfigError, match=r"results cannot be kept in .*file/kept: Not a directory; choose another folder"
    ):
        ResultCache(tmp_path / "file" / "kept")
