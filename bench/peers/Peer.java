/** An engine that is measured. `message` is made before the clock starts, `match` is what is timed. */
interface Peer<M> {
    /** Take rule number `rule`. */
    void add(int rule, Workload.Triple triple) throws Exception;

    /** All rules are there. */
    default void ready() throws Exception {}

    /** A message in the form that this engine takes. */
    M message(Workload.Triple triple) throws Exception;

    /** Report every rule that the message matches. */
    void match(M message, Found found) throws Exception;

    /** How many rules matched, and the sum of their numbers. */
    final class Found {
        long matches, ruleSum;

        void add(int rule) {
            matches++;
            ruleSum += rule;
        }
    }
}
