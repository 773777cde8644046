"""Transactions with the clients of Python: librdkafka by confluent-kafka, and aiokafka. Both use the first protocol."""

import asyncio
import time

from common import topic
from members import until
from python_confluent import create
from report import expect

PARTITIONS = 3
EACH = 60
SMALL = 300


def checks(report, server):
    address = server.bootstrap
    report.check("librdkafka commits and aborts, as each isolation level reads them", outcomes, address)
    for protocol in ("classic", "consumer"):
        report.check(f"librdkafka consume, transform, produce, {protocol} group", copy, address, protocol)
    report.check("librdkafka a second producer with the id fences the first", fenced, address)
    report.check("librdkafka a transaction that takes too long is aborted", timeout, address)
    report.check(f"librdkafka {SMALL} small transactions", small, address)
    report.check("aiokafka commits and aborts, as each isolation level reads them", aio, aio_outcomes, address)
    report.check("aiokafka consume, transform, produce", aio, aio_copy, address)
    report.check("aiokafka a second producer with the id fences the first", aio, aio_fenced, address)


def producer(address, name, **more):
    from confluent_kafka import Producer

    made = Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 1, **more})
    made.init_transactions(30)
    return made


def send(out, name, mark, count=EACH):
    for i in range(count * PARTITIONS):
        out.produce(name, f"{mark}{i // PARTITIONS}".encode(), partition=i % PARTITIONS)


def marked(count, *marks):
    return [f"{mark}{i}" for mark in marks for i in range(count)]


def ends(address, name, isolation):
    """End offsets as this isolation level is told them."""
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({"bootstrap.servers": address, "group.id": "not-used", "isolation.level": isolation})
    got = [reader.get_watermark_offsets(TopicPartition(name, p), 20)[1] for p in range(PARTITIONS)]
    reader.close()
    return got


def settled(address, name):
    """A commit is answered before its markers are written."""
    until("readers see to the end", lambda: ends(address, name, "read_committed") == ends(address, name, UNCOMMITTED))


UNCOMMITTED = "read_uncommitted"


