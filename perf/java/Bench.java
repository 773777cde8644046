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

/**
 * One measurement of a broker with the Java client, on a topic that exists. The last line is JSON; times are microseconds.
 *
 *   java Bench.java BOOTSTRAP TOPIC produce key=value...   as fast as the answers allow: MB/s
 *   java Bench.java BOOTSTRAP TOPIC latency key=value...   at `rate` records a second, from the time each was due
 *   java Bench.java BOOTSTRAP TOPIC fetch key=value...     everything in the topic, `count` records: MB/s
 *
 * partitions, size, count, rate, seconds, warmup (seconds), linger (ms), batch (bytes).
 */
public class Bench {
    static final Map<String, Integer> given = new HashMap<>(Map.of("partitions", 4, "size", 1024, "count", 200_000,
            "rate", 1000, "seconds", 10, "warmup", 3, "linger", 0, "batch", 65536));
    static String bootstrap;
    static String topic;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        topic = args[1];
        for (String pair : Arrays.asList(args).subList(3, args.length)) {
            String[] parts = pair.split("=", 2);
            if (given.put(parts[0], Integer.parseInt(parts[1])) == null)
                throw new IllegalArgumentException("no such key: " + parts[0]);
        }
        switch (args[2]) {
            case "produce" -> produce();
            case "latency" -> latency();
            case "fetch" -> fetch();
            default -> throw new IllegalArgumentException("no such measurement: " + args[2]);
        }
    }

    static KafkaProducer<byte[], byte[]> producer() {
        return new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap, "acks", "all", "enable.idempotence", true,
                "linger.ms", given.get("linger"), "batch.size", given.get("batch"), "buffer.memory", 64L << 20,
                "enable.metrics.push", false), new ByteArraySerializer(), new ByteArraySerializer());
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
        System.out.printf("{\"what\":\"%s\",\"mb_s\":%.2f,\"failed\":%d}%n", what,
                (double) count * given.get("size") / 1e6 / seconds, failed);
    }

    static void latency() throws Exception {
        byte[] value = value();
        int partitions = given.get("partitions"), rate = given.get("rate");
        int skipped = given.get("warmup") * rate, count = skipped + given.get("seconds") * rate;
        long[] micros = new long[count];
        AtomicInteger kept = new AtomicInteger(), failed = new AtomicInteger();
        try (var producer = producer()) {
            producer.partitionsFor(topic);
            long start = System.nanoTime();
            for (int i = 0; i < count; i++) {
                // A record that is late because an earlier one blocked still counts from when it was due.
                long due = start + i * 1_000_000_000L / rate;
                for (long left; (left = due - System.nanoTime()) > 0;) LockSupport.parkNanos(left);
                boolean counts = i >= skipped;
                producer.send(new ProducerRecord<>(topic, i % partitions, null, value), (told, error) -> {
                    if (error != null) failed.incrementAndGet();
                    else if (counts) micros[kept.getAndIncrement()] = (System.nanoTime() - due) / 1000;
                });
            }
            producer.flush();
        }
        long[] sorted = Arrays.copyOf(micros, kept.get());
        Arrays.sort(sorted);
        int n = sorted.length;
        System.out.printf("{\"what\":\"latency\",\"n\":%d,\"p50\":%d,\"p99\":%d,\"p999\":%d,\"max\":%d,\"failed\":%d}%n", n,
                sorted[n / 2], sorted[n * 99 / 100], sorted[(int) (n * 999L / 1000)], sorted[n - 1], failed.get());
    }

    static void fetch() {
        int count = given.get("count");
        var parts = IntStream.range(0, given.get("partitions")).mapToObj(p -> new TopicPartition(topic, p)).toList();
        try (var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false,
                "fetch.max.bytes", 64 << 20, "max.partition.fetch.bytes", 8 << 20, "max.poll.records", 10_000,
                "enable.metrics.push", false), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(parts);
            consumer.seekToBeginning(parts);
            long began = System.nanoTime();
            for (int got = 0; got < count;) got += consumer.poll(Duration.ofSeconds(1)).count();
            rate("fetch", count, System.nanoTime() - began, 0);
        }
    }
}
