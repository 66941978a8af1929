"""Ways to damage the newest checkpoint of a job without damaging the one before it."""

from __future__ import annotations

import random
from pathlib import Path

from chaos.place import Place
from checkdam.checkpoint.checkpoint_store import METADATA, CheckpointStore
from checkdam.ids import JobId
from checkdam.storage.filesystem import open_storage


def damage_newest(place: Place, rng: random.Random) -> str:
    """Damage `_metadata` or a state file that no other checkpoint uses, and return a description."""
    [directory] = place.job_directories()
    store = CheckpointStore(open_storage(str(place.checkpoints)), JobId(directory.name))
    *older, newest = store.completed()
    if not older:
        return "nothing to damage"
    needed = {file.path for checkpoint_id in older for file in store.load(checkpoint_id).files()}
    own = sorted({file.path for file in store.load(newest).files()} - needed)
    metadata = directory / f"chk-{newest}" / METADATA
    target = directory / rng.choice(own) if own and rng.random() < 0.4 else metadata
    way = rng.choice(["truncated", "altered", "removed"])
    _damage(target, way, rng)
    return f"{target.relative_to(directory)} {way}"


def _damage(path: Path, way: str, rng: random.Random) -> None:
    whole = path.read_bytes()
    if way == "removed":
        path.unlink()
    elif way == "truncated":
        path.write_bytes(whole[: rng.randrange(len(whole))])
    else:
        at = rng.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :])
