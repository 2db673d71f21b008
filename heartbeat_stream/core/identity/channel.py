"""One channel's layers, made ready from its rules: what to read, and how to make the keys."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict

import msgspec

from heartbeat_stream.core.identity.business_key import business_key
from heartbeat_stream.core.identity.canonical import FORM_VERSION
from heartbeat_stream.core.identity.fingerprint import fingerprint_of
from heartbeat_stream.core.identity.joining import part_of
from heartbeat_stream.core.identity.layer import MARKS, Layer
from heartbeat_stream.core.identity.message_id import MessageIds
from heartbeat_stream.core.identity.reader import Reader
from heartbeat_stream.core.identity.rules import (
    BusinessKeyRule,
    ChannelRules,
    FingerprintRule,
    JobRules,
    MessageIdRule,
)
from heartbeat_stream.core.identity.steps import (
    BusinessKeyStep,
    FingerprintStep,
    MessageIdStep,
    Step,
)
from heartbeat_stream.core.identity.times import microseconds

__all__ = ["Channel", "fields_of"]

_TAG_SIZE = 4
#: What can be changed without making another identity of it.
_NO_IDENTITY = ("ttl_ms", "gaps", "confirmations")


class Channel:
    """What to do with the messages of one channel. ``steps`` are its layers, in their order."""

    def __init__(self, name: str, rules: ChannelRules, job: JobRules, reader: Reader) -> None:
        self.name = name
        self.ids: MessageIds | None = None
        self.id_scope_fields: tuple[str, ...] = ()
        self.id_tag = self.key_tag = b""
        self.steps: list[Step] = []
        self._rules = rules
        self._job = job
        self._reader = reader
        self.time_of = _time_of(rules, reader)
        if rules.message_id is not None:
            self._add_message_id(rules.message_id)
        if rules.business_key is not None:
            self._add_business_key(rules.business_key)
        if rules.fingerprint is not None:
            self._add_fingerprint(rules.fingerprint)

    def _add_message_id(self, rule: MessageIdRule) -> None:
        fields = [field for field in (rule.field, rule.epoch_field) if field is not None]
        self.ids = MessageIds(rule, {field: self._reader.getter(field) for field in fields})
        self.id_scope_fields = _beyond(rule.scope, self._job)
        self.id_tag = self._tag(Layer.MESSAGE_ID, rule)
        self.steps.append(MessageIdStep(rule.ttl_ms, self.ids))

    def _add_business_key(self, rule: BusinessKeyRule) -> None:
        names = _beyond(rule.fields, self._job)
        invalid = [part_of(value, "invalid") for value in rule.invalid]
        time = self._rules.time.field if self._rules.time is not None else None
        # The channel's time counts in microseconds, all else as it is.
        fields = [(name, None if name == time else self._reader.getter(name)) for name in names]
        self.key_tag = self._tag(Layer.BUSINESS_KEY, rule)
        key_of = business_key(fields, invalid)
        self.steps.append(BusinessKeyStep(rule.ttl_ms, key_of, uses_time=time in names))

    def _add_fingerprint(self, rule: FingerprintRule) -> None:
        fingerprint = fingerprint_of(rule, self._rules.time)
        tag = self._tag(Layer.FINGERPRINT, rule)
        self.steps.append(FingerprintStep(rule.ttl_ms, tag, fingerprint))

    def _tag(self, layer: Layer, rule: MessageIdRule | BusinessKeyRule | FingerprintRule) -> bytes:
        """What the keys of a layer begin with: its mark, and a digest of all that decides which
        messages are one."""
        declared = asdict(rule)
        for name in _NO_IDENTITY:
            declared.pop(name, None)
        time = self._rules.time
        facts = [FORM_VERSION, layer, self._job.scope, time and asdict(time), declared]
        text = msgspec.json.encode(facts, order="sorted")
        return MARKS[layer] + hashlib.blake2s(text, digest_size=_TAG_SIZE).digest()


def fields_of(job: JobRules) -> list[str]:
    """All fields that have to be read for this job."""
    names = [job.channel_field, *job.scope]
    for rules in job.channels.values():
        if rules.time is not None:
            names.append(rules.time.field)
        if rules.message_id is not None:
            names += [rules.message_id.field, *rules.message_id.scope]
            names += [rules.message_id.epoch_field] if rules.message_id.epoch_field else []
        if rules.business_key is not None:
            names += rules.business_key.fields
    return names


def _time_of(rules: ChannelRules, reader: Reader) -> Callable[[object], int | None]:
    if rules.time is None:
        return lambda read: None
    get = reader.getter(rules.time.field)
    convert = microseconds(rules.time)

    def time_of(read: object) -> int | None:
        value = get(read)
        return None if value is None else convert(value)

    return time_of


def _beyond(fields: tuple[str, ...], job: JobRules) -> tuple[str, ...]:
    """Those that the job's scope does not hold already: its parts begin every key."""
    return tuple(field for field in fields if field not in job.scope)
