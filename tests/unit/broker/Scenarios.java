import jakarta.jms.*;
import jakarta.jms.Queue;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/** What an unchanged JMS client does with a broker; a line for each scenario: its name, and "ok" or what is wrong. */
public class Scenarios {
  private static final long LONG = 10_000;
  private static final long SHORT = 300;
  private static String url;

  interface Scenario {
    void play(Session session) throws Exception;
  }

  private static final Map<String, Scenario> SCENARIOS = new LinkedHashMap<>();

  public static void main(String[] arguments) throws Exception {
    url = arguments[0];
    List<String> chosen = Arrays.asList(arguments).subList(1, arguments.length);
    boolean failed = false;
    for (Map.Entry<String, Scenario> scenario : SCENARIOS.entrySet()) {
      if (!chosen.isEmpty() && !chosen.contains(scenario.getKey())) continue;
      String result = "ok";
      try (Connection connection = connect(null, "")) {
        scenario.getValue().play(connection.createSession(false, Session.AUTO_ACKNOWLEDGE));
      } catch (Throwable problem) {
        failed = true;
        result = problem.toString().replace('\n', ' ');
      }
      System.out.println("scenario\t" + scenario.getKey() + "\t" + result);
    }
    System.exit(failed ? 1 : 0);
  }

  static {
    SCENARIOS.put("selectors of a topic's consumers", session -> {
      Topic topic = session.createTopic("sc.select.eu");
      MessageConsumer heavy = session.createConsumer(topic, "weight > 2500 AND JMSType = 'car'");
      MessageConsumer coloured = session.createConsumer(session.createTopic("sc.select.+"), "color IN ('red', 'blue')");
      MessageConsumer texts = session.createConsumer(topic, "weight = '3000'");
      send(session, topic, "one", "weight", 3_000, "color", "blue");
      send(session, topic, "two", "weight", 10, "color", "red");
      equal(List.of("one"), texts(heavy, 1));
      equal(List.of("one", "two"), texts(coloured, 2));
      equal(null, texts.receive(SHORT));
    });
    SCENARIOS.put("types of properties and headers", session -> {
      Queue queue = session.createQueue("SC.TYPES");
      Message sent = session.createTextMessage("typed");
      sent.setByteProperty("byte", (byte) -3);
      sent.setShortProperty("short", (short) 300);
      sent.setLongProperty("long", 1L << 40);
      sent.setFloatProperty("float", 1.5f);
      sent.setDoubleProperty("double", 2.5);
      sent.setBooleanProperty("boolean", true);
      sent.setJMSCorrelationID("correlated");
      sent.setJMSType("kind");
      sent.setJMSReplyTo(session.createTopic("sc.reply"));
      session.createProducer(queue).send(sent, DeliveryMode.PERSISTENT, 7, 600_000);
      Message got = session.createConsumer(queue, "byte = -3 AND float = 1.5 AND boolean = TRUE AND JMSPriority = 7"
          + " AND JMSMessageID = '" + sent.getJMSMessageID() + "' AND JMSCorrelationID = 'correlated'").receive(LONG);
      for (String name : List.of("byte", "short", "long", "float", "double", "boolean"))
        equal(sent.getObjectProperty(name), got.getObjectProperty(name));
      equal("kind", got.getJMSType());
      equal(sent.getJMSReplyTo(), got.getJMSReplyTo());
      equal(queue, got.getJMSDestination());
      equal(sent.getJMSTimestamp(), got.getJMSTimestamp());
      equal(sent.getJMSExpiration() / 1_000, got.getJMSExpiration() / 1_000);
    });
    SCENARIOS.put("every kind of body", session -> {
      Queue queue = session.createQueue("SC.BODIES");
      MessageProducer producer = session.createProducer(queue);
      producer.send(session.createTextMessage("h\u00e9llo \ud83d\ude97"));
      BytesMessage bytes = session.createBytesMessage();
      bytes.writeBytes(new byte[1_500_000]);
      producer.send(bytes);
      MapMessage map = session.createMapMessage();
      map.setInt("number", 7);
      producer.send(map);
      StreamMessage stream = session.createStreamMessage();
      stream.writeString("streamed");
      producer.send(stream);
      producer.send(session.createObjectMessage(new ArrayList<>(List.of(1, 2))));
      producer.send(session.createMessage());
      MessageConsumer consumer = session.createConsumer(queue);
      equal("h\u00e9llo \ud83d\ude97", ((TextMessage) consumer.receive(LONG)).getText());
      equal(1_500_000L, ((BytesMessage) consumer.receive(LONG)).getBodyLength());
      equal(7, ((MapMessage) consumer.receive(LONG)).getInt("number"));
      equal("streamed", ((StreamMessage) consumer.receive(LONG)).readString());
      check(consumer.receive(LONG) instanceof ObjectMessage, "an object");
      check(consumer.receive(LONG) != null, "an empty message");
    });
    SCENARIOS.put("a durable subscription, away, changed and ended", ignored -> {
      try (Connection client = connect("sc-durable", "")) {
        Session session = client.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic("sc.durable");
        MessageConsumer consumer = session.createDurableConsumer(topic, "audit", "weight > 5", false);
        send(session, topic, "live", "weight", 6);
        equal(List.of("live"), texts(consumer, 1));
        consumer.close();
        send(session, topic, "away", "weight", 7);
        send(session, topic, "light", "weight", 1);
      }
      try (Connection client = connect("sc-durable", "")) {
        Session session = client.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic("sc.durable");
        MessageConsumer consumer = session.createDurableConsumer(topic, "audit", "weight > 5", false);
        equal(List.of("away"), texts(consumer, 1));
        consumer.close();
        consumer = session.createDurableConsumer(topic, "audit", "weight < 5", false);
        send(session, topic, "heavy", "weight", 9);
        send(session, topic, "little", "weight", 2);
        equal(List.of("little"), texts(consumer, 1));
        consumer.close();
        session.unsubscribe("audit");
        fails(InvalidDestinationException.class, () -> session.unsubscribe("audit"));
      }
    });
    SCENARIOS.put("shared subscriptions, durable and not", session -> {
      Topic topic = session.createTopic("sc.shared");
      try (Connection other = connect(null, "")) {
        Session second = other.createSession(false, Session.AUTO_ACKNOWLEDGE);
        List<MessageConsumer> durable = List.of(session.createSharedDurableConsumer(topic, "team"),
            second.createSharedDurableConsumer(topic, "team"));
        List<MessageConsumer> passing = List.of(session.createSharedConsumer(topic, "passing"),
            second.createSharedConsumer(topic, "passing"));
        TreeSet<String> expected = new TreeSet<>();
        for (int i = 0; i < 20; i++) {
          send(session, topic, "m" + i);
          expected.add("m" + i);
        }
        for (List<MessageConsumer> team : List.of(durable, passing)) {
          TreeSet<String> got = new TreeSet<>();
          for (MessageConsumer consumer : team)
            for (Message message; (message = consumer.receive(SHORT)) != null; ) got.add(((TextMessage) message).getText());
          equal(expected, got);
        }
        for (MessageConsumer consumer : durable) consumer.close();
        session.unsubscribe("team");
      }
    });
    SCENARIOS.put("a client id that is in use", session -> {
      try (Connection first = connect("sc-only", "")) {
        fails(InvalidClientIDException.class, () -> connect("sc-only", "").close());
      }
      connect("sc-only", "").close();
    });
    SCENARIOS.put("a queue's selectors, order and browser", session -> {
      Queue queue = session.createQueue("a queue, as JMS names it");
      for (int i = 0; i < 6; i++) send(session, queue, "q" + i, "even", i % 2 == 0);
      List<String> seen = new ArrayList<>();
      try (QueueBrowser browser = session.createBrowser(queue, "even = FALSE")) {
        for (Enumeration<?> all = browser.getEnumeration(); all.hasMoreElements(); )
          seen.add(((TextMessage) all.nextElement()).getText());
      }
      equal(List.of("q1", "q3", "q5"), seen);
      MessageConsumer even = session.createConsumer(queue, "even = TRUE");
      equal(List.of("q0", "q2", "q4"), texts(even, 3));
      even.close();
      equal(List.of("q1", "q3", "q5"), texts(session.createConsumer(queue), 3));
    });
    SCENARIOS.put("priority, expiry and delay", session -> {
      Queue queue = session.createQueue("SC.TIMES");
      MessageProducer producer = session.createProducer(queue);
      producer.send(session.createTextMessage("low"), DeliveryMode.PERSISTENT, 1, 0);
      producer.send(session.createTextMessage("gone"), DeliveryMode.PERSISTENT, 5, 1);
      producer.send(session.createTextMessage("high"), DeliveryMode.PERSISTENT, 9, 0);
      Thread.sleep(50);
      MessageConsumer consumer = session.createConsumer(queue);
      equal(List.of("high", "low"), texts(consumer, 2));
      for (int mode : new int[] {DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT}) {
        producer.setDeliveryDelay(500);
        producer.setDeliveryMode(mode);
        long begin = System.currentTimeMillis();
        producer.send(session.createTextMessage("later"));
        equal(List.of("later"), texts(consumer, 1));
        check(System.currentTimeMillis() - begin >= 500, "it came early");
      }
    });
    SCENARIOS.put("CLIENT_ACKNOWLEDGE and recover", ignored -> {
      try (Connection client = connect(null, "")) {
        Session session = client.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue("SC.CLIENT");
        for (String text : List.of("a", "b", "c")) send(session, queue, text);
        MessageConsumer consumer = session.createConsumer(queue);
        consumer.receive(LONG).acknowledge();
        equal("b", ((TextMessage) consumer.receive(LONG)).getText());
        session.recover();
        Message again = consumer.receive(LONG);
        equal("b", ((TextMessage) again).getText());
        check(again.getJMSRedelivered(), "it is not marked as redelivered");
        equal(2, again.getIntProperty("JMSXDeliveryCount"));
      }
      try (Connection client = connect(null, "")) {
        Session session = client.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
        equal(List.of("b", "c"), texts(session.createConsumer(session.createQueue("SC.CLIENT")), 2));
      }
    });
    SCENARIOS.put("transactions over several destinations", plain -> {
      try (Connection client = connect(null, "")) {
        Session session = client.createSession(true, Session.SESSION_TRANSACTED);
        Queue in = session.createQueue("SC.IN");
        Queue out = session.createQueue("SC.OUT");
        Topic events = session.createTopic("sc.events");
        MessageConsumer onOut = plain.createConsumer(out);
        MessageConsumer onEvents = plain.createConsumer(events);
        send(plain, in, "job");
        MessageConsumer consumer = session.createConsumer(in);
        for (boolean commits : new boolean[] {false, true}) {
          Message job = consumer.receive(LONG);
          equal(commits, job.getJMSRedelivered());
          send(session, out, "result " + commits);
          send(session, events, "event " + commits);
          equal(null, onOut.receive(SHORT));
          if (commits) session.commit();
          else session.rollback();
        }
        equal(List.of("result true"), texts(onOut, 1));
        equal(List.of("event true"), texts(onEvents, 1));
        equal(null, consumer.receive(SHORT));
      }
    });
    SCENARIOS.put("a transaction whose connection is lost", plain -> {
      Queue queue = plain.createQueue("SC.LOST");
      send(plain, queue, "kept");
      try (Connection client = connect(null, "")) {
        Session session = client.createSession(true, Session.SESSION_TRANSACTED);
        equal(List.of("kept"), texts(session.createConsumer(queue), 1));
        send(session, queue, "never");
      }
      equal(List.of("kept"), texts(plain.createConsumer(queue), 1));
    });
    SCENARIOS.put("wrong selectors", session -> {
      Queue queue = session.createQueue("SC.WRONG");
      fails(InvalidSelectorException.class, () -> session.createConsumer(queue, "weight >"));
      try (Connection client = connect(null, "?jms.validateSelector=false")) {
        Session unchecked = client.createSession(false, Session.AUTO_ACKNOWLEDGE);
        for (Destination destination : List.of(queue, unchecked.createTopic("sc.wrong"))) {
          Exception refusal = fails(JMSException.class, () -> unchecked.createConsumer(destination, "weight >"));
          check(refusal.getMessage().contains("the selector ends too early"), refusal.getMessage());
          check(refusal.getMessage().contains("amqp:invalid-field"), refusal.getMessage());
        }
        MessageConsumer other = unchecked.createConsumer(
            unchecked.createTopic("sc.dialect?dialect=ibm-mq"), "Root.MQMD.Priority = 4");
        send(unchecked, unchecked.createTopic("sc.dialect"), "four");
        equal(List.of("four"), texts(other, 1));
      }
    });
    SCENARIOS.put("request and reply, by a temporary and by a common queue", session -> {
      Queue requests = session.createQueue("SC.REQUESTS");
      try (Connection server = connect(null, "")) {
        Session serving = server.createSession(false, Session.AUTO_ACKNOWLEDGE);
        serving.createConsumer(requests).setMessageListener(request -> {
          try {
            TextMessage reply = serving.createTextMessage("re: " + ((TextMessage) request).getText());
            reply.setJMSCorrelationID(request.getJMSMessageID());
            serving.createProducer(null).send(request.getJMSReplyTo(), reply);
          } catch (JMSException problem) {
            problem.printStackTrace();
          }
        });
        TemporaryQueue temporary = session.createTemporaryQueue();
        for (Queue replies : List.of(temporary, session.createQueue("SC.REPLIES"))) {
          TextMessage request = session.createTextMessage("ping");
          request.setJMSReplyTo(replies);
          session.createProducer(requests).send(request);
          String selector = "JMSCorrelationID = '" + request.getJMSMessageID() + "'";
          MessageConsumer consumer = session.createConsumer(replies, selector);
          equal(List.of("re: ping"), texts(consumer, 1));
          consumer.close();
        }
        temporary.delete();
      }
      TemporaryTopic topic = session.createTemporaryTopic();
      MessageConsumer consumer = session.createConsumer(topic);
      send(session, topic, "temporary");
      equal(List.of("temporary"), texts(consumer, 1));
    });
    SCENARIOS.put("noLocal", session -> {
      try (Connection client = connect("sc-local", "")) {
        Session own = client.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Topic topic = own.createTopic("sc.local");
        MessageConsumer consumer = own.createConsumer(topic, null, true);
        send(own, topic, "own");
        send(session, topic, "other");
        equal(List.of("other"), texts(consumer, 1));
      }
    });
    SCENARIOS.put("asynchronous sends and a listener", ignored -> {
      JmsConnectionFactory factory = new JmsConnectionFactory(url);
      try (JMSContext sending = factory.createContext(); JMSContext receiving = factory.createContext()) {
        CountDownLatch sent = new CountDownLatch(50);
        CountDownLatch received = new CountDownLatch(50);
        Queue queue = sending.createQueue("SC.ASYNC");
        receiving.createConsumer(queue, "n >= 0").setMessageListener(message -> received.countDown());
        JMSProducer producer = sending.createProducer().setAsync(new CompletionListener() {
          @Override public void onCompletion(Message message) {
            sent.countDown();
          }

          @Override public void onException(Message message, Exception problem) {
            problem.printStackTrace();
          }
        });
        for (int i = 0; i < 50; i++) producer.setProperty("n", i).send(queue, "a" + i);
        check(sent.await(LONG, TimeUnit.MILLISECONDS), "not all is sent");
        check(received.await(LONG, TimeUnit.MILLISECONDS), "not all has arrived");
      }
    });
    SCENARIOS.put("prefetch 0 and 1", ignored -> {
      for (int prefetch : new int[] {0, 1}) {
        try (Connection client = connect(null, "?jms.prefetchPolicy.all=" + prefetch)) {
          Session session = client.createSession(false, Session.AUTO_ACKNOWLEDGE);
          Queue queue = session.createQueue("SC.PREFETCH." + prefetch);
          MessageConsumer consumer = session.createConsumer(queue);
          equal(null, consumer.receiveNoWait());
          for (String text : List.of("a", "b")) send(session, queue, text);
          equal(List.of("a", "b"), texts(consumer, 2));
          equal(null, consumer.receiveNoWait());
        }
      }
    });
    SCENARIOS.put("a message that fails is a dead letter", ignored -> {
      try (Connection client = connect(null, "?jms.redeliveryPolicy.maxRedeliveries=-1")) {
        Session session = client.createSession(true, Session.SESSION_TRANSACTED);
        Queue queue = session.createQueue("SC.POISON");
        send(session, queue, "poison");
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        int deliveries = 0;
        while (consumer.receive(1_000) != null) {
          deliveries++;
          session.rollback();
        }
        equal(10, deliveries);
        equal(List.of("poison"), texts(session.createConsumer(session.createQueue("DLQ")), 1));
        session.commit();
      }
    });
  }

