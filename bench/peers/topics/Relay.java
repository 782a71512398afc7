import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.util.Locale;
import java.util.concurrent.CompletionService;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorCompletionService;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A relay from topic to topic, written for the shape of one workload: {@code java Relay SERVERS WORKLOAD RULES}, the
 * last being a file that {@link RelayRules#read} takes. When it has read the rules it says {@code {}}, and then takes
 * lines on its standard input: {@code relay FROM TO GROUP transactional|at-least-once INTERVAL available|all} starts a
 * {@link RelayWorker.Job}, {@code stop} ends it. When a job has ended it says, as a line of JSON, how many seconds
 * passed from the first poll of any worker until the last one had committed.
 */
final class Relay {
    private static final int WORKERS = 2;

    private final String servers;
    private final RelayRules rules;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private volatile boolean stopped;

    private Relay(String servers, RelayRules rules) {
        this.servers = servers;
        this.rules = rules;
    }

    public static void main(String[] given) throws Exception {
        Relay relay = new Relay(given[0], RelayRules.read(given[1], Path.of(given[2])));
        System.out.println("{}");
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = asked.readLine()) != null; ) {
            String[] words = line.split(" ");
            if (words[0].equals("stop")) relay.stopped = true;
            else relay.start(new RelayWorker.Job(
                words[1], words[2], words[3], words[4].equals("transactional"), Integer.parseInt(words[5]),
                words[6].equals("available")));
        }
        System.exit(0);
    }

    private void start(RelayWorker.Job job) {
        stopped = false;
        CompletionService<RelayWorker.Span> workers = new ExecutorCompletionService<>(threads);
        CyclicBarrier ready = new CyclicBarrier(WORKERS);
        for (int number = 0; number < WORKERS; number++) {
            workers.submit(new RelayWorker(servers, job, rules, number, WORKERS, ready, () -> stopped));
        }
        threads.submit(() -> answer(workers));
    }

    private static void answer(CompletionService<RelayWorker.Span> workers) {
        long began = Long.MAX_VALUE, ended = Long.MIN_VALUE;
        try {
            for (int number = 0; number < WORKERS; number++) {
                RelayWorker.Span span = workers.take().get();
                began = Math.min(began, span.began());
                ended = Math.max(ended, span.ended());
            }
        } catch (Exception failure) {
            failure.printStackTrace();
            System.exit(1); // the other worker would relay its half, or wait
        }
        System.out.printf(Locale.ROOT, "{\"seconds\": %.6f}%n", (ended - began) / 1e9);
    }
}
