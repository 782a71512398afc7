import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.analysis.core.KeywordAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.IntPoint;
import org.apache.lucene.document.StringField;
import org.apache.lucene.index.Term;
import org.apache.lucene.monitor.Monitor;
import org.apache.lucene.monitor.MonitorQuery;
import org.apache.lucene.monitor.QueryMatch;
import org.apache.lucene.monitor.MultipassTermFilteredPresearcher;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.TermQuery;

/** Lucene's monitor: a document a message, found by terms of both equalities (two passes), then queried. */
final class LuceneMonitor implements Peer<Document> {
    private static final int REGISTERED_AT_ONCE = 5_000;

    private final Monitor monitor;
    private final List<MonitorQuery> waiting = new ArrayList<>();

    LuceneMonitor() throws Exception {
        monitor = new Monitor(new KeywordAnalyzer(), new MultipassTermFilteredPresearcher(2));
    }

    @Override
    public void add(int rule, Workload.Triple triple) throws Exception {
        BooleanQuery query = new BooleanQuery.Builder()
            .add(new TermQuery(new Term("JMSType", triple.type())), BooleanClause.Occur.FILTER)
            .add(new TermQuery(new Term("color", triple.color())), BooleanClause.Occur.FILTER)
            .add(IntPoint.newRangeQuery("weight", triple.weight() + 1, Integer.MAX_VALUE), BooleanClause.Occur.FILTER)
            .build();
        waiting.add(new MonitorQuery(Integer.toString(rule), query));
        if (waiting.size() == REGISTERED_AT_ONCE) ready();
    }

    @Override
    public void ready() throws Exception {
        if (!waiting.isEmpty()) monitor.register(waiting);
        waiting.clear();
    }

    @Override
    public Document message(Workload.Triple triple) {
        Document document = new Document();
        document.add(new StringField("JMSType", triple.type(), Field.Store.NO));
        document.add(new StringField("color", triple.color(), Field.Store.NO));
        document.add(new IntPoint("weight", triple.weight()));
        return document;
    }

    @Override
    public void match(Document message, Found found) throws Exception {
        for (QueryMatch match : monitor.match(message, QueryMatch.SIMPLE_MATCHER).getMatches()) {
            found.add(Integer.parseInt(match.getQueryId()));
        }
    }
}
