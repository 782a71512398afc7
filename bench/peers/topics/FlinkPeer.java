import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.BooleanSupplier;
import org.apache.flink.api.common.JobID;
import org.apache.flink.core.execution.CheckpointType;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.IsolationLevel;

/** Flink: runs each job as a {@link FlinkJob} in one cluster, which is in this process. */
final class FlinkPeer implements TopicPeer {
    static final int PARALLELISM = 2;

    private final String servers, workload, rules;
    private final Path folder;
    private final MiniCluster cluster;

    private FlinkPeer(String servers, String workload, String rules, Path folder) throws Exception {
        this.servers = servers;
        this.workload = workload;
        this.rules = rules;
        this.folder = folder;
        cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
            .setNumTaskManagers(1).setNumSlotsPerTaskManager(PARALLELISM).withRandomPorts().build());
        cluster.start();
    }

    public static void main(String[] given) throws Exception {
        TopicPeer.serve(new FlinkPeer(given[0], given[1], given[2], Path.of(given[3])));
    }

    /** How far the job is that runs, by its tasks, which are in this process, too. */
    static final class Progress {
        /** Opens when each task has all rules; until then none reads messages. */
        final CountDownLatch rules;

        /** How many messages were matched, and their deliveries handed to the sink. */
        final LongAdder messages = new LongAdder();

        private final AtomicLong began = new AtomicLong();

        private Progress(long rules) {
            this.rules = new CountDownLatch(Math.toIntExact(rules * PARALLELISM));
        }

        /** Start the clock, with the first message. */
        void begin() {
            if (began.get() == 0) began.compareAndSet(0, System.nanoTime());
        }
    }

    private static volatile Progress progress;

    static Progress progress() {
        return progress;
    }

    @Override
    public double run(Job job, BooleanSupplier stopped) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            long messages = count(admin, job.from());
            progress = new Progress(count(admin, rules));
            FlinkJob asked = new FlinkJob(servers, workload, rules, folder, job);
            JobID id = cluster.submitJob(asked.environment().getStreamGraph()).get().getJobID();
            CompletableFuture<JobResult> ended = cluster.requestJobResult(id);
            if (job.available()) {
                TopicPeer.await(() -> runs(ended) && progress.messages.sum() == messages);
                cluster.triggerCheckpoint(id, CheckpointType.FULL).get(); // rather than when the interval is over
                TopicPeer.await(() -> runs(ended) && isCommitted(admin, job.to()));
            } else {
                TopicPeer.await(() -> runs(ended) && stopped.getAsBoolean());
            }
            long now = System.nanoTime();
            cluster.cancelJob(id).get();
            ended.get();
            return (now - progress.began.get()) / 1e9;
        }
    }

    private static boolean runs(CompletableFuture<JobResult> ended) throws Exception {
        if (!ended.isDone()) return true;
        throw new IllegalStateException(ended.get().getSerializedThrowable()
            .<Throwable>map(one -> one.deserializeError(FlinkPeer.class.getClassLoader())).orElse(null));
    }

    private static long count(Admin admin, String topic) throws Exception {
        return TopicPeer.ends(admin, topic, IsolationLevel.READ_UNCOMMITTED).values().stream()
            .mapToLong(Long::longValue).sum();
    }

    private static boolean isCommitted(Admin admin, String topic) throws Exception {
        return TopicPeer.ends(admin, topic, IsolationLevel.READ_COMMITTED)
            .equals(TopicPeer.ends(admin, topic, IsolationLevel.READ_UNCOMMITTED));
    }
}
