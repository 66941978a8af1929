"""The driver of a chaos round: runs one of the jobs with an exactly-once file sink and with traps.

Run as `python -m chaos.job JOB ROOT --moment kill-slot@epoch:3+0.2 …`; ROOT holds `input`, `output` and `checkpoints`.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from chaos.jobs import JOBS
from chaos.place import FILES_PER_BATCH, Place
from chaos.traps import Host, Moment, Traps
from checkdam import CheckpointConfig, CheckpointRetention, FixedDelayRestart, StreamExecutionEnvironment
from checkdam.api.launch import Launch, Resume, set_launch
from checkdam.config import Configuration

STOPPED = 3
"""The exit code of a job that was stopped with a savepoint before its input ended."""


def main() -> None:
    faulthandler.enable()
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("root", type=Path)
    parser.add_argument("--moment", type=Moment.parse, action="append", default=[])
    parser.add_argument("--victim", type=int, default=0)
    parser.add_argument("--take-over", action="store_true")
    parser.add_argument("-D", dest="settings", action="append", default=[])
    arguments = parser.parse_args()
    place = Place(arguments.root, Path(tempfile.gettempdir()))
    host = Host()
    traps = Traps(arguments.moment, arguments.victim, place, host)
    traps.install()
    configuration = Configuration.load(None, dict(setting.split("=", 1) for setting in arguments.settings))
    set_launch(Launch(configuration, resume=Resume.AUTO, take_over=arguments.take_over, listener=traps, host=host))
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.enable_checkpointing(
        CheckpointConfig(
            interval=timedelta(0),
            storage=str(place.checkpoints),
            retention=CheckpointRetention.RETAIN_ON_CANCELLATION,
            num_retained=3,
        )
    )
    environment.set_restart_strategy(FixedDelayRestart(attempts=10, delay=timedelta(milliseconds=100)))
    job = JOBS[arguments.job]
    lines = environment.read_text(str(place.input), max_files_per_epoch=FILES_PER_BATCH)
    job.build(environment, lines, place)
    environment.execute(job.name)
    sys.exit(STOPPED if traps.has_stopped else 0)


if __name__ == "__main__":
    main()
