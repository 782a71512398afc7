import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;

/**
 * Runs one peer: {@code java Harness CLASS WORKLOAD RULES MESSAGES}. It answers each line on its standard input with a
 * line of JSON: {@code judge N} matches the first N messages, {@code run} all of them. The first line, unasked, says
 * what the rules took to build, in seconds and in bytes of heap.
 */
final class Harness<M> {
    private final Peer<M> peer;
    private final List<M> messages = new ArrayList<>();

    private Harness(Peer<M> peer) {
        this.peer = peer;
    }

    public static void main(String[] given) throws Exception {
        Peer<?> peer = (Peer<?>) Class.forName(given[0]).getDeclaredConstructor().newInstance();
        new Harness<>(peer).serve(new Workload(given[1]), Integer.parseInt(given[2]), Integer.parseInt(given[3]));
    }

    private void serve(Workload workload, int rules, int count) throws Exception {
        long before = used(), started = System.nanoTime();
        for (int i = 0; i < rules; i++) peer.add(i, workload.rule(i));
        peer.ready();
        double seconds = (System.nanoTime() - started) / 1e9;
        System.out.printf("{\"seconds\": %.6f, \"bytes\": %d}%n", seconds, used() - before);
        for (int j = 0; j < count; j++) messages.add(peer.message(workload.message(j)));
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = asked.readLine()) != null; ) {
            String[] words = line.split(" ");
            answer(words[0].equals("judge") ? Integer.parseInt(words[1]) : count, workload);
        }
        System.exit(0); // some peers leave threads behind
    }

    private void answer(int count, Workload workload) throws Exception {
        while (messages.size() < count) messages.add(peer.message(workload.message(messages.size())));
        Peer.Found found = new Peer.Found();
        long started = System.nanoTime();
        for (int j = 0; j < count; j++) peer.match(messages.get(j), found);
        double seconds = (System.nanoTime() - started) / 1e9;
        System.out.printf(
            "{\"seconds\": %.6f, \"matches\": %d, \"rule_sum\": %d}%n", seconds, found.matches, found.ruleSum);
    }

    private static long used() throws InterruptedException {
        Runtime runtime = Runtime.getRuntime();
        long least = Long.MAX_VALUE;
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(20);
            least = Math.min(least, runtime.totalMemory() - runtime.freeMemory());
        }
        return least;
    }
}
