import java.io.DataOutputStream;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * The job of Checkdam's side in Flink's DataStream API: the records of each word counted, and the counts discarded.
 *
 * <p>Arguments: the operator ("process" or "sum"), a directory of text files, a directory for the times, and a file of settings.
 */
public final class RunningCount {
    public static void main(String[] arguments) throws Exception {
        String operator = arguments[0];
        Path lines = Path.of(arguments[1]);
        Path times = Path.of(arguments[2]);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(settings(Path.of(arguments[3])));
        FileSource<String> files =
                FileSource.forRecordStreamFormat(
                                new TextLineInputFormat(), new org.apache.flink.core.fs.Path(lines.toUri()))
                        .build();
        DataStream<String> words = env.fromSource(files, WatermarkStrategy.noWatermarks(), "words");
        counted(operator, words).sinkTo(new Discard(times.toString()));
        env.execute("running count");
    }

    private static Configuration settings(Path file) throws IOException {
        Properties properties = new Properties();
        try (var reader = Files.newBufferedReader(file)) {
            properties.load(reader);
        }
        Configuration configuration = new Configuration();
        for (String key : properties.stringPropertyNames()) {
            configuration.setString(key, properties.getProperty(key));
        }
        return configuration;
    }

    private static DataStream<Tuple2<String, Long>> counted(String operator, DataStream<String> words) {
        switch (operator) {
            case "process":
                return words.keyBy(word -> word, Types.STRING)
                        .process(new Count(), Types.TUPLE(Types.STRING, Types.LONG));
            case "sum":
                return words.map(word -> Tuple2.of(word, 1L), Types.TUPLE(Types.STRING, Types.LONG))
                        .keyBy(pair -> pair.f0, Types.STRING)
                        .sum(1);
            default:
                throw new IllegalArgumentException("operator must be process or sum, not " + operator);
        }
    }

    /** One read and one write of state for each record. */
    private static final class Count extends KeyedProcessFunction<String, String, Tuple2<String, Long>> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(String word, Context context, Collector<Tuple2<String, Long>> out) throws Exception {
            Long before = count.value();
            long now = before == null ? 1 : before + 1;
            count.update(now);
            out.collect(Tuple2.of(word, now));
        }
    }

    /** Discards every record, and writes at which time each thousand was reached, in a file of each subtask. */
    private static final class Discard implements Sink<Tuple2<String, Long>> {
        private final String directory;

        Discard(String directory) {
            this.directory = directory;
        }

        @Override
        public SinkWriter<Tuple2<String, Long>> createWriter(WriterInitContext context) throws IOException {
            int subtask = context.getTaskInfo().getIndexOfThisSubtask();
            return new DiscardingWriter(Path.of(directory, subtask + ".bin"));
        }
    }

    /** Each entry of the file is a number of records and the time in nanoseconds at which they had been seen. */
    private static final class DiscardingWriter implements SinkWriter<Tuple2<String, Long>> {
        private static final int RECORDS_PER_ENTRY = 1_000;

        private final DataOutputStream entries;
        private int unwritten = 0;

        DiscardingWriter(Path file) throws IOException {
            entries = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(file)));
        }

        @Override
        public void write(Tuple2<String, Long> record, Context context) throws IOException {
            if (++unwritten == RECORDS_PER_ENTRY) {
                writeEntry();
            }
        }

        private void writeEntry() throws IOException {
            entries.writeLong(unwritten);
            entries.writeLong(System.nanoTime());
            unwritten = 0;
        }

        @Override
        public void flush(boolean endOfInput) {}

        @Override
        public void close() throws IOException {
            writeEntry();
            entries.close();
        }
    }
}
