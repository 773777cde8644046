import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * One measurement of a broker with the Java client, on a topic that exists. The last line is JSON; times are
 * microseconds.
 *
 *   java Bench.java BOOTSTRAP TOPIC produce key=value...   as fast as the answers allow: MB/s
 *   java Bench.java BOOTSTRAP TOPIC latency key=value...   at `rate` records a second, from the time each was due
 *   java Bench.java BOOTSTRAP TOPIC saturate key=value...  as fast as the answers allow for `seconds`, from each send
 *   java Bench.java BOOTSTRAP TOPIC fetch key=value...     `count` records of the topic, 0 for all there are: MB/s
 *
 * partitions, size, count, rate, seconds, warmup (seconds), linger (ms), batch (bytes). samples=DIR keeps every latency
 * in DIR/produce: pairs of two 64-bit integers, the ns since the warm-up at which it ended and the ns that it took.
 * x.NAME=VALUE is a setting of the client.
 */
public class Bench {
    static final Map<String, Integer> given = new HashMap<>(Map.of("partitions", 4, "size", 1024, "count", 200_000,
            "rate", 1000, "seconds", 10, "warmup", 3, "linger", 0, "batch", 65536));
    static final Map<String, Object> extra = new HashMap<>();
    static String bootstrap;
    static String topic;
    static Path samples;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        topic = args[1];
        for (String pair : Arrays.asList(args).subList(3, args.length)) {
            String[] parts = pair.split("=", 2);
            if (parts[0].equals("samples")) samples = Path.of(parts[1]);
            else if (parts[0].startsWith("x.")) extra.put(parts[0].substring(2), parts[1]);
            else if (given.put(parts[0], Integer.parseInt(parts[1])) == null)
                throw new IllegalArgumentException("no such key: " + parts[0]);
        }
        switch (args[2]) {
            case "produce" -> produce();
            case "latency" -> latency();
            case "saturate" -> saturate();
            case "fetch" -> fetch();
            default -> throw new IllegalArgumentException("no such measurement: " + args[2]);
        }
    }

    static KafkaProducer<byte[], byte[]> producer() {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "acks", "all",
                "enable.idempotence", true, "linger.ms", given.get("linger"), "batch.size", given.get("batch"),
                "buffer.memory", 64L << 20, "enable.metrics.push", false));
        settings.putAll(extra);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Latencies with the times at which they ended; grows as it must. */
    static class Samples {
        private long[] pairs = new long[1 << 16];
        private int used = 0;

        synchronized void add(long endedNanos, long tookNanos) {
            if (used == pairs.length) pairs = Arrays.copyOf(pairs, 2 * used);
            pairs[used++] = endedNanos;
            pairs[used++] = tookNanos;
        }

        synchronized long[] sortedMicros() {
            return IntStream.range(0, used / 2).mapToLong(i -> pairs[2 * i + 1] / 1000).sorted().toArray();
        }

        synchronized void keep(String name) throws IOException {
            if (samples == null) return;
            try (var file = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(samples.resolve(name)),
                    1 << 20))) {
                for (int i = 0; i < used; i++) file.writeLong(pairs[i]);
            }
        }
    }

    static byte[] value() {
        byte[] bytes = new byte[given.get("size")];
        new Random(1).nextBytes(bytes);
        return bytes;
    }

    static void produce() throws Exception {
        byte[] value = value();
        int partitions = given.get("partitions"), count = given.get("count");
        AtomicInteger failed = new AtomicInteger();
        try (var producer = producer()) {
            long began = 0;
            // The first fifth warms up the client and the connections and is not counted.
            for (int i = -count / 5; i < count; i++) {
                if (i == 0) {
                    producer.flush();
                    began = System.nanoTime();
                }
                producer.send(new ProducerRecord<>(topic, Math.floorMod(i, partitions), null, value),
                        (told, error) -> failed.addAndGet(error == null ? 0 : 1));
            }
            producer.flush();
            rate("produce", count, System.nanoTime() - began, failed.get());
        }
    }

    static void rate(String what, int count, long nanos, int failed) {
        double seconds = nanos / 1e9;
        System.out.printf("{\"what\":\"%s\",\"n\":%d,\"seconds\":%.6f,\"mb_s\":%.2f,\"failed\":%d,"
                + "\"version\":\"%s\"}%n", what, count, seconds,
                (double) count * given.get("size") / 1e6 / seconds, failed, AppInfoParser.getVersion());
    }

    static void latency() throws Exception {
        byte[] value = value();
        int partitions = given.get("partitions"), rate = given.get("rate");
        int skipped = given.get("warmup") * rate, count = skipped + given.get("seconds") * rate;
        var times = new Samples();
        AtomicInteger failed = new AtomicInteger();
        try (var producer = producer()) {
            producer.partitionsFor(topic);
            long start = System.nanoTime(), counting = start + given.get("warmup") * 1_000_000_000L;
            for (int i = 0; i < count; i++) {
                // A record that is late because an earlier one blocked still counts from when it was due.
                long due = start + i * 1_000_000_000L / rate;
                for (long left; (left = due - System.nanoTime()) > 0;) LockSupport.parkNanos(left);
                boolean counts = i >= skipped;
                producer.send(new ProducerRecord<>(topic, i % partitions, null, value), (told, error) -> {
                    long now = System.nanoTime();
                    if (error != null) failed.incrementAndGet();
                    else if (counts) times.add(now - counting, now - due);
                });
            }
            producer.flush();
        }
        spread("latency", times, failed.get());
    }

    static void saturate() throws Exception {
        byte[] value = value();
        int partitions = given.get("partitions");
        var times = new Samples();
        AtomicInteger failed = new AtomicInteger();
        try (var producer = producer()) {
            producer.partitionsFor(topic);
            long counting = System.nanoTime() + given.get("warmup") * 1_000_000_000L;
            long until = counting + given.get("seconds") * 1_000_000_000L;
            int i = 0;
            for (long sent; (sent = System.nanoTime()) < until;) {
                long from = sent;
                producer.send(new ProducerRecord<>(topic, i++ % partitions, null, value), (told, error) -> {
                    long now = System.nanoTime();
                    if (error != null) failed.incrementAndGet();
                    else if (now >= counting && now < until) times.add(now - counting, now - from);
                });
                if (i == Integer.MAX_VALUE) i = 0;
            }
            producer.flush();
        }
        spread("saturate", times, failed.get());
    }

    static void spread(String what, Samples times, int failed) throws IOException {
        times.keep("produce");
        long[] sorted = times.sortedMicros();
        int n = sorted.length;
        if (n == 0) throw new IllegalStateException("nothing was measured; records that failed: " + failed);
        System.out.printf("{\"what\":\"%s\",\"n\":%d,\"p50\":%d,\"p99\":%d,\"p999\":%d,\"max\":%d,\"failed\":%d,"
                + "\"version\":\"%s\"}%n", what, n, sorted[n / 2], sorted[(int) (n * 99L / 100)],
                sorted[(int) (n * 999L / 1000)], sorted[n - 1], failed, AppInfoParser.getVersion());
    }

    static void fetch() {
        int count = given.get("count");
        var parts = IntStream.range(0, given.get("partitions")).mapToObj(p -> new TopicPartition(topic, p)).toList();
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false,
                "fetch.max.bytes", 64 << 20, "max.partition.fetch.bytes", 8 << 20, "max.poll.records", 10_000,
                "enable.metrics.push", false));
        settings.putAll(extra);
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(parts);
            consumer.seekToBeginning(parts);
            // Offsets without a record, as the ends of transactions have, make counting useless for "all there are".
            Map<TopicPartition, Long> ends = count == 0 ? consumer.endOffsets(parts) : Map.of();
            long began = System.nanoTime();
            int got = 0;
            while (got < count || ends.entrySet().stream().anyMatch(e -> consumer.position(e.getKey()) < e.getValue()))
                got += consumer.poll(Duration.ofSeconds(1)).count();
            rate("fetch", got, System.nanoTime() - began, 0);
        }
    }
}
