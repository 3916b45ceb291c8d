"""The exception tree, split by whose fault it is.

BatonError
|- UserError            the input is wrong: one sentence with what, where and a fix; shown without a traceback
|  |- ConfigError       a field of a scenario, model, GPU or flag
|  |- TraceError        a row of a trace, as path:line
|  `- CapacityError     something that can never fit where it was put
|- WorldError           the world failed: handled, retried, counted
|  |- TransferFailed    a KV handoff did not arrive, or arrived wrong
|  `- InstanceLost      an instance died or stopped answering
|- StalledError         a run can make no more progress: names what is stuck and what it waits for
`- InvariantError       Baton is wrong: stops the run
"""


class BatonError(Exception):
    """Base of everything Baton raises on purpose."""


class UserError(BatonError, ValueError):
    """The input is wrong; the message says what, where and how to fix it."""


class ConfigError(UserError):
    """A configuration field, file or flag is wrong."""


class TraceError(UserError):
    """A trace file or one of its rows is wrong; the message starts with path:line."""


class CapacityError(UserError):
    """Weights, KV or a request can never fit where they were put."""


class WorldError(BatonError):
    """Something outside the program failed; the caller recovers."""


class TransferFailed(WorldError):
    """A KV handoff was lost, late or corrupt."""


class InstanceLost(WorldError):
    """An instance died or no longer answers."""


class StalledError(BatonError):
    """No event is left but requests are; the message names them and what they wait for."""


class InvariantError(BatonError):
    """A law of the model was broken; this is a bug in Baton."""
