import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.DeserializationSchema.InitializationContext;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.HeaderProvider;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.BroadcastProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.header.internals.RecordHeaders;

/**
 * A job of Flink: the rules in broadcast state, a function that collects a delivery for each match, source and sink of
 * its Kafka connector, exactly once by checkpoints. A rule that is written while it runs is taken in, nothing says
 * before which message.
 */
record FlinkJob(String servers, String workload, String rules, Path folder, TopicPeer.Job job) {
    private static final MapStateDescriptor<String, SortedRules> BROADCAST =
        new MapStateDescriptor<>("rules", Types.STRING, Types.POJO(SortedRules.class));

    StreamExecutionEnvironment environment() {
        Configuration settings = new Configuration();
        settings.set(PipelineOptions.OBJECT_REUSE, true);
        settings.set(PipelineOptions.GENERIC_TYPES, false);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "disable");
        settings.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, folder.toUri().toString());
        StreamExecutionEnvironment made = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        made.setParallelism(FlinkPeer.PARALLELISM);
        made.enableCheckpointing(job.millis(), CheckpointingMode.EXACTLY_ONCE);
        // What one task has for another waits so long for more of it: Flink's own 100 ms are for throughput.
        made.setBufferTimeout(job.available() ? 100 : 5);
        var messages = source(made, job.from(), new ReadMessage(workload));
        var ruled = source(made, rules, new ReadRule()).broadcast(BROADCAST);
        messages.connect(ruled).process(new Match()).sinkTo(sink());
        return made;
    }

    private <T> DataStream<T> source(
            StreamExecutionEnvironment made, String topic, KafkaRecordDeserializationSchema<T> read) {
        KafkaSource<T> source = KafkaSource.<T>builder()
            .setBootstrapServers(servers)
            .setGroupId(job.group())
            .setClientIdPrefix(topic)
            .setTopics(topic)
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setDeserializer(read)
            .setProperty(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, "5000")
            .setProperty(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, String.valueOf(4 << 20))
            .build();
        return made.fromSource(source, WatermarkStrategy.noWatermarks(), topic);
    }

    private KafkaSink<Delivery> sink() {
        Properties settings = new Properties();
        settings.setProperty(ProducerConfig.ACKS_CONFIG, "all");
        settings.setProperty(ProducerConfig.LINGER_MS_CONFIG, "20");
        settings.setProperty(ProducerConfig.BATCH_SIZE_CONFIG, String.valueOf(128 << 10));
        settings.setProperty(ProducerConfig.BUFFER_MEMORY_CONFIG, String.valueOf(128 << 20));
        settings.setProperty(ProducerConfig.RETRY_BACKOFF_MS_CONFIG, "5");
        settings.setProperty(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, "60000");
        return KafkaSink.<Delivery>builder()
            .setBootstrapServers(servers)
            .setKafkaProducerConfig(settings)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(job.group())
            .setTransactionNamingStrategy(TransactionNamingStrategy.POOLING)
            .setRecordSerializer(KafkaRecordSerializationSchema.<Delivery>builder()
                .setTopic(job.to())
                .setKeySerializationSchema(new Key())
                .setValueSerializationSchema(new Value())
                .setHeaderProvider(new Headers(job.from(), job.group()))
                .build())
            .build();
    }

    /** A rule: what decides, and its id. */
    public static final class Rule {
        public String key;
        public int constant;
        public byte[] id;
    }

    /** A message, and what decides in it. */
    public static final class Message {
        public String key;
        public int weight;
        public int partition;
        public long offset;
        public byte[] recordKey;
        public byte[] value;
        public String[] names;
        public byte[][] headers;
    }

    /** A message that matches a rule. */
    public static final class Delivery {
        public Message message;
        public byte[] rule;
    }

    private record ReadRule() implements KafkaRecordDeserializationSchema<Rule> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Rule> out) {
            SortedRules.Decisive decisive = SortedRules.Decisive.ofRule(
                new String(record.value(), StandardCharsets.UTF_8));
            Rule rule = new Rule();
            rule.key = decisive.key();
            rule.constant = decisive.number();
            rule.id = record.key();
            out.collect(rule);
        }

        @Override
        public TypeInformation<Rule> getProducedType() {
            return Types.POJO(Rule.class);
        }
    }

    private record ReadMessage(String workload) implements KafkaRecordDeserializationSchema<Message> {
        @Override
        public void open(InitializationContext context) throws InterruptedException {
            FlinkPeer.progress().rules.await(); // one that comes before a rule it matches would not be delivered
        }

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Message> out) {
            FlinkPeer.progress().begin();
            SortedRules.Decisive decisive = SortedRules.Decisive.ofMessage(workload, record.headers());
            Header[] headers = record.headers().toArray();
            Message message = new Message();
            message.key = decisive.key();
            message.weight = decisive.number();
            message.partition = record.partition();
            message.offset = record.offset();
            message.recordKey = record.key();
            message.value = record.value();
            message.names = new String[headers.length];
            message.headers = new byte[headers.length][];
            for (int i = 0; i < headers.length; i++) {
                message.names[i] = headers[i].key();
                message.headers[i] = headers[i].value();
            }
            out.collect(message);
        }

        @Override
        public TypeInformation<Message> getProducedType() {
            return Types.POJO(Message.class);
        }
    }

    private static final class Match extends BroadcastProcessFunction<Message, Rule, Delivery> {
        @Override
        public void processBroadcastElement(Rule rule, Context context, Collector<Delivery> out) throws Exception {
            var state = context.getBroadcastState(BROADCAST);
            SortedRules before = state.get(rule.key);
            state.put(rule.key, (before == null ? new SortedRules() : before).with(rule.constant, rule.id));
            FlinkPeer.progress().rules.countDown();
        }

        @Override
        public void processElement(Message message, ReadOnlyContext context, Collector<Delivery> out)
                throws Exception {
            SortedRules rules = message.key == null ? null : context.getBroadcastState(BROADCAST).get(message.key);
            int count = rules == null ? 0 : rules.matched(message.weight);
            Delivery delivery = new Delivery();
            delivery.message = message;
            for (int i = 0; i < count; i++) {
                delivery.rule = rules.ids[i];
                out.collect(delivery);
            }
            FlinkPeer.progress().messages.increment();
        }
    }

    private record Key() implements SerializationSchema<Delivery> {
        @Override
        public byte[] serialize(Delivery delivery) {
            return delivery.message.recordKey;
        }
    }

    private record Value() implements SerializationSchema<Delivery> {
        @Override
        public byte[] serialize(Delivery delivery) {
            return delivery.message.value;
        }
    }

    private record Headers(String from, String group) implements HeaderProvider<Delivery> {
        @Override
        public RecordHeaders getHeaders(Delivery delivery) {
            Message message = delivery.message;
            Header[] own = new Header[message.names.length];
            for (int i = 0; i < own.length; i++) own[i] = new RecordHeader(message.names[i], message.headers[i]);
            return new RecordHeaders(
                TopicPeer.headers(own, delivery.rule, group, from, message.partition, message.offset));
        }
    }
}
