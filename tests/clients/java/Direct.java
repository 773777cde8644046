import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java client against a broker, with partitions assigned by hand: no group is needed. */
public class Direct {
    static final int PARTITIONS = 3;
    static final int COUNT = 3000;
    static String bootstrap;
    static boolean failed;

    interface Body {
        void run() throws Exception;
    }

    static void check(String name, Body body) {
        try {
            body.run();
            System.out.println("check ok " + name);
        } catch (Throwable e) {
            failed = true;
            System.out.println("check FAIL " + name + ": " + e.toString().replace('\n', ' '));
        }
    }

    static void equal(String what, Object got, Object want) {
        if (!got.equals(want)) throw new AssertionError(what + ": got " + got + ", want " + want);
    }

    public static void main(String[] args) {
        bootstrap = args[0];
        for (String acks : List.of("all", "1", "0"))
            check("acks " + acks, () -> roundTrip(Map.of("acks", acks, "enable.idempotence", acks.equals("all"))));
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd"))
            check("idempotent, " + codec, () -> roundTrip(Map.of("compression.type", codec)));
        check("one in flight", () -> roundTrip(Map.of("max.in.flight.requests.per.connection", 1)));
        check("a batch above max.message.bytes is refused, the producer goes on", Direct::tooLarge);
        check("offsets for times, beginning, end", Direct::offsets);
        check("a consumer at the tail sees each record within a second", Direct::tail);
        System.exit(failed ? 1 : 0);
    }

    static String topic(Map<String, String> settings) throws Exception {
        String name = "java-" + System.nanoTime();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(name, PARTITIONS, (short) 1).configs(settings))).all().get();
        }
        return name;
    }

    static KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 1,
                "batch.size", 4096));
        settings.putAll(more);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String topic) {
        var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest",
                "enable.auto.commit", false), new StringDeserializer(), new StringDeserializer());
        consumer.assign(parts(topic));
        return consumer;
    }

    static List<TopicPartition> parts(String topic) {
        return IntStream.range(0, PARTITIONS).mapToObj(p -> new TopicPartition(topic, p)).toList();
    }

    static void roundTrip(Map<String, Object> settings) throws Exception {
        String topic = topic(Map.of());
        List<Future<RecordMetadata>> told = new ArrayList<>();
        try (var producer = producer(settings)) {
            for (int i = 0; i < COUNT; i++)
                told.add(producer.send(new ProducerRecord<>(topic, i % PARTITIONS, "k" + i, "value-" + i)));
        }
        try (var consumer = consumer(topic)) {
            Map<Integer, List<ConsumerRecord<String, String>>> got = new HashMap<>();
            int n = 0;
            for (long until = System.nanoTime() + 30_000_000_000L; n < COUNT && System.nanoTime() < until;) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    got.computeIfAbsent(record.partition(), p -> new ArrayList<>()).add(record);
                    n++;
                }
            }
            equal("records", n, COUNT);
            equal("records more", consumer.poll(Duration.ofMillis(300)).count(), 0);
            for (int i = 0; i < COUNT; i++) {
                var record = got.get(i % PARTITIONS).get(i / PARTITIONS);
                equal("value", record.value(), "value-" + i);
                equal("key", record.key(), "k" + i);
                equal("offset", record.offset(), (long) (i / PARTITIONS));
                RecordMetadata ack = told.get(i).get();
                if (ack.hasOffset()) equal("offset told", ack.offset(), record.offset());
            }
        }
    }

    static void tooLarge() throws Exception {
        String topic = topic(Map.of("max.message.bytes", "2000"));
        try (var producer = producer(Map.of())) {
            try {
                producer.send(new ProducerRecord<>(topic, 0, "k", "x".repeat(5000))).get();
                throw new AssertionError("a record of 5000 bytes was taken");
            } catch (ExecutionException e) {
                equal("error", e.getCause().getClass(), RecordTooLargeException.class);
            }
            equal("next offset", producer.send(new ProducerRecord<>(topic, 0, "k", "small")).get().offset(), 0L);
        }
    }

    static void offsets() throws Exception {
        String topic = topic(Map.of());
        try (var producer = producer(Map.of())) {
            for (long i = 0; i < 10; i++)
                producer.send(new ProducerRecord<>(topic, 1, 1_600_000_000_000L + i * 1000, "k", "v"));
        }
        TopicPartition part = new TopicPartition(topic, 1);
        try (var consumer = consumer(topic)) {
            equal("end", consumer.endOffsets(List.of(part)).get(part), 10L);
            equal("beginning", consumer.beginningOffsets(List.of(part)).get(part), 0L);
            equal("time", consumer.offsetsForTimes(Map.of(part, 1_600_000_003_500L)).get(part).offset(), 4L);
            consumer.seek(part, 7);
            equal("position", consumer.poll(Duration.ofSeconds(10)).records(part).get(0).offset(), 7L);
        }
    }

    static void tail() throws Exception {
        String topic = topic(Map.of());
        try (var producer = producer(Map.of("linger.ms", 0)); var consumer = consumer(topic)) {
            consumer.poll(Duration.ofMillis(300));
            for (int i = 0; i < 20; i++) {
                producer.send(new ProducerRecord<>(topic, i % PARTITIONS, "k", "t" + i)).get();
                var records = consumer.poll(Duration.ofSeconds(1));
                equal("records of round " + i, records.count(), 1);
                equal("value", records.iterator().next().value(), "t" + i);
            }
        }
    }
}
