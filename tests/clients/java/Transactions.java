import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client's transactions, at the levels of transaction.version that are named: `Transactions HOST:PORT 2,1`.
 * With `long` behind them, also what takes minutes. A level is set before clients connect, because they learn it when
 * they do; the last thing is to set it back to 2.
 */
public class Transactions {
    static final int PARTITIONS = 3;
    static final int SMALL = 1000;
    static final Duration PATIENCE = Duration.ofSeconds(30);
    static String bootstrap;
    static Admin admin;
    static short level;
    static boolean failed;
    /** Text that the names of the checks to run contain. */
    static String only = "";

    interface Body {
        void run() throws Exception;
    }

    static void check(String name, Body body) {
        if (!name.contains(only)) return;
        name = "transaction.version " + level + ": " + name;
        try {
            body.run();
            System.out.println("check ok " + name);
        } catch (Throwable e) {
            failed = true;
            var at = e.getStackTrace().length > 0 ? List.of(e.getStackTrace()).toString() : "";
            System.out.println("check FAIL " + name + ": " + (e + " " + at).replace('\n', ' '));
        }
    }

    static void equal(String what, Object got, Object want) {
        if (!got.equals(want)) throw new AssertionError(what + ": got " + got + ", want " + want);
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        boolean isLong = args.length > 2 && args[2].equals("long");
        if (args.length > 2 && !isLong) only = args[2];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        for (String named : args[1].split(",")) {
            level = Short.parseShort(named);
            finalise(level);
            check("committed and aborted, as each isolation level reads them", Transactions::outcomes);
            check("consume, transform, produce, classic group", () -> copy(Map.of()));
            check("consume, transform, produce, consumer group", () -> copy(Map.of("group.protocol", "consumer")));
            check("offsets of a member that is no more are refused", Transactions::zombie);
            check("a second producer with the id fences the first and aborts its transaction", Transactions::second);
            check("Admin.fenceProducers", Transactions::fenced);
            check("a transaction that takes too long is aborted", Transactions::timeout);
            check("empty transactions", Transactions::empty);
            check("listed and described while it is open and after it", Transactions::told);
            check(SMALL + " small transactions", Transactions::small);
        }
        level = 2;
        finalise(level);
        if (isLong) {
            check("the level changes under a running producer", Transactions::flips);
            check("a producer whose epochs run out goes on under another id", Transactions::exhausted);
        }
        admin.close();
        System.exit(failed ? 1 : 0);
    }

    static void finalise(short wanted) throws Exception {
        var told = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version");
        short now = told == null ? 0 : told.maxVersionLevel();
        if (now == wanted) return;
        var type = wanted < now ? FeatureUpdate.UpgradeType.SAFE_DOWNGRADE : FeatureUpdate.UpgradeType.UPGRADE;
        var update = Map.of("transaction.version", new FeatureUpdate(wanted, type));
        admin.updateFeatures(update, new UpdateFeaturesOptions()).all().get();
    }

    static String topic() throws Exception {
        String name = "txn-" + System.nanoTime();
        admin.createTopics(List.of(new NewTopic(name, PARTITIONS, (short) 1))).all().get();
        return name;
    }

