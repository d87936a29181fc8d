"""Client histories: known verdicts, a brute-force oracle, and what no verdict can rest on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causalcast.audit.errors import InputUnusable
from causalcast.audit.histories import judge
from causalcast.audit.histories.edn import read_edn
from causalcast.audit.histories.guarantees import GUARANTEES
from causalcast.audit.histories.history import OK, History, Read, Write
from causalcast.audit.histories.judge import check_history, judge_history
from causalcast.audit.histories.reading import Loaded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from causalcast.audit.histories.result import HistoryResult

DATA = Path(__file__).with_name("data")
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
RYW, MR, MW, WFR, CC = GUARANTEES


def check(tmp_path: Path, text: str, name: str = "h.txt") -> HistoryResult:
    path = tmp_path / name
    path.write_text(text)
    return check_history(path)


def ops(*rows: str) -> str:
    """Operations as `process type f value`, the value as JSON."""
    shaped = []
    for row in rows:
        process, kind, f, value = row.split(" ", 3)
        shaped.append({"process": int(process), "type": kind, "f": f, "value": json.loads(value)})
    return "\n".join(map(json.dumps, shaped))


def violated(result: HistoryResult) -> set[str]:
    return {name for name, judgement in result.guarantees.items() if judgement == "violated"}


# ---------------------------------------------------------------------------------------- known verdicts

PUBLIC = {
    "awdit_causal_long-fork.txt": "pass",
    "awdit_causal_generated_l100e1000sqrt.txt": "pass",
    "awdit_none_hb-cycle.txt": "fail",
    "awdit_read-atomic_biswas-enea.txt": "fail",
    "awdit_read-committed_generated_l100e1000sqrt.txt": "fail",
}
JEPSEN = {
    "ellecli_elle_paper-example.json": {RYW, MR, CC},
    "ellecli_elle_rw-register.json": set(),
    "ellecli_jepsen_long-fork.edn": {"no-long-fork"},
    "ellecli_jepsen_set_full.json": {RYW, CC},
}


@pytest.mark.parametrize("name", PUBLIC)
def test_histories_of_awdit_have_their_verdict(name: str) -> None:
    assert check_history(DATA / name).verdict == PUBLIC[name]


def test_histories_of_jepsen_have_their_verdict_where_they_are() -> None:
    for name, broken in JEPSEN.items():
        if (SHARED / name).is_file():
            result = check_history(SHARED / name)
            assert (name, violated(result)) == (name, broken)


def test_a_list_that_loses_an_append_of_its_session_is_found_with_its_operations(tmp_path: Path) -> None:
    text = ops(
        '0 ok txn [["append","k",1],["append","k",2]]',
        '0 ok txn [["append","k",3],["r","k",[1,2,3]]]',
        '0 ok txn [["r","k",[1,2]]]',
    )

    result = check(tmp_path, text, "h.json")

    assert violated(result) == {RYW, MR, CC}
    finding = result.findings[0]
    assert (finding.property, finding.kind, finding.session) == (RYW, "missing-element", "0")
    assert finding.witness == (
        f"append k 3 (session 0, {tmp_path}/h.json:2)",
        f"read k [1 2] (session 0, {tmp_path}/h.json:3)",
    )


def test_a_register_read_of_what_nobody_wrote_is_named_and_not_guessed(tmp_path: Path) -> None:
    text = ops('0 ok txn [["w","x",2]]', '0 ok txn [["r","x",3]]', '0 ok txn [["r","x",2]]')

    result = check(tmp_path, text, "h.json")

    assert result.verdict == "pass"
    assert [(item.kind, item.number) for item in result.unjudged] == [("phantom-read", 1)]
    assert "h.json:2" in result.unjudged[0].detail


def test_two_reads_that_saw_a_group_forked(tmp_path: Path) -> None:
    text = """[{:type :ok, :f :read, :value [[:r 0 1] [:r 1 nil]]} ; one
               #jepsen.history.Op{:type :ok, :f :read, :value [[:r 1 1], [:r 0 nil]]}]"""

    result = check(tmp_path, text, "h.edn")

    assert violated(result) == {"no-long-fork"}
    assert result.guarantees[CC] == "holds"


def test_a_set_that_lacks_an_element_of_another_session_is_judged_by_what_was_seen(tmp_path: Path) -> None:
    text = ops("0 ok add 1", "0 ok add 2", "1 ok read [2]", "2 ok read [1]", "3 ok read []")

    result = check(tmp_path, text, "h.json")

    assert violated(result) == {MW, CC}
    assert result.counts == {MW: 1, CC: 1}


# ---------------------------------------------------------------------------------------- each guarantee


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("w x 1\n-\nw x 2\n-\nr x 1", {RYW, CC}),
        ("w x 1\n-\nw x 2\n=\nr x 2\n-\nr x 1", {MR, CC}),
        ("w x 1\n-\nw x 2\n-\nw y 3\n=\nr y 3\n-\nr x 1", {MW, CC}),
        ("w x 1\n-\nw x 2\n=\nr x 2\n-\nw y 3\n=\nr y 3\n-\nr x 1", {WFR, CC}),
        ("w x 1\n-\nw x 2\n-\nw y 3\n=\nr y 3\n-\nw z 4\n=\nr z 4\n-\nr x 1", {CC}),
        ("w x 1\n=\nw x 2\n=\nr x 1\n-\nr x 2\n=\nr x 2\n-\nr x 1", {MR, CC}),
        ("w x 1\nr x 2\n=\nw x 2", {RYW, CC}),
        ("w x 1\nw x 2\n=\nr x 1", {CC}),
        ("r x 1\nw x 1", {CC}),
    ],
)
def test_each_guarantee_is_named_when_it_alone_explains_the_violation(
    text: str, broken: set[str], tmp_path: Path
) -> None:
    result = check(tmp_path, text)

    assert violated(result) == broken
    assert result.findings[0].property in broken
    assert result.findings[0].witness