  interface Action {
    void run() throws Exception;
  }

  private static Connection connect(String clientId, String options) throws JMSException {
    Connection connection = new JmsConnectionFactory(url + options).createConnection();
    if (clientId != null) connection.setClientID(clientId);
    connection.start();
    return connection;
  }

  /** Sends a text with properties, given as names and values. */
  private static void send(Session session, Destination destination, String text, Object... properties)
      throws JMSException {
    Message message = session.createTextMessage(text);
    message.setJMSType("car");
    for (int i = 0; i < properties.length; i += 2) message.setObjectProperty((String) properties[i], properties[i + 1]);
    MessageProducer producer = session.createProducer(destination);
    producer.send(message);
    producer.close();
  }

  /** Receives so many texts, or fewer if no more come. */
  private static List<String> texts(MessageConsumer consumer, int count) throws JMSException {
    List<String> texts = new ArrayList<>();
    while (texts.size() < count) {
      TextMessage message = (TextMessage) consumer.receive(LONG);
      if (message == null) break;
      texts.add(message.getText());
    }
    return texts;
  }

  private static Exception fails(Class<? extends Exception> kind, Action action) throws Exception {
    try {
      action.run();
    } catch (Exception problem) {
      if (kind.isInstance(problem)) return problem;
      throw problem;
    }
    throw new AssertionError("no " + kind.getSimpleName());
  }

  private static void equal(Object expected, Object got) {
    if (!Objects.equals(expected, got)) throw new AssertionError("expected " + expected + ", got " + got);
  }

  private static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }
}
