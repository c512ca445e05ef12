"""The services that `up` and `demo` run: each a `tokenmill` command with how to know it's ready."""

from dataclasses import dataclass
from pathlib import Path

from app.options import ModelName
from app.ports import Wanted
from app.supervise import Service

BUILDER_NICE = 5
DASHBOARD_NICE = 10
"""What builds and shows gives way to the router. The builder goes before the stack's workers, which
are at 10: behind two busy workers on two cores it ran so seldom that a page was seconds late."""

STOP_ORDER = ("replay", "stack", "collector", "builder", "dashboard")
"""Load ends, the stack flushes its spans, the collector makes them durable, the builder ends."""


@dataclass(frozen=True, slots=True)
class House:
    """The store and the two ports that collector, builder and dashboard share."""

    store: Path
    otlp_port: int
    dashboard_port: int | None  # None: no dashboard

    @property
    def logs(self) -> Path:
        """A log file a service."""
        return self.store / "logs"

    @property
    def otlp_url(self) -> str:
        """Where telemetry is sent."""
        return f"http://127.0.0.1:{self.otlp_port}"

    @property
    def dashboard_url(self) -> str:
        """What the user opens."""
        return f"http://localhost:{self.dashboard_port}"

    def wanted_ports(self) -> list[Wanted]:
        """Ports that must be free before anything starts."""
        wanted = [Wanted("collector", self.otlp_port, "--otlp-port")]
        if self.dashboard_port is not None:
            wanted.append(Wanted("dashboard", self.dashboard_port, "--dashboard-port"))
        return wanted

    def collector(self) -> Service:
        """The OTLP receiver."""
        return Service(
            "collector",
            ("collect", "--store", str(self.store), "--otlp-port", str(self.otlp_port)),
            ready_url=f"{self.otlp_url}/healthz",
        )

    def builder(self) -> Service:
        """The builder, again and again; it builds once more after it is told to stop."""
        return Service(
            "builder",
            ("build", "--store", str(self.store), "--watch"),
            nice=BUILDER_NICE,
            stop_within_s=120.0,
        )

    def last_build(self) -> Service:
        """One more build when nobody writes any longer; it tells by its exit code."""
        return Service("build", ("build", "--store", str(self.store)), stop_within_s=60.0)

    def dashboard(self) -> Service:
        """Streamlit over the store."""
        port = str(self.dashboard_port)
        return Service(
            "dashboard",
            ("dashboard", "--store", str(self.store), "--dashboard-port", port),
            ready_url=f"http://127.0.0.1:{port}/_stcore/health",
            nice=DASHBOARD_NICE,
        )

    def stack(self, topology: Path, model: ModelName | None, port: int) -> Service:
        """The bundled serving stack, its spans sent to the collector."""
        chosen = ("--model", model.value) if model else ()
        return Service(
            "stack",
            (
                *("stack", "up", "--topology", str(topology), *chosen),
                *("--port", str(port), "--otlp", self.otlp_url),
            ),
            ready_url=f"http://127.0.0.1:{port}/health",
            ready_within_s=180.0,
            stop_within_s=20.0,
        )
