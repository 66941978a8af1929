"""A job goes back to an older checkpoint: what it published since is withdrawn first, so output at rest is exact."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.savepoint_places import SavepointPlace
from tests.support.word_count import UID, WordCount

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointingMode, JobEnd
from checkdam.checkpoint.terms import TERMS
from checkdam.connectors.file_sink import WITHDRAWN, FileCommitter, FileSink
from checkdam.errors import FormatTooNewError, RepeatedOutputError
from checkdam.ids import CheckpointId, JobId, OperatorUid
from checkdam.runtime.driver.publish_history import PUBLISHED
from checkdam.state.snapshot_handles import SavepointFormat
from checkdam.storage import open_storage
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import EVERY_EPOCH, JOB_ID, LocalJob
from checkdam.testing.trouble import DriverKilled, Moment, Step, Trouble, ask, kill_driver, kill_slot

pytestmark = pytest.mark.slow

WORDS = [f"word{n}" for n in range(40)]
EPOCHS = [WORDS, ["a", *WORDS[:3]], ["a", *WORDS[5:9]], ["b", *WORDS], ["a", "b", *WORDS[:9]]]
KEEP_THREE = replace(EVERY_EPOCH, num_retained=3)
ON_REQUEST = CheckpointConfig(num_retained=3, retention=KEEP_THREE.retention)
OTHER = JobId("0" * 32)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


Damage = tuple[str, Callable[[Path], None]]
DAMAGES: list[Damage] = [
    ("metadata", truncate),
    ("metadata", flip),
    ("metadata", Path.unlink),
    ("file", truncate),
    ("file", flip),  # found only when slots restore
    ("file", Path.unlink),
]


class Words(WordCount):
    """The job on real directories."""

    def __init__(self, root: Path) -> None:
        self.checkpoints, self.out = root / "checkpoints", root / "out"
        super().__init__(EPOCHS, storage=open_storage(str(self.checkpoints)), sink=open_storage(str(self.out)))

    @property
    def directory(self) -> Path:
        return self.checkpoints / JOB_ID

    def history(self) -> Path:
        [path] = self.directory.glob(f"{PUBLISHED}*")
        return path

    def chk(self, number: int) -> Path:
        return self.directory / f"chk-{number}"

    def damage(self, how: Damage, number: int = 4) -> None:
        what, damage = how
        damage(self.chk(number) / "_metadata" if what == "metadata" else self.own_file(number))

    def own_file(self, number: int) -> Path:
        """A state file that the checkpoint before does not refer to."""
        store = CheckpointStore(self.storage, JOB_ID)
        before = store.load(CheckpointId(number - 1)).files()
        return self.directory / min(file.path for file in store.load(CheckpointId(number)).files() - before)

    def killed_before_epoch_5(self, **options: Any) -> Counter[tuple[str, int]]:
        """Leave three checkpoints behind; the newest is 4. Return the output until then."""
        job = self.job(troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, number=5)], checkpoints=KEEP_THREE, **options)
        with pytest.raises(DriverKilled):
            job.run()
        shutil.rmtree(self.chk(1), ignore_errors=True)  # the kill may come before retention has removed it
        return self.output()

    def withdrawn(self) -> list[str]:
        return sorted(path.name for path in (self.out / WITHDRAWN).rglob("part-*"))

    def everything(self) -> dict[str, bytes]:
        found = [path for root in (self.checkpoints, self.out) for path in root.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in found if "_terms" not in path.parts}

    def assert_exact(self) -> None:
        assert self.output() == self.expected_output()
        assert self.leftovers() == []


@pytest.fixture
def words(tmp_path: Path) -> Words:
    return Words(tmp_path)


@pytest.mark.parametrize("how", DAMAGES)
def test_output_at_rest_is_exact_after_a_resume_from_the_older_checkpoint(words: Words, how: Damage) -> None:
    words.killed_before_epoch_5()
    of_the_fourth = {path.name: path.read_bytes() for path in words.out.glob("part-*")}
    words.damage(how)

    job = words.run(checkpoints=KEEP_THREE)

    assert [epoch for _, epoch in job.heard.restored_from][-1] == 3
    words.assert_exact()
    assert job.state(UID) == words.expected_state()
    [(uid, told)] = job.heard.withdrawn
    assert uid == "out"
    assert (sorted(told.moved), told.gone) == (words.withdrawn(), ())
    place = words.out / WITHDRAWN / JOB_ID
    assert told.place.endswith(f"/{WITHDRAWN}/{JOB_ID}")
    assert words.withdrawn()
    assert all((place / name).read_bytes() == of_the_fourth[name] for name in told.moved)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_failover_goes_back_in_the_same_way(words: Words, how: Damage) -> None:
    def damage_and_kill(engine: LocalEngine, moment: Moment) -> None:
        words.damage(how)
        kill_slot(0)(engine, moment)

    words.run([Trouble(Step.BEFORE_EPOCH, damage_and_kill, number=5)], checkpoints=KEEP_THREE)

    words.assert_exact()
    assert words.withdrawn()


def test_going_back_behind_two_checkpoints_withdraws_the_output_of_both(words: Words) -> None:
    words.killed_before_epoch_5()
    truncate(words.chk(3) / "_metadata")
    truncate(words.chk(4) / "_metadata")

    job = words.run(checkpoints=KEEP_THREE)

    assert [epoch for _, epoch in job.heard.restored_from] == [2]
    words.assert_exact()


def test_a_checkpoint_whose_directory_was_deleted_is_gone_back_behind_like_a_damaged_one(words: Words) -> None:
    words.killed_before_epoch_5()
    shutil.rmtree(words.chk(4))

    job = words.run(checkpoints=KEEP_THREE)

    assert job.heard.skipped == []
    words.assert_exact()
    assert words.withdrawn()


def test_a_checkpoint_that_was_passed_over_is_gone_and_its_number_is_not_used_again(words: Words) -> None:
    words.killed_before_epoch_5()
    words.damage(("file", flip))

    job = words.run(checkpoints=KEEP_THREE)

    assert [stats.checkpoint_id for stats in job.heard.completed] == [5, 6]
    assert CheckpointStore(words.storage, JOB_ID).completed() == [3, 5, 6]


STEPS = [
    *(Trouble(step, kill_driver, number) for step in (Step.WITHDRAWING, Step.WITHDRAWN) for number in (1, 2)),
    *(Trouble(step, kill_driver, 4) for step in (Step.BEFORE_DISCARD, Step.DISCARDED, Step.REMEMBERING)),
    *(Trouble(step, kill_driver, 4) for step in (Step.REMEMBERED,)),
    *(Trouble(step, kill_driver, 4) for step in (Step.BEFORE_EPOCH, Step.EPOCH_DONE)),
    *(Trouble(step, kill_driver, 5) for step in (Step.BEFORE_METADATA, Step.METADATA_WRITTEN, Step.REMEMBERING)),
    *(Trouble(step, kill_driver, 5) for step in (Step.REMEMBERED, Step.COMMITTING, Step.COMMITTED)),
    *(Trouble(step, kill_driver, 6) for step in (Step.METADATA_WRITTEN, Step.COMMITTED)),
]


@pytest.mark.parametrize("trouble", STEPS, ids=lambda trouble: f"{trouble.step.name}-{trouble.number}")
def test_a_crash_at_any_step_of_going_back_neither_loses_nor_repeats(words: Words, trouble: Trouble) -> None:
    again = Trouble(trouble.step, trouble.do, trouble.number)
    words.killed_before_epoch_5()
    words.damage(("metadata", flip))

    words.run([again], checkpoints=KEEP_THREE)

    assert again.happened.is_set()
    words.assert_exact()


@pytest.mark.parametrize("seed", range(10))
def test_damage_after_damage_and_crash_after_crash_stay_exact(words: Words, seed: int) -> None:
    dice = random.Random(seed)
    steps = [each for each in Step if "SAVEPOINT" not in each.name and "ABORTED" not in each.name]
    keep = replace(EVERY_EPOCH, num_retained=4)
    for _ in range(4):
        kill = Trouble(dice.choice(steps), kill_driver, number=dice.randrange(1, 8))
        with suppress(DriverKilled):
            words.job(troubles=[kill], checkpoints=keep).run()
        newest = max(CheckpointStore(words.storage, JOB_ID).completed(), default=0)
        if len(CheckpointStore(words.storage, JOB_ID).completed()) > 1 and dice.random() < 0.8:
            words.damage(DAMAGES[dice.randrange(3)], newest)

    words.run(checkpoints=keep)

    words.assert_exact()


def test_nothing_is_withdrawn_from_the_newest_checkpoint_or_by_a_cancel(words: Words) -> None:
    before = words.killed_before_epoch_5()
    job: LocalJob

    def damage_and_cancel(engine: LocalEngine, moment: Moment) -> None:
        words.damage(("metadata", flip))
        job.cancel()

    job = words.job(troubles=[Trouble(Step.BEFORE_EPOCH, damage_and_cancel)], checkpoints=KEEP_THREE)
    job.run()

    assert job.heard.end is JobEnd.CANCELLED
    assert (words.output(), words.withdrawn()) == (before, [])
    words.run(checkpoints=KEEP_THREE)  # only who goes on from the older one withdraws
    words.assert_exact()
    assert words.withdrawn()


def test_files_that_a_reader_has_taken_are_named_and_seen_again(words: Words) -> None:
    before = words.killed_before_epoch_5()
    words.damage(("metadata", flip))
    [taken, *_] = json.loads(words.history().read_bytes())["checkpoints"]["4"]["out"]
    name = msgspec.msgpack.decode(msgspec.json.decode(f'"{taken}"', type=bytes))[1]
    read = Counter(tuple(json.loads(line).values()) for line in (words.out / name).read_text().splitlines())
    (words.out / name).unlink()

    job = words.run(checkpoints=KEEP_THREE)

    [(_, told)] = job.heard.withdrawn
    assert told.gone == (name,)
    assert words.output() == words.expected_output()  # at rest; with what the reader took it is twice
    assert read
    assert read <= before


class Stubborn(FileCommitter):
    can_withdraw = False


@dataclass(frozen=True)
class StubbornSink(FileSink):
    """A transactional sink that cannot take back what it has committed."""

    def open_committer(self, job_id: JobId, uid: OperatorUid) -> Stubborn:
        return Stubborn(open_storage(self.path), job_id, uid)


class StubbornWords(Words):
    def build(self, environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        counts = stream.map(lambda word: (word, 1), output_type=tuple[str, int]).key_by(0, key_type=str).sum(1)
        counts.uid(UID)._sink("stubborn", StubbornSink(self._sink_uri, "json")).uid("out")


@pytest.mark.parametrize("how", DAMAGES)
def test_going_back_is_refused_where_a_sink_cannot_withdraw_and_nothing_is_touched(tmp_path: Path, how: Damage) -> None:
    words = StubbornWords(tmp_path)
    words.killed_before_epoch_5()
    words.damage(how)
    before = words.everything()
    job = words.job(checkpoints=KEEP_THREE)

    with pytest.raises(RepeatedOutputError) as raised:
        job.run()

    assert "chk-3" in str(raised.value)
    assert "sink out cannot withdraw" in str(raised.value)
    assert "--allow-repeated-output" in str(raised.value)
    assert job.heard.end is JobEnd.FAILED
    assert words.everything() == before


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_checkpoint_that_is_repaired_after_a_refusal_is_resumed_from(tmp_path: Path, is_gone: bool) -> None:
    words = StubbornWords(tmp_path)
    words.killed_before_epoch_5()
    whole = (words.chk(4) / "_metadata").read_bytes()
    words.damage(("metadata", Path.unlink if is_gone else truncate))
    [term] = (words.directory / TERMS).iterdir()
    term.write_text(
        json.dumps(json.loads(term.read_text()) | {"owner": {"machine": "pod-1", "pid": 1, "started": "1"}})
    )
    for _ in range(2):
        with pytest.raises(RepeatedOutputError):
            words.job(checkpoints=KEEP_THREE).run()
    (words.chk(4) / "_metadata").write_bytes(whole)

    job = words.run(checkpoints=KEEP_THREE)

    assert [epoch for _, epoch in job.heard.restored_from] == [4]
    assert job.heard.dropped == []
    assert words.output() == words.expected_output()


def test_a_checkpoint_that_comes_back_when_the_job_has_gone_on_is_removed_with_a_warning(words: Words) -> None:
    words.killed_before_epoch_5()
    whole = (words.chk(4) / "_metadata").read_bytes()
    words.damage(("metadata", Path.unlink))
    with pytest.raises(DriverKilled):
        words.job(checkpoints=KEEP_THREE, troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, 4)]).run()
    words.chk(4).mkdir(exist_ok=True)
    (words.chk(4) / "_metadata").write_bytes(whole)

    job = words.run(checkpoints=KEEP_THREE)

    assert [path.rpartition("/")[2] for path in job.heard.dropped] == ["chk-4"]
    words.assert_exact()


def test_going_back_without_withdrawing_is_a_choice(tmp_path: Path) -> None:
    words = StubbornWords(tmp_path)
    words.killed_before_epoch_5()
    words.damage(("metadata", flip))

    job = words.job(checkpoints=KEEP_THREE, allow_repeated_output=True)
    job.run()

    repeated = words.output() - words.expected_output()
    assert sum(repeated.values()) == len(EPOCHS[3])
    assert words.expected_output() <= words.output()
    assert job.state(UID) == words.expected_state()
    assert words.leftovers() == []
    words.run(checkpoints=KEEP_THREE)  # the choice was for that time: now everything is known again
    assert words.output() - words.expected_output() == repeated


def test_a_failover_that_would_repeat_output_fails_the_job_instead(tmp_path: Path) -> None:
    words = StubbornWords(tmp_path)

    def damage_and_kill(engine: LocalEngine, moment: Moment) -> None:
        words.damage(("file", flip))
        kill_slot(0)(engine, moment)

    job = words.job(checkpoints=KEEP_THREE, troubles=[Trouble(Step.BEFORE_EPOCH, damage_and_kill, number=5)])
    with pytest.raises(RepeatedOutputError, match="checkpoint 4 cannot be restored"):
        job.run()

    assert not words.output() - words.expected_output()


def forget_history(words: Words) -> None:
    words.history().unlink()


def break_history(words: Words) -> None:
    truncate(words.history())


def shorten_history(words: Words) -> None:
    path = words.history()
    path.write_text(json.dumps({**json.loads(path.read_text()), "since": 4, "checkpoints": {}}))


def flip_history(words: Words) -> None:
    path = words.history()
    data = path.read_text()
    path.write_text(data.replace('"revision":1', '"revision":2'))


def damage_committable(words: Words) -> None:
    """Damage the name of a file in a history that has no digest, as earlier versions wrote it."""
    path = words.history()
    history = json.loads(path.read_text())
    del history["digest"]
    [damaged, *_] = of_the_fourth = history["checkpoints"]["4"]["out"]
    raw = msgspec.json.decode(f'"{damaged}"', type=bytes).replace(b".checkdam", b".chackdam")
    of_the_fourth[0] = msgspec.json.decode(msgspec.json.encode(raw))
    path.write_text(json.dumps(history))


def test_a_history_of_a_version_without_digest_is_read(words: Words) -> None:
    words.killed_before_epoch_5()
    words.damage(("metadata", flip))
    history = json.loads(words.history().read_text())
    assert history.pop("digest")
    words.history().write_text(json.dumps(history))

    words.run(checkpoints=KEEP_THREE)

    words.assert_exact()


def test_where_one_name_is_damaged_the_others_are_withdrawn_if_repeats_are_allowed(words: Words) -> None:
    words.killed_before_epoch_5()
    words.damage(("metadata", flip))
    named = len(json.loads(words.history().read_text())["checkpoints"]["4"]["out"])
    damage_committable(words)

    job = words.run(checkpoints=KEEP_THREE, allow_repeated_output=True)

    [(_, told)] = job.heard.withdrawn
    assert len(told.moved) == named - 1
    assert words.expected_output() <= words.output()


@pytest.mark.parametrize("lose", [forget_history, break_history, shorten_history, flip_history])
def test_going_back_is_a_choice_where_it_is_not_known_what_was_published(
    words: Words, lose: Callable[[Words], None]
) -> None:
    words.killed_before_epoch_5()
    words.damage(("metadata", flip))
    lose(words)
    before = words.everything()

    with pytest.raises(RepeatedOutputError, match="not known what was published"):
        words.job(checkpoints=KEEP_THREE).run()

    assert words.everything() == before
    words.run(checkpoints=KEEP_THREE, allow_repeated_output=True)
    assert sum((words.output() - words.expected_output()).values()) == len(EPOCHS[3])


def test_going_back_is_a_choice_where_a_published_file_cannot_be_told(words: Words) -> None:
    words.killed_before_epoch_5()
    words.damage(("metadata", flip))
    damage_committable(words)
    before = words.everything()

    with pytest.raises(RepeatedOutputError, match="not known what was published"):
        words.job(checkpoints=KEEP_THREE).run()

    assert words.everything() == before


@pytest.mark.parametrize("lose", [forget_history, break_history])
def test_a_job_without_a_history_goes_on_from_its_newest_checkpoint(
    words: Words, lose: Callable[[Words], None]
) -> None:
    words.killed_before_epoch_5()
    lose(words)

    words.run(checkpoints=KEEP_THREE)

    words.assert_exact()


def test_a_history_of_a_newer_version_is_refused(words: Words) -> None:
    words.killed_before_epoch_5()
    words.history().write_text('{"version": 2}')

    with pytest.raises(FormatTooNewError, match=PUBLISHED):
        words.job(checkpoints=KEEP_THREE).run()


def test_repeats_are_within_the_promise_of_at_least_once(words: Words) -> None:
    at_least_once = replace(KEEP_THREE, mode=CheckpointingMode.AT_LEAST_ONCE)
    job = words.job(troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, number=5)], checkpoints=at_least_once)
    with pytest.raises(DriverKilled):
        job.run()
    words.damage(("metadata", flip))

    words.job(checkpoints=at_least_once).run()

    assert words.expected_output() <= words.output()


def test_after_a_run_at_least_once_it_is_not_known_what_was_published(words: Words) -> None:
    at_least_once = replace(KEEP_THREE, mode=CheckpointingMode.AT_LEAST_ONCE)
    with pytest.raises(DriverKilled):
        words.job(troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, number=3)], checkpoints=KEEP_THREE).run()
    with pytest.raises(DriverKilled):
        words.job(troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, number=5)], checkpoints=at_least_once).run()
    assert list(words.directory.glob(f"{PUBLISHED}*")) == []
    words.damage(("metadata", flip))

    with pytest.raises(RepeatedOutputError, match="not known what was published"):
        words.job(checkpoints=KEEP_THREE).run()


class TwoSinks(Words):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.second = root / "second"

    def build(self, environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        counts = stream.map(lambda word: (word, 1), output_type=tuple[str, int]).key_by(0, key_type=str).sum(1)
        counts.uid(UID).sink_to_files(self._sink_uri).uid("out")
        counts.sink_to_files(str(self.second)).uid("second")

    def second_output(self) -> Counter[tuple[str, int]]:
        lines = [line for path in self.second.glob("part-*") for line in path.read_text().splitlines()]
        return Counter(tuple(json.loads(line).values()) for line in lines)


def test_every_sink_withdraws_its_own(tmp_path: Path) -> None:
    words = TwoSinks(tmp_path)
    words.killed_before_epoch_5()
    words.damage(("metadata", flip))

    job = words.run(checkpoints=KEEP_THREE)

    words.assert_exact()
    assert words.second_output() == words.expected_output()
    assert sorted(uid for uid, _ in job.heard.withdrawn) == ["out", "second"]


def test_files_of_another_job_in_the_same_directory_stay(words: Words, tmp_path: Path) -> None:
    other = Words(tmp_path)
    other.job(job_id=OTHER).run()
    theirs = {path.name for path in words.out.glob("part-*")}
    words.killed_before_epoch_5()
    words.damage(("metadata", flip))

    words.run(checkpoints=KEEP_THREE)

    assert theirs <= {path.name for path in words.out.glob("part-*")}
    assert words.output() == words.expected_output() + words.expected_output()
    assert not theirs & set(words.withdrawn())


def test_the_directory_of_a_job_whose_checkpoints_were_moved_aside_is_not_taken_for_abandoned(words: Words) -> None:
    words.killed_before_epoch_5()
    moved = [(words.chk(number), words.checkpoints.parent / f"moved-{number}") for number in (2, 3, 4)]
    for path, aside in moved:
        path.rename(aside)
    WordCount(EPOCHS, storage=words.storage).job(job_id=OTHER, name="another").run()
    for path, aside in moved:
        aside.rename(path)

    words.run(checkpoints=KEEP_THREE)

    assert words.output() == words.expected_output()


def test_output_that_a_savepoint_refers_to_stays_prepared_when_the_job_goes_back(words: Words) -> None:
    place = SavepointPlace()
    job: LocalJob
    checkpoint = ask(lambda: job.control.trigger_checkpoint())
    savepoint = ask(lambda: job.control.trigger_savepoint(place.uri, SavepointFormat.CANONICAL))
    troubles = [
        *(Trouble(Step.BEFORE_EPOCH, checkpoint, number) for number in (2, 3)),
        Trouble(Step.BEFORE_EPOCH, savepoint, 4),
        Trouble(Step.EPOCH_DONE, kill_driver, 4),
    ]
    job = words.job(troubles=troubles, checkpoints=ON_REQUEST)
    with pytest.raises(DriverKilled):
        job.run()
    truncate(words.chk(2) / "_metadata")
    cancelled: LocalJob
    cancel = Trouble(Step.BEFORE_EPOCH, lambda engine, moment: cancelled.cancel())
    cancelled = words.job(checkpoints=ON_REQUEST, troubles=[cancel])
    cancelled.run()
    [path] = place.complete()
    before = words.output()

    words.job(job_id=OTHER).run(restore=path)

    assert sum(before.values()) == len(EPOCHS[0])  # of the second checkpoint it is withdrawn
    assert words.expected_output() - words.output() == Counter(
        {record: 1 for record in words.expected_output() if record in _of_epoch(words, 1)}
    )


def test_output_that_a_job_restored_from_a_savepoint_has_published_is_not_lost(words: Words) -> None:
    place = SavepointPlace()
    job: LocalJob

    def fork(engine: LocalEngine, moment: Moment) -> None:
        [path] = place.complete()
        forked: LocalJob
        cancel = Trouble(Step.BEFORE_EPOCH, lambda engine, moment: forked.cancel())
        forked = words.job(job_id=OTHER, checkpoints=KEEP_THREE, troubles=[cancel])
        forked.run(restore=path)

    troubles = [
        Trouble(Step.BEFORE_EPOCH, ask(lambda: job.control.trigger_checkpoint()), 2),
        Trouble(Step.BEFORE_EPOCH, ask(lambda: job.control.trigger_savepoint(place.uri, SavepointFormat.CANONICAL)), 3),
        Trouble(Step.BEFORE_EPOCH, fork, 4),
    ]
    job = words.job(troubles=troubles, checkpoints=ON_REQUEST)
    job.run()

    assert job.heard.restarts == []
    assert words.output() == words.expected_output()


@pytest.mark.parametrize("is_taken", [False, True])
def test_restoring_a_savepoint_brings_back_what_its_job_has_withdrawn_or_names_it(words: Words, is_taken: bool) -> None:
    place = SavepointPlace()
    job: LocalJob
    checkpoint = ask(lambda: job.control.trigger_checkpoint())
    savepoint = ask(lambda: job.control.trigger_savepoint(place.uri, SavepointFormat.CANONICAL))
    troubles = [
        *(Trouble(Step.BEFORE_EPOCH, checkpoint, number) for number in (2, 4)),
        Trouble(Step.BEFORE_EPOCH, savepoint, 3),
        Trouble(Step.EPOCH_DONE, kill_driver, 4),
    ]
    job = words.job(troubles=troubles, checkpoints=ON_REQUEST)
    with pytest.raises(DriverKilled):
        job.run()
    truncate(words.chk(3) / "_metadata")
    with pytest.raises(DriverKilled):
        words.job(checkpoints=ON_REQUEST, troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver)]).run()
    aside = words.withdrawn()
    if is_taken:
        shutil.rmtree(words.out / WITHDRAWN)
    [path] = place.complete()

    restored = words.job(job_id=OTHER, checkpoints=KEEP_THREE)
    restored.run(restore=path)

    lost = words.expected_output() - words.output()
    if is_taken:
        assert sum(lost.values()) == len(EPOCHS[1])
        assert {file.rpartition("/")[2] for file in restored.heard.missing} < set(aside)
        assert restored.heard.missing
    else:
        assert words.output() == words.expected_output()
        assert restored.heard.missing == []
        assert set(words.withdrawn()) < set(aside)  # that of the third epoch stays


def _of_epoch(words: Words, index: int) -> set[tuple[str, int]]:
    """The records that an epoch's words leave with."""
    before = Counter(word for epoch in words.epochs[:index] for word in epoch)
    found = set()
    for word in words.epochs[index]:
        before[word] += 1
        found.add((word, before[word]))
    return found


@pytest.mark.parametrize("retained", [1, 3])
def test_the_history_holds_no_more_than_the_checkpoints_that_are_kept(words: Words, retained: int) -> None:
    words.job(checkpoints=replace(EVERY_EPOCH, num_retained=retained)).run()

    history = json.loads(words.history().read_text())

    assert history["since"] <= 5 - retained + 1
    assert len(history["checkpoints"]) <= retained + 1
    assert history["renamed"] == 5
