import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A thread of a relay: its partitions of the input, and a consumer and a producer of its own. */
final class RelayWorker implements Callable<RelayWorker.Span> {
    private static final Duration PATIENCE = Duration.ofMillis(100);
    private static final byte[] REVISION = bytes("1");

    /**
     * What is relayed.
     *
     * @param group the consumer group, which has the offsets; new for each job, so that it reads from the beginning
     * @param interval how many messages are relayed between two commits, of each worker; rounded up to whole polls
     * @param available whether it ends when it has read what there is, rather than when it is stopped
     */
    record Job(String from, String to, String group, boolean transactional, int interval, boolean available) {}

    /** From the first poll until everything is acknowledged and committed, by {@code System.nanoTime}. */
    record Span(long began, long ended) {}

    private final String servers;
    private final Job job;
    private final RelayRules rules;
    private final int number, workers;
    private final CyclicBarrier ready;
    private final BooleanSupplier stopped;

    private KafkaConsumer<byte[], byte[]> consumer;
    private KafkaProducer<byte[], byte[]> producer;
    private RelayCommits commits;
    private long interval, sent; // intervals begun; deliveries of this one

    RelayWorker(
            String servers, Job job, RelayRules rules, int number, int workers, CyclicBarrier ready,
            BooleanSupplier stopped) {
        this.servers = servers;
        this.job = job;
        this.rules = rules;
        this.number = number;
        this.workers = workers;
        this.ready = ready;
        this.stopped = stopped;
    }

    @Override
    public Span call() throws Exception {
        try (KafkaConsumer<byte[], byte[]> reads = consumer(); KafkaProducer<byte[], byte[]> writes = producer()) {
            consumer = reads;
            producer = writes;
            commits = job.transactional
                ? new RelayCommits.Transactional(reads, writes)
                : new RelayCommits.Acknowledged(reads, writes);
            List<TopicPartition> mine = reads.partitionsFor(job.from).stream()
                .filter(one -> one.partition() % workers == number)
                .map(one -> new TopicPartition(one.topic(), one.partition()))
                .toList();
            reads.assign(mine);
            Map<TopicPartition, Long> ends = job.available ? reads.endOffsets(mine) : Map.of();
            ready.await(); // what is timed begins with all workers at once
            long began = System.nanoTime();
            run(mine, ends);
            return new Span(began, System.nanoTime());
        }
    }

    private void run(List<TopicPartition> mine, Map<TopicPartition, Long> ends) {
        int relayed = 0;
        boolean last = false;
        while (!last) {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(PATIENCE);
            if (!polled.isEmpty() && relayed == 0) {
                commits.begin();
                interval++;
                sent = 0;
            }
            for (ConsumerRecord<byte[], byte[]> message : polled) relay(message);
            relayed += polled.count();
            last = job.available ? mine.stream().allMatch(one -> consumer.position(one) >= ends.get(one))
                : stopped.getAsBoolean();
            if (relayed >= job.interval || last && relayed > 0) {
                commits.commit(positions(mine));
                relayed = 0;
            }
        }
        commits.finish();
    }

    /** Send a delivery for each rule that a message matches: the message itself, with four headers more. */
    private void relay(ConsumerRecord<byte[], byte[]> message) {
        RelayRules.Matches found = rules.match(message.headers());
        if (found.count() == 0) return;
        byte[] source = bytes(message.topic() + "/" + message.partition() + "/" + message.offset() + "/");
        String place = job.group + "/" + interval + "/" + number + "/";
        Header[] own = message.headers().toArray();
        for (int i = 0; i < found.count(); i++) {
            byte[] subscription = found.ids()[i];
            List<Header> headers = new ArrayList<>(own.length + 4);
            headers.addAll(Arrays.asList(own));
            headers.add(new RecordHeader("selectroute-subscription", subscription));
            headers.add(new RecordHeader("selectroute-delivery-id", joined(source, subscription)));
            headers.add(new RecordHeader("selectroute-revision", REVISION));
            headers.add(new RecordHeader("selectroute-batch", bytes(place + sent++)));
            Callback callback = commits.callback();
            producer.send(new ProducerRecord<>(job.to, null, message.key(), message.value(), headers), callback);
        }
    }

    private Map<TopicPartition, OffsetAndMetadata> positions(List<TopicPartition> mine) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        for (TopicPartition one : mine) found.put(one, new OffsetAndMetadata(consumer.position(one)));
        return found;
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Map<String, Object> settings = new HashMap<>();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, job.group);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        settings.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 5_000);
        settings.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 4 << 20);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private KafkaProducer<byte[], byte[]> producer() {
        Map<String, Object> settings = new HashMap<>();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        settings.put(ProducerConfig.ACKS_CONFIG, "all");
        settings.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, true);
        settings.put(ProducerConfig.LINGER_MS_CONFIG, 20);
        settings.put(ProducerConfig.BATCH_SIZE_CONFIG, 128 << 10);
        settings.put(ProducerConfig.BUFFER_MEMORY_CONFIG, 128L << 20);
        // A transaction that follows at once is refused until the markers of the one before are written.
        settings.put(ProducerConfig.RETRY_BACKOFF_MS_CONFIG, 5);
        // The same after a restart: what a worker that was thought dead still sends is fenced.
        if (job.transactional) settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, job.group + "-" + number);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] joined(byte[] first, byte[] second) {
        byte[] both = Arrays.copyOf(first, first.length + second.length);
        System.arraycopy(second, 0, both, first.length, second.length);
        return both;
    }
}
