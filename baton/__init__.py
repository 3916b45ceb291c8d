"""Baton from Python: load a scenario, simulate it or replay it live, and look at what came out."""

from baton.drive import replay, simulate
from baton.run import Run, plot, read
from cluster.errors import BatonError
from scenario.loading import load_scenario as load
from scenario.spec import Scenario

__all__ = ["BatonError", "Run", "Scenario", "load", "plot", "read", "replay", "simulate"]
