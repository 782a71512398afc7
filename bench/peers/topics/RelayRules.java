import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;

/** The rules of a workload in a hash map, by the values that a message must have. */
interface RelayRules {
    /** Return the rules that a message matches, by its headers. */
    Matches match(Headers headers);

    /** The ids of the first {@code count} rules of an array. */
    record Matches(byte[][] ids, int count) {
        static final Matches NONE = new Matches(new byte[0][], 0);
    }

    /** Read rules, one a line, whose columns are parted by tabs; rule n has the id {@code r} and n. */
    static RelayRules read(String workload, Path file) throws IOException {
        try (Stream<String> lines = Files.lines(file)) {
            return switch (workload) {
                case "Z" -> new OfPairs(lines);
                case "R" -> new OfReplies(lines);
                default -> throw new IllegalArgumentException("no relay for the workload " + workload);
            };
        }
    }

    private static byte[] id(int rule) {
        return ("r" + rule).getBytes(StandardCharsets.US_ASCII);
    }

    private static String text(Header header) {
        return new String(header.value(), StandardCharsets.UTF_8);
    }

    /**
     * {@code JMSType = … AND color = … AND weight > …}: the rules of a pair of values are sorted by their constant, so
     * that those a message matches are the first ones, up to where its weight would be inserted.
     */
    final class OfPairs implements RelayRules {
        private record Pair(String type, String color) {}

        private record Rule(int constant, byte[] id) {}

        private record Sorted(int[] constants, byte[][] ids) {}

        private final Map<Pair, Sorted> pairs = new HashMap<>();

        private OfPairs(Stream<String> lines) {
            Map<Pair, List<Rule>> read = new HashMap<>();
            int[] count = {0};
            lines.forEach(line -> {
                String[] columns = line.split("\t");
                Rule rule = new Rule(Integer.parseInt(columns[2]), id(count[0]++));
                read.computeIfAbsent(new Pair(columns[0], columns[1]), pair -> new ArrayList<>()).add(rule);
            });
            read.forEach((pair, rules) -> {
                rules.sort(Comparator.comparingInt(Rule::constant));
                int[] constants = rules.stream().mapToInt(Rule::constant).toArray();
                pairs.put(pair, new Sorted(constants, rules.stream().map(Rule::id).toArray(byte[][]::new)));
            });
        }

        @Override
        public Matches match(Headers headers) {
            String type = null, color = null, weight = null;
            for (Header header : headers) {
                switch (header.key()) {
                    case "JMSType" -> type = text(header);
                    case "color" -> color = text(header);
                    case "weight" -> weight = text(header);
                    default -> {}
                }
            }
            Sorted rules = weight == null ? null : pairs.get(new Pair(type, color));
            if (rules == null) return Matches.NONE;
            return new Matches(rules.ids, below(rules.constants, Integer.parseInt(weight)));
        }

        /** Count the constants that are less than a weight. */
        private static int below(int[] constants, int weight) {
            int low = 0, high = constants.length;
            while (low < high) {
                int middle = (low + high) >>> 1;
                if (constants[middle] < weight) low = middle + 1;
                else high = middle;
            }
            return low;
        }
    }

    /** {@code JMSCorrelationID = …}. */
    final class OfReplies implements RelayRules {
        private final Map<String, Matches> replies = new HashMap<>();

        private OfReplies(Stream<String> lines) {
            int[] count = {0};
            lines.forEach(id -> {
                byte[][] rule = {id(count[0]++)};
                replies.merge(id, new Matches(rule, 1), OfReplies::both);
            });
        }

        @Override
        public Matches match(Headers headers) {
            Header id = headers.lastHeader("JMSCorrelationID");
            return id == null ? Matches.NONE : replies.getOrDefault(text(id), Matches.NONE);
        }

        private static Matches both(Matches one, Matches other) {
            byte[][] ids = Stream.of(one.ids, other.ids).flatMap(Stream::of).toArray(byte[][]::new);
            return new Matches(ids, ids.length);
        }
    }
}