def test_what_failed_must_not_be_read_and_what_may_have_happened_may(tmp_path: Path) -> None:
    failed = ops("0 invoke write 1", "0 fail write 1", "1 ok read 1")
    maybe = ops("0 ok write 5", "0 invoke write 1", "0 info write null", "0 ok read 5", "1 ok read 1", "1 ok read 5")
    unread = ops("0 invoke write 1", "1 ok read null")

    assert violated(check(tmp_path, failed, "h.json")) == {CC}
    assert check(tmp_path, failed, "h.json").findings[0].kind == "aborted-read"
    assert violated(check(tmp_path, maybe, "h.json")) == {MR, CC}
    assert check(tmp_path, unread, "h.json").verdict == "pass"


# ------------------------------------------------------------------------------------- undecided, unusable


def test_values_that_are_not_unique_leave_the_verdict_open(tmp_path: Path) -> None:
    result = check(tmp_path, "w x 1\n=\nw x 1\n=\nr x 1")

    assert result.verdict == "undecided"
    assert {item.kind for item in result.unjudged} >= {"ambiguous-read", "repeated-value"}


def test_an_operation_that_cannot_be_read_leaves_the_verdict_open(tmp_path: Path) -> None:
    result = check(tmp_path, "w x 1\nrubbish\n-\nr x 1")

    assert result.verdict == "undecided"
    assert "h.txt:2" in result.unjudged[0].detail


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("h.edn", ""),
        ("h.edn", "["),
        ("h.edn", "{:type :ok"),
        ("h.edn", '{:a "never ends'),
        ("h.edn", "{:type :ok, :f :transfer, :value {:from 1}}"),
        ("h.edn", "{:type :ok :f :read :value {0 10}}"),
        ("h.edn", "{:process 1, :type :invoke, :f :cas, :value [1 2]}"),
        ("h.edn", "}"),
        ("h.edn", "[[1 2] 3]"),
        ("h.json", "[1, 2]"),
        ("h.json", '{"type":"ok","f":"read"'),
        ("h.txt", "x"),
        ("h.bin", "x"),
    ],
)
def test_input_without_a_usable_operation_is_refused(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(InputUnusable, match=name):
        check(tmp_path, text, name)


def test_a_history_without_reads_is_no_pass(tmp_path: Path) -> None:
    assert check(tmp_path, "w x 1").verdict == "undecided"


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["h.edn", "h.json", "h.txt"]),
    st.text(max_size=80) | st.text('[]{}:"#\\;,rwnil ok01\n', max_size=80),
)
def test_any_text_is_judged_or_refused_by_name(name: str, text: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            result = check_history(path)
        except InputUnusable:
            return
    assert result.reads + result.writes > 0


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=4)))
@settings(max_examples=60, deadline=None)
def test_edn_values_come_back(value: Any) -> None:
    assert read_edn(_edn(value)) == value


def _edn(value: Any) -> str:
    if isinstance(value, list):
        return f"[{' '.join(map(_edn, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "nil", True: "true", False: "false"}[value]
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


# ------------------------------------------------------------------------------------------------ oracle

Txn = list[tuple[str, str, int]]
"""Operations: r or w, key, value; the value 0 is the initial state."""


@st.composite
def small(draw: st.DrawFn) -> list[list[Txn]]:
    """Up to three sessions, five writes of unique values, some of them together in a transaction."""
    sessions: list[list[Txn]] = []
    written: dict[str, list[int]] = {"x": [], "y": []}
    for _ in range(draw(st.integers(1, 3))):
        session: list[Txn] = []
        for _ in range(draw(st.integers(1, 3))):
            txn: Txn = []
            for key in draw(st.lists(st.sampled_from("xy"), min_size=1, max_size=2, unique=True)):
                number = sum(map(len, written.values()))
                if number < 5 and draw(st.booleans()):
                    written[key].append(number + 1)
                    txn.append(("w", key, number + 1))
                else:
                    txn.append(("r", key, -1))
            session.append(txn)
        sessions.append(session)
    return [
        [
            [(k, key, v if k == "w" else draw(st.sampled_from([0, *written[key]]))) for k, key, v in txn]
            for txn in session
        ]
        for session in sessions
    ]


