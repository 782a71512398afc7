import software.amazon.event.ruler.GenericMachine;

/** Event Ruler with the whole rule: JSON in, names of rules out. */
final class EventRuler implements Peer<String> {
    private final GenericMachine<Integer> machine = GenericMachine.<Integer>builder().build();

    @Override
    public void add(int rule, Workload.Triple triple) throws Exception {
        machine.addRule(rule, """
            {"JMSType": ["%s"], "color": ["%s"], "weight": [{"numeric": [">", %d]}]}"""
            .formatted(triple.type(), triple.color(), triple.weight()));
    }

    @Override
    public String message(Workload.Triple triple) {
        return triple.json();
    }

    @Override
    public void match(String message, Found found) throws Exception {
        for (Integer rule : machine.rulesForJSONEvent(message)) found.add(rule);
    }
}
