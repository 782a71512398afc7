import java.util.ArrayList;
import java.util.List;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.filter.BooleanExpression;
import org.apache.activemq.filter.MessageEvaluationContext;
import org.apache.activemq.selector.SelectorParser;

/** ActiveMQ's selectors, one after another, as its broker judges the consumers of a destination. */
final class ActiveMq implements Peer<MessageEvaluationContext> {
    private final List<BooleanExpression> selectors = new ArrayList<>();

    @Override
    public void add(int rule, Workload.Triple triple) throws Exception {
        selectors.add(SelectorParser.parse(triple.selector()));
    }

    @Override
    public MessageEvaluationContext message(Workload.Triple triple) throws Exception {
        ActiveMQMessage message = new ActiveMQMessage();
        message.setJMSType(triple.type());
        message.setStringProperty("color", triple.color());
        message.setIntProperty("weight", triple.weight());
        MessageEvaluationContext context = new MessageEvaluationContext();
        context.setMessageReference(message);
        return context;
    }

    @Override
    public void match(MessageEvaluationContext message, Found found) throws Exception {
        for (int rule = 0; rule < selectors.size(); rule++) {
            if (selectors.get(rule).matches(message)) found.add(rule);
        }
    }
}
