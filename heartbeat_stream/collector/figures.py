"""What the collector counts."""

from collections import Counter
from typing import Final

from heartbeat_stream.core.tracking import BoundedNames
from heartbeat_stream.distribution import SECONDS, Distribution

__all__ = ["Figures"]

_PROJECTS: Final = 100
_LIBS: Final = 30


class Figures:
    """Counts since the start. Reports are counted once, by what the client was told."""

    def __init__(self) -> None:
        self.reports: Counter[str] = Counter(acknowledged=0, spooled=0, refused=0)
        #: By project, SDK and what became of them; "unasked" where the door does not judge.
        self.events: Counter[tuple[str, str, str]] = Counter()
        self.bad: Counter[str] = Counter()
        self.drained = 0
        self.request_seconds = Distribution(SECONDS)
        self._project = BoundedNames(_PROJECTS)
        self._lib = BoundedNames(_LIBS)

    def event(self, project: str, lib: str, verdict: str) -> None:
        self.events[self._project(project), self._lib(lib), verdict] += 1
