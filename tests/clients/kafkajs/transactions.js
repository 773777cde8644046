// Transactions with kafkajs, which uses the first protocol.
module.exports = async ({ kafka, check, equal, fresh, create, until, admin }) => {
  const transactional = async (transactionalId) => {
    const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
    return producer;
  };
  const marked = (mark) => Array.from({ length: 50 }, (_, n) => ({ partition: n % 2, value: `${mark}${n}` }));

  // What readers see when they have come to the end: a record that is written last and marks it.
  async function read(topic) {
    const last = kafka.producer();
    await last.connect();
    await last.send({ topic, messages: [0, 1].map((partition) => ({ partition, value: "last" })) });
    await last.disconnect();
    const consumer = kafka.consumer({ groupId: `reads-${fresh("g")}`, maxWaitTimeInMs: 200 });
    const got = [];
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({ eachMessage: async ({ message }) => got.push(message.value.toString()) });
    await until("the end", () => got.filter((v) => v === "last").length >= 2);
    await consumer.disconnect();
    return got.filter((v) => v !== "last").sort();
  }

  const values = (...marks) => marks.flatMap((mark) => marked(mark).map((m) => m.value)).sort();

  async function outcomes() {
    const topic = fresh("txn");
    await create(topic);
    const producer = await transactional(topic);
    for (const [mark, end] of [["a", "commit"], ["b", "abort"], ["c", "commit"]]) {
      const transaction = await producer.transaction();
      await transaction.send({ topic, messages: marked(mark) });
      await transaction[end]();
    }
    await producer.disconnect();
    equal("committed", await read(topic), values("a", "c"));
  }

  async function offsets() {
    const [topic, groupId] = [fresh("txn-offsets"), fresh("g")];
    await create(topic);
    const producer = await transactional(topic);
    const send = async (offset, end) => {
      const transaction = await producer.transaction();
      await transaction.send({ topic, messages: marked("v") });
      const topics = [{ topic, partitions: [{ partition: 1, offset }] }];
      await transaction.sendOffsets({ consumerGroupId: groupId, topics });
      await transaction[end]();
    };
    const stored = async () => {
      const [of] = await admin.fetchOffsets({ groupId, topics: [topic] });
      return of.partitions.find((p) => p.partition === 1).offset;
    };
    await send("7", "commit");
    await until("the commit shows", async () => (await stored()) === "7");
    await send("9", "abort");
    await send("11", "commit");
    await until("the second commit shows", async () => (await stored()) === "11");
    await producer.disconnect();
  }

  async function fenced() {
    const topic = fresh("fence");
    await create(topic);
    const [first, second] = [await transactional(topic), await transactional(topic)];
    const old = await first.transaction();
    await old.send({ topic, messages: marked("a") });
    const next = await second.transaction();
    await next.send({ topic, messages: marked("b") });
    await next.commit();
    const refused = await old.commit().then(() => null, (error) => error.type ?? error.message);
    equal("fenced", ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"].includes(refused), true);
    await Promise.all([first.disconnect(), second.disconnect()]);
    equal("committed", await read(topic), values("b"));
  }

  await check("transactions commit and abort", outcomes);
  await check("offsets of a transaction show with its commit", offsets);
  await check("a second producer with the id fences the first", fenced);
};
