import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional clients of Java that tell what they do, in the lines of history.py: one thread for each pair of a
 * transactional id and a group (`-` for none), each with a line's first word `ID` before the rest.
 *
 * <p>BOOTSTRAP TOPIC PARTITIONS RUN SEED PROTOCOL (ID GROUP)...
 */
public class TxnClient extends Thread {
    static final Duration CALL = Duration.ofSeconds(10);
    /** A few clients at full speed would leave no processor to those that start. */
    static final int PAUSE_MS = 10;
    static final int BEGIN_TRIES = 5;
    final String tid, name, topic, group, protocol;
    final int partitions;
    final Random random;
    final Map<String, Object> given;
    KafkaProducer<String, String> producer;
    KafkaConsumer<String, String> consumer;
    int count, values;
    static volatile boolean halt;

    TxnClient(String[] args, int at) {
        given = Map.of("bootstrap.servers", args[0], "reconnect.backoff.max.ms", 200, "retry.backoff.ms", 50);
        topic = args[1];
        partitions = Integer.parseInt(args[2]);
        tid = args[at];
        name = tid + "." + args[3];
        random = new Random(args[4].hashCode() + at);
        group = args[at + 1].equals("-") ? "" : args[at + 1];
        producer = producer();
        protocol = args[5];
    }

