"""The rules of one channel, read from its table and checked against the scope of its job."""

from __future__ import annotations

from heartbeat_stream.config.toml_table import TomlTable
from heartbeat_stream.core.identity.rules import (
    BusinessKeyRule,
    ChannelRules,
    EpochMode,
    FingerprintRule,
    Gaps,
    HashWidth,
    MessageIdRule,
    Nulls,
    TimeRule,
    TimeUnit,
)

__all__ = ["channel_rules"]

_TTL_MAX_MS = 10 * 365 * 24 * 3_600_000


def channel_rules(table: TomlTable, scope: tuple[str, ...]) -> ChannelRules:
    """Raises SettingsError. ``scope`` is that of the job."""
    time_table = table.table("time")
    time = _time(time_table, scope) if time_table is not None else None
    ids, key, fingerprint = map(table.table, ("message_id", "business_key", "fingerprint"))
    table.end()
    return ChannelRules(
        time=time,
        message_id=_message_id(ids, scope, time) if ids is not None else None,
        business_key=_business_key(key, scope) if key is not None else None,
        fingerprint=_fingerprint(fingerprint, scope, time) if fingerprint is not None else None,
    )


def _time(table: TomlTable, scope: tuple[str, ...]) -> TimeRule:
    rule = TimeRule(
        field=table.text("field"),
        unit=table.choice("unit", TimeUnit),
        precision=table.choice("precision", TimeUnit, TimeUnit.US, but=[TimeUnit.NS]),
    )
    table.end()
    if rule.field in scope:
        raise table.error("field", f'"{rule.field}" is part of the scope: want another field')
    return rule


def _message_id(table: TomlTable, scope: tuple[str, ...], time: TimeRule | None) -> MessageIdRule:
    epoch_field = table.text("epoch_field", "") or None
    by_field = epoch_field is not None
    epoch = table.choice("epoch", EpochMode, EpochMode.FIELD if by_field else EpochMode.NONE)
    rule = MessageIdRule(
        field=table.text("field"),
        scope=table.texts("scope", scope),
        ttl_ms=_ttl(table),
        gaps=table.choice("gaps", Gaps, Gaps.ALLOWED),
        invalid=table.scalars("invalid", MessageIdRule.invalid),
        epoch=epoch,
        epoch_field=epoch_field,
        confirmations=table.integer("confirmations", 2, 1_000, MessageIdRule.confirmations),
    )
    table.end()
    _check_scope(table, "scope", rule.scope, scope)
    if by_field is not (epoch is EpochMode.FIELD):
        raise table.error("epoch", 'epoch = "field" and epoch_field go together: want both')
    if epoch is EpochMode.DETECT and time is None:
        raise table.error("epoch", '"detect" goes by the exchange\'s time: want a time table, too')
    if rule.field in (*rule.scope, epoch_field):
        raise table.error("field", f'"{rule.field}" is the id: want it in no scope, and no epoch')
    return rule


def _business_key(table: TomlTable, scope: tuple[str, ...]) -> BusinessKeyRule:
    rule = BusinessKeyRule(
        fields=table.texts("fields"),
        ttl_ms=_ttl(table),
        invalid=table.scalars("invalid", BusinessKeyRule.invalid),
    )
    table.end()
    _check_scope(table, "fields", rule.fields, scope)
    if set(rule.fields) == set(scope):
        detail = "want a field beyond the scope: all messages of a scope would be one"
        raise table.error("fields", detail)
    return rule


def _fingerprint(
    table: TomlTable, scope: tuple[str, ...], time: TimeRule | None
) -> FingerprintRule:
    rule = FingerprintRule(
        ttl_ms=_ttl(table),
        hash=table.choice("hash", HashWidth, HashWidth.XXH64),
        exclude=table.texts("exclude", ()),
        nulls=table.choice("nulls", Nulls, Nulls.ABSENT),
        numeric_strings=table.texts("numeric_strings", ()),
        times=tuple(_time(each, scope) for each in table.tables("times")),
    )
    table.end()
    hidden = [field for field in scope if field in rule.exclude]
    if hidden:
        raise table.error("exclude", f'"{hidden[0]}" is part of the scope: want it left in')
    fields = [each.field for each in (*rule.times, *([time] if time else []))]
    if len(set(fields)) < len(fields):
        raise table.error("times", "a field is declared twice: want each once, and not the time's")
    return rule


def _check_scope(
    table: TomlTable, key: str, fields: tuple[str, ...], scope: tuple[str, ...]
) -> None:
    """Messages that differ in the job's scope are in different partitions and never compared."""
    missing = [field for field in scope if field not in fields]
    if missing:
        raise table.error(key, f'"{missing[0]}" is part of the job\'s scope: want it here, too')


def _ttl(table: TomlTable) -> int:
    return table.integer("ttl_ms", 1, _TTL_MAX_MS)
