"""Random window jobs as plain data, so that Flink and Checkdam can run the same ones.

A spec is JSON. `epochs` holds the records: key, value, timestamp, and the side of a join (0 in other jobs). At the end
of each epoch the watermark moves to the largest timestamp so far - out_of_orderness - 1, and at the end of the job to
the end of time. With a `clock`, which has a time for each epoch, windows and triggers may be in processing time: before
the records of an epoch the clock moves to its time, and stands still until the next. `ordered` says that functions may
depend on the order of a window's records. It is false where Flink does not define that order: see `_is_ordered`.
`columns` are those of a result record that are compared. `checkdam` says how only Checkdam runs the job: parallelism,
backend, crash.
"""

from __future__ import annotations

from random import Random
from typing import Any

Spec = dict[str, Any]
Record = list[Any]

SUMS = ["sum", "min", "max", "reduce", "aggregate"]
"""Functions whose results are records again, so that another window can follow."""

TEXTS = ["reduce_process", "aggregate_process", "apply", "process", "process_global_state", "process_window_state"]
SESSIONS = ("session", "session_by_record")
PROCESSING_TIME_EACH = 3
"""One seed of so many is a job with a clock."""


def random_spec(seed: int) -> Spec:
    """Return the job of this seed."""
    return processing_time_spec(seed) if seed % PROCESSING_TIME_EACH == 0 else event_time_spec(seed)


def event_time_spec(seed: int) -> Spec:
    """Return a job without a clock."""
    random = Random(seed)
    kind = random.choices(["window", "window_all", "join", "co_group", "interval_join"], [60, 15, 8, 8, 9])[0]
    spec: Spec = {"seed": seed, "kind": kind, "lateness": 0, "late": False, "ordered": False, "columns": [0, 1, 2]}
    disorder = random.choice([0, 0, 3, 10, 30, 30])
    if kind == "interval_join":
        _add_interval(spec, random)
    else:
        spec["lateness"] = random.choice([0, 0, 0, 1, 8, 40])
        spec["assigner"] = _assigner(random, _assigners_of(kind))
        if kind in ("join", "co_group"):
            _add_join_windows(spec, random)
        else:
            _add_windows(spec, random, disorder)
    spec["out_of_orderness"] = random.choice([0, 0, 2, disorder, disorder + 5])
    stragglers = random.choice([0.05, 0.3]) if disorder else 0.0
    has_sides = kind in ("join", "co_group", "interval_join")
    spec["epochs"] = _epochs(random, disorder, stragglers, has_sides=has_sides)
    if spec.get("assigner", {}).get("kind") == "session_by_record":
        spec["epochs"] = _without_equal_times(spec["epochs"], by_key=kind != "window_all")
    if kind in ("join", "co_group") and _depends_on_side_order(spec, is_punctual=not stragglers):
        _part_sides(spec["epochs"], random)
    spec["checkdam"] = _run_options(spec, random)
    return spec


def processing_time_spec(seed: int) -> Spec:
    """Return a job with a clock: with windows in processing time, or in event time with a timeout."""
    random = Random(seed)
    kind = random.choices(["window", "window_all", "join", "co_group"], [60, 20, 10, 10])[0]
    spec: Spec = {"seed": seed, "kind": kind, "late": False, "ordered": False, "columns": [0, 1, 2], "then": None}
    spec["lateness"] = random.choice([0, 0, 8])  # it means nothing in processing time
    has_sides = kind in ("join", "co_group")
    if not has_sides and random.random() < 0.2:
        spec["assigner"] = _assigner(random, ["tumbling", "sliding"])
        of = _one_trigger(random, random.choice(["event_time", "continuous", "count", "total", "delta"]))
        trigger: Spec | None = _timeout(random, of)
    else:
        spec["assigner"] = _assigner(random, _assigners_of(kind))
        if spec["assigner"]["kind"] not in ("global", "count"):
            spec["assigner"]["time"] = "processing"
        trigger = _clock_trigger(random, spec["assigner"]["kind"], has_sides=has_sides)
    if has_sides:
        spec["evictor"] = _evictor(random, ordered=False)
    else:
        _add_windows(spec, random, disorder=0)  # by the clock no record is behind, and no session joins two others
        spec["late"], spec["then"] = False, None
    spec["trigger"] = trigger
    disorder = random.choice([0, 10, 30])
    spec["out_of_orderness"] = random.choice([0, disorder])
    spec["epochs"] = _epochs(random, disorder, stragglers=0.0, has_sides=has_sides)
    spec["clock"] = _clock(random, spec["epochs"])
    if spec["assigner"]["kind"] == "session_by_record":
        spec["epochs"] = _without_equal_windows(spec)
    _let_each_epoch_advance(spec["epochs"], random)
    spec["checkdam"] = _run_options(spec, random)
    return spec