    KafkaProducer<String, String> producer() {
        Map<String, Object> settings = new HashMap<>(given);
        settings.putAll(Map.of("transactional.id", tid, "transaction.timeout.ms", 20000, "linger.ms", 1,
                "max.block.ms", 60000));
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    /** A consumer that has its partitions, or is about to get them. */
    KafkaConsumer<String, String> consumer() {
        Map<String, Object> settings = new HashMap<>(given);
        settings.putAll(Map.of("isolation.level", "read_committed", "enable.auto.commit", false, "auto.offset.reset",
                "earliest", "max.poll.records", 20, "group.id", group.isEmpty() ? "none-" + name : group,
                "group.protocol", protocol));
        if (protocol.equals("classic"))
            settings.putAll(Map.of("session.timeout.ms", 2500, "heartbeat.interval.ms", 300));
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** The client (4.3.1) may say of partitions that it was just given that it does not have them. */
    void begin() {
        for (int tries = 1; ; tries++) {
            try {
                open();
                return;
            } catch (IllegalStateException e) {
                if (tries == BEGIN_TRIES) throw e;
                say("again", e.toString());
                consumer.close();
            }
        }
    }

    void beginAgain(IllegalStateException e) {
        say("again", e.toString());
        consumer.close();
        begin();
    }

    void open() {
        consumer = consumer();
        if (group.isEmpty()) {
            consumer.assign(parts(range()));
            goBack(range());
        } else {
            consumer.subscribe(List.of(topic));
        }
    }

    void say(Object... words) {
        StringBuilder line = new StringBuilder(tid).append(' ').append(System.nanoTime());
        for (Object word : words) line.append(' ').append(word);
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    public static void main(String[] args) throws Exception {
        List<TxnClient> clients = new ArrayList<>();
        for (int at = 6; at < args.length; at += 2) clients.add(new TxnClient(args, at));
        for (TxnClient client : clients) client.start();
        while (System.in.read() >= 0) continue;
        halt = true;
        for (TxnClient client : clients) client.join();
    }

    @Override
    public void run() {
        try {
            producer.initTransactions();
            say("ready");
            begin();
            while (!halt) {
                if (group.isEmpty() && random.nextInt(64) == 0) {
                    try {
                        goBack(List.of(random.nextInt(partitions)));
                    } catch (IllegalStateException e) {
                        beginAgain(e);
                    }
                }
                transaction();
                Thread.sleep(PAUSE_MS);
            }
            consumer.close();
        } catch (ProducerFencedException | InvalidProducerEpochException | FencedInstanceIdException e) {
            say("fenced", e.getClass().getSimpleName());
        } catch (Throwable e) {
            e.printStackTrace();
            say("fatal", e.toString().replace('\n', ' '));
        }
    }

    List<Integer> range() {
        return IntStream.range(0, partitions).boxed().toList();
    }

    List<TopicPartition> parts(List<Integer> which) {
        return which.stream().map(p -> new TopicPartition(topic, p)).toList();
    }

    void goBack(List<Integer> which) {
        say("assign", which.stream().map(String::valueOf).collect(Collectors.joining(",")));
        consumer.seekToBeginning(parts(which));
    }

    void transaction() {
        List<ConsumerRecord<String, String>> rows = poll(50);
        if (!group.isEmpty() && rows.isEmpty()) return;
        String op = name + "-" + ++count;
        say("begin", op);
        try {
            producer.beginTransaction();
            told(op, rows);
            for (int n = random.nextInt(3); n >= 0; n--) {
                send(op);
                if (group.isEmpty() && random.nextInt(3) == 0) told(op, poll(10));
            }
            if (!group.isEmpty()) {
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                for (var row : rows)
                    ends.put(new TopicPartition(topic, row.partition()), new OffsetAndMetadata(row.offset() + 1));
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            }
            if (random.nextInt(7) == 0) {
                if (random.nextBoolean()) producer.flush();
                abort(op);
                return;
            }
            // A commit that comes while the sender looks at what is left to send may overtake it (4.3.1).
            producer.flush();
            say("commit", op);
            patiently(producer::commitTransaction);
            say("ok", op);
        } catch (ApplicationRecoverableException e) {
            // Fenced or unknown: only a new producer helps. What a twin took over must stay its own.
            throw e;
        } catch (KafkaException e) {
            say("error", op, e.toString().replace('\n', ' '));
            abort(op);
        }
    }

    List<ConsumerRecord<String, String>> poll(int ms) {
        List<ConsumerRecord<String, String>> rows = new ArrayList<>();
        try {
            consumer.poll(Duration.ofMillis(ms)).forEach(rows::add);
        } catch (IllegalStateException e) {
            // "Cannot set a new position without a valid current position": a race in the client (4.3.1) when its
            // background thread takes a partition away or resets it.
            beginAgain(e);
        }
        return rows;
    }

    void told(String op, List<ConsumerRecord<String, String>> rows) {
        if (rows.isEmpty()) return;
        say("poll", op, rows.stream().map(r -> r.partition() + ":" + r.offset() + ":" + r.value())
                .collect(Collectors.joining(" ")));
    }

    void send(String op) {
        String value = name + "/" + ++values;
        int partition = random.nextInt(partitions);
        say("send", op, partition, value);
        producer.send(new ProducerRecord<>(topic, partition, null, value), (told, e) -> {
            if (e == null) say("sent", op, value, told.hasOffset() ? told.offset() : -1);
            else say("unsent", op, value, e.toString().replace('\n', ' '));
        });
    }

    /** A call that timed out may be made again, and only that one. */
    void patiently(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException e) {
                if (halt) throw e;
            }
        }
    }

    void abort(String op) {
        patiently(producer::abortTransaction);
        say("aborted", op);
        if (!group.isEmpty()) rewind();
    }

    void rewind() {
        while (true) {
            Set<TopicPartition> held = consumer.assignment();
            try {
                var committed = consumer.committed(held, CALL);
                for (TopicPartition part : held) {
                    var offset = committed.get(part);
                    consumer.seek(part, offset == null ? 0 : offset.offset());
                }
                return;
            } catch (TimeoutException e) {
                say("waits", "for committed offsets");
            } catch (KafkaException | IllegalStateException e) {
                // The group has given this member up meanwhile, or its partitions went between two calls.
                say("again", e.toString().replace('\n', ' '));
                consumer.close();
                begin();
                return;
            }
        }
    }
}
