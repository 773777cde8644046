import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * One measurement of transactions with the Java client, on a topic that exists. The last line is JSON; times are
 * microseconds.
 *
 *   java TxnBench.java BOOTSTRAP TOPIC transactions key=value...   each producer commits or aborts one after the other
 *   java TxnBench.java BOOTSTRAP TOPIC e2e key=value...           at `rate` to a read_committed consumer, from when due
 *
 * producers, partitions, records (of one transaction), size, abort (0 or 1), rate, seconds, warmup (seconds).
 * samples=DIR keeps every latency in a file of DIR for each quantity: pairs of two 64-bit integers, the ns since the
 * warm-up at which it ended and the ns that it took. x.NAME=VALUE is a setting of the producers.
 */
public class TxnBench {
    static final Map<String, Integer> given = new HashMap<>(Map.of("producers", 1, "partitions", 4, "records", 10,
            "size", 100, "abort", 0, "rate", 1000, "seconds", 10, "warmup", 3));
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
            case "transactions" -> transactions();
            case "e2e" -> endToEnd();
            default -> throw new IllegalArgumentException("no such measurement: " + args[2]);
        }
    }

    static KafkaProducer<byte[], byte[]> producer(String transactionalId) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "acks", "all",
                "enable.idempotence", true, "linger.ms", 0, "enable.metrics.push", false));
        settings.putAll(extra);
        if (transactionalId != null) settings.put("transactional.id", transactionalId);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Nanoseconds of whole transactions, of their records until all are acknowledged, and of their ends; and when. */
    static class Times {
        final List<Long> whole = new ArrayList<>(), written = new ArrayList<>(), end = new ArrayList<>();
        final List<Long> writtenAt = new ArrayList<>(), endedAt = new ArrayList<>();
        long counting;
    }

    static void transactions() throws Exception {
        int count = given.get("producers");
        var ready = new CountDownLatch(count);
        var go = new CountDownLatch(1);
        var times = new Times[count];
        var failed = new AtomicInteger();
        var threads = new ArrayList<Thread>();
        for (int n = 0; n < count; n++) {
            int number = n;
            times[n] = new Times();
            threads.add(new Thread(() -> {
                try (var producer = producer("bench-" + topic + "-" + number)) {
                    producer.initTransactions();
                    ready.countDown();
                    go.await();
                    long began = System.nanoTime();
                    long counts = began + given.get("warmup") * 1_000_000_000L;
                    times[number].counting = counts;
                    long until = counts + given.get("seconds") * 1_000_000_000L;
                    for (long now; (now = System.nanoTime()) < until;)
                        transaction(producer, now >= counts ? times[number] : new Times());
                } catch (Exception error) {
                    error.printStackTrace();
                    failed.incrementAndGet();
                    ready.countDown();
                }
            }));
        }
        for (Thread thread : threads) thread.start();
        ready.await();
        go.countDown();
        for (Thread thread : threads) thread.join();
        keep("txn", times, t -> t.endedAt, t -> t.whole);
        keep("send", times, t -> t.writtenAt, t -> t.written);
        keep(given.get("abort") == 1 ? "abort" : "commit", times, t -> t.endedAt, t -> t.end);
        var whole = sorted(times, 0);
        System.out.printf("{\"what\":\"transactions\",\"n\":%d,\"per_s\":%.1f,%s,%s,%s,\"failed\":%d,"
                + "\"version\":\"%s\"}%n", whole.length, (double) whole.length / given.get("seconds"),
                spread("whole", whole), spread("written", sorted(times, 1)),
                spread("end", sorted(times, 2)), failed.get(), AppInfoParser.getVersion());
    }

    static void transaction(KafkaProducer<byte[], byte[]> producer, Times times) {
        byte[] value = new byte[given.get("size")];
        long began = System.nanoTime();
        producer.beginTransaction();
        for (int i = 0; i < given.get("records"); i++)
            producer.send(new ProducerRecord<>(topic, i % given.get("partitions"), null, value));
        producer.flush();
        long written = System.nanoTime();
        if (given.get("abort") == 1) producer.abortTransaction();
        else producer.commitTransaction();
        long ended = System.nanoTime();
        times.whole.add(ended - began);
        times.written.add(written - began);
        times.end.add(ended - written);
        times.writtenAt.add(written - times.counting);
        times.endedAt.add(ended - times.counting);
    }

    interface Pairs {
        void to(DataOutputStream file) throws IOException;
    }

    static void keep(String name, Pairs pairs) throws IOException {
        if (samples == null) return;
        var out = Files.newOutputStream(samples.resolve(name));
        try (var file = new DataOutputStream(new BufferedOutputStream(out, 1 << 20))) {
            pairs.to(file);
        }
    }

    static void keep(String name, Times[] all, Function<Times, List<Long>> at, Function<Times, List<Long>> took)
            throws IOException {
        keep(name, file -> {
            for (Times times : all) {
                for (int i = 0; i < at.apply(times).size(); i++) {
                    file.writeLong(at.apply(times).get(i));
                    file.writeLong(took.apply(times).get(i));
                }
            }
        });
    }

    static long[] sorted(Times[] all, int which) {
        return Arrays.stream(all).flatMap(t -> List.of(t.whole, t.written, t.end).get(which).stream())
                .mapToLong(nanos -> nanos / 1000).sorted().toArray();
    }

    static String spread(String name, long[] sorted) {
        int n = sorted.length;
        if (n == 0) throw new IllegalStateException("nothing was measured");
        return String.format("\"%s_p50\":%d,\"%s_p99\":%d,\"%s_p999\":%d", name, sorted[n / 2], name,
                sorted[(int) (n * 99L / 100)], name, sorted[(int) (n * 999L / 1000)]);
    }

    static void endToEnd() throws Exception {
        int partitions = given.get("partitions"), rate = given.get("rate");
        int skipped = given.get("warmup") * rate, count = skipped + given.get("seconds") * rate;
        long[] due = new long[count];
        long[] nanos = new long[count];
        long[] at = new long[count];
        var parts = new ArrayList<TopicPartition>();
        for (int p = 0; p < partitions; p++) parts.add(new TopicPartition(topic, p));
        var listening = new CountDownLatch(1);
        Thread reader = new Thread(() -> {
            try (var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false,
                    "isolation.level", "read_committed", "enable.metrics.push", false), new ByteArrayDeserializer(),
                    new ByteArrayDeserializer())) {
                consumer.assign(parts);
                // What is there already belongs to somebody else.
                consumer.seekToEnd(parts);
                parts.forEach(consumer::position);
                listening.countDown();
                for (int got = 0; got < count;) {
                    for (var record : consumer.poll(Duration.ofSeconds(1))) {
                        int i = Integer.parseInt(new String(record.key()));
                        at[i] = System.nanoTime();
                        nanos[i] = at[i] - due[i];
                        got++;
                    }
                }
            }
        });
        reader.start();
        listening.await();
        var failed = new AtomicInteger();
        try (var producer = producer(null)) {
            producer.partitionsFor(topic);
            byte[] value = new byte[given.get("size")];
            long start = System.nanoTime();
            for (int i = 0; i < count; i++) {
                due[i] = start + i * 1_000_000_000L / rate;
                for (long left; (left = due[i] - System.nanoTime()) > 0;) LockSupport.parkNanos(left);
                producer.send(new ProducerRecord<>(topic, i % partitions, Integer.toString(i).getBytes(), value),
                        (told, error) -> failed.addAndGet(error == null ? 0 : 1));
            }
            producer.flush();
            reader.join(60_000);
        }
        if (reader.isAlive()) throw new IllegalStateException("the reader did not get everything");
        long counting = due[0] + given.get("warmup") * 1_000_000_000L;
        keep("e2e", file -> {
            for (int i = skipped; i < count; i++) {
                file.writeLong(at[i] - counting);
                file.writeLong(nanos[i]);
            }
        });
        long[] sorted = Arrays.stream(nanos, skipped, count).map(n -> n / 1000).sorted().toArray();
        System.out.printf("{\"what\":\"e2e\",\"n\":%d,%s,\"failed\":%d,\"version\":\"%s\"}%n", sorted.length,
                spread("e2e", sorted), failed.get(), AppInfoParser.getVersion());
        if (failed.get() > 0) System.exit(1);
    }
}
