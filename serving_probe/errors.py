"""The probe room's error tree. Each message is one sentence: expected, came, what to do.

ServingProbeError
├── ProbeError       the sidecar can't start
└── ReplayError      a replay can't run
    ├── TraceError       a trace file can't be read
    └── WorkloadError    a workload file can't be read
"""


class ServingProbeError(Exception):
    """What a user of this room can put right."""


class ProbeError(ServingProbeError):
    """The sidecar can't start as asked."""


class ReplayError(ServingProbeError):
    """A replay can't run as asked."""


class TraceError(ReplayError):
    """A trace file that isn't in a known format; names the file and the line."""


class WorkloadError(ReplayError):
    """A workload file that can't be read or makes no sense."""
