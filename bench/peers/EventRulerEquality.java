import software.amazon.event.ruler.GenericMachine;

/** Event Ruler with the two equalities of each rule only; the harness compares the weight of what it finds. */
final class EventRulerEquality implements Peer<EventRulerEquality.Sent> {
    private final GenericMachine<Integer> machine = GenericMachine.<Integer>builder().build();
    private int[] above = new int[1_024];

    record Sent(String json, int weight) {}

    @Override
    public void add(int rule, Workload.Triple triple) throws Exception {
        machine.addRule(rule, """
            {"JMSType": ["%s"], "color": ["%s"]}""".formatted(triple.type(), triple.color()));
        if (rule == above.length) above = java.util.Arrays.copyOf(above, 2 * rule);
        above[rule] = triple.weight();
    }

    @Override
    public Sent message(Workload.Triple triple) {
        return new Sent(triple.json(), triple.weight());
    }

    @Override
    public void match(Sent message, Found found) throws Exception {
        for (Integer rule : machine.rulesForJSONEvent(message.json())) {
            if (message.weight() > above[rule]) found.add(rule);
        }
    }
}
