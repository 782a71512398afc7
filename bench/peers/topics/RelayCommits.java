import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/**
 * The promise of a relay: what is true of its deliveries when it is killed at any time and started again. Any failure
 * ends it; what is not committed is read again.
 */
interface RelayCommits {
    /** Begin an interval, before its first delivery is sent. */
    void begin();

    /** Return what the producer tells of each delivery of this interval; null if nobody asks. */
    Callback callback();

    /** End an interval: all messages before these offsets have been relayed. */
    void commit(Map<TopicPartition, OffsetAndMetadata> offsets);

    /** Wait until all deliveries are acknowledged and all offsets committed. */
    void finish();

    /** Exactly once: deliveries and offsets are committed in one transaction. */
    final class Transactional implements RelayCommits {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final KafkaProducer<byte[], byte[]> producer;

        Transactional(KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer) {
            this.consumer = consumer;
            this.producer = producer;
            producer.initTransactions();
        }

        @Override
        public void begin() {
            producer.beginTransaction();
        }

        @Override
        public Callback callback() {
            return null; // the commit fails if a delivery did
        }

        @Override
        public void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            producer.commitTransaction();
        }

        @Override
        public void finish() {}
    }

    /**
     * At least once: offsets are committed when all deliveries of their interval are acknowledged. Nothing waits for
     * that but the end: the next interval is relayed meanwhile.
     */
    final class Acknowledged implements RelayCommits {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final KafkaProducer<byte[], byte[]> producer;
        private final Deque<Interval> unfinished = new ArrayDeque<>();
        private Map<TopicPartition, OffsetAndMetadata> newest = Map.of();
        private volatile Exception failure;

        Acknowledged(KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer) {
            this.consumer = consumer;
            this.producer = producer;
        }

        @Override
        public void begin() {
            unfinished.addLast(new Interval());
        }

        @Override
        public Callback callback() {
            Interval now = unfinished.getLast();
            now.open.incrementAndGet();
            return now;
        }

        @Override
        public void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
            newest = offsets;
            Interval ended = unfinished.getLast();
            ended.offsets = offsets;
            ended.open.decrementAndGet();
            Map<TopicPartition, OffsetAndMetadata> acknowledged = null;
            while (!unfinished.isEmpty() && unfinished.getFirst().open.get() == 0) {
                acknowledged = unfinished.removeFirst().offsets;
            }
            check();
            if (acknowledged != null) consumer.commitAsync(acknowledged, null);
        }

        @Override
        public void finish() {
            producer.flush();
            check();
            consumer.commitSync(newest);
        }

        private void check() {
            if (failure != null) throw new KafkaException("a delivery was refused", failure);
        }

        /** The messages between two commits; open as long as it is not ended or has a delivery on its way. */
        private final class Interval implements Callback {
            private final AtomicLong open = new AtomicLong(1);
            private Map<TopicPartition, OffsetAndMetadata> offsets;

            @Override
            public void onCompletion(RecordMetadata metadata, Exception exception) {
                if (exception != null) failure = exception; // before it counts as done
                open.decrementAndGet();
            }
        }
    }
}