def _run_options(spec: Spec, random: Random) -> Spec:
    return {
        "parallelism": random.choice([1, 2, 3]),
        "backend": random.choice(["hashmap", "hashmap", "rocksdb"]),
        "joins_batches": random.random() < 0.7,
        "crash_in_epoch": random.choice([None, None, random.randint(1, len(spec["epochs"]))]),
    }


def punctual_spec(seed: int) -> Spec:
    """Return a job without late records whose results do not depend on when the watermark moves.

    Its timestamps are even and its gaps odd: a record that begins exactly where a session ends belongs to that session
    only as long as the watermark has not closed it, in Flink as in Checkdam.
    """
    random = Random(seed)
    disorder = random.choice([0, 6, 20])
    kind = random.choice(["window", "window", "window_all", "interval_join"])
    spec: Spec = {"seed": seed, "kind": kind, "lateness": 0, "late": True, "ordered": False, "columns": [0, 1, 2]}
    if kind == "interval_join":
        _add_interval(spec, random)
        spec["late"] = True
    else:
        spec["assigner"] = _assigner(random, _assigners_of(kind))
        _add_windows(spec, random, disorder)
        while _has(spec.get("trigger"), "continuous") or spec["then"] is not None:
            _add_windows(spec, random, disorder)
        spec["late"] = True
        assigner = spec["assigner"]
        if assigner["kind"] == "session":
            assigner["gap"] |= 1
        if assigner["kind"] == "session_by_record":
            assigner["gaps"] = [gap | 1 for gap in assigner["gaps"]]
    spec["out_of_orderness"] = disorder * 2
    spec["epochs"] = _epochs(random, disorder, 0.0, has_sides=kind == "interval_join")
    for record in (each for epoch in spec["epochs"] for each in epoch):
        record[2] *= 2
    spec["checkdam"] = {"parallelism": 2, "backend": "hashmap", "joins_batches": True, "crash_in_epoch": None}
    return spec


SESSION_THAT_FLINK_FORGETS: Spec = {
    "seed": -1000,
    "kind": "window",
    "assigner": {"kind": "session_by_record", "gaps": [2, 10]},
    "trigger": None,
    "evictor": None,
    "function": "apply",
    "lateness": 0,
    "late": False,
    "ordered": False,
    "columns": [0, 1, 2],
    "then": None,
    "out_of_orderness": 0,
    "epochs": [[["a", 4, 7, 0], ["a", 1, 0, 0], ["a", 3, 0, 0]]],
    "checkdam": {"parallelism": 1, "backend": "hashmap", "joins_batches": True, "crash_in_epoch": None},
}
"""The session from 0 to 10 is kept under that of its first record, from 7 to 9. When another record has exactly the
window from 0 to 10, Flink takes it for a new one and forgets what it holds. Checkdam does not."""


def is_session(spec: Spec) -> bool:
    return "assigner" in spec and spec["assigner"]["kind"] in SESSIONS


def _has(trigger: Spec | None, kind: str) -> bool:
    return trigger is not None and (trigger["kind"] == kind or _has(trigger.get("of"), kind))


# -- the parts of a job ----------------------------------------------------------------------------------------------


def _assigners_of(kind: str) -> list[str]:
    times = ["tumbling", "sliding", "session", "session_by_record"]
    return times if kind in ("join", "co_group") else [*times, *times, "global", "count"]


def _assigner(random: Random, kinds: list[str]) -> Spec:
    kind = random.choice(kinds)
    size, slide = random.randint(1, 50), random.randint(1, 30)
    if kind == "tumbling":
        return {"kind": kind, "size": size, "offset": _offset(random, size)}
    if kind == "sliding":  # a slide longer than the size leaves gaps
        return {"kind": kind, "size": size, "slide": slide, "offset": _offset(random, slide)}
    if kind == "session":
        return {"kind": kind, "gap": random.randint(1, 25)}
    if kind == "session_by_record":
        return {"kind": kind, "gaps": [random.randint(1, 25) for _ in range(random.randint(1, 4))]}
    if kind == "count":
        return {"kind": kind, "size": random.randint(1, 8), "slide": random.choice([None, random.randint(1, 8)])}
    return {"kind": "global"}


def _offset(random: Random, period: int) -> int:
    """Return an offset; Flink allows those shorter than the period, in either direction."""
    return random.choice([0, 0, random.randint(1 - period, period - 1)])


