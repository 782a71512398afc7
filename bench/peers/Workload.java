/** Workloads Z and U as bench/workloads/plain.py defines them, made anew from the same draws. */
final class Workload {
    static final int TYPES = 1_000, COLORS = 100, WEIGHTS = 10_000;

    private final boolean skewed;
    private final double[] types = harmonic(TYPES), colors = harmonic(COLORS);

    Workload(String name) {
        if (!name.equals("Z") && !name.equals("U")) throw new IllegalArgumentException("no workload " + name);
        skewed = name.equals("Z");
    }

    /** Rule i. */
    Triple rule(int i) {
        long t = draw(1, 3L * i), c = draw(1, 3L * i + 1), w = draw(1, 3L * i + 2);
        return skewed
            ? new Triple(zipf(t, types), zipf(c, colors), ranint(w, WEIGHTS))
            : new Triple(ranint(t, TYPES), ranint(c, COLORS), ranint(w, WEIGHTS));
    }

    /** What decides of message j; it has more, which no rule of these workloads reads. */
    Triple message(int j) {
        long t = draw(2, 8L * j), c = draw(2, 8L * j + 1), w = draw(2, 8L * j + 2);
        return new Triple(zipf(t, types), zipf(c, colors), ranint(w, WEIGHTS));
    }

    record Triple(String type, String color, int weight) {
        Triple(int type, int color, int weight) {
            this("t" + type, "c" + color, weight);
        }

        String selector() {
            return "JMSType = '" + type + "' AND color = '" + color + "' AND weight > " + weight;
        }

        String json() {
            return "{\"JMSType\":\"" + type + "\",\"color\":\"" + color + "\",\"weight\":" + weight + "}";
        }
    }

    private static long draw(long seed, long place) {
        long z = seed + 0x9E3779B97F4A7C15L * (place + 1);
        z = (z ^ z >>> 30) * 0xBF58476D1CE4E5B9L;
        z = (z ^ z >>> 27) * 0x94D049BB133111EBL;
        return z ^ z >>> 31;
    }

    private static double u01(long out) {
        return (out >>> 11) * 0x1p-53;
    }

    private static int ranint(long out, int n) {
        return (int) (u01(out) * n);
    }

    private static int zipf(long out, double[] cumulated) {
        double x = u01(out) * cumulated[cumulated.length - 1];
        int low = 0, high = cumulated.length - 1;
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (cumulated[middle] > x) high = middle;
            else low = middle + 1;
        }
        return low;
    }

    private static double[] harmonic(int n) {
        double[] cumulated = new double[n];
        double sum = 0;
        for (int i = 0; i < n; i++) cumulated[i] = sum += 1.0 / (i + 1);
        return cumulated;
    }
}
