import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams: the rules in a global store in memory, a processor that forwards a record for each match, exactly
 * once. A rule that is written while it runs is taken in, nothing says before which message.
 */
final class StreamsPeer implements TopicPeer {
    private static final int THREADS = 2;
    private static final String STORE = "rules";

    private final String servers, workload, rules;
    private final Path folder;

    private StreamsPeer(String servers, String workload, String rules, Path folder) {
        this.servers = servers;
        this.workload = workload;
        this.rules = rules;
        this.folder = folder;
    }

    public static void main(String[] given) throws Exception {
        TopicPeer.serve(new StreamsPeer(given[0], given[1], given[2], Path.of(given[3])));
    }

    @Override
    public double run(Job job, BooleanSupplier stopped) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            Map<TopicPartition, Long> ends = TopicPeer.ends(admin, job.from(), IsolationLevel.READ_UNCOMMITTED);
            AtomicInteger left = new AtomicInteger(ends.size());
            AtomicReference<Throwable> failure = new AtomicReference<>();
            try (KafkaStreams streams = new KafkaStreams(topology(job, ends, left), settings(job))) {
                streams.setUncaughtExceptionHandler(error -> {
                    failure.set(error);
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
                streams.pause(); // what is timed begins with all threads at once
                streams.start(); // it returns when the store has all rules
                TopicPeer.await(() -> runs(failure) && isShared(streams, ends.size()));
                long began = System.nanoTime();
                streams.resume();
                if (job.available()) {
                    TopicPeer.await(() -> runs(failure) && left.get() == 0);
                    TopicPeer.await(() -> runs(failure) && committed(admin, job).equals(ends));
                } else {
                    TopicPeer.await(() -> runs(failure) && stopped.getAsBoolean());
                }
                return (System.nanoTime() - began) / 1e9;
            }
        }
    }

    private static boolean runs(AtomicReference<Throwable> failure) {
        if (failure.get() != null) throw new IllegalStateException(failure.get());
        return true;
    }

    /** Return whether each thread has its part of the partitions. */
    private static boolean isShared(KafkaStreams streams, int partitions) {
        return streams.metadataForLocalThreads().stream()
            .allMatch(thread -> thread.activeTasks().size() == partitions / THREADS);
    }

    private static Map<TopicPartition, Long> committed(Admin admin, Job job) throws Exception {
        return admin.listConsumerGroupOffsets(job.group()).partitionsToOffsetAndMetadata().get().entrySet().stream()
            .filter(one -> one.getValue() != null && one.getKey().topic().equals(job.from()))
            .collect(Collectors.toMap(Map.Entry::getKey, one -> one.getValue().offset()));
    }

    /** @param left how many partitions have not been read to their ends */
    private Topology topology(Job job, Map<TopicPartition, Long> ends, AtomicInteger left) {
        return new Topology()
            .addGlobalStore(
                Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(STORE), Serdes.String(), serde())
                    .withLoggingDisabled(),
                "rules", new StringDeserializer(), new StringDeserializer(), rules, "register", Register::new)
            .addSource("messages", new ByteArrayDeserializer(), new ByteArrayDeserializer(), job.from())
            .addProcessor("match", () -> new Match(workload, job, ends, left), "messages")
            .addSink("deliveries", job.to(), new ByteArraySerializer(), new ByteArraySerializer(), "match");
    }

    private Properties settings(Job job) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, job.group());
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, THREADS);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, job.millis());
        settings.put(StreamsConfig.POLL_MS_CONFIG, 10); // what is due is not committed while it waits for messages
        settings.put(StreamsConfig.STATE_DIR_CONFIG, folder.toString());
        settings.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, 10_000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 5_000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG), 4 << 20);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 20);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 128 << 10);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.BUFFER_MEMORY_CONFIG), 128L << 20);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.RETRY_BACKOFF_MS_CONFIG), 5);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 60_000);
        return settings;
    }

    /** Puts each rule into the store, those that were there before the start, too. */
    private static final class Register implements Processor<String, String, Void, Void> {
        private KeyValueStore<String, SortedRules> store;

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            store = context.getStateStore(STORE);
        }

        @Override
        public void process(Record<String, String> rule) {
            SortedRules.Decisive decisive = SortedRules.Decisive.ofRule(rule.value());
            SortedRules before = store.get(decisive.key());
            byte[] id = rule.key().getBytes(StandardCharsets.US_ASCII);
            store.put(decisive.key(), (before == null ? new SortedRules() : before).with(decisive.number(), id));
        }
    }

    /** Forwards a delivery for each rule that a message matches. */
    private static final class Match implements Processor<byte[], byte[], byte[], byte[]> {
        private final String workload;
        private final Job job;
        private final Map<TopicPartition, Long> ends;
        private final AtomicInteger left;
        private ProcessorContext<byte[], byte[]> context;
        private KeyValueStore<String, SortedRules> store;

        Match(String workload, Job job, Map<TopicPartition, Long> ends, AtomicInteger left) {
            this.workload = workload;
            this.job = job;
            this.ends = ends;
            this.left = left;
        }

        @Override
        public void init(ProcessorContext<byte[], byte[]> context) {
            this.context = context;
            store = context.getStateStore(STORE);
        }

        @Override
        public void process(Record<byte[], byte[]> message) {
            RecordMetadata place = context.recordMetadata().orElseThrow();
            SortedRules.Decisive decisive = SortedRules.Decisive.ofMessage(workload, message.headers());
            SortedRules rules = decisive.key() == null ? null : store.get(decisive.key());
            int count = rules == null ? 0 : rules.matched(decisive.number());
            Header[] own = count == 0 ? null : message.headers().toArray();
            for (int i = 0; i < count; i++) {
                Header[] all = TopicPeer.headers(
                    own, rules.ids[i], job.group(), place.topic(), place.partition(), place.offset());
                context.forward(message.withHeaders(new RecordHeaders(all)));
            }
            if (job.available() && place.offset() + 1 == ends.get(new TopicPartition(place.topic(), place.partition()))) {
                context.commit(); // rather than when the interval is over
                left.decrementAndGet();
            }
        }
    }

    /** Count, constants, and each id after its length. */
    private static Serde<SortedRules> serde() {
        return Serdes.serdeFrom(
            (topic, rules) -> {
                int size = 4;
                for (byte[] id : rules.ids) size += 8 + id.length;
                ByteBuffer bytes = ByteBuffer.allocate(size).putInt(rules.ids.length);
                for (int constant : rules.constants) bytes.putInt(constant);
                for (byte[] id : rules.ids) bytes.putInt(id.length).put(id);
                return bytes.array();
            },
            (topic, data) -> {
                if (data == null) return null;
                ByteBuffer bytes = ByteBuffer.wrap(data);
                SortedRules rules = new SortedRules();
                rules.constants = new int[bytes.getInt()];
                rules.ids = new byte[rules.constants.length][];
                for (int i = 0; i < rules.constants.length; i++) rules.constants[i] = bytes.getInt();
                for (int i = 0; i < rules.ids.length; i++) bytes.get(rules.ids[i] = new byte[bytes.getInt()]);
                return rules;
            });
    }
}
