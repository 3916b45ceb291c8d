"""What all tests share: one Ray cluster for the whole session, started when the first test asks for it.

Hypothesis draws the same examples in every run; `pytest --hypothesis-profile long` draws many more, and others.
"""

import os
import signal
from collections.abc import Iterator

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")

import pytest
from hypothesis import settings

# A shell has what it runs in the background ignore Ctrl-C, and whatever the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=5000)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """Address of a local cluster that this process is connected to, too."""
    import ray

    context = ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=256 * 1024 * 1024,
        log_to_driver=False,
        logging_level="ERROR",
        _node_ip_address="127.0.0.1",
    )
    yield context.address_info["gcs_address"]
    ray.shutdown()