def _add_windows(spec: Spec, random: Random, disorder: int) -> None:
    assigner = spec["assigner"]["kind"]
    is_merging = assigner in SESSIONS
    spec["ordered"] = _is_ordered(is_merging, disorder)
    spec["trigger"] = _trigger(random, assigner)
    is_sliding_count = assigner == "count" and spec["assigner"]["slide"] is not None  # it has an evictor of its own
    spec["evictor"] = None if is_sliding_count else _evictor(random, ordered=spec["ordered"])
    functions = [*SUMS, *TEXTS]
    if is_merging:  # Flink refuses window state there
        functions.remove("process_window_state")
    spec["function"] = random.choice(functions)
    if spec["evictor"] is not None and spec["function"] in ("min", "max"):
        spec["function"] = "sum"  # Flink's min and max change the first record, and an evictor writes it back
    spec["late"] = random.random() < 0.7
    spec["columns"] = _columns(spec)
    spec["then"] = None
    follows = spec["function"] in SUMS and assigner not in ("global", "count") and 0 in spec["columns"]
    if follows and random.random() < 0.25:
        spec["then"], spec["columns"] = {"size": random.randint(5, 80)}, [0, 1, 2]


def _is_ordered(is_merging: bool, disorder: int) -> bool:
    """Return whether Flink defines the order of a window's records.

    When a record joins two sessions, Flink appends the contents of one to the other, in the order of hash values. That
    does not happen while timestamps ascend.
    """
    return not is_merging or disorder == 0


def _columns(spec: Spec) -> list[int]:
    """Return the columns of the result that do not depend on an undefined order."""
    if spec["ordered"]:
        return [0, 1, 2]
    own = [1, 2] if spec["function"] in ("reduce", "reduce_process", "aggregate", "aggregate_process") else [1]
    return own if spec["kind"] == "window_all" else [0, *own]


def _trigger(random: Random, assigner: str) -> Spec | None:
    if assigner == "count" or random.random() < 0.3:
        return None
    kinds = ["count", "total"]
    if assigner == "global":  # a continuous trigger would fire for ever at the end of time
        kinds += ["never", "delta"]
    else:
        kinds += ["event_time", "continuous", "continuous"]
        if assigner not in SESSIONS:  # Flink's delta trigger cannot merge
            kinds += ["delta"]
    trigger = _one_trigger(random, random.choice(kinds))
    return {"kind": "purging", "of": trigger} if random.random() < 0.35 else trigger


def _clock_trigger(random: Random, assigner: str, *, has_sides: bool) -> Spec | None:
    """Choose a trigger of windows in processing time, or of a global window in a job with a clock."""
    if assigner == "count" or random.random() < 0.3:
        return None
    kinds = ["continuous_processing_time", "continuous_processing_time"]
    if assigner != "global":
        kinds += ["processing_time"]
    if not has_sides:  # which side's records come first is not defined
        kinds += ["count", "total"]
        if assigner not in SESSIONS:  # Flink's delta trigger cannot merge
            kinds += ["delta"]
    trigger = _one_trigger(random, random.choice(kinds))
    if random.random() < 0.35:
        trigger = {"kind": "purging", "of": trigger}
    # Flink's timeout trigger cannot merge
    return _timeout(random, trigger) if assigner not in SESSIONS and random.random() < 0.4 else trigger


def _timeout(random: Random, trigger: Spec) -> Spec:
    flags = {name: random.random() < 0.5 for name in ("reset_on_record", "clear_on_timeout")}
    return {"kind": "timeout", "of": trigger, "timeout": random.randint(1, 40), **flags}


def _one_trigger(random: Random, kind: str) -> Spec:
    options = {
        "count": {"size": random.randint(1, 6)},
        "total": {"limit": random.randint(3, 40)},
        "continuous": {"interval": random.randint(1, 20)},
        "continuous_processing_time": {"interval": random.randint(1, 20)},
        "delta": {"threshold": random.randint(0, 8)},
    }
    return {"kind": kind, **options.get(kind, {})}


def _evictor(random: Random, *, ordered: bool) -> Spec | None:
    kind = random.choice([None, None, None, "time", *(("count", "delta") if ordered else ())])
    options = {
        "count": {"size": random.randint(1, 5)},
        "time": {"size": random.randint(1, 30)},
        "delta": {"threshold": random.randint(1, 8)},
    }
    return None if kind is None else {"kind": kind, **options[kind], "after": random.random() < 0.4}


def _add_join_windows(spec: Spec, random: Random) -> None:
    """Choose triggers and evictors whose result does not depend on the order between the two sides."""
    spec["trigger"] = None
    if random.random() < 0.5:
        trigger = _one_trigger(random, random.choice(["event_time", "continuous"]))
        spec["trigger"] = {"kind": "purging", "of": trigger} if random.random() < 0.4 else trigger
    spec["evictor"] = _evictor(random, ordered=False)


