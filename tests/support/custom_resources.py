"""Schemas of the custom resources that are used, kept by hand.

Their operators publish none in a package, so these name only the fields that the manifests here
have, and are strict about those: a misspelt one is found, a wrong idea of the operator's is not.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_STRING: Schema = {"type": "string", "minLength": 1}
_DURATION: Schema = {"type": "string", "pattern": r"^([0-9]+(ms|[smhd]))+$"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}


def _exactly(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def _resource(spec: Schema) -> Schema:
    metadata = _exactly(
        {"name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}},
        {"namespace": _STRING, "labels": _STRINGS, "annotations": _STRINGS},
    )
    return _exactly({"apiVersion": _STRING, "kind": _STRING, "metadata": metadata, "spec": spec})


_ALERT = _exactly(
    {"alert": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}, "expr": _STRING},
    {"for": _DURATION, "keep_firing_for": _DURATION, "labels": _STRINGS, "annotations": _STRINGS},
)
_RECORD = _exactly({"record": _STRING, "expr": _STRING}, {"labels": _STRINGS})
_GROUP = _exactly(
    {"name": _STRING, "rules": _list_of({"anyOf": [_ALERT, _RECORD]})}, {"interval": _DURATION}
)

_SERVICE_MONITOR = _exactly(
    {
        "selector": _exactly({"matchLabels": _STRINGS}),
        "endpoints": _list_of(
            _exactly(
                {"port": _STRING, "path": _STRING},
                {"interval": _DURATION, "scrapeTimeout": _DURATION},
            )
        ),
    }
)

_SCALING = _exactly(
    {
        "stabilizationWindowSeconds": {"type": "integer", "minimum": 0, "maximum": 3600},
        "policies": _list_of(
            _exactly(
                {
                    "type": {"enum": ["Pods", "Percent"]},
                    "value": {"type": "integer", "minimum": 1},
                    "periodSeconds": {"type": "integer", "minimum": 1, "maximum": 1800},
                }
            )
        ),
    }
)
_TRIGGER = _exactly(
    # KEDA reads its metadata as strings, numbers and booleans, too.
    {"type": {"const": "kafka"}, "metadata": _STRINGS},
    {"name": _STRING, "authenticationRef": _exactly({"name": _STRING})},
)
_SCALED_OBJECT = _exactly(
    {
        "scaleTargetRef": _exactly({"name": _STRING}, {"apiVersion": _STRING, "kind": _STRING}),
        "triggers": _list_of(_TRIGGER),
    },
    {
        "pollingInterval": _COUNT,
        "minReplicaCount": _COUNT,
        "maxReplicaCount": _COUNT,
        "advanced": _exactly(
            {
                "horizontalPodAutoscalerConfig": _exactly(
                    {"behavior": _exactly({"scaleUp": _SCALING, "scaleDown": _SCALING})}
                )
            }
        ),
    },
)
_TRIGGER_AUTHENTICATION = _exactly(
    {"secretTargetRef": _list_of(_exactly({"parameter": _STRING, "name": _STRING, "key": _STRING}))}
)

#: By apiVersion and kind.
SCHEMAS: dict[str, dict[str, Schema]] = {
    "monitoring.coreos.com/v1": {
        "ServiceMonitor": _resource(_SERVICE_MONITOR),
        "PrometheusRule": _resource(_exactly({"groups": _list_of(_GROUP)})),
    },
    "keda.sh/v1alpha1": {
        "ScaledObject": _resource(_SCALED_OBJECT),
        "TriggerAuthentication": _resource(_TRIGGER_AUTHENTICATION),
    },
}
