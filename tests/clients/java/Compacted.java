import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java client on a compacted topic: it reads from the start to the end offset, whatever was taken out between. */
public class Compacted {
    static final int KEYS = 50;
    static final int ROUNDS = 120;
    static final Duration PATIENCE = Duration.ofSeconds(90);
    static String bootstrap;

    public static void main(String[] args) {
        bootstrap = args[0];
        boolean failed = false;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            for (String isolation : List.of("read_uncommitted", "read_committed")) {
                String name = "reads a compacted topic to its end, " + codec + ", " + isolation;
                try {
                    run(codec, isolation);
                    System.out.println("check ok " + name);
                } catch (Throwable e) {
                    failed = true;
                    System.out.println("check FAIL " + name + ": " + e.toString().replace('\n', ' '));
                }
            }
        }
        System.exit(failed ? 1 : 0);
    }

    static void run(String codec, String isolation) throws Exception {
        String topic = "compacted-" + System.nanoTime();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var settings = Map.of("cleanup.policy", "compact", "segment.bytes", "1048576",
                    "min.cleanable.dirty.ratio", "0.01", "delete.retention.ms", "0");
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(settings))).all().get();
        }
        Map<String, String> expected = write(topic, codec);
        long until = System.nanoTime() + PATIENCE.toNanos();
        while (true) {
            Map<String, String> state = new HashMap<>();
            int records = read(topic, isolation, state);
            if (!state.equals(expected)) throw new AssertionError("got " + state.size() + " keys, or other values");
            if (records < KEYS * ROUNDS / 2) return;
            if (System.nanoTime() > until) throw new AssertionError(records + " records: it is never compacted");
            Thread.sleep(200);
        }
    }

    /** Values that do not compress, so that there are segments to clean. */
    static Map<String, String> write(String topic, String codec) throws Exception {
        var random = new java.util.Random(7);
        Map<String, String> newest = new HashMap<>();
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "compression.type", codec,
                "linger.ms", 2, "batch.size", 16384);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int round = 0; round < ROUNDS; round++) {
                for (int key = 0; key < KEYS; key++) {
                    byte[] noise = new byte[750];
                    random.nextBytes(noise);
                    boolean isTombstone = round == ROUNDS / 2 && key % 5 == 0 || round > ROUNDS / 2 && key == 0;
                    String value = isTombstone ? null : round + ":" + java.util.Base64.getEncoder().encodeToString(noise);
                    var record = new ProducerRecord<>(topic, "k" + key, value);
                    record.headers().add("round", Integer.toString(round).getBytes());
                    producer.send(record);
                    if (value == null) newest.remove("k" + key);
                    else newest.put("k" + key, value);
                }
            }
        }
        return newest;
    }

    /** Reads to the end offset; gives the number of records. */
    static int read(String topic, String isolation, Map<String, String> state) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation,
                "auto.offset.reset", "none", "max.partition.fetch.bytes", 65536);
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            var partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            if (end != (long) KEYS * ROUNDS) throw new AssertionError("the end offset is " + end);
            long until = System.nanoTime() + PATIENCE.toNanos();
            int records = 0;
            long last = -1;
            while (consumer.position(partition) < end) {
                if (System.nanoTime() > until)
                    throw new AssertionError("stuck at " + consumer.position(partition) + " of " + end);
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    if (record.offset() <= last) throw new AssertionError("offset " + record.offset() + " after " + last);
                    last = record.offset();
                    records++;
                    Header header = record.headers().lastHeader("round");
                    String round = new String(header.value());
                    if (record.offset() / KEYS != Long.parseLong(round) || !record.key().equals("k" + last % KEYS))
                        throw new AssertionError("offset " + last + " has another record now");
                    if (record.value() == null) state.remove(record.key());
                    else state.put(record.key(), record.value());
                }
            }
            return records;
        }
    }
}
