import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Delayed;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.CoGroupFunction;
import org.apache.flink.api.common.functions.JoinFunction;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.state.KeyedStateStore;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.dag.Transformation;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.AllWindowedStream;
import org.apache.flink.streaming.api.datastream.CoGroupedStreams;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.JoinedStreams;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.datastream.WindowedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.functions.windowing.AllWindowFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessAllWindowFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.functions.windowing.WindowFunction;
import org.apache.flink.streaming.api.functions.windowing.delta.DeltaFunction;
import org.apache.flink.streaming.api.operators.AbstractStreamOperatorFactory;
import org.apache.flink.streaming.api.operators.StreamOperator;
import org.apache.flink.streaming.api.operators.StreamOperatorFactory;
import org.apache.flink.streaming.api.operators.StreamOperatorParameters;
import org.apache.flink.streaming.api.transformations.OneInputTransformation;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.GlobalWindows;
import org.apache.flink.streaming.api.windowing.assigners.ProcessingTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SessionWindowTimeGapExtractor;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingProcessingTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingProcessingTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.evictors.CountEvictor;
import org.apache.flink.streaming.api.windowing.evictors.DeltaEvictor;
import org.apache.flink.streaming.api.windowing.evictors.Evictor;
import org.apache.flink.streaming.api.windowing.evictors.TimeEvictor;
import org.apache.flink.streaming.api.windowing.triggers.ContinuousEventTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.ContinuousProcessingTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.CountTrigger;
import org.apache.flink.streaming.api.windowing.triggers.DeltaTrigger;
import org.apache.flink.streaming.api.windowing.triggers.EventTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.ProcessingTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.ProcessingTimeoutTrigger;
import org.apache.flink.streaming.api.windowing.triggers.PurgingTrigger;
import org.apache.flink.streaming.api.windowing.triggers.Trigger;
import org.apache.flink.streaming.api.windowing.triggers.TriggerResult;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.streaming.api.windowing.windows.Window;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeServiceAware;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeServiceUtil;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;
import org.apache.flink.util.TaggedUnion;
import org.apache.flink.util.clock.Clock;

/**
 * Runs job specs on Flink's own operators, all in one MiniCluster.
 *
 * <p>Arguments: the file of specs and the file for the results, both with one JSON document a line, and how many jobs
 * run side by side. tests/flink/job_specs.py says what a spec means; tests/flink/checkdam_jobs.py builds the same job
 * with Checkdam. Keep the two alike.
 */
public final class FlinkJobs {

    private static final ObjectMapper JSON = new ObjectMapper();

    /** Key, value, timestamp, and the side of a join that the record belongs to. */
    private static final TypeInformation<Tuple4<String, Long, Long, Integer>> EVENT =
            Types.TUPLE(Types.STRING, Types.LONG, Types.LONG, Types.INT);

    private static final OutputTag<Tuple4<String, Long, Long, Integer>> LATE = new OutputTag<>("late", EVENT);
    private static final OutputTag<Tuple4<String, Long, Long, Integer>> LATE_RIGHT =
            new OutputTag<>("late right", EVENT);

