import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/**
 * A framework that runs jobs from topic to topic, one at a time, in a process of its own: {@code java PEER SERVERS
 * WORKLOAD RULES FOLDER}, where RULES is a topic (see {@link SortedRules}) and FOLDER is for its files. When it can
 * take a job it says {@code {}}. Then {@code run FROM TO GROUP MILLIS available|all} on its standard input starts one,
 * and {@code stop} ends it. When a job has ended, the process says as a line of JSON how many seconds it took.
 */
interface TopicPeer {
    /**
     * Run a job; return the seconds from when it could read its first message until all deliveries were committed.
     *
     * @param stopped whether a job that does not end by itself is to end
     */
    double run(Job job, BooleanSupplier stopped) throws Exception;

    /**
     * What is delivered.
     *
     * @param group the consumer group, new for each job, so that it reads from the beginning
     * @param millis the time between two commits
     * @param available whether it ends when it has delivered what there is, rather than when it is stopped
     */
    record Job(String from, String to, String group, int millis, boolean available) {}

    /** Take lines, until there are no more. A job that fails ends the process. */
    static void serve(TopicPeer peer) throws IOException {
        AtomicBoolean stopped = new AtomicBoolean();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("{}");
        for (String line; (line = asked.readLine()) != null; ) {
            String[] words = line.split(" ");
            stopped.set(words[0].equals("stop"));
            if (stopped.get()) continue;
            Job job = new Job(words[1], words[2], words[3], Integer.parseInt(words[4]), words[5].equals("available"));
            thread.submit(() -> {
                try {
                    System.out.printf(Locale.ROOT, "{\"seconds\": %.6f}%n", peer.run(job, stopped::get));
                } catch (Throwable failure) {
                    failure.printStackTrace();
                    System.exit(1);
                }
            });
        }
        System.exit(0);
    }

    /** Wait until something holds. */
    static void await(Condition condition) throws Exception {
        while (!condition.holds()) Thread.sleep(2);
    }

    /** What is waited for; it throws if that can't come any more. */
    interface Condition {
        boolean holds() throws Exception;
    }

    /** Return where each partition of a topic ends, for those that read at an isolation level. */
    static Map<TopicPartition, Long> ends(Admin admin, String topic, IsolationLevel level)
            throws ExecutionException, InterruptedException {
        Map<TopicPartition, OffsetSpec> asked = admin.describeTopics(List.of(topic)).allTopicNames().get()
            .get(topic).partitions().stream()
            .collect(Collectors.toMap(one -> new TopicPartition(topic, one.partition()), one -> OffsetSpec.latest()));
        return admin.listOffsets(asked, new ListOffsetsOptions(level)).all().get().entrySet().stream()
            .collect(Collectors.toMap(Map.Entry::getKey, one -> one.getValue().offset()));
    }

    /** Return the headers of a delivery: those of its message, and four more, as `start_fanout` writes them. */
    static Header[] headers(Header[] own, byte[] rule, String group, String topic, int partition, long offset) {
        Header[] all = Arrays.copyOf(own, own.length + 4);
        String place = partition + "/" + offset;
        all[own.length] = new RecordHeader("selectroute-subscription", rule);
        all[own.length + 1] =
            new RecordHeader("selectroute-delivery-id", bytes(topic + "/" + place + "/" + text(rule)));
        all[own.length + 2] = new RecordHeader("selectroute-revision", bytes("1"));
        all[own.length + 3] = new RecordHeader("selectroute-batch", bytes(group + "/1/" + place));
        return all;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.US_ASCII);
    }
}
