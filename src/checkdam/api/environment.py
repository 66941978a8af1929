"""The environment: the entry point of a program, which builds and runs its jobs."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from typing_extensions import TypeForm

from checkdam import config
from checkdam.api.declarations import check_kind, declared, produced_type
from checkdam.api.launch import JobToExamine, Launch, Resume, current_launch
from checkdam.api.signals import ended_by_signals, exit_if_suspended, exit_if_terminating
from checkdam.api.streams import DataStream
from checkdam.backends.contract import KeyedStateBackend
from checkdam.backends.state_backends import backend_from
from checkdam.checkpoint.settings import CheckpointConfig, restore_mode, settle_checkpoints, settle_place
from checkdam.config import Configuration, Origin
from checkdam.connectors.sources import CollectionSource, StreamSource
from checkdam.errors import CheckpointNotFoundError, ConfigError, JobGraphError
from checkdam.graph.function_shapes import Makes
from checkdam.graph.functions import SourceFunction
from checkdam.graph.levels import plan_job
from checkdam.graph.operators import Kind, Operator, SourceFunctionKind, SourceKind
from checkdam.ids import new_job_id
from checkdam.option_fields import OptionFields, chosen_in_code
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.local_copy_places import LocalCopyPlaces
from checkdam.runtime.restart import RestartStrategy, restart_strategy_from, settle_restart
from checkdam.runtime.source_position import SourceChoices
from checkdam.storage.filesystem import open_storage
from checkdam.storage.memory_storage import is_in_memory, set_max_state_size
from checkdam.types.hints import PickleType, SchemaType
from checkdam.types.inference import infer_type
from checkdam.types.type_info import TypeInfo, type_info

if TYPE_CHECKING:  # building a job does not load the runtime
    from checkdam.api.execution import JobExecution
    from checkdam.api.job_handle import JobHandle
    from checkdam.runtime.driver.job_master import JobMaster
    from checkdam.runtime.driver.restore import Restored
    from checkdam.runtime.execution_target import ExecutionTarget
    from checkdam.runtime.job import Job
    from checkdam.runtime.job_result import JobResult
    from checkdam.runtime.monitor.job_events import JobListener
    from checkdam.runtime.spark.spark_target import SparkTarget

_OF_SERVER = tuple(
    option
    for option in config.OPTIONS
    if option.key.startswith("rest.") or option in (config.WEB_ALLOW_ORIGIN, config.WEB_REFRESH_INTERVAL)
)
T = TypeVar("T")


class StreamExecutionEnvironment:
    """Builds a job and runs it. Precedence of settings: the program, then -D, then checkdam.yaml."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._configuration = launch.configuration
        self._operators: list[Operator] = []
        self._backend: KeyedStateBackend | None = None  # set by the program; None: from the settings
        self._restart: RestartStrategy | None = None  # likewise
        self._on_spark: SparkTarget | None = None

    @staticmethod
    def get_execution_environment(settings: Mapping[str, object] | None = None) -> StreamExecutionEnvironment:
        """Return the environment of this process; `settings` are Flink-style keys that override all others."""
        environment = StreamExecutionEnvironment(current_launch())
        for key, value in (settings or {}).items():
            environment._configuration = environment._configuration.with_value(key, value)
        return environment

    @property
    def configuration(self) -> Configuration:
        return self._configuration

    # -- settings -----------------------------------------------------------------------------------------------

    def enable_checkpointing(self, checkpoints: CheckpointConfig | timedelta | int) -> StreamExecutionEnvironment:
        """Take checkpoints as configured, or at an interval (a timedelta, or milliseconds).

        Options not named here keep their values from an earlier call, the command line or the settings file.
        """
        if isinstance(checkpoints, int) and not isinstance(checkpoints, bool):
            checkpoints = timedelta(milliseconds=checkpoints)
        if isinstance(checkpoints, timedelta):
            checkpoints = CheckpointConfig(interval=checkpoints)
        if not isinstance(checkpoints, CheckpointConfig):
            raise ConfigError(
                f"enable_checkpointing() takes a CheckpointConfig, a timedelta or milliseconds, not {checkpoints!r}",
                hint="Write for example enable_checkpointing(timedelta(seconds=10)), or enable_checkpointing(10_000).",
            )
        self._configuration = chosen_in_code(self._configuration, checkpoints)
        return self

    def set_state_backend(self, backend: KeyedStateBackend | str) -> StreamExecutionEnvironment:
        """Set the backend of working state: a backend, or its name in `state.backend.type`, such as "rocksdb".

        Raises:
            ConfigError: there is no such backend.
        """
        if isinstance(backend, str):
            self._configuration = self._configuration.with_value(config.STATE_BACKEND, backend)
            self._backend = None
            return self
        if isinstance(backend, type) or not callable(getattr(backend, "open", None)):
            shown = f"the class {backend.__name__}" if isinstance(backend, type) else repr(backend)
            raise ConfigError(
                f"set_state_backend() takes a state backend, not {shown}",
                hint='Write set_state_backend(RocksDBStateBackend()), or set_state_backend("rocksdb").',
            )
        self._backend = None if isinstance(backend, OptionFields) else backend
        if isinstance(backend, OptionFields):
            self._configuration = chosen_in_code(self._configuration, backend)
        return self

    def set_restart_strategy(
        self, strategy: RestartStrategy, *, fail_on_repeated_rejection: bool | None = None
    ) -> StreamExecutionEnvironment:
        """Set what happens after a failure.

        With `fail_on_repeated_rejection` a record ends the job when a function raises the same error on it again after
        a restart. None leaves that to the settings (execution.fail-on-repeated-rejection).
        """
        if isinstance(strategy, type) or not callable(getattr(strategy, "begin", None)):
            raise ConfigError(
                f"set_restart_strategy() takes a restart strategy, not {strategy!r}",
                hint="Write for example set_restart_strategy(FixedDelayRestart(attempts=3)), or NoRestart().",
            )
        self._restart = None if isinstance(strategy, OptionFields) else strategy
        if isinstance(strategy, OptionFields):
            self._configuration = chosen_in_code(self._configuration, strategy)
        if fail_on_repeated_rejection is not None:
            self._configuration = self._configuration.with_value(
                config.FAIL_ON_REPEATED_REJECTION, fail_on_repeated_rejection
            )
        return self

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        self._configuration = self._configuration.with_value(config.DEFAULT_PARALLELISM, parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        self._configuration = self._configuration.with_value(config.MAX_PARALLELISM, max_parallelism)
        return self

    # -- sources ------------------------------------------------------------------------------------------------

    @overload
    def from_collection(self, values: Iterable[T]) -> DataStream[T]: ...

    @overload
    def from_collection(self, values: Iterable[T], type: TypeForm[T]) -> DataStream[T]: ...

    @overload
    def from_collection(self, values: Iterable[T], type: PickleType[T] | SchemaType) -> DataStream[T]: ...

    def from_collection(self, values: Iterable[Any], type: Any = None) -> DataStream[Any]:
        """Read records that the program holds; they arrive in the first epoch, and the source then ends.

        Without a `type`, it is the common type of all records (see docs/state.md).
        """
        held = tuple(values)
        inferred = infer_type(held) if type is None else None
        return self._source("collection", CollectionSource(held), declared(type, inferred))

    def from_dataframe(self, dataframe: Any) -> DataStream[Any]:
        """Read any Spark DataFrame, batch or streaming; rows arrive as named tuples."""
        from checkdam.runtime.spark.source_frames import dataframe_source, row_type

        return self._source("dataframe", dataframe_source(dataframe), row_type(dataframe))

    def read_stream(self, format: str, schema: Any = None, **options: Any) -> DataStream[Any]:
        """Read any of Spark's streaming formats, unbounded; rows arrive as named tuples."""
        from checkdam.runtime.spark.source_frames import open_stream, row_type

        spec = StreamSource(format, {key: str(value) for key, value in options.items()}, schema)
        return self._source(format, spec, row_type(open_stream(self.spark, spec)))

    def read_text(
        self, path: str, max_files_per_epoch: int | None = None, errors: Literal["strict", "replace"] = "strict"
    ) -> DataStream[str]:
        """Read the lines of the existing text files as str; the source ends after the last of them.

        A line that is not UTF-8 is an error of that record; with errors="replace" invalid bytes become U+FFFD.
        """
        if errors not in ("strict", "replace"):
            raise JobGraphError(f"read_text: errors is {errors!r}", hint='It must be "strict" or "replace".')
        options = {"path": str(path)}
        if max_files_per_epoch is not None:
            if max_files_per_epoch < 1:
                raise JobGraphError(f"max_files_per_epoch must be at least 1, not {max_files_per_epoch}")
            options["maxFilesPerTrigger"] = str(max_files_per_epoch)
        if "://" not in str(path) and not any(c in str(path) for c in "*?[{") and not Path(path).exists():
            raise JobGraphError(f'read_text: "{path}" does not exist', hint="Name a text file or a directory of them.")
        return self._source(f"text({path})", StreamSource("text", options, bounded=True, errors=errors), type_info(str))

    def socket_text_stream(self, host: str, port: int) -> DataStream[str]:
        """Read lines from a TCP server as str, unbounded. A socket is not replayable: only state survives a failure."""
        options = {"host": host, "port": str(port)}
        return self._source(f"socket({host}:{port})", StreamSource("socket", options, replayable=False), type_info(str))

    @overload
    def add_source(self, function: Makes[T]) -> DataStream[T]: ...

    @overload
    def add_source(self, function: Makes[T], output_type: TypeForm[T]) -> DataStream[T]: ...

    @overload
    def add_source(self, function: Makes[T], output_type: PickleType[T] | SchemaType) -> DataStream[T]: ...

    def add_source(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Read the records that a function yields, in as many subtasks as the operator has.

        If not given, their type comes from the annotation of `run`, such as Iterator[int]. A source function needs a
        uid: its completion is state, so that a resumed job does not run it again.
        """
        check_kind("add_source()", function, SourceFunction, "run(ctx)")
        of = declared(output_type, produced_type(function, ["run"], type_info(Any)))
        return self._begin(type(function).__name__, SourceFunctionKind(function), of)

    def _source(self, name: str, spec: Any, type: TypeInfo) -> DataStream[Any]:
        return self._begin(name, SourceKind(spec), type)

    def _begin(self, name: str, kind: Kind, type: TypeInfo) -> DataStream[Any]:
        operators = self._operators
        operators.append(Operator(id=len(operators), name=name, kind=kind, inputs=(), output_type=type))
        return DataStream(self, len(operators) - 1)

    # -- running ------------------------------------------------------------------------------------------------

    @property
    def spark(self) -> Any:
        """The Spark session the job runs in, created on first use."""
        return self._spark_target().session

    @property
    def _target(self) -> ExecutionTarget:
        return self._launch.target or self._spark_target()

    def _close(self) -> None:
        if self._launch.target is not None or self._on_spark is not None:  # else do not load Spark
            self._target.close()

    def _spark_target(self) -> SparkTarget:
        if self._on_spark is None:
            from checkdam.runtime.spark.spark_target import SparkTarget

            self._on_spark = SparkTarget(lambda: self._configuration.spark_settings())
        return self._on_spark

    def execute(self, job_name: str | None = None) -> JobResult:
        """Run the job until its input ends or it is cancelled. Raise the failure if restarts did not help.

        Ctrl-C cancels the job. SIGTERM suspends it and then ends the program, without running the code after this call.

        Raises:
            SystemExit: the job was suspended, or SIGTERM arrived while an earlier job was ending; the code is 143.
        """
        execution = self._prepare(job_name)
        received: Collection[signal.Signals] = ()

        @contextmanager
        def ended_early(master: JobMaster) -> Iterator[None]:
            nonlocal received
            with ended_by_signals(master, self._configuration.get(config.SUSPEND_GRACE_PERIOD)) as received:
                yield

        result = execution.run(ended_early)
        execution.ended_with(result)
        exit_if_suspended(result, received)
        return result

    def execute_async(self, job_name: str | None = None) -> JobHandle:
        """Run the job in the background of this process, and return a handle to watch and control it.

        Errors in the program or its settings are raised here, failures of the running job by `wait`. A program that
        ends while its job runs first suspends it, as SIGTERM does: see JobHandle.
        """
        from checkdam.api.background_jobs import JobWatch, start_job

        listener = JobWatch()
        execution = self._prepare(job_name, listener)
        return start_job(execution, listener, self._configuration.get(config.SUSPEND_GRACE_PERIOD))

    def _prepare(self, job_name: str | None = None, *watchers: JobListener) -> JobExecution:
        """Build the job from the calls so far; `watchers` are notified of its events, too."""
        exit_if_terminating()
        from checkdam.api.execution import JobExecution
        from checkdam.runtime.driver.restore import claimed_storage
        from checkdam.runtime.monitor.listeners import JointListener

        name = job_name or self._configuration.get(config.PIPELINE_NAME) or "checkdam job"
        launch = self._launch
        operators, self._operators = self._operators, []  # as in Flink: operators that have run are not run again
        if launch.examine is not None:
            try:
                launch.examine(JobToExamine(name, operators, self._configuration))
            finally:
                self._close()
        for reason, keys in self._configuration.without_effect().items():
            launch.listener.settings_without_effect(keys, reason)
        settings = self._with_start(self._with_checkpoints(self._with_server(self._configuration)))
        checkpoints = CheckpointConfig.from_configuration(settings)
        if checkpoints.storage is not None:
            open_storage(checkpoints.storage).check_writable()  # fail before Spark starts, which takes seconds
        self._refuse_lost_memory(settings)
        restored = self._find_restored(name, settings)
        if restored is not None and restored.claim:
            claimed = claimed_storage(restored, checkpoints.storage)
            settings = settle_place(settings, claimed, Origin.COMMAND_LINE)
        if job_name is not None:
            settings = settings.settled(config.PIPELINE_NAME, name, Origin.CODE)
        if watchers:
            launch = replace(launch, listener=JointListener(launch.listener, *watchers))
        try:
            job, settings = self._job(name, operators, settings, restored)
            return JobExecution(launch, job, settings, restored, self._target)
        except BaseException:
            self._close()
            raise

    def _with_server(self, settings: Configuration) -> Configuration:
        """Return the settings with those of the job's server, which is up before the program can set any."""
        launch = self._launch
        if launch.host is None:
            return settings
        late = [each for each in _OF_SERVER if settings.setting(each) != launch.configuration.setting(each)]
        if late:
            keys = [option.key for option in late]
            launch.listener.settings_without_effect(
                keys, "the server starts before the program; use -D or the settings file"
            )
        for option in late:
            holding = launch.configuration.setting(option)
            settings = settings.settled(option, holding.value, holding.origin)
        return settings

    def _with_start(self, settings: Configuration) -> Configuration:
        """Return the settings with the command line's choice of where the job starts from."""
        launch = self._launch
        if launch.restore_path is not None or launch.resume is not None:
            settings = settings.settled(config.RESTORE_PATH, launch.restore_path, Origin.COMMAND_LINE)
        if launch.allow_non_restored_state:
            settings = settings.settled(config.IGNORE_UNCLAIMED_STATE, True, Origin.COMMAND_LINE)  # noqa: FBT003  a value
        return settings

    def _refuse_lost_memory(self, settings: Configuration) -> None:
        storage = settings.get(config.CHECKPOINT_DIR) if self._launch.resume is Resume.LATEST else None
        for place in (settings.get(config.RESTORE_PATH), storage):
            if place is not None and is_in_memory(place):
                raise CheckpointNotFoundError(
                    f'cannot start from "{place}": checkpoints in memory are lost when their driver ends',
                    hint="Start the job anew, or from a savepoint; to resume a job, set state.checkpoints.dir.",
                )

    def _find_restored(self, name: str, settings: Configuration) -> Restored | None:
        from checkdam.checkpoint.checkpoint_store import CheckpointStore
        from checkdam.runtime.driver.restore import find_job, from_path, newest_first

        launch, path = self._launch, settings.get(config.RESTORE_PATH)
        if path is not None:
            return from_path(path, restore_mode(settings.get(config.RESTORE_MODE)), take_over=launch.take_over)
        if launch.resume is None:
            return None
        directory = settings.get(config.CHECKPOINT_DIR)
        if directory is None:
            raise JobGraphError(
                f"--resume {launch.resume}: no checkpoint directory is set",
                hint="Set state.checkpoints.dir, in checkdam.yaml or with -D.",
            )
        storage = open_storage(directory)
        try:
            job_id = find_job(storage, name)
        except CheckpointNotFoundError as reason:
            if launch.resume is not Resume.AUTO:
                raise
            launch.listener.nothing_to_resume(reason)
            return None
        for restored in newest_first(CheckpointStore(storage, job_id), storage, job_id, launch.listener):
            return restored
        raise JobGraphError(f'no checkpoint of job "{name}" can be restored')

    def _with_checkpoints(self, settings: Configuration) -> Configuration:
        """Return the settings with those that follow from the checkpoint settings. Raise ConfigError."""
        settings = settle_checkpoints(settings)
        storage = settings.get(config.CHECKPOINT_DIR)
        if storage is None and settings.get(config.CHECKPOINT_INTERVAL) is not None:
            raise ConfigError(
                "checkpoints are enabled, but no checkpoint directory is set",
                hint='Set state.checkpoints.dir, or CheckpointConfig(storage="…"); "jobmanager" keeps them in memory.',
            )
        if storage is not None:
            set_max_state_size(storage, settings.get(config.MEMORY_STORAGE_MAX_SIZE))
        is_chosen = settings.setting(config.INCREMENTAL_CHECKPOINTS).origin is not Origin.DEFAULT
        if storage is not None and is_in_memory(storage) and not is_chosen:
            # As in Flink: only the state is kept then, and the limit applies to its size.
            origin = settings.setting(config.CHECKPOINT_DIR).origin
            settings = settings.settled(config.INCREMENTAL_CHECKPOINTS, "false", origin)
        return settings

    def _job(
        self, name: str, operators: Sequence[Operator], settings: Configuration, restored: Restored | None
    ) -> tuple[Job, Configuration]:
        """Return the job and the settings with which it runs."""
        from checkdam.runtime.driver.restore import check_fit, keep_max_parallelism, max_parallelism_for
        from checkdam.runtime.job import Job
        from checkdam.runtime.logs.log_settings import log_settings

        heartbeat = Heartbeat.from_configuration(settings)  # fail before Spark starts, which takes seconds
        parallelism = settings.get(config.DEFAULT_PARALLELISM) or self._target.default_parallelism
        asked = settings.get(config.MAX_PARALLELISM) if settings.is_set(config.MAX_PARALLELISM) else None
        groups = max_parallelism_for(restored, asked, parallelism)
        operators = keep_max_parallelism(operators, restored, asked, parallelism)
        plan = plan_job(name, operators, parallelism=parallelism, max_parallelism=groups)
        choices = self._source_choices(restored, settings)
        if restored is not None:
            check_fit(restored, plan, choices)
        resumed = restored is not None and restored.claim
        settings = settings.settled(config.DEFAULT_PARALLELISM, parallelism)
        fixed = Origin.CHECKPOINT if restored is not None and asked is None else None
        settings = settings.settled(config.MAX_PARALLELISM, plan.max_parallelism, fixed)
        checkpoints = CheckpointConfig.from_configuration(settings)
        settings = settle_restart(settings, checkpointing=checkpoints.interval is not None)
        job_id = restored.checkpoint.job_id if resumed and restored else new_job_id()
        job = Job(
            job_id=job_id,
            name=name,
            plan=plan,
            backend=self._backend or backend_from(settings),
            local_directory=settings.get(config.ROCKSDB_LOCAL_DIR),
            local_copies=LocalCopyPlaces.from_configuration(settings),
            checkpoints=checkpoints,
            heartbeat=heartbeat,
            cancellation_timeout=settings.get(config.CANCELLATION_TIMEOUT),
            parallelism=parallelism,
            allow_repeated_output=settings.get(config.ALLOW_REPEATED_OUTPUT),
            restart=self._restart or restart_strategy_from(settings, checkpointing=checkpoints.interval is not None),
            fail_on_repeated_rejection=settings.get(config.FAIL_ON_REPEATED_REJECTION),
            source_choices=choices,
            logs=log_settings(settings, job_id, checkpoints.storage, is_on_by_default=self._launch.log_files),
        )
        return job, settings

    def _source_choices(self, restored: Restored | None, settings: Configuration) -> SourceChoices:
        until = None if restored is None else restored.checkpoint.checkpoint_id
        return SourceChoices(self._launch.source_positions, settings.get(config.IGNORE_UNCLAIMED_STATE), until)
