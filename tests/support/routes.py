"""The paths that a worker's web view answers."""

from __future__ import annotations

from faust import web

from heartbeat_stream.web.server import StateWeb


def worker_routes() -> set[str]:
    """All routes of this product's own views, placeholders as they are written."""
    return {
        f"{prefix}{route.uri}"
        for prefix, blueprint in StateWeb.default_blueprints
        if isinstance(blueprint, web.Blueprint)
        for route in blueprint.routes
    }