    static KafkaProducer<String, String> producer(String id, Object... more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 1));
        if (id != null) settings.put("transactional.id", id);
        for (int i = 0; i < more.length; i += 2) settings.put((String) more[i], more[i + 1]);
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        if (id != null) producer.initTransactions();
        return producer;
    }

    static List<TopicPartition> parts(String topic) {
        return IntStream.range(0, PARTITIONS).mapToObj(p -> new TopicPartition(topic, p)).toList();
    }

    static KafkaConsumer<String, String> consumer(String isolation, Map<String, ?> more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false,
                "isolation.level", isolation, "auto.offset.reset", "earliest"));
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** What is read once no transaction is open: a commit is answered before its markers are written. */
    static List<List<String>> read(String topic, String isolation) throws Exception {
        until("readers see to the end", () -> ends(topic, "read_committed").equals(ends(topic, "read_uncommitted")));
        return readNow(topic, isolation);
    }

    /** The values of each partition up to the end that this isolation level is told, which must then be reached. */
    static List<List<String>> readNow(String topic, String isolation) {
        try (var consumer = consumer(isolation, Map.of())) {
            consumer.assign(parts(topic));
            var ends = consumer.endOffsets(parts(topic));
            List<List<String>> out = new ArrayList<>();
            parts(topic).forEach(p -> out.add(new ArrayList<>()));
            long until = System.nanoTime() + PATIENCE.toNanos();
            while (parts(topic).stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                if (System.nanoTime() > until) {
                    var at = parts(topic).stream().map(consumer::position).toList();
                    throw new AssertionError(isolation + " is stuck at " + at + " of " + ends);
                }
                for (var record : consumer.poll(Duration.ofMillis(100)))
                    out.get(record.partition()).add(record.value());
            }
            return out;
        }
    }

    static void send(KafkaProducer<String, String> producer, String topic, String mark, int each) {
        for (int i = 0; i < each * PARTITIONS; i++)
            producer.send(new ProducerRecord<>(topic, i % PARTITIONS, "k", mark + i / PARTITIONS));
    }

    /**
     * Flushed first: at level 2 the client may otherwise send EndTxn ahead of a record that it was given just before.
     * It looks for unsent batches, then takes its lock, and only then sees both.
     */
    static void commit(KafkaProducer<String, String> producer) {
        producer.flush();
        producer.commitTransaction();
    }

    static List<String> marked(int each, String... marks) {
        List<String> out = new ArrayList<>();
        for (String mark : marks) IntStream.range(0, each).forEach(i -> out.add(mark + i));
        return out;
    }

    static void outcomes() throws Exception {
        String topic = topic();
        try (var one = producer("o1-" + topic); var two = producer("o2-" + topic, "compression.type", "zstd");
                var plain = producer(null)) {
            one.beginTransaction();
            send(one, topic, "a", 40);
            commit(one);
            two.beginTransaction();
            send(two, topic, "b", 30);
            two.abortTransaction();
            two.beginTransaction();
            send(two, topic, "c", 20);
            two.flush();
            send(plain, topic, "p", 40);
            plain.flush();
            // Two is open, so what lies behind its first record is not stable yet.
            for (var values : readNow(topic, "read_committed")) equal("while one is open", values, marked(40, "a"));
            commit(two);
            one.beginTransaction();
            send(one, topic, "d", 10);
            one.flush();
            one.abortTransaction();
            equal("protocol seen in the epoch", epoch(topic, one) > 0, level == 2);
        }
        List<String> committed = marked(40, "a");
        committed.addAll(marked(20, "c"));
        committed.addAll(marked(40, "p"));
        List<String> all = new ArrayList<>(marked(40, "a"));
        all.addAll(marked(30, "b"));
        all.addAll(marked(20, "c"));
        all.addAll(marked(40, "p"));
        all.addAll(marked(10, "d"));
        for (var values : read(topic, "read_committed")) equal("read_committed", values, committed);
        for (var values : read(topic, "read_uncommitted")) {
            // A batch that an abort caught in the producer's hands was never sent.
            equal("read_uncommitted holds what is committed", values.containsAll(committed), true);
            equal("nothing twice", new HashSet<>(values).size(), values.size());
            equal("nothing else", all.containsAll(values), true);
            equal("aborted after a flush", values.containsAll(marked(10, "d")), true);
        }
    }

    /** The largest epoch that partition 0 knows: it stays 0 unless every transaction bumps it. */
    static int epoch(String topic, KafkaProducer<String, String> producer) throws Exception {
        var part = parts(topic).get(0);
        var states = admin.describeProducers(List.of(part)).partitionResult(part).get().activeProducers();
        return states.stream().mapToInt(s -> s.producerEpoch()).max().orElse(-1);
    }

    static void copy(Map<String, String> protocol) throws Exception {
        String in = topic(), out = topic(), group = "g-" + in;
        int total = 200 * PARTITIONS;
        try (var source = producer(null)) {
            send(source, in, "v", 200);
        }
        Map<String, Object> settings = new HashMap<>(protocol);
        settings.put("group.id", group);
        settings.put("max.poll.records", 70);
        int round = 0;
        try (var consumer = consumer("read_committed", settings); var producer = producer("copy-" + in)) {
            consumer.subscribe(List.of(in));
            int done = 0;
            long until = System.nanoTime() + PATIENCE.toNanos();
            while (done < total) {
                if (System.nanoTime() > until) throw new AssertionError(done + " of " + total + " copied");
                var records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> behind = new HashMap<>();
                for (var record : records) {
                    var part = new TopicPartition(in, record.partition());
                    behind.put(part, new OffsetAndMetadata(record.offset() + 1));
                    producer.send(new ProducerRecord<>(out, record.partition(), "k", record.value()));
                }
                producer.sendOffsetsToTransaction(behind, consumer.groupMetadata());
                if (round++ % 3 == 1) {
                    producer.abortTransaction();
                    rewind(consumer);
                } else {
                    commit(producer);
                    done += records.count();
                }
            }
        }
        for (var values : read(out, "read_committed")) equal("values", values, marked(200, "v"));
        for (var part : parts(in)) equal("committed offset", stored(group, part), 200L);
    }

    /** What a group has committed, once no transaction is about to change it; -1 for nothing. */
    static long stored(String group, TopicPartition part) throws Exception {
        var options = new ListConsumerGroupOffsetsOptions().requireStable(true);
        var told = admin.listConsumerGroupOffsets(group, options).partitionsToOffsetAndMetadata().get().get(part);
        return told == null ? -1 : told.offset();
    }

    /** Back to what was committed, as an application does after an abort. */
    static void rewind(KafkaConsumer<String, String> consumer) {
        var stored = consumer.committed(consumer.assignment());
        for (var part : consumer.assignment()) {
            var offset = Optional.ofNullable(stored.get(part)).map(OffsetAndMetadata::offset).orElse(0L);
            consumer.seek(part, offset);
        }
    }

    /** KIP-447: group metadata of a generation that has passed. */
    static void zombie() throws Exception {
        String in = topic(), group = "g-" + in;
        ConsumerGroupMetadata old;
        try (var consumer = consumer("read_committed", Map.of("group.id", group))) {
            consumer.subscribe(List.of(in));
            until("a member", () -> {
                consumer.poll(Duration.ofMillis(100));
                return consumer.assignment().size() == PARTITIONS;
            });
            old = consumer.groupMetadata();
        }
        try (var producer = producer("zombie-" + in)) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(in, 0, "k", "v"));
            try {
                producer.sendOffsetsToTransaction(Map.of(parts(in).get(0), new OffsetAndMetadata(7)), old);
                commit(producer);
                throw new AssertionError("offsets were taken");
            } catch (CommitFailedException expected) {
                producer.abortTransaction();
            }
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(in, 0, "k", "w"));
            commit(producer);
        }
        equal("offset", stored(group, parts(in).get(0)), -1L);
        equal("values", read(in, "read_committed").get(0), List.of("w"));
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void until(String what, Condition condition) throws Exception {
        long until = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.holds()) {
            if (System.nanoTime() > until) throw new AssertionError("not in time: " + what);
            Thread.sleep(10);
        }
    }

    static void assertThrows(Class<?> wanted, Body body) throws Exception {
        try {
            body.run();
        } catch (KafkaException e) {
            if (wanted.isInstance(e)) return;
            throw e;
        }
        throw new AssertionError("no " + wanted.getSimpleName());
    }

    /** A producer that another has fenced: no operation of it succeeds, and it is told why. */
    static void isFenced(KafkaProducer<String, String> producer, Body body) throws Exception {
        try {
            body.run();
        } catch (ProducerFencedException | InvalidProducerEpochException expected) {
            return;
        } catch (KafkaException e) {
            Throwable cause = e.getCause();
            if (cause instanceof ProducerFencedException || cause instanceof InvalidProducerEpochException) return;
            throw e;
        }
        throw new AssertionError("it was not fenced");
    }

    static void second() throws Exception {
        String topic = topic(), id = "fence-" + topic;
        try (var first = producer(id)) {
            first.beginTransaction();
            send(first, topic, "first", 5);
            first.flush();
            try (var other = producer(id)) {
                other.beginTransaction();
                send(other, topic, "second", 5);
                commit(other);
                isFenced(first, () -> {
                    send(first, topic, "late", 1);
                    commit(first);
                });
                other.beginTransaction();
                send(other, topic, "third", 5);
                commit(other);
            }
        }
        for (var values : read(topic, "read_committed")) equal("values", values, marked(5, "second", "third"));
    }

    static void fenced() throws Exception {
        String topic = topic(), id = "admin-fence-" + topic;
        try (var producer = producer(id)) {
            producer.beginTransaction();
            send(producer, topic, "before", 5);
            commit(producer);
            producer.beginTransaction();
            send(producer, topic, "open", 5);
            producer.flush();
            admin.fenceProducers(List.of(id)).all().get();
            isFenced(producer, producer::commitTransaction);
        }
        for (var values : read(topic, "read_committed")) equal("values", values, marked(5, "before"));
        try (var again = producer(id)) {
            again.beginTransaction();
            send(again, topic, "after", 5);
            commit(again);
        }
        for (var values : read(topic, "read_committed")) equal("values", values, marked(5, "before", "after"));
    }

    static void timeout() throws Exception {
        String topic = topic();
        try (var producer = producer("slow-" + topic, "transaction.timeout.ms", 600)) {
            producer.beginTransaction();
            send(producer, topic, "slow", 5);
            producer.flush();
            // Readers are let through without anything done by the producer.
            until("it is aborted", () -> ends(topic, "read_committed").equals(ends(topic, "read_uncommitted")));
            // With its old epoch it cannot commit; at level 2 it is told the state, because it may abort (contract B6).
            if (level < 2) isFenced(producer, producer::commitTransaction);
            else assertThrows(InvalidTxnStateException.class, producer::commitTransaction);
        }
        for (var values : read(topic, "read_committed")) equal("values", values, List.of());
        // transaction.max.timeout.ms is 15 minutes.
        String late = "long-" + topic;
        assertThrows(KafkaException.class, () -> producer(late, "transaction.timeout.ms", 3_600_000).close());
    }

    static Map<TopicPartition, Long> ends(String topic, String isolation) {
        try (var consumer = consumer(isolation, Map.of())) {
            return consumer.endOffsets(parts(topic));
        }
    }

    static void empty() throws Exception {
        String topic = topic();
        try (var producer = producer("empty-" + topic)) {
            for (int i = 0; i < 20; i++) {
                producer.beginTransaction();
                if (i % 5 == 4) send(producer, topic, "v" + i + "-", 1);
                if (i % 2 == 0) commit(producer);
                else producer.abortTransaction();
            }
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(parts(topic).get(0), new OffsetAndMetadata(3)),
                    new ConsumerGroupMetadata("g-" + topic));
            commit(producer);
        }
        for (var values : read(topic, "read_committed")) equal("values", values, List.of("v4-0", "v14-0"));
        equal("offset alone", stored("g-" + topic, parts(topic).get(0)), 3L);
    }

    static void told() throws Exception {
        String topic = topic(), id = "told-" + topic;
        try (var producer = producer(id)) {
            producer.beginTransaction();
            send(producer, topic, "v", 2);
            producer.flush();
            var now = admin.describeTransactions(List.of(id)).description(id).get();
            equal("state", now.state(), TransactionState.ONGOING);
            equal("partitions", now.topicPartitions(), Set.copyOf(parts(topic)));
            equal("timeout", now.transactionTimeoutMs(), 60000L);
            equal("started", now.transactionStartTimeMs().isPresent(), true);
            var part = parts(topic).get(1);
            var at = admin.describeProducers(List.of(part)).partitionResult(part).get().activeProducers().get(0);
            equal("producer", List.of(at.producerId(), at.producerEpoch(), at.lastSequence()),
                    List.of(now.producerId(), now.producerEpoch(), 1));
            equal("first offset", at.currentTransactionStartOffset().getAsLong(), 0L);
            var options = new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING));
            var open = admin.listTransactions(options).all().get().stream().map(t -> t.transactionalId()).toList();
            equal("listed as open", open.contains(id), true);
            commit(producer);
            until("complete", () -> admin.describeTransactions(List.of(id)).description(id).get().state()
                    == TransactionState.COMPLETE_COMMIT);
            options = new ListTransactionsOptions().filterProducerIds(List.of(now.producerId()));
            var all = admin.listTransactions(options).all().get().stream().map(t -> t.state()).toList();
            equal("listed by producer id", all, List.of(TransactionState.COMPLETE_COMMIT));
        }
        try {
            admin.describeTransactions(List.of("nobody-" + topic)).description("nobody-" + topic).get();
            throw new AssertionError("an id that nobody used was described");
        } catch (ExecutionException e) {
            equal("unknown id", e.getCause().getClass(), TransactionalIdNotFoundException.class);
        }
    }

    static void small() throws Exception {
        String topic = topic();
        try (var producer = producer("small-" + topic, "linger.ms", 0)) {
            for (int i = 0; i < SMALL; i++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, i % PARTITIONS, "k", "v" + i));
                producer.flush();
                if (i % 10 == 9) producer.abortTransaction();
                else producer.commitTransaction();
            }
        }
        var got = read(topic, "read_committed");
        for (int p = 0; p < PARTITIONS; p++) {
            int of = p;
            var want = IntStream.range(0, SMALL).filter(i -> i % PARTITIONS == of && i % 10 != 9)
                    .mapToObj(i -> "v" + i).toList();
            equal("values", got.get(p), want);
        }
    }

    /** A producer hears of a level when it connects; until then it stays at its own, and both are served (F81). */
    static void flips() throws Exception {
        String topic = topic();
        List<String> want = new ArrayList<>();
        try (var producer = producer("flips-" + topic, "connections.max.idle.ms", 300)) {
            for (int round = 0; round < 8; round++) {
                level = (short) (round % 2 == 0 ? 1 : 2);
                producer.beginTransaction();
                send(producer, topic, round + "-", 3);
                producer.flush();
                finalise(level);
                // Longer than its connections live.
                Thread.sleep(700);
                send(producer, topic, round + "+", 3);
                commit(producer);
                want.addAll(marked(3, round + "-", round + "+"));
            }
        } finally {
            level = 2;
            finalise(level);
        }
        for (var values : read(topic, "read_committed")) equal("values", values, want);
    }

    /** At level 2 each transaction takes an epoch; there are 32,767 of them (contract B6). */
    static void exhausted() throws Exception {
        int count = 33_200;
        String topic = topic(), id = "exhausted-" + topic;
        long before, after;
        try (var producer = producer(id, "linger.ms", 0)) {
            before = admin.describeTransactions(List.of(id)).description(id).get().producerId();
            for (int i = 0; i < count; i++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, i % PARTITIONS, "k", "v" + i));
                producer.flush();
                if (i % 10 == 9) producer.abortTransaction();
                else producer.commitTransaction();
            }
            after = admin.describeTransactions(List.of(id)).description(id).get().producerId();
        }
        equal("another producer id", before != after, true);
        var got = read(topic, "read_committed");
        for (int p = 0; p < PARTITIONS; p++) {
            int of = p;
            var want = IntStream.range(0, count).filter(i -> i % PARTITIONS == of && i % 10 != 9)
                    .mapToObj(i -> "v" + i).toList();
            equal("values", got.get(p).equals(want), true);
        }
    }
}