@st.composite
def passed_on(draw: st.DrawFn) -> list[list[Txn]]:
    """Two writes of x, one session that reads x and writes y, and readers of both: who follows whom."""
    seen = st.sampled_from([0, 1, 2])
    relay: list[Txn] = [[("r", "x", draw(seen))], [("w", "y", 3)]]
    first = [draw(st.sampled_from([0, 3])) for _ in range(2)]
    readers: list[list[Txn]] = [
        [[("r", "y", value)], [("r", "x", draw(seen))], [("r", "x", draw(seen))]] for value in first
    ]
    writers: list[list[Txn]] = [[[("w", "x", 1)], [("w", "x", 2)]]]
    if draw(st.booleans()):
        writers = [[[("w", "x", 1)]], [[("w", "x", 2)]]]
    return [*writers, relay, *readers]


def oracle(sessions: list[list[Txn]]) -> set[str] | None:
    """Try every order of the writing transactions; `None` where happens-before itself goes round."""
    txns = [(s, t) for s, session in enumerate(sessions) for t in range(len(session))]
    at = {txn: i for i, txn in enumerate(txns)}
    body = [sessions[s][t] for s, t in txns]
    writer = {(key, value): i for i, txn in enumerate(body) for kind, key, value in txn if kind == "w"}
    before = {(at[s, t], at[s, u]) for s, t in txns for u in range(t + 1, len(sessions[s]))}
    before |= {
        (writer[key, value], i)
        for i, txn in enumerate(body)
        for kind, key, value in txn
        if kind == "r" and value and writer[key, value] != i
    }
    closed = False
    while not closed:
        more = {(a, d) for a, b in before for c, d in before if b == c} - before
        before |= more
        closed = not more
    if any((i, i) in before for i in range(len(txns))):
        return None
    writes = {key: {i for i, txn in enumerate(body) if any(k == "w" and x == key for k, x, _ in txn)} for key in "xy"}
    reads = [
        (i, key, writer[key, value] if value else -1)
        for i, txn in enumerate(body)
        for kind, key, value in txn
        if kind == "r"
    ]

    def observed(i: int) -> set[int]:
        s, t = txns[i]
        mine = {at[s, u] for u in range(t + 1)}
        return {source for j, _, source in reads if j in mine and source >= 0 and txns[source][0] != s}

    def returned(s: int, upto: int, key: str) -> list[int]:
        """What session `s` read of the key in its transactions up to `upto`, the last of it."""
        seen = [source for j, k, source in reads if k == key and source >= 0 and txns[j][0] == s and txns[j][1] <= upto]
        return seen[-1:]

    def demanded(i: int, key: str) -> dict[str, set[int]]:
        s, t = txns[i]
        follow: set[int] = set()
        for session in {txns[w][0] for w in observed(i)}:
            follow.update(returned(session, max(txns[w][1] for w in observed(i) if txns[w][0] == session), key))
        return {
            RYW: {w for w in writes[key] if txns[w][0] == s and txns[w][1] < t},
            MR: set(returned(s, t - 1, key)),
            MW: {w for w in writes[key] for o in observed(i) if txns[w][0] == txns[o][0] and txns[w][1] < txns[o][1]},
            WFR: follow,
            CC: {w for w in writes[key] if (w, i) in before},
        }

    needs = [(source, demanded(i, key)) for i, key, source in reads]
    broken = set(GUARANTEES)
    everything = sorted(writes["x"] | writes["y"])
    for order in itertools.permutations(everything):
        place = {w: n for n, w in enumerate(order)}
        if any((a, b) in before and place[a] > place[b] for a, b in itertools.combinations(everything, 2)):
            continue
        if any((b, a) in before and place[b] > place[a] for a, b in itertools.combinations(everything, 2)):
            continue
        place[-1] = -1
        for guarantee in tuple(broken):
            if all(place[w] <= place[source] for source, must in needs for w in must[guarantee]):
                broken.discard(guarantee)
    return broken


def as_text(sessions: list[list[Txn]]) -> Loaded:
    history = History("register")
    line = 0
    for number, session in enumerate(sessions):
        for txn in session:
            line += 1
            steps = [Write(k, str(v)) if kind == "w" else Read(k, (str(v),) if v else ()) for kind, k, v in txn]
            history.add(str(number), OK, line, steps)
    return Loaded(history)


@settings(max_examples=200, deadline=None)
@given(small() | passed_on())
def test_verdicts_agree_with_trying_every_order(sessions: list[list[Txn]]) -> None:
    expected = oracle(sessions)

    result = judge_history(as_text(sessions), "h")

    future = any(finding.kind in ("future-read", "own-write-missed") for finding in result.findings)
    if expected is None or future:
        assert CC in violated(result)
    else:
        assert violated(result) == expected


def test_spark_finds_what_one_process_finds(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["awdit_causal_generated_l100e1000sqrt.txt", "awdit_read-committed_generated_l100e1000sqrt.txt"]
    alone = [check_history(DATA / name) for name in names]
    monkeypatch.setattr(judge, "SPARK_ROWS", 0)

    together = [check_history(DATA / name) for name in names]

    assert [(r.verdict, r.counts) for r in together] == [(r.verdict, r.counts) for r in alone]
    assert together[1].findings == alone[1].findings
