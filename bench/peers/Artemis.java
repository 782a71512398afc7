import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.selector.filter.BooleanExpression;
import org.apache.activemq.artemis.selector.filter.Filterable;
import org.apache.activemq.artemis.selector.impl.SelectorParser;

/** Artemis' selectors, one after another, on a message that is a table of properties. */
final class Artemis implements Peer<Filterable> {
    private final List<BooleanExpression> selectors = new ArrayList<>();

    @Override
    public void add(int rule, Workload.Triple triple) throws Exception {
        selectors.add(SelectorParser.parse(triple.selector()));
    }

    @Override
    public Filterable message(Workload.Triple triple) {
        Map<SimpleString, Object> properties = new HashMap<>();
        properties.put(SimpleString.of("JMSType"), triple.type());
        properties.put(SimpleString.of("color"), triple.color());
        properties.put(SimpleString.of("weight"), triple.weight());
        return new Filterable() {
            @Override
            public <T> T getBodyAs(Class<T> type) {
                return null;
            }

            @Override
            public Object getProperty(SimpleString name) {
                return properties.get(name);
            }

            @Override
            public Object getLocalConnectionId() {
                return null;
            }
        };
    }

    @Override
    public void match(Filterable message, Found found) throws Exception {
        for (int rule = 0; rule < selectors.size(); rule++) {
            if (selectors.get(rule).matches(message)) found.add(rule);
        }
    }
}