    /** The runs under way, by seed: sources and sinks reach them, as all run in this process. */
    private static final Map<Long, Run> RUNS = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        List<String> specs = Files.readAllLines(Path.of(arguments[0]));
        int sideBySide = Integer.parseInt(arguments[2]);
        MiniClusterConfiguration configuration =
                new MiniClusterConfiguration.Builder()
                        .setConfiguration(new Configuration())
                        .setNumTaskManagers(1)
                        .setNumSlotsPerTaskManager(sideBySide)
                        .build();
        ExecutorService workers = Executors.newFixedThreadPool(sideBySide);
        try (MiniCluster cluster = new MiniCluster(configuration);
                BufferedWriter results = Files.newBufferedWriter(Path.of(arguments[1]), StandardCharsets.UTF_8)) {
            cluster.start();
            List<Future<String>> lines = new ArrayList<>();
            for (String spec : specs) {
                lines.add(workers.submit(() -> run(cluster, JSON.readTree(spec))));
            }
            for (Future<String> line : lines) {
                results.write(line.get());
                results.newLine();
            }
        } finally {
            workers.shutdownNow();
        }
    }

    private static String run(MiniCluster cluster, JsonNode spec) throws Exception {
        long seed = spec.get("seed").asLong();
        Run run = new Run();
        RUNS.put(seed, run);
        ObjectNode answer = JSON.createObjectNode().put("seed", seed);
        try {
            StreamExecutionEnvironment environment =
                    StreamExecutionEnvironment.getExecutionEnvironment(configuration(spec));
            environment.setParallelism(1);
            environment.setBufferTimeout(0);
            build(environment, spec);
            cluster.executeJobBlocking(environment.getStreamGraph().getJobGraph());
            answer.set("results", parsed(run.results));
            answer.set("late", parsed(run.late));
        } catch (Exception failure) {
            Throwable cause = failure;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            answer.put("error", cause.toString());
        }
        RUNS.remove(seed);
        return JSON.writeValueAsString(answer);
    }

    /**
     * Chooses the state backend. Flink's min and max change the first record of a window in place, and on the heap
     * other windows and triggers hold the very same object: there results are wrong (with sliding windows, for one).
     */
    private static Configuration configuration(JsonNode spec) {
        String function = spec.path("function").asText();
        boolean changesRecords = function.equals("min") || function.equals("max");
        return new Configuration().set(StateBackendOptions.STATE_BACKEND, changesRecords ? "rocksdb" : "hashmap");
    }

    private static ArrayNode parsed(Collection<String> lines) throws Exception {
        ArrayNode all = JSON.createArrayNode();
        for (String line : lines) {
            all.add(JSON.readTree(line));
        }
        return all;
    }

    // -- the job -------------------------------------------------------------------------------------------------

    private static void build(StreamExecutionEnvironment environment, JsonNode spec) throws Exception {
        long seed = spec.get("seed").asLong();
        DataStream<Tuple4<String, Long, Long, Integer>> events =
                environment.addSource(new EpochSource(JSON.writeValueAsString(spec)), "epochs", EVENT);
        SingleOutputStreamOperator<?> output;
        switch (spec.get("kind").asText()) {
            case "window":
                output = windowed(events.keyBy(new ByKey(), Types.STRING), spec);
                break;
            case "window_all":
                output = windowedAll(events, spec);
                break;
            case "join":
            case "co_group":
                output = joined(events, spec);
                break;
            case "interval_join":
                output = intervalJoined(events, spec);
                break;
            default:
                throw new IllegalArgumentException("kind " + spec.get("kind"));
        }
        if (spec.hasNonNull("clock")) {
            output = clocked(output, seed);
        }
        DataStream<?> results = output;
        if (spec.hasNonNull("then")) {
            results = then(results, spec.get("then"));
        }
        results.process(new AsText<>(columns(spec)), Types.STRING).sinkTo(new Results(seed, false));
        if (spec.get("late").asBoolean()) {
            output.getSideOutput(LATE).process(new AsText<>(null), Types.STRING).sinkTo(new Results(seed, true));
            if (spec.get("kind").asText().equals("interval_join")) {
                output.getSideOutput(LATE_RIGHT)
                        .process(new AsText<>(null), Types.STRING)
                        .sinkTo(new Results(seed, true));
            }
        }
    }

    /** Returns the same window operator, whose timers go by the clock of the run. */
    private static <T> SingleOutputStreamOperator<T> clocked(SingleOutputStreamOperator<T> windows, long seed) {
        return clocked(windows, (OneInputTransformation<?, T>) windows.getTransformation(), seed);
    }

    private static <I, T> SingleOutputStreamOperator<T> clocked(
            SingleOutputStreamOperator<T> windows, OneInputTransformation<I, T> operator, long seed) {
        @SuppressWarnings("unchecked")
        OneInputTransformation<I, T> clocked =
                new OneInputTransformation<>(
                        (Transformation<I>) operator.getInputs().get(0),
                        operator.getName(),
                        new Clocked<>(operator.getOperatorFactory(), seed),
                        operator.getOutputType(),
                        operator.getParallelism());
        clocked.setStateKeySelector(operator.getStateKeySelector());
        clocked.setStateKeyType(operator.getStateKeyType());
        StreamExecutionEnvironment environment = windows.getExecutionEnvironment();
        environment.getTransformations().remove(operator);
        environment.getTransformations().add(clocked);
        return new SingleOutputStreamOperator<>(environment, clocked) {};
    }

    private static int[] columns(JsonNode spec) {
        JsonNode columns = spec.get("columns");
        int[] chosen = new int[columns.size()];
        for (int index = 0; index < chosen.length; index++) {
            chosen[index] = columns.get(index).asInt();
        }
        return chosen;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static SingleOutputStreamOperator<?> windowed(
            KeyedStream<Tuple4<String, Long, Long, Integer>, String> keyed, JsonNode spec) {
        JsonNode assigner = spec.get("assigner");
        WindowedStream windows;
        if (!assigner.get("kind").asText().equals("count")) {
            windows = keyed.window((WindowAssigner) assigner(assigner));
        } else if (assigner.hasNonNull("slide")) {
            windows = keyed.countWindow(assigner.get("size").asLong(), assigner.get("slide").asLong());
        } else {
            windows = keyed.countWindow(assigner.get("size").asLong());
        }
        if (spec.hasNonNull("trigger")) {
            windows = windows.trigger(trigger(spec.get("trigger")));
        }
        if (spec.hasNonNull("evictor")) {
            windows = windows.evictor(evictor(spec.get("evictor")));
        }
        if (spec.get("lateness").asLong() > 0) {
            windows = windows.allowedLateness(millis(spec.get("lateness")));
        }
        if (spec.get("late").asBoolean()) {
            windows = windows.sideOutputLateData(LATE);
        }
        boolean ordered = spec.get("ordered").asBoolean();
        String function = spec.get("function").asText();
        switch (function) {
            case "sum":
                return windows.sum(1);
            case "min":
                return windows.min(1);
            case "max":
                return windows.max(1);
            case "reduce":
                return windows.reduce(new Combine(ordered));
            case "reduce_process":
                return windows.reduce(new Combine(ordered), new Tell("reduced", columns(spec)), Types.STRING);
            case "aggregate":
                return windows.aggregate(new Totals(), Totals.TYPE, EVENT);
            case "aggregate_process":
                return windows.aggregate(
                        new Totals(), new Tell("aggregated", columns(spec)), Totals.TYPE, EVENT, Types.STRING);
            case "apply":
                return windows.apply(new Apply(ordered), Types.STRING);
            case "process":
            case "process_window_state":
            case "process_global_state":
                return windows.process(new Process(ordered, function), Types.STRING);
            default:
                throw new IllegalArgumentException("function " + function);
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static SingleOutputStreamOperator<?> windowedAll(
            DataStream<Tuple4<String, Long, Long, Integer>> events, JsonNode spec) {
        JsonNode assigner = spec.get("assigner");
        AllWindowedStream windows;
        if (!assigner.get("kind").asText().equals("count")) {
            windows = events.windowAll((WindowAssigner) assigner(assigner));
        } else if (assigner.hasNonNull("slide")) {
            windows = events.countWindowAll(assigner.get("size").asLong(), assigner.get("slide").asLong());
        } else {
            windows = events.countWindowAll(assigner.get("size").asLong());
        }
        if (spec.hasNonNull("trigger")) {
            windows = windows.trigger(trigger(spec.get("trigger")));
        }
        if (spec.hasNonNull("evictor")) {
            windows = windows.evictor(evictor(spec.get("evictor")));
        }
        if (spec.get("lateness").asLong() > 0) {
            windows = windows.allowedLateness(millis(spec.get("lateness")));
        }
        if (spec.get("late").asBoolean()) {
            windows = windows.sideOutputLateData(LATE);
        }
        boolean ordered = spec.get("ordered").asBoolean();
        String function = spec.get("function").asText();
        switch (function) {
            case "sum":
                return windows.sum(1);
            case "min":
                return windows.min(1);
            case "max":
                return windows.max(1);
            case "reduce":
                return windows.reduce(new Combine(ordered));
            case "reduce_process":
                return windows.reduce(new Combine(ordered), new TellAll("reduced", columns(spec)), Types.STRING);
            case "aggregate":
                return windows.aggregate(new Totals(), Totals.TYPE, EVENT);
            case "aggregate_process":
                return windows.aggregate(
                        new Totals(), new TellAll("aggregated", columns(spec)), Totals.TYPE, EVENT, Types.STRING);
            case "apply":
                return windows.apply(new ApplyAll(ordered), Types.STRING);
            case "process":
            case "process_window_state":
            case "process_global_state":
                return windows.process(new ProcessAll(ordered, function), Types.STRING);
            default:
                throw new IllegalArgumentException("function " + function);
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static SingleOutputStreamOperator<?> joined(
            DataStream<Tuple4<String, Long, Long, Integer>> events, JsonNode spec) {
        DataStream<Tuple4<String, Long, Long, Integer>> left = events.filter(event -> event.f3 == 0);
        DataStream<Tuple4<String, Long, Long, Integer>> right = events.filter(event -> event.f3 == 1);
        WindowAssigner assigner = assigner(spec.get("assigner"));
        if (spec.get("kind").asText().equals("join")) {
            JoinedStreams.WithWindow windows =
                    left.join(right)
                            .where(new ByKey(), Types.STRING)
                            .equalTo(new ByKey(), Types.STRING)
                            .window(assigner);
            if (spec.hasNonNull("trigger")) {
                windows = windows.trigger(trigger(spec.get("trigger")));
            }
            if (spec.hasNonNull("evictor")) {
                windows = windows.evictor(evictor(spec.get("evictor")));
            }
            if (spec.get("lateness").asLong() > 0) {
                windows = windows.allowedLateness(millis(spec.get("lateness")));
            }
            return windows.apply(new Pair(), Types.STRING);
        }
        CoGroupedStreams.WithWindow windows =
                left.coGroup(right)
                        .where(new ByKey(), Types.STRING)
                        .equalTo(new ByKey(), Types.STRING)
                        .window(assigner);
        if (spec.hasNonNull("trigger")) {
            windows = windows.trigger(trigger(spec.get("trigger")));
        }
        if (spec.hasNonNull("evictor")) {
            windows = windows.evictor(evictor(spec.get("evictor")));
        }
        if (spec.get("lateness").asLong() > 0) {
            windows = windows.allowedLateness(millis(spec.get("lateness")));
        }
        return windows.apply(new BothSides(), Types.STRING);
    }

    private static SingleOutputStreamOperator<?> intervalJoined(
            DataStream<Tuple4<String, Long, Long, Integer>> events, JsonNode spec) {
        KeyedStream<Tuple4<String, Long, Long, Integer>, String> left =
                events.filter(event -> event.f3 == 0).keyBy(new ByKey(), Types.STRING);
        KeyedStream<Tuple4<String, Long, Long, Integer>, String> right =
                events.filter(event -> event.f3 == 1).keyBy(new ByKey(), Types.STRING);
        KeyedStream.IntervalJoined<
                        Tuple4<String, Long, Long, Integer>, Tuple4<String, Long, Long, Integer>, String>
                join = left.intervalJoin(right).between(millis(spec.get("lower")), millis(spec.get("upper")));
        if (spec.get("lower_exclusive").asBoolean()) {
            join = join.lowerBoundExclusive();
        }
        if (spec.get("upper_exclusive").asBoolean()) {
            join = join.upperBoundExclusive();
        }
        if (spec.get("late").asBoolean()) {
            join = join.sideOutputLeftLateData(LATE).sideOutputRightLateData(LATE_RIGHT);
        }
        return join.process(new WithinInterval(), Types.STRING);
    }

    /** Windows over the results of windows, by key. */
    @SuppressWarnings("unchecked")
    private static DataStream<?> then(DataStream<?> results, JsonNode then) {
        return ((DataStream<Tuple4<String, Long, Long, Integer>>) results)
                .keyBy(new ByKey(), Types.STRING)
                .window(TumblingEventTimeWindows.of(millis(then.get("size"))))
                .aggregate(new Totals(), Totals.TYPE, EVENT);
    }

    private static Duration millis(JsonNode node) {
        return Duration.ofMillis(node.asLong());
    }

    private static WindowAssigner<Object, ? extends Window> assigner(JsonNode node) {
        if (node.path("time").asText().equals("processing")) {
            return processingTimeAssigner(node);
        }
        switch (node.get("kind").asText()) {
            case "tumbling":
                return TumblingEventTimeWindows.of(millis(node.get("size")), millis(node.get("offset")));
            case "sliding":
                return SlidingEventTimeWindows.of(
                        millis(node.get("size")), millis(node.get("slide")), millis(node.get("offset")));
            case "session":
                return EventTimeSessionWindows.withGap(millis(node.get("gap")));
            case "session_by_record":
                return sessionsByRecord(node.get("gaps"));
            case "global":
                return GlobalWindows.create();
            default:
                throw new IllegalArgumentException("assigner " + node);
        }
    }

    private static WindowAssigner<Object, TimeWindow> processingTimeAssigner(JsonNode node) {
        switch (node.get("kind").asText()) {
            case "tumbling":
                return TumblingProcessingTimeWindows.of(millis(node.get("size")), millis(node.get("offset")));
            case "sliding":
                return SlidingProcessingTimeWindows.of(
                        millis(node.get("size")), millis(node.get("slide")), millis(node.get("offset")));
            case "session":
                return ProcessingTimeSessionWindows.withGap(millis(node.get("gap")));
            case "session_by_record":
                return ProcessingTimeSessionWindows.withDynamicGap(gapOf(node.get("gaps")));
            default:
                throw new IllegalArgumentException("assigner " + node);
        }
    }

    @SuppressWarnings("unchecked")
    private static WindowAssigner<Object, TimeWindow> sessionsByRecord(JsonNode node) {
        WindowAssigner<?, TimeWindow> assigner = EventTimeSessionWindows.withDynamicGap(gapOf(node));
        return (WindowAssigner<Object, TimeWindow>) assigner;
    }

    private static SessionWindowTimeGapExtractor<Object> gapOf(JsonNode node) {
        long[] gaps = new long[node.size()];
        for (int index = 0; index < gaps.length; index++) {
            gaps[index] = node.get(index).asLong();
        }
        return element -> gaps[(int) Math.floorMod(event(element).f1, (long) gaps.length)];
    }

    /** Returns a record, out of what Flink wraps it in before a window of two streams. */
    @SuppressWarnings("unchecked")
    private static Tuple4<String, Long, Long, Integer> event(Object element) {
        if (element instanceof TaggedUnion) {
            TaggedUnion<?, ?> either = (TaggedUnion<?, ?>) element;
            return event(either.isOne() ? either.getOne() : either.getTwo());
        }
        return (Tuple4<String, Long, Long, Integer>) element;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Trigger trigger(JsonNode node) {
        switch (node.get("kind").asText()) {
            case "event_time":
                return EventTimeTrigger.create();
            case "continuous":
                return ContinuousEventTimeTrigger.of(millis(node.get("interval")));
            case "processing_time":
                return ProcessingTimeTrigger.create();
            case "continuous_processing_time":
                return ContinuousProcessingTimeTrigger.of(millis(node.get("interval")));
            case "timeout":
                return ProcessingTimeoutTrigger.of(
                        trigger(node.get("of")),
                        millis(node.get("timeout")),
                        node.get("reset_on_record").asBoolean(),
                        node.get("clear_on_timeout").asBoolean());
            case "count":
                return CountTrigger.of(node.get("size").asLong());
            case "delta":
                return DeltaTrigger.of(
                        node.get("threshold").asDouble(),
                        new Growth(),
                        EVENT.createSerializer(new SerializerConfigImpl()));
            case "total":
                return new TotalTrigger(node.get("limit").asLong());
            case "never":
                return new GlobalWindows.NeverTrigger();
            case "purging":
                return PurgingTrigger.of(trigger(node.get("of")));
            default:
                throw new IllegalArgumentException("trigger " + node);
        }
    }

    @SuppressWarnings("rawtypes")
    private static Evictor evictor(JsonNode node) {
        boolean after = node.get("after").asBoolean();
        switch (node.get("kind").asText()) {
            case "count":
                return CountEvictor.of(node.get("size").asLong(), after);
            case "time":
                return TimeEvictor.of(millis(node.get("size")), after);
            case "delta":
                return DeltaEvictor.of(node.get("threshold").asDouble(), new Growth(), after);
            default:
                throw new IllegalArgumentException("evictor " + node);
        }
    }

    // -- input and output ----------------------------------------------------------------------------------------

    /** What one job has written, how far its output has come in event time, and the clock of its windows. */
    private static final class Run {
        final CompletableFuture<RunClock> clock = new CompletableFuture<>();
        final Queue<String> results = new ConcurrentLinkedQueue<>();
        final Queue<String> late = new ConcurrentLinkedQueue<>();
        private long reached = Long.MIN_VALUE;

        synchronized void reach(long watermark) {
            reached = Math.max(reached, watermark);
            notifyAll();
        }

        synchronized void await(long watermark) throws InterruptedException {
            while (reached < watermark) {
                wait();
            }
        }
    }

    /**
     * A clock that stands still until the source moves it. Timers fire as by Flink's own service: in the task's mailbox,
     * and when the millisecond they are registered for is over.
     */
    private static final class RunClock extends Clock implements ProcessingTimeService {
        private final MailboxExecutor mailbox;
        private final PriorityQueue<Timer> timers = new PriorityQueue<>();
        private long now;

        RunClock(MailboxExecutor mailbox) {
            this.mailbox = mailbox;
        }

        /** Moves the clock and fires what is due; returns when that is done. Called by the source's thread. */
        void moveTo(long time) throws Exception {
            mailbox.submit(
                            () -> {
                                now = time;
                                fireDue();
                            },
                            "move the clock")
                    .get();
        }

        private void fireDue() {
            while (!timers.isEmpty() && timers.peek().firesAt <= now) {
                timers.poll().run();
            }
        }

        @Override
        public ScheduledFuture<?> registerTimer(long time, ProcessingTimeCallback target) {
            long firesAt = now + ProcessingTimeServiceUtil.getProcessingTimeDelay(time, now);
            Timer timer = new Timer(firesAt, time, target);
            timers.add(timer);
            if (firesAt <= now) {
                mailbox.execute(this::fireDue, "a timer that is due already");
            }
            return timer;
        }

        @Override
        public Clock getClock() {
            return this;
        }

        @Override
        public long getCurrentProcessingTime() {
            return now;
        }

        @Override
        public long absoluteTimeMillis() {
            return now;
        }

        @Override
        public long relativeTimeMillis() {
            return now;
        }

        @Override
        public long relativeTimeNanos() {
            return TimeUnit.MILLISECONDS.toNanos(now);
        }

        @Override
        public ScheduledFuture<?> scheduleAtFixedRate(ProcessingTimeCallback target, long delay, long period) {
            throw new UnsupportedOperationException("windows have no periodic timers");
        }

        @Override
        public ScheduledFuture<?> scheduleWithFixedDelay(ProcessingTimeCallback target, long delay, long period) {
            throw new UnsupportedOperationException("windows have no periodic timers");
        }

        @Override
        public CompletableFuture<Void> quiesce() {
            timers.clear();
            return CompletableFuture.completedFuture(null);
        }
    }

    /** A registered timer; running a cancelled one does nothing. */
    private static final class Timer extends FutureTask<Void> implements ScheduledFuture<Void> {
        final long firesAt;

        Timer(long firesAt, long time, ProcessingTimeService.ProcessingTimeCallback target) {
            super(
                    () -> {
                        target.onProcessingTime(time);
                        return null;
                    });
            this.firesAt = firesAt;
        }

        @Override
        protected void setException(Throwable failure) {
            throw new IllegalStateException("a timer failed", failure);
        }

        @Override
        public long getDelay(TimeUnit unit) {
            throw new UnsupportedOperationException("the clock stands still");
        }

        @Override
        public int compareTo(Delayed other) {
            return Long.compare(firesAt, ((Timer) other).firesAt);
        }
    }

    /** Makes a window operator with the clock of a run. */
    private static final class Clocked<T> extends AbstractStreamOperatorFactory<T> {
        private final StreamOperatorFactory<T> factory;
        private final long seed;

        Clocked(StreamOperatorFactory<T> factory, long seed) {
            this.factory = factory;
            this.seed = seed;
            chainingStrategy = factory.getChainingStrategy();
        }

        @Override
        public <O extends StreamOperator<T>> O createStreamOperator(StreamOperatorParameters<T> given) {
            RunClock clock = new RunClock(given.getMailboxExecutor());
            ((ProcessingTimeServiceAware) factory).setProcessingTimeService(clock);
            O made =
                    factory.createStreamOperator(
                            new StreamOperatorParameters<>(
                                    given.getContainingTask(),
                                    given.getStreamConfig(),
                                    given.getOutput(),
                                    () -> clock,
                                    given.getOperatorEventDispatcher(),
                                    given.getMailboxExecutor()));
            RUNS.get(seed).clock.complete(clock);
            return made;
        }

        @Override
        @SuppressWarnings("rawtypes")
        public Class<? extends StreamOperator> getStreamOperatorClass(ClassLoader loader) {
            return factory.getStreamOperatorClass(loader);
        }
    }

    /**
     * Moves the clock, if the job has one, sends the records of each epoch, and then its watermark.
     *
     * <p>It waits until the watermark has arrived at the sink, so that a record of the next epoch never overtakes it on
     * the other input of a join.
     */
    private static final class EpochSource implements SourceFunction<Tuple4<String, Long, Long, Integer>> {
        private final String spec;
        private volatile boolean isRunning = true;

        EpochSource(String spec) {
            this.spec = spec;
        }

        @Override
        public void run(SourceContext<Tuple4<String, Long, Long, Integer>> context) throws Exception {
            JsonNode read = JSON.readTree(spec);
            Run run = RUNS.get(read.get("seed").asLong());
            long largest = Long.MIN_VALUE;
            long reached = Long.MIN_VALUE;
            int number = 0;
            for (JsonNode epoch : read.get("epochs")) {
                if (read.hasNonNull("clock") && isRunning) {
                    run.clock.get().moveTo(read.get("clock").get(number++).asLong());
                }
                for (JsonNode record : epoch) {
                    long timestamp = record.get(2).asLong();
                    largest = Math.max(largest, timestamp);
                    context.collectWithTimestamp(
                            Tuple4.of(
                                    record.get(0).asText(),
                                    record.get(1).asLong(),
                                    timestamp,
                                    record.get(3).asInt()),
                            timestamp);
                }
                long watermark =
                        largest == Long.MIN_VALUE ? largest : largest - read.get("out_of_orderness").asLong() - 1;
                if (watermark > reached && isRunning) {
                    reached = watermark;
                    context.emitWatermark(new Watermark(watermark));
                    run.await(watermark);
                }
            }
        }

        @Override
        public void cancel() {
            isRunning = false;
        }
    }

    private static final class Results implements Sink<String> {
        private final long seed;
        private final boolean isLate;

        Results(long seed, boolean isLate) {
            this.seed = seed;
            this.isLate = isLate;
        }

        @Override
        public SinkWriter<String> createWriter(WriterInitContext context) {
            Run run = RUNS.get(seed);
            return new SinkWriter<>() {
                @Override
                public void write(String line, Context context) {
                    (isLate ? run.late : run.results).add(line);
                }

                @Override
                public void writeWatermark(org.apache.flink.api.common.eventtime.Watermark watermark) {
                    if (!isLate) {
                        run.reach(watermark.getTimestamp());
                    }
                }

                @Override
                public void flush(boolean isEndOfInput) {}

                @Override
                public void close() {}
            };
        }
    }

    /**
     * Writes a result and its timestamp as JSON. Of a record only some columns, or the first three.
     *
     * <p>How often a key has fired stands without the timestamp: Flink does not define in which order the windows of a
     * key fire at the same time.
     */
    private static final class AsText<T> extends ProcessFunction<T, String> {
        private final int[] columns;

        AsText(int[] columns) {
            this.columns = columns;
        }

        @Override
        public void processElement(T result, Context context, Collector<String> out) {
            String text = text(result, columns);
            Long timestamp = text.startsWith("[\"fired\"") ? null : context.timestamp();
            out.collect("[" + text + "," + timestamp + "]");
        }
    }

    private static String text(Object result, int[] columns) {
        if (result instanceof String) {
            return (String) result;
        }
        Tuple4<?, ?, ?, ?> event = (Tuple4<?, ?, ?, ?>) result;
        List<String> chosen = new ArrayList<>();
        for (int column : columns == null ? new int[] {0, 1, 2} : columns) {
            chosen.add(column == 0 ? quoted(event.f0) : String.valueOf((Object) event.getField(column)));
        }
        return "[" + String.join(",", chosen) + "]";
    }

    private static String quoted(Object key) {
        return "\"" + key + "\"";
    }

    // -- functions -----------------------------------------------------------------------------------------------

    private static final class ByKey implements KeySelector<Tuple4<String, Long, Long, Integer>, String> {
        @Override
        public String getKey(Tuple4<String, Long, Long, Integer> event) {
            return event.f0;
        }
    }

    private static final class Growth implements DeltaFunction<Tuple4<String, Long, Long, Integer>> {
        @Override
        public double getDelta(
                Tuple4<String, Long, Long, Integer> older, Tuple4<String, Long, Long, Integer> newer) {
            return newer.f1 - older.f1;
        }
    }

    /** Adds values; where the order of records is known, in a way that depends on it. */
    private static final class Combine implements ReduceFunction<Tuple4<String, Long, Long, Integer>> {
        private final boolean ordered;

        Combine(boolean ordered) {
            this.ordered = ordered;
        }

        @Override
        public Tuple4<String, Long, Long, Integer> reduce(
                Tuple4<String, Long, Long, Integer> one, Tuple4<String, Long, Long, Integer> other) {
            long value = ordered ? Math.floorMod(one.f1 * 7 + other.f1, 1_000_003L) : one.f1 + other.f1;
            return Tuple4.of(one.f0, value, Math.max(one.f2, other.f2), one.f3);
        }
    }

    /** Key of the last record, sum and count. Merging is as adding, which Checkdam's sliding windows rely on. */
    private static final class Totals
            implements AggregateFunction<
                    Tuple4<String, Long, Long, Integer>,
                    Tuple3<String, Long, Long>,
                    Tuple4<String, Long, Long, Integer>> {
        static final TypeInformation<Tuple3<String, Long, Long>> TYPE =
                Types.TUPLE(Types.STRING, Types.LONG, Types.LONG);

        @Override
        public Tuple3<String, Long, Long> createAccumulator() {
            return Tuple3.of("", 0L, 0L);
        }

        @Override
        public Tuple3<String, Long, Long> add(
                Tuple4<String, Long, Long, Integer> event, Tuple3<String, Long, Long> sums) {
            return Tuple3.of(event.f0, sums.f1 + event.f1, sums.f2 + 1);
        }

        @Override
        public Tuple4<String, Long, Long, Integer> getResult(Tuple3<String, Long, Long> sums) {
            return Tuple4.of(sums.f0, sums.f1, sums.f2, 0);
        }

        @Override
        public Tuple3<String, Long, Long> merge(Tuple3<String, Long, Long> one, Tuple3<String, Long, Long> other) {
            return Tuple3.of(other.f0, one.f1 + other.f1, one.f2 + other.f2);
        }
    }

    private static String bounds(Window window) {
        if (window instanceof TimeWindow) {
            return ((TimeWindow) window).getStart() + "," + ((TimeWindow) window).getEnd();
        }
        return "null,null";
    }

    private static String values(Iterable<Tuple4<String, Long, Long, Integer>> events, boolean ordered) {
        List<Long> values = new ArrayList<>();
        for (Tuple4<String, Long, Long, Integer> event : events) {
            values.add(event.f1);
        }
        if (!ordered) {
            values.sort(null);
        }
        return values.toString();
    }

    private static Object counted(KeyedStateStore states) throws Exception {
        ValueState<Long> count = states.getState(new ValueStateDescriptor<>("fired", Types.LONG));
        long fired = (count.value() == null ? 0 : count.value()) + 1;
        count.update(fired);
        return fired;
    }

    private static final class Tell
            extends ProcessWindowFunction<Tuple4<String, Long, Long, Integer>, String, String, Window> {
        private final String word;
        private final int[] columns;

        Tell(String word, int[] columns) {
            this.word = word;
            this.columns = columns;
        }

        @Override
        public void process(
                String key,
                Context context,
                Iterable<Tuple4<String, Long, Long, Integer>> results,
                Collector<String> out) {
            for (Tuple4<String, Long, Long, Integer> result : results) {
                out.collect(
                        "[" + quoted(word) + "," + quoted(key) + "," + bounds(context.window()) + ","
                                + text(result, columns) + "," + context.currentWatermark() + "]");
            }
        }
    }

    private static final class TellAll
            extends ProcessAllWindowFunction<Tuple4<String, Long, Long, Integer>, String, Window> {
        private final String word;
        private final int[] columns;

        TellAll(String word, int[] columns) {
            this.word = word;
            this.columns = columns;
        }

        @Override
        public void process(
                Context context, Iterable<Tuple4<String, Long, Long, Integer>> results, Collector<String> out) {
            for (Tuple4<String, Long, Long, Integer> result : results) {
                out.collect("[" + quoted(word) + "," + bounds(context.window()) + "," + text(result, columns) + "]");
            }
        }
    }

    private static final class Apply
            implements WindowFunction<Tuple4<String, Long, Long, Integer>, String, String, Window> {
        private final boolean ordered;

        Apply(boolean ordered) {
            this.ordered = ordered;
        }

        @Override
        public void apply(
                String key,
                Window window,
                Iterable<Tuple4<String, Long, Long, Integer>> events,
                Collector<String> out) {
            out.collect("[\"applied\"," + quoted(key) + "," + bounds(window) + "," + values(events, ordered) + "]");
        }
    }

    private static final class ApplyAll
            implements AllWindowFunction<Tuple4<String, Long, Long, Integer>, String, Window> {
        private final boolean ordered;

        ApplyAll(boolean ordered) {
            this.ordered = ordered;
        }

        @Override
        public void apply(
                Window window, Iterable<Tuple4<String, Long, Long, Integer>> events, Collector<String> out) {
            out.collect("[\"applied\"," + bounds(window) + "," + values(events, ordered) + "]");
        }
    }

    /** Tells the values of a window and, by its state, how often the window or the key has fired. */
    private static final class Process
            extends ProcessWindowFunction<Tuple4<String, Long, Long, Integer>, String, String, Window> {
        private final boolean ordered;
        private final String function;

        Process(boolean ordered, String function) {
            this.ordered = ordered;
            this.function = function;
        }

        @Override
        public void process(
                String key,
                Context context,
                Iterable<Tuple4<String, Long, Long, Integer>> events,
                Collector<String> out)
                throws Exception {
            Object fired = function.equals("process_window_state") ? counted(context.windowState()) : null;
            out.collect(
                    "[\"processed\"," + quoted(key) + "," + bounds(context.window()) + "," + values(events, ordered)
                            + "," + context.currentWatermark() + "," + fired + "]");
            if (function.equals("process_global_state")) {
                out.collect("[\"fired\"," + quoted(key) + "," + counted(context.globalState()) + "]");
            }
        }

        @Override
        public void clear(Context context) {
            if (function.equals("process_window_state")) {
                context.windowState().getState(new ValueStateDescriptor<>("fired", Types.LONG)).clear();
            }
        }
    }

    private static final class ProcessAll
            extends ProcessAllWindowFunction<Tuple4<String, Long, Long, Integer>, String, Window> {
        private final boolean ordered;
        private final String function;

        ProcessAll(boolean ordered, String function) {
            this.ordered = ordered;
            this.function = function;
        }

        @Override
        public void process(
                Context context, Iterable<Tuple4<String, Long, Long, Integer>> events, Collector<String> out)
                throws Exception {
            Object fired = function.equals("process_window_state") ? counted(context.windowState()) : null;
            out.collect(
                    "[\"processed\"," + bounds(context.window()) + "," + values(events, ordered) + "," + fired + "]");
            if (function.equals("process_global_state")) {
                out.collect("[\"fired\"," + counted(context.globalState()) + "]");
            }
        }

        @Override
        public void clear(Context context) {
            if (function.equals("process_window_state")) {
                context.windowState().getState(new ValueStateDescriptor<>("fired", Types.LONG)).clear();
            }
        }
    }

    private static final class Pair
            implements JoinFunction<
                    Tuple4<String, Long, Long, Integer>, Tuple4<String, Long, Long, Integer>, String> {
        @Override
        public String join(Tuple4<String, Long, Long, Integer> left, Tuple4<String, Long, Long, Integer> right) {
            return "[\"joined\"," + quoted(left.f0) + "," + left.f1 + "," + right.f1 + "]";
        }
    }

    private static final class BothSides
            implements CoGroupFunction<
                    Tuple4<String, Long, Long, Integer>, Tuple4<String, Long, Long, Integer>, String> {
        @Override
        public void coGroup(
                Iterable<Tuple4<String, Long, Long, Integer>> left,
                Iterable<Tuple4<String, Long, Long, Integer>> right,
                Collector<String> out) {
            String key = left.iterator().hasNext() ? left.iterator().next().f0 : right.iterator().next().f0;
            out.collect(
                    "[\"grouped\"," + quoted(key) + "," + values(left, false) + "," + values(right, false) + "]");
        }
    }

    private static final class WithinInterval
            extends ProcessJoinFunction<
                    Tuple4<String, Long, Long, Integer>, Tuple4<String, Long, Long, Integer>, String> {
        @Override
        public void processElement(
                Tuple4<String, Long, Long, Integer> left,
                Tuple4<String, Long, Long, Integer> right,
                Context context,
                Collector<String> out) {
            out.collect(
                    "[\"within\"," + quoted(left.f0) + "," + left.f1 + "," + right.f1 + "," + context.getLeftTimestamp()
                            + "," + context.getRightTimestamp() + "]");
        }
    }

    /** Fires at the end of the window, and whenever the values since the last time add up to a limit. */
    private static final class TotalTrigger extends Trigger<Tuple4<String, Long, Long, Integer>, Window> {
        private final long limit;
        private final ReducingStateDescriptor<Long> total =
                new ReducingStateDescriptor<>("total", (one, other) -> one + other, Types.LONG);

        TotalTrigger(long limit) {
            this.limit = limit;
        }

        @Override
        public TriggerResult onElement(
                Tuple4<String, Long, Long, Integer> event, long timestamp, Window window, TriggerContext context)
                throws Exception {
            if (window.maxTimestamp() > context.getCurrentWatermark()) {
                context.registerEventTimeTimer(window.maxTimestamp());
            }
            ReducingState<Long> state = context.getPartitionedState(total);
            state.add(event.f1);
            if (state.get() < limit) {
                return TriggerResult.CONTINUE;
            }
            state.clear();
            return TriggerResult.FIRE;
        }

        @Override
        public TriggerResult onEventTime(long time, Window window, TriggerContext context) {
            return time == window.maxTimestamp() ? TriggerResult.FIRE : TriggerResult.CONTINUE;
        }

        @Override
        public TriggerResult onProcessingTime(long time, Window window, TriggerContext context) {
            return TriggerResult.CONTINUE;
        }

        @Override
        public boolean canMerge() {
            return true;
        }

        @Override
        public void onMerge(Window window, OnMergeContext context) {
            context.mergePartitionedState(total);
            if (window.maxTimestamp() > context.getCurrentWatermark()) {
                context.registerEventTimeTimer(window.maxTimestamp());
            }
        }

        @Override
        public void clear(Window window, TriggerContext context) {
            context.deleteEventTimeTimer(window.maxTimestamp());
            context.getPartitionedState(total).clear();
        }
    }
}
