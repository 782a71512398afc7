import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;

/**
 * The rules that ask for the same values, by the key of these values: sorted by their constants, so that a message
 * matches the first ones, up to where its weight would be inserted.
 *
 * <p>A record of the topic of rules has a rule's id for its key, and for its value what decides, in columns parted by
 * tabs: type, color and constant for Z, a correlation id for R.
 */
public final class SortedRules {
    /** A field that is public is part of Flink's state. */
    public int[] constants = {};

    public byte[][] ids = {};

    /** What decides: in a rule a key and a constant, in a message a key and a weight; the key is null if it has none. */
    record Decisive(String key, int number) {
        private static final Decisive NOTHING = new Decisive(null, 0);

        /** Read a rule. */
        static Decisive ofRule(String value) {
            int last = value.lastIndexOf('\t');
            return last < 0 ? new Decisive(value, 0)
                : new Decisive(value.substring(0, last), Integer.parseInt(value.substring(last + 1)));
        }

        /** Read a message of a workload. */
        static Decisive ofMessage(String workload, Headers headers) {
            if (workload.equals("R")) {
                Header id = headers.lastHeader("JMSCorrelationID");
                return id == null ? NOTHING : new Decisive(text(id), 1);
            }
            String type = null, color = null, weight = null;
            for (Header header : headers) {
                switch (header.key()) {
                    case "JMSType" -> type = text(header);
                    case "color" -> color = text(header);
                    case "weight" -> weight = text(header);
                    default -> {}
                }
            }
            return type == null || color == null || weight == null ? NOTHING
                : new Decisive(type + "\t" + color, Integer.parseInt(weight));
        }

        private static String text(Header header) {
            return new String(header.value(), StandardCharsets.UTF_8);
        }
    }

    /** Return these rules and one more. */
    SortedRules with(int constant, byte[] id) {
        int place = matched(constant);
        SortedRules more = new SortedRules();
        more.constants = new int[constants.length + 1];
        more.ids = new byte[ids.length + 1][];
        System.arraycopy(constants, 0, more.constants, 0, place);
        System.arraycopy(ids, 0, more.ids, 0, place);
        more.constants[place] = constant;
        more.ids[place] = id;
        System.arraycopy(constants, place, more.constants, place + 1, constants.length - place);
        System.arraycopy(ids, place, more.ids, place + 1, ids.length - place);
        return more;
    }

    /** Count the rules that a message of such a weight matches: their constants are less. */
    int matched(int weight) {
        int low = 0, high = constants.length;
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (constants[middle] < weight) low = middle + 1;
            else high = middle;
        }
        return low;
    }
}
