"""How fast KV travels: a pull on one node against memcpy, and between two Ray nodes, through the object store and over
sockets (live.kv_between_nodes), against plain TCP on loopback.

"readable" is from the call of decode to the moment it can read the bytes; "kept" goes on until they are verified
and copied into a buffer of its own. All buffers are warm. Medians, taken in turns so that a busy host slows everybody.
"""

import argparse
import json
import socket
from pathlib import Path
from statistics import median
from threading import Thread
from time import perf_counter

import numpy as np
import ray
from ray.cluster_utils import Cluster

from actors.calls import Calls
from actors.kv_store import KvPayload, KvStore
from actors.kv_wire import Endpoint, KvServer, KvWire
from cluster.request import Request
from compute.kv_layout import KvLayout
from compute.stand_in import StandIn
from scenario.loading import load_scenario

MIB = 1 << 20
STORE_BYTES = 1536 * MIB
HOME, AWAY = {"home": 1}, {"away": 1}


def layout() -> KvLayout:
    return KvLayout.of_model(load_scenario("demo", {"model": "llama-3-8b"}).model)


class Holder:
    """A prefill instance with the KV of one request; it sends the same bytes over TCP, too."""

    def __init__(self, num_tokens: int) -> None:
        self._store = KvStore(layout())
        request = Request(0, 0.0, num_tokens, 1)
        every = self._store.layout.all_layers
        self._store.expect(0, num_tokens, [every])
        self._store.write(0, 1, every, lambda out: StandIn(self._store.layout, 1.0).write_kv(request, every, out))
        self._data = self._payload().data
        self._server = KvServer(self._store, Calls())

    def _payload(self) -> KvPayload:
        return self._store.sealed(0, self._store.layout.all_layers).result()

    async def pull(self) -> KvPayload:
        return self._payload()

    async def kv_endpoint(self) -> Endpoint:
        return self._server.endpoint(ray.get_runtime_context().get_node_id(), "127.0.0.1")

    async def serve_tcp(self) -> int:
        """Send all bytes whenever one comes in; returns the port."""
        server = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            connection, _ = server.accept()
            while connection.recv(1):
                connection.sendall(self._data)

        Thread(target=serve, daemon=True).start()
        return server.getsockname()[1]


class Taker:
    """A decode instance."""

    def __init__(self, num_tokens: int) -> None:
        self._store = KvStore(layout())
        self._store.await_kv(0, num_tokens)
        self._wire = KvWire(self._store, Calls(), ray.get_runtime_context().get_node_id())
        self._bytes = np.zeros(self._store.layout.num_bytes(num_tokens), dtype=np.uint8)
        self._more_bytes = np.ones_like(self._bytes)

    async def pull(self, holder) -> tuple[float, float]:
        start = perf_counter()
        payload = await holder.pull.remote()
        readable = perf_counter()
        self._store.keep(0, 1, self._store.layout.all_layers, payload)
        return readable - start, perf_counter() - start

    async def pull_over_sockets(self, holder) -> float:
        """Over the sockets KV is kept as soon as it can be read: it is verified where it arrives."""
        endpoint = await self._wire.endpoint_of(0, holder)
        start = perf_counter()
        await self._wire.pull(endpoint, 0, 1, self._store.layout.all_layers)
        return perf_counter() - start

    async def memcpy(self) -> float:
        start = perf_counter()
        np.copyto(self._bytes, self._more_bytes)
        return perf_counter() - start

    async def connect(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port))

    async def tcp(self) -> float:
        start = perf_counter()
        self._connection.sendall(b"x")
        view = memoryview(self._bytes)
        while view:
            view = view[self._connection.recv_into(view) :]
        return perf_counter() - start


def measure(num_tokens: int, repeats: int) -> dict[str, float]:
    """Median seconds of each way."""
    holder = ray.remote(resources=HOME)(Holder).remote(num_tokens)
    near = ray.remote(resources=HOME)(Taker).remote(num_tokens)
    far = ray.remote(resources=AWAY)(Taker).remote(num_tokens)
    ray.get(far.connect.remote(ray.get(holder.serve_tcp.remote())))
    seconds: dict[str, list[float]] = {}
    for repeat in range(repeats + 2):
        taken = {"memcpy": ray.get(near.memcpy.remote()), "tcp": ray.get(far.tcp.remote())}
        taken["readable, same node"], taken["kept, same node"] = ray.get(near.pull.remote(holder))
        taken["readable, other node"], taken["kept, other node"] = ray.get(far.pull.remote(holder))
        taken["kept, other node, sockets"] = ray.get(far.pull_over_sockets.remote(holder))
        if repeat >= 2:  # the first two warm buffers and the object store up
            for way, value in taken.items():
                seconds.setdefault(way, []).append(value)
    for actor in (holder, near, far):
        ray.kill(actor)
    return {way: median(values) for way, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, nargs="+", default=[1, 16, 100])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", metavar="FILE", help="write the figures here, too")
    arguments = parser.parse_args()

    cluster = Cluster()
    for resources in (HOME, AWAY):
        cluster.add_node(
            num_cpus=4,
            object_store_memory=STORE_BYTES,
            resources=dict.fromkeys(resources, 4),
            include_dashboard=False,
        )
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    figures: dict[int, dict[str, float]] = {}
    print(f"{'MiB':>6}  {'':<26}{'ms':>9}{'GB/s':>8}  ratio")
    try:
        for mib in arguments.mib:
            num_bytes = mib * MIB
            seconds = figures[mib] = measure(num_bytes // layout().num_bytes(1), arguments.repeats)
            for way, value in seconds.items():
                base = "memcpy" if "same" in way else "tcp"
                ratio = f"{seconds[base] / value:5.2f} x {base}" if "node" in way else ""
                print(f"{mib:>6}  {way:<26}{value * 1e3:>9.2f}{num_bytes / value / 1e9:>8.2f}  {ratio}", flush=True)
    finally:
        ray.shutdown()
        cluster.shutdown()
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