def read(address, name, isolation="read_committed", seconds=30):
    """Values by partition, up to the end, which a reader has to reach."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settled(address, name)
    settings = {"bootstrap.servers": address, "group.id": "not-used", "isolation.level": isolation}
    reader = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    reader.assign([TopicPartition(name, p, 0) for p in range(PARTITIONS)])
    out, ended = [[] for _ in range(PARTITIONS)], set()
    late = time.monotonic() + seconds
    while len(ended) < PARTITIONS:
        if time.monotonic() > late:
            raise AssertionError(f"the end is not reached: {sorted(ended)}, {[len(o) for o in out]}")
        for message in reader.consume(500, 0.2):
            if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            elif message.error():
                raise AssertionError(f"consume: {message.error()}")
            else:
                out[message.partition()].append(message.value().decode())
    reader.close()
    return out


def outcomes(address):
    name = topic("rdk-txn")
    create(address, name, PARTITIONS)
    one, two = producer(address, f"{name}-1"), producer(address, f"{name}-2", **{"compression.type": "lz4"})
    one.begin_transaction()
    send(one, name, "a")
    one.commit_transaction(30)
    two.begin_transaction()
    send(two, name, "b")
    expect("not flushed", two.flush(20), 0)
    two.abort_transaction(30)
    for out, mark in ((two, "c"), (one, "d")):
        out.begin_transaction()
        send(out, name, mark)
        out.commit_transaction(30)
    for values in read(address, name):
        expect("read_committed", values, marked(EACH, "a", "c", "d"))
    for values in read(address, name, UNCOMMITTED):
        expect("read_uncommitted", values, marked(EACH, "a", "b", "c", "d"))


def copy(address, protocol):
    from confluent_kafka import Consumer

    source, into = topic("rdk-in"), topic("rdk-out")
    create(address, source, PARTITIONS)
    create(address, into, PARTITIONS)
    first = producer(address, f"fill-{source}")
    first.begin_transaction()
    send(first, source, "v")
    first.commit_transaction(30)
    settings = {"bootstrap.servers": address, "group.id": f"g-{source}", "auto.offset.reset": "earliest"}
    settings.update({"enable.auto.commit": False, "group.protocol": protocol})
    reader, out = Consumer(settings), producer(address, f"copy-{source}")
    reader.subscribe([source])
    done = rounds = 0
    late = time.monotonic() + 40
    while done < EACH * PARTITIONS:
        if time.monotonic() > late:
            raise AssertionError(f"{done} copied")
        got = reader.consume(40, 0.2)
        expect("errors", [m.error() for m in got if m.error()], [])
        if not got:
            continue
        out.begin_transaction()
        for message in got:
            out.produce(into, message.value(), partition=message.partition())
        out.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata(), 30)
        rounds += 1
        if rounds % 3 == 2:
            out.abort_transaction(30)
            for part in reader.committed(reader.assignment(), 20):
                part.offset = max(part.offset, 0)
                reader.seek(part)
        else:
            out.commit_transaction(30)
            done += len(got)
    stored = {p.partition: p.offset for p in reader.committed(reader.assignment(), 20)}
    reader.close()
    # A marker lies behind what the first transaction wrote.
    expect("offsets behind the last record", all(o in (EACH, EACH + 1) for o in stored.values()), True)
    for values in read(address, into):
        expect("values", values, marked(EACH, "v"))


def is_fenced(attempt):
    from confluent_kafka import KafkaException

    try:
        attempt()
    except KafkaException as error:
        told = error.args[0]
        expect("told why", told.name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"), True)
        return
    raise AssertionError("it was not fenced")


def fenced(address):
    name = topic("rdk-fence")
    create(address, name, PARTITIONS)
    first = producer(address, name)
    first.begin_transaction()
    send(first, name, "a")
    expect("not flushed", first.flush(20), 0)
    second = producer(address, name)
    second.begin_transaction()
    send(second, name, "b")
    second.commit_transaction(30)
    is_fenced(lambda: first.commit_transaction(30))
    for values in read(address, name):
        expect("values", values, marked(EACH, "b"))


def timeout(address):
    name = topic("rdk-slow")
    create(address, name, PARTITIONS)
    # Its socket timeout may not be above.
    slow = producer(address, name, **{"transaction.timeout.ms": 1000, "socket.timeout.ms": 900})
    slow.begin_transaction()
    send(slow, name, "a")
    expect("not flushed", slow.flush(20), 0)
    settled(address, name)
    is_fenced(lambda: slow.commit_transaction(30))
    for values in read(address, name):
        expect("values", values, [])


def small(address):
    name = topic("rdk-small")
    create(address, name, PARTITIONS)
    out = producer(address, name, **{"linger.ms": 0})
    for i in range(SMALL):
        out.begin_transaction()
        out.produce(name, str(i).encode(), partition=i % PARTITIONS)
        if i % 10 == 9:
            expect("not flushed", out.flush(20), 0)
            out.abort_transaction(30)
        else:
            out.commit_transaction(30)
    for p, values in enumerate(read(address, name)):
        expect("values", values, [str(i) for i in range(SMALL) if i % PARTITIONS == p and i % 10 != 9])


def aio(run, address):
    """Runs a check of aiokafka, which has 60 seconds."""
    return asyncio.run(asyncio.wait_for(run(address), 60))


async def aio_producer(address, name):
    from aiokafka import AIOKafkaProducer

    made = AIOKafkaProducer(bootstrap_servers=address, transactional_id=name, linger_ms=1)
    await made.start()
    return made


async def aio_send(out, name, mark, count=EACH):
    sent = []
    for i in range(count * PARTITIONS):
        sent.append(await out.send(name, f"{mark}{i // PARTITIONS}".encode(), partition=i % PARTITIONS))
    await asyncio.gather(*sent)


async def aio_outcomes(address):
    name = topic("aio-txn")
    create(address, name, PARTITIONS)
    out = await aio_producer(address, name)
    try:
        async with out.transaction():
            await aio_send(out, name, "a")
        await out.begin_transaction()
        await aio_send(out, name, "b")
        await out.abort_transaction()
        async with out.transaction():
            await aio_send(out, name, "c")
    finally:
        await out.stop()
    for isolation, marks in (("read_committed", ("a", "c")), (UNCOMMITTED, ("a", "b", "c"))):
        for values in await aio_read(address, name, isolation, EACH * len(marks)):
            expect(isolation, values, marked(EACH, *marks))


async def aio_read(address, name, isolation, each):
    """With its own consumer."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    settled(address, name)
    reader = AIOKafkaConsumer(bootstrap_servers=address, isolation_level=isolation, auto_offset_reset="earliest")
    await reader.start()
    out = [[] for _ in range(PARTITIONS)]
    try:
        reader.assign([TopicPartition(name, p) for p in range(PARTITIONS)])
        while any(len(values) < each for values in out):
            for part, messages in (await reader.getmany(timeout_ms=200)).items():
                out[part.partition].extend(m.value.decode() for m in messages)
        more = await reader.getmany(timeout_ms=300)
        expect("more", [m.value for messages in more.values() for m in messages], [])
    finally:
        await reader.stop()
    return out


