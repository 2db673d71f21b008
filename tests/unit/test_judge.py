"""`judge`: verdicts of a file, line by line, with no server."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heartbeat_stream import cli
from tests.support.identity import T0, message

DEPTH = json.dumps(message())


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def judge(
    capsys: pytest.CaptureFixture[str], lines: list[str | bytes], job: str, *flags: str
) -> tuple[list[dict[str, Any]], str]:
    """The printed objects, and the summary."""
    data = [line.encode() if isinstance(line, str) else line for line in lines]
    Path("capture").write_bytes(b"\n".join(data) + b"\n")
    assert cli.main(["judge", "capture", "--job", job, *flags]) == 0
    out, err = capsys.readouterr()
    return [json.loads(line) for line in out.splitlines()], err


def test_each_layer_and_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    untimed = json.dumps(message(seq=0, ts=None, px=2.5))
    verdicts, summary = judge(
        capsys,
        [
            DEPTH,
            DEPTH,
            json.dumps(message(seq=9)),
            untimed,
            untimed.replace("2.5", "2.50"),
            json.dumps(message(seq=4, ts=T0 + 1)),
        ],
        "market",
    )
    layers = [each.get("layer") for each in verdicts]
    assert layers == [None, "message-id", "business-key", None, "fingerprint", None]
    assert [each.get("first_line") for each in verdicts] == [None, 1, 1, None, 4, None]
    assert verdicts[1]["reason"] == (
        "the same message id: exchange=binance channel=depth symbol=BTCUSDT seq=1"
    )
    assert verdicts[1]["continuity"][0]["oddity"] == "repeat"
    assert verdicts[4]["reason"].startswith("the same content; message-id abstained: invalid")
    gap = {"oddity": "gap", "id": 4, "newest_id": 1, "missing": 2, "epoch": 0}
    assert verdicts[5]["continuity"] == [gap]
    assert "judged       6" in summary
    assert "new          3" in summary
    assert "fingerprint  1 duplicates in 4 checks, 0 abstentions" in summary
    assert "continuity   1 gap, 1 repeat" in summary


def test_bad_lines_are_named_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    bomb = DEPTH.replace('"42000.5"', "1e999999999")
    verdicts, summary = judge(
        capsys, ["oops", DEPTH, "", b"\xff", bomb.replace('"seq": 1', '"seq": 2'), DEPTH], "market"
    )
    assert [(each["line"], each["verdict"]) for each in verdicts] == [
        (1, "dead-letter"),
        (2, "new"),
        (4, "dead-letter"),
        (5, "duplicate"),
        (6, "duplicate"),
    ]
    assert verdicts[0]["reason"] == "not-json"
    assert "dead letters 2" in summary
    assert "  not-utf8: 1" in summary


def test_a_configuration_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.toml").write_text(
        '[market]\nchannel = "kind"\nscope = ["kind"]\n'
        '[market.channels."*"]\nbusiness_key = { fields = ["kind", "no"], ttl_ms = 1000 }\n'
    )
    lines: list[str | bytes] = ['{"kind": "x", "no": 1, "a": 1}', '{"no": 1, "kind": "x", "a": 2}']
    verdicts, _ = judge(capsys, lines, "market", "--job-config", "jobs.toml")
    assert [each["verdict"] for each in verdicts] == ["new", "duplicate"]


def test_lifetimes_go_by_the_exchanges_time(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str | bytes] = [
        json.dumps(message(seq=seq, ts=T0 + after, px=px))
        for seq, after, px in ((1, 0, 1), (1, 599_999_999, 2), (1, 600_000_000, 3))
    ]
    verdicts, _ = judge(capsys, lines, "market")
    assert [each["verdict"] for each in verdicts] == ["new", "duplicate", "new"]


def test_texts(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts, summary = judge(
        capsys,
        [
            '{"at": 0, "text": "é"}',
            '{"at": 9999, "text": "é"}',
            '{"at": 10000, "text": "é"}',
            "hello",
            "hello",
            "",
            '{"other": 1}',
            '{"at": "x", "text": ""}',
            '{"at": 1, "text": "\\ud800"}',
            "{" * 100_000,
        ],
        "messages",
    )
    said = [each["verdict"] for each in verdicts]
    assert said[:5] == ["printed", "suppressed", "printed", "printed", "suppressed"]
    assert said[5:] == ["printed", "printed", "dead-letter", "dead-letter", "printed"]
    assert verdicts[1]["reason"] == "printed 9999 ms away"
    assert verdicts[2]["suppressed_before"] == 1
    assert [each["reason"] for each in verdicts[7:9]] == ["bad-time", "bad-text"]
    assert "printed      6" in summary


def test_the_window_is_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str | bytes] = ['{"at": 0, "text": "a"}', '{"at": 5, "text": "a"}']
    verdicts, _ = judge(capsys, lines, "messages", "--messages-window-ms", "5")
    assert [each["verdict"] for each in verdicts] == ["printed", "printed"]


def test_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = io.BytesIO(DEPTH.encode() + b"\r\n" + DEPTH.encode())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=given))
    assert cli.main(["judge", "-", "--job", "market"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere", "--job", "market"], 1, '"nowhere" cannot be read: No such file or directory'),
        ([".", "--job", "market"], 1, '"." cannot be read'),
        (["-", "--job", "rooms"], 2, "invalid choice"),
        (["-"], 2, "--job"),
        (["-", "--job", "market", "--job-config", "none.toml"], 2, '"none.toml" cannot be read'),
    ],
)
def test_wrong_use(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    assert cli.main(["judge", *words]) == code
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