def _add_interval(spec: Spec, random: Random) -> None:
    lower, upper = sorted((random.randint(-30, 20), random.randint(-20, 30)))
    spec["lower"], spec["upper"] = lower, upper + 2  # never empty, even with both bounds exclusive
    spec["lower_exclusive"], spec["upper_exclusive"] = random.random() < 0.5, random.random() < 0.5
    spec["late"] = random.random() < 0.7


# -- records ---------------------------------------------------------------------------------------------------------


def _epochs(random: Random, disorder: int, stragglers: float, *, has_sides: bool) -> list[list[Record]]:
    """Return records at most `disorder` behind in time, except for a share of stragglers."""
    keys = random.randint(1, 5)
    step = random.choice([1, 4, 12])
    time = random.choice([0, 0, -150, 1_700_000_000_000])
    records: list[Record] = []
    for _ in range(random.randint(1, 60)):
        time += random.randint(0, step)
        if random.random() < 0.03:
            time += random.randint(20, 120)
        timestamp = time - (random.randint(0, disorder) if disorder else 0)
        if random.random() < stragglers:
            timestamp -= random.randint(5, 100)
        side = random.randint(0, 1) if has_sides else 0
        records.append([f"k{random.randrange(keys)}", random.randint(0, 12), timestamp, side])
    cuts = sorted(random.randint(0, len(records)) for _ in range(random.choice([0, 2, 5, 8, 12])))
    return [records[start:end] for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True)]


def _without_equal_times(epochs: list[list[Record]], *, by_key: bool) -> list[list[Record]]:
    """Leave out records with a timestamp that their key has had: see SESSION_THAT_FLINK_FORGETS."""
    seen: set[tuple[str, int]] = set()
    left: list[list[Record]] = []
    for epoch in epochs:
        left.append([])
        for record in epoch:
            place = record[0] if by_key else "", record[2]
            if place not in seen:
                seen.add(place)
                left[-1].append(record)
    return left


def _clock(random: Random, epochs: list[list[Record]]) -> list[int]:
    """Return a time for each epoch. Mostly an epoch without records is added, at whose time every window has ended."""
    now = random.choice([0, 1_700_000_000_000])
    times = []
    for _ in epochs:
        now += random.choice([0, random.randint(1, 10), random.randint(5, 60)])
        times.append(now)
    if random.random() < 0.7:
        epochs.append([])
        times.append(now + 1_000)
    return times


def _without_equal_windows(spec: Spec) -> list[list[Record]]:
    """Leave out records whose session is exactly that of an earlier record: see SESSION_THAT_FLINK_FORGETS."""
    gaps = spec["assigner"]["gaps"]
    seen: set[tuple[str, int, int]] = set()
    left: list[list[Record]] = []
    for now, epoch in zip(spec["clock"], spec["epochs"], strict=True):
        left.append([])
        for record in epoch:
            window = record[0] if spec["kind"] != "window_all" else "", now, gaps[record[1] % len(gaps)]
            if window not in seen:
                seen.add(window)
                left[-1].append(record)
    return left


def _let_each_epoch_advance(epochs: list[list[Record]], random: Random) -> None:
    """Let the records of each epoch move the watermark: the source on Flink waits for it before it moves the clock."""
    newest: int | None = None
    for epoch in filter(None, epochs):
        largest = max(record[2] for record in epoch)
        if newest is not None and largest <= newest:
            largest = epoch[-1][2] = newest + random.randint(1, 10)
        newest = largest


def _depends_on_side_order(spec: Spec, *, is_punctual: bool) -> bool:
    """Return whether results depend on which side's records come first in an epoch, which Flink does not define.

    A continuous trigger begins with the first record of a window, a record within the allowed lateness fires its window
    at once, and a late one joins a session only if that is there already.
    """
    return _has(spec["trigger"], "continuous") or (not is_punctual and (spec["lateness"] > 0 or is_session(spec)))


def _part_sides(epochs: list[list[Record]], random: Random) -> None:
    """Give each epoch one side only, and let it move the watermark, for which the source on Flink waits."""
    largest: int | None = None
    for epoch in epochs:
        side = random.randint(0, 1)
        for record in epoch:
            record[3] = side
        if epoch:
            newest = max(record[2] for record in epoch)
            if largest is not None and newest <= largest:
                newest = largest + random.randint(1, 10)
                epoch.append(["k0", random.randint(0, 12), newest, side])
            largest = newest