async def aio_copy(address):
    from aiokafka import AIOKafkaConsumer, TopicPartition

    source, into = topic("aio-in"), topic("aio-out")
    create(address, source, PARTITIONS)
    create(address, into, PARTITIONS)
    out = await aio_producer(address, f"copy-{source}")
    group = f"g-{source}"
    given = {"group_id": group, "enable_auto_commit": False, "isolation_level": "read_committed"}
    reader = AIOKafkaConsumer(source, bootstrap_servers=address, auto_offset_reset="earliest", **given)
    try:
        async with out.transaction():
            await aio_send(out, source, "v")
        await reader.start()
        done = rounds = 0
        while done < EACH * PARTITIONS:
            got = await reader.getmany(timeout_ms=200, max_records=40)
            if not got:
                continue
            await out.begin_transaction()
            sent = [await out.send(into, m.value, partition=m.partition) for ms in got.values() for m in ms]
            await asyncio.gather(*sent)
            behind = {part: messages[-1].offset + 1 for part, messages in got.items()}
            await out.send_offsets_to_transaction(behind, group)
            rounds += 1
            if rounds % 3 == 2:
                await out.abort_transaction()
                for part in reader.assignment():
                    reader.seek(part, await reader.committed(part) or 0)
            else:
                await out.commit_transaction()
                done += len(sent)
        # It does not ask for stable offsets, so the last ones show a moment after the commit.
        stored, late = [], time.monotonic() + 20
        while stored != [EACH] * PARTITIONS and time.monotonic() < late:
            stored = [await reader.committed(TopicPartition(source, p)) for p in range(PARTITIONS)]
        expect("offsets", stored, [EACH] * PARTITIONS)
    finally:
        await reader.stop()
        await out.stop()
    for values in read(address, into):
        expect("values", values, marked(EACH, "v"))


async def aio_fenced(address):
    from aiokafka.errors import KafkaError

    name = topic("aio-fence")
    create(address, name, PARTITIONS)
    first = await aio_producer(address, name)
    second = None
    try:
        await first.begin_transaction()
        await aio_send(first, name, "a")
        second = await aio_producer(address, name)
        async with second.transaction():
            await aio_send(second, name, "b")
        try:
            await first.commit_transaction()
        except KafkaError as error:
            expect("told why", type(error).__name__ in ("ProducerFenced", "InvalidProducerEpoch"), True)
        else:
            raise AssertionError("it was not fenced")
    finally:
        for out in filter(None, (first, second)):
            await out.stop()
    for values in await asyncio.to_thread(read, address, name):
        expect("values", values, marked(EACH, "b"))
