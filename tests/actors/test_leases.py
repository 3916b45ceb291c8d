"""Leases run out unless they are renewed."""

from actors.leases import Leases


def test_leases() -> None:
    now = 0.0
    leases = Leases(10.0, lambda: now)
    for request_id in (1, 2, 3):
        leases.grant(request_id)
    now = 8.0
    leases.renew([1, 99])
    leases.end(3)
    leases.end(3)
    now = 10.5
    assert leases.expired() == [2]
    leases.end(2)
    leases.renew([2])
    now = 19.0
    assert leases.expired() == [1]
