"""The positions of a job's sources, by uid, and which of them a restored job uses.

A position belongs to the uid of its source. Sources may be reordered, and added: a new source begins at its start. The
position of a removed source is dropped only if that is allowed. A source of another kind or place under a known uid is
refused: the position would have another meaning there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum

import msgspec

from checkdam.errors import CheckpointDamagedError, FormatTooNewError, JobGraphError, StateNotRestorableError
from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import SourceKind
from checkdam.graph.source_uids import source_base
from checkdam.ids import CheckpointId, Epoch, OperatorUid

VERSION = 2  # 1: sources had no uids and were identified by order


class HeldSource(msgspec.Struct, frozen=True):
    """A source with a position. One whose records are all read has no lines."""

    uid: str
    kind: str
    place: str
    lines: list[int] = []  # its lines in the offset log, counted from 0 after the head
    directories: list[int] = []  # line by line, its directory in the query directory
    is_uid_derived: bool = False
    content: str = ""


class SourcePosition(msgspec.Struct, frozen=True):
    """The positions of all sources of a job after a micro-batch: the files of a query directory, and their owners."""

    batch: int  # -1: no micro-batch yet
    files: dict[str, bytes]
    sources: list[str]  # their kinds in order, all that version 1 has
    version: int = 1
    held: list[HeldSource] = []


_decode = msgspec.msgpack.Decoder(SourcePosition).decode
NOTHING_READ = SourcePosition(-1, {}, [], VERSION)


def encode_position(position: SourcePosition) -> bytes:
    return msgspec.msgpack.encode(position)


def decode_position(data: bytes) -> SourcePosition:
    """Read the bytes of `encode_position`. No bytes: a position at which nothing has been read.

    Raises:
        CheckpointDamagedError: it is not a position, or two sources in it share a uid.
        FormatTooNewError: a newer version wrote it.
    """
    if not data:
        return NOTHING_READ
    try:
        position = _decode(data)
    except (ValueError, RecursionError) as error:
        raise damaged_position(str(error)) from error
    if position.version > VERSION:
        raise FormatTooNewError(
            f"the source position in the checkpoint has format {position.version}; this Checkdam reads up to {VERSION}",
            hint="Use the version of Checkdam that wrote it, or a newer one.",
        )
    if len({each.uid for each in position.held}) < len(position.held):
        raise damaged_position("two sources in it have the same uid")
    return position


def damaged_position(what: str) -> CheckpointDamagedError:
    return CheckpointDamagedError(
        f"the source position in the checkpoint is damaged: {what}", hint="Use another checkpoint of the job."
    )


# ---------------------------------------------------------------------------------------------- the job's side


@dataclass(frozen=True)
class JobSource:
    """A source of the job that Spark reads."""

    id: int
    uid: OperatorUid
    name: str
    kind: str
    place: str
    is_static: bool
    is_uid_derived: bool
    relations: int = 1  # how many lines of the offset log it owns
    content: str = ""

    @property
    def shown(self) -> str:
        return _shown(self.kind, self.place)

    def held(self, lines: Sequence[int] = (), directories: Sequence[int] = ()) -> HeldSource:
        """Return the source as it is stored in a position."""
        return HeldSource(
            self.uid, self.kind, self.place, list(lines), list(directories), self.is_uid_derived, self.content
        )


def job_sources(plan: JobPlan) -> list[JobSource]:
    """Return the sources of the plan, those that are read at once first, otherwise in the order of the program."""
    found = []
    for op in plan.source_side:
        if isinstance(op.kind, SourceKind):
            assert op.uid is not None
            spec = op.kind.spec
            found.append(
                JobSource(
                    op.id,
                    op.uid,
                    op.name,
                    spec.kind,
                    spec.place,
                    spec.is_static,
                    op.kind.is_uid_derived,
                    spec.relations,
                    spec.content,
                )
            )
    return sorted(found, key=lambda source: not source.is_static)


class SourceStart(StrEnum):
    """Where a source resumes whose position belongs to another kind or place."""

    EARLIEST = "earliest"  # where a new source begins
    RESTORED = "restored"  # from the position, although the place is another


@dataclass(frozen=True)
class SourceChoices:
    """The user's choices for the sources of the checkpoint that a job starts from.

    `until` is that checkpoint: later ones are the job's own, and their positions are taken as they are.
    """

    starts: Mapping[OperatorUid, SourceStart] = field(default_factory=dict)
    allow_non_restored_state: bool = False
    until: CheckpointId | None = None

    def for_checkpoint(self, checkpoint_id: CheckpointId) -> SourceChoices:
        """Return the choices that apply when this checkpoint is restored."""
        return self if self.until is not None and checkpoint_id <= self.until else SourceChoices()


def parse_source_start(text: str) -> tuple[OperatorUid, SourceStart]:
    """Parse UID=earliest or UID=restored.

    Raises:
        JobGraphError: it is neither.
    """
    uid, _, word = text.rpartition("=")
    if not uid or word not in list(SourceStart):
        raise JobGraphError(
            f"--source-position {text}: not of the form UID=POSITION",
            hint="POSITION is earliest (begin anew) or restored (go on, although the source is in another place).",
        )
    return OperatorUid(uid), SourceStart(word)


# ---------------------------------------------------------------------------------------------- both together


class Outcome(Enum):
    RESTORED = "restored"
    NEW = "new"
    NOT_IN_JOB = "not in the job"
    REFUSED = "refused"


@dataclass(frozen=True)
class SourceOutcome:
    """The outcome for one source of the job or of the checkpoint. `is_refused`: the job would not start."""

    uid: str
    name: str
    kind: str
    outcome: Outcome
    reason: str = ""
    hint: str = ""
    is_refused: bool = False


def restored_position(data: bytes, epoch: Epoch, plan: JobPlan, choices: SourceChoices) -> SourcePosition:
    """Return the position for the job's sources, each under the uid that the source has in the job.

    Raises:
        StateNotRestorableError: a source is refused, or one with a position is not in the job and may not be dropped.
        CheckpointDamagedError, FormatTooNewError: as `decode_position`.
        JobGraphError: the choices name a source that the job does not have.
    """
    position = decode_position(data)
    outcomes, held = match_sources(position, epoch, job_sources(plan), choices)
    for each in outcomes:
        if each.is_refused:
            raise StateNotRestorableError(f'source "{each.uid}": {each.reason}', hint=each.hint)
    return msgspec.structs.replace(position, version=VERSION, held=held)


def match_sources(
    position: SourcePosition, epoch: Epoch, sources: Sequence[JobSource], choices: SourceChoices
) -> tuple[list[SourceOutcome], list[HeldSource]]:
    """Match sources with positions. Return the outcome for each source and the positions that the job uses."""
    _check_names(sources, choices.starts)
    if position.version < VERSION:
        return _match_by_order(position, epoch, sources, choices)
    pairs, ambiguous = _paired(position.held, sources)
    outcomes: list[SourceOutcome] = []
    taken: list[HeldSource] = []
    for source in sources:
        held = pairs.get(source.uid)
        if source.uid in ambiguous:
            outcomes.append(_ambiguous(source, ambiguous[source.uid]))
        elif held is None:
            outcomes.append(_outcome(source, Outcome.NEW, "begins at its start"))
        else:
            outcome = _fitting(source, held, choices.starts.get(source.uid))
            outcomes.append(outcome)
            if outcome.outcome is Outcome.RESTORED:
                taken.append(source.held(held.lines, held.directories))
    known = {each.uid for each in pairs.values()} | {uid for uids in ambiguous.values() for uid in uids}
    outcomes += [_gone(each, choices) for each in position.held if each.uid not in known]
    return outcomes, taken


def _check_names(sources: Sequence[JobSource], starts: Mapping[OperatorUid, SourceStart]) -> None:
    uids = [source.uid for source in sources]
    for uid in starts:
        if uid not in uids:
            raise JobGraphError(
                f'--source-position: the job has no source with uid "{uid}"',
                hint=f"Its sources are {', '.join(uids) or 'none that Spark reads'}.",
            )


def _paired(
    held: Sequence[HeldSource], sources: Sequence[JobSource]
) -> tuple[dict[OperatorUid, HeldSource], dict[OperatorUid, list[str]]]:
    """Return the position of each source of the job, and the sources whose position is ambiguous.

    First matches uids that were set, now or in the checkpoint. Then a source whose uid is set only now takes the
    position of the one source without uid of the same kind and place. Sources still without uid are matched with those
    of the same kind by content, then by order.
    """
    by_uid = {each.uid: each for each in held}
    pairs = {
        source.uid: by_uid[source.uid]
        for source in sources
        if source.uid in by_uid and not (source.is_uid_derived and by_uid[source.uid].is_uid_derived)
    }
    free = [each for each in held if each.is_uid_derived and each.uid not in {one.uid for one in pairs.values()}]
    for source in sources:
        alike = [each for each in free if source.place and (each.kind, each.place) == (source.kind, source.place)]
        unpaired = [one for one in sources if one.uid not in pairs]
        rivals = [one for one in unpaired if (one.kind, one.place) == (source.kind, source.place)]
        if not source.is_uid_derived and source.uid not in pairs and len(alike) == len(rivals) == 1:
            pairs[source.uid] = alike[0]
            free.remove(alike[0])
    ambiguous: dict[OperatorUid, list[str]] = {}
    unnamed = [source for source in sources if source.is_uid_derived and source.uid not in pairs]
    for base in dict.fromkeys(source_base(source.kind, source.place) for source in unnamed):
        ours = [source for source in unnamed if source_base(source.kind, source.place) == base]
        theirs = [each for each in free if source_base(each.kind, each.place) == base]
        for source, each in _same_content(ours, theirs):
            pairs[source.uid] = each
            ours.remove(source)
            theirs.remove(each)
        if len(ours) == len(theirs):
            pairs.update((source.uid, each) for source, each in zip(ours, theirs, strict=True))
        elif theirs:
            ambiguous.update((source.uid, [each.uid for each in theirs]) for source in ours)
    return pairs, ambiguous


def _same_content(sources: Sequence[JobSource], held: Sequence[HeldSource]) -> list[tuple[JobSource, HeldSource]]:
    """Return the sources of which exactly one in the job and one in the checkpoint have the same content."""
    ours, theirs = Counter(source.content for source in sources), Counter(each.content for each in held)
    return [
        (source, each)
        for source in sources
        for each in held
        if source.content and source.content == each.content and ours[source.content] == theirs[source.content] == 1
    ]


def _match_by_order(
    position: SourcePosition, epoch: Epoch, sources: Sequence[JobSource], choices: SourceChoices
) -> tuple[list[SourceOutcome], list[HeldSource]]:
    """Match a position of version 1: the same kinds of sources in the same order."""
    kinds = [source.kind for source in sources]
    if position.sources != kinds:
        reason = (
            f"the checkpoint has no uids of sources, and was written by a job that reads {_listed(position.sources)};"
            f" this one reads {_listed(kinds)}"
        )
        hint = (
            "Start it with the sources as they were, in the same order, take a savepoint, and change them then:"
            " savepoints of this version know sources by uid."
        )
        names = sources or [JobSource(-1, OperatorUid("-"), "", "", "", is_static=False, is_uid_derived=True)]
        return [_outcome(names[0], Outcome.REFUSED, reason, hint, is_refused=True)], []
    outcomes: list[SourceOutcome] = []
    taken: list[HeldSource] = []
    next_line = 0
    for source in sources:
        lines = range(next_line, next_line + source.relations)
        next_line = lines.stop
        is_read = epoch >= 0 if source.is_static else position.batch >= 0
        if not is_read or choices.starts.get(source.uid) is SourceStart.EARLIEST:
            outcomes.append(_outcome(source, Outcome.NEW, "begins at its start"))
        else:
            outcomes.append(_outcome(source, Outcome.RESTORED, "by its order: the checkpoint has no uids of sources"))
            taken.append(source.held(lines, lines))
    return outcomes, taken


def _fitting(source: JobSource, held: HeldSource, start: SourceStart | None) -> SourceOutcome:
    if start is SourceStart.EARLIEST:
        return _outcome(source, Outcome.NEW, "begins at its start, as asked")
    was = _shown(held.kind, held.place)
    if source.kind != held.kind:
        return _outcome(
            source,
            Outcome.REFUSED,
            f"it was {was} in the checkpoint and is {source.shown} in the job",
            f"Let it read {was} again, or begin it anew with --source-position {source.uid}=earliest.",
            is_refused=True,
        )
    if held.place and source.place and source.place != held.place and start is not SourceStart.RESTORED:
        return _outcome(
            source,
            Outcome.REFUSED,
            f"it was {was} in the checkpoint and is {source.shown} in the job",
            f"Let it read {was} again, begin it anew with --source-position {source.uid}=earliest, or, if the same"
            f" records are there, go on with --source-position {source.uid}=restored.",
            is_refused=True,
        )
    if len(held.lines) != source.relations:
        return _outcome(
            source,
            Outcome.REFUSED,
            f"it read {len(held.lines)} streams in the checkpoint and reads {source.relations} in the job",
            f"Build its DataFrame as it was, or begin it anew with --source-position {source.uid}=earliest.",
            is_refused=True,
        )
    renamed = f'its uid was "{held.uid}"' if held.uid != source.uid else ""
    return _outcome(source, Outcome.RESTORED, renamed)


def _ambiguous(source: JobSource, held: Sequence[str]) -> SourceOutcome:
    listed = ", ".join(f'"{uid}"' for uid in held)
    return _outcome(
        source,
        Outcome.REFUSED,
        f"the checkpoint and the job have different numbers of sources {source.shown} without a uid, so that it is not"
        " known which is which",
        f"Give each of them a uid; those in the checkpoint are {listed}, to be used with .uid(…) for the same source.",
        is_refused=True,
    )


def _gone(held: HeldSource, choices: SourceChoices) -> SourceOutcome:
    is_refused = not choices.allow_non_restored_state
    return SourceOutcome(
        held.uid,
        _shown(held.kind, held.place),
        held.kind,
        Outcome.NOT_IN_JOB,
        "the checkpoint has its position, and the job has no source of this uid",
        f'Give one source .uid("{held.uid}"), or drop the position with --allow-non-restored-state.',
        is_refused,
    )


def _outcome(
    source: JobSource, outcome: Outcome, reason: str, hint: str = "", *, is_refused: bool = False
) -> SourceOutcome:
    return SourceOutcome(source.uid, source.name, source.kind, outcome, reason, hint, is_refused)


def _shown(kind: str, place: str) -> str:
    return f"{kind}({place})" if place else kind


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
