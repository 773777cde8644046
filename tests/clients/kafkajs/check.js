// kafkajs against a broker: producer, admin, members of a group, transactions.
const { Kafka, logLevel, CompressionTypes } = require("kafkajs");

const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING, retry: { retries: 5 } });
const admin = kafka.admin();
let failed = false;

function equal(what, got, want) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)];
  if (a !== b) throw new Error(`${what}: got ${a}, want ${b}`);
}

async function check(name, run) {
  try {
    await run();
    console.log(`check ok ${name}`);
  } catch (error) {
    failed = true;
    console.log(`check FAIL ${name}: ${error.message}`);
  }
}

const fresh = (kind) => `kafkajs-${kind}-${process.hrtime.bigint()}`;

async function create(topic, numPartitions = 2, configEntries = []) {
  equal("created", await admin.createTopics({ topics: [{ topic, numPartitions, configEntries }] }), true);
  // A leader may answer a moment later than it is named; until then a batch would be sent twice.
  for (let i = 0; i < 100; i++) {
    const ends = await admin.fetchTopicOffsets(topic).catch(() => []);
    if (ends.length === numPartitions) return;
    await new Promise((r) => setTimeout(r, 20));
  }
}

async function produce(settings, compression) {
  const topic = fresh("rt");
  await create(topic);
  const producer = kafka.producer(settings);
  await producer.connect();
  const told = {};
  for (let round = 0; round < 20; round++) {
    const messages = Array.from({ length: 50 }, (_, i) => ({ key: `k${i}`, value: `${round}-${i}`, partition: i % 2 }));
    for (const r of await producer.send({ topic, acks: -1, compression, messages })) {
      (told[r.partition] ??= []).push(Number(r.baseOffset));
    }
  }
  await producer.disconnect();
  const bases = Array.from({ length: 20 }, (_, i) => i * 25);
  equal("base offsets", told, { 0: bases, 1: bases });
  const ends = (await admin.fetchTopicOffsets(topic)).map((o) => [o.partition, o.low, o.high]);
  equal("offsets", ends.sort(), [[0, "0", "500"], [1, "0", "500"]]);
}

const until = async (what, ask, seconds = 40) => {
  for (const end = Date.now() + seconds * 1000; !(await ask()); ) {
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    await new Promise((r) => setTimeout(r, 50));
  }
};

async function fill(topic, from, count) {
  // Idempotent: a topic just made may answer for some partitions only, and then all are sent again.
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const messages = [];
  for (let n = from; n < from + count; n++) {
    for (const partition of [0, 1, 2, 3]) messages.push({ partition, value: `${partition}:${n}` });
  }
  await producer.send({ topic, messages });
  await producer.disconnect();
}

// A member that commits each batch and counts it once the commit was acknowledged.
async function member(topic, took, limit = Infinity) {
  const times = { sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 200 };
  const consumer = kafka.consumer({ groupId: `g-${topic}`, ...times });
  const self = { consumer, taken: 0, owned: [] };
  consumer.on(consumer.events.GROUP_JOIN, (e) => (self.owned = e.payload.memberAssignment[topic] ?? []));
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, isStale }) => {
      const messages = batch.messages.slice(0, 25);
      if (isStale() || self.taken >= limit || messages.length === 0) return;
      const next = String(BigInt(messages.at(-1).offset) + 1n);
      await consumer.commitOffsets([{ topic, partition: batch.partition, offset: next }]);
      resolveOffset(messages.at(-1).offset);
      self.taken += messages.length;
      for (const m of messages) took.push(`${batch.partition}:${m.offset}=${m.value}`);
    },
  });
  return self;
}

const whole = (count) => {
  const of = (p) => Array.from({ length: count }, (_, n) => `${p}:${n}=${p}:${n}`);
  return [0, 1, 2, 3].flatMap(of).sort();
};

async function groupResumes() {
  const topic = fresh("resume");
  await create(topic, 4);
  await fill(topic, 0, 100);
  const took = [];
  for (const limit of [100, 150, Infinity]) {
    const one = await member(topic, took, limit);
    await until("a part is taken", () => one.taken >= limit || took.length >= 400);
    await one.consumer.disconnect();
  }
  equal("records", took.sort(), whole(100));
}

async function groupShares() {
  const topic = fresh("share");
  await create(topic, 4);
  const took = [];
  const a = await member(topic, took);
  await until("one has all", () => a.owned.length === 4);
  const b = await member(topic, took);
  await until("two share", () => a.owned.length === 2 && b.owned.length === 2);
  await fill(topic, 0, 60);
  await until("all is taken", () => took.length >= 240);
  equal("both took", [a.taken, b.taken], [120, 120]);
  await b.consumer.disconnect();
  await until("one has all again", () => a.owned.length === 4);
  await fill(topic, 60, 40);
  await until("the rest is taken", () => took.length >= 400);
  await a.consumer.disconnect();
  equal("records", took.sort(), whole(100));
}

async function groupAdmin() {
  const topic = fresh("groups");
  await create(topic, 4);
  await fill(topic, 0, 10);
  const took = [];
  const a = await member(topic, took);
  await until("all is taken", () => took.length >= 40);
  const groupId = `g-${topic}`;
  const listed = (await admin.listGroups()).groups.filter((g) => g.groupId === groupId);
  equal("listed", listed.map((g) => g.protocolType), ["consumer"]);
  const [told] = (await admin.describeGroups([groupId])).groups;
  equal("described", [told.state, told.protocol, told.members.length], ["Stable", "RoundRobinAssigner", 1]);
  const offsets = async () => {
    const [of] = await admin.fetchOffsets({ groupId, topics: [topic] });
    return of.partitions.map((p) => `${p.partition}@${p.offset}`).sort();
  };
  equal("offsets", await offsets(), ["0@10", "1@10", "2@10", "3@10"]);
  await a.consumer.disconnect();
  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 2, offset: "4" }] });
  equal("set", (await offsets())[2], "2@4");
  await admin.deleteGroups([groupId]);
  equal("gone", await offsets(), ["0@-1", "1@-1", "2@-1", "3@-1"]);
}

async function main() {
  await admin.connect();
  await check("produces", () => produce({}));
  await check("idempotent producer", () => produce({ idempotent: true, maxInFlightRequests: 1 }));
  await check("gzip", () => produce({}, CompressionTypes.GZIP));
  await check("offsets by time", async () => {
    const topic = fresh("time");
    await create(topic, 1);
    const producer = kafka.producer();
    await producer.connect();
    for (let i = 0; i < 5; i++) {
      await producer.send({ topic, messages: [{ value: "x", timestamp: String(1600000000000 + i * 1000) }] });
    }
    await producer.disconnect();
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, 1600000002500);
    equal("offset", found.map((o) => o.offset), ["3"]);
  });
  await check("admin: describe, alter, grow, delete records, delete", async () => {
    const topic = fresh("admin");
    await create(topic, 2, [{ name: "retention.ms", value: "3600000" }]);
    equal("created again", await admin.createTopics({ topics: [{ topic }] }), false);
    const resource = { type: 2, name: topic, configNames: ["retention.ms"] };
    const shown = async () => {
      const described = await admin.describeConfigs({ resources: [resource] });
      return described.resources[0].configEntries[0].configValue;
    };
    equal("retention", await shown(), "3600000");
    const configEntries = [{ name: "retention.ms", value: "7200000" }];
    await admin.alterConfigs({ resources: [{ type: 2, name: topic, configEntries }] });
    for (let i = 0; i < 50 && (await shown()) !== "7200000"; i++) await new Promise((r) => setTimeout(r, 50));
    equal("altered", await shown(), "7200000");
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
    const count = async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
    for (let i = 0; i < 50 && (await count()) !== 3; i++) await new Promise((r) => setTimeout(r, 50));
    equal("partitions", await count(), 3);
    const producer = kafka.producer();
    await producer.connect();
    await producer.send({ topic, messages: Array.from({ length: 6 }, () => ({ value: "x", partition: 0 })) });
    await producer.disconnect();
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "4" }] });
    equal("low", (await admin.fetchTopicOffsets(topic)).find((o) => o.partition === 0).low, "4");
    await admin.deleteTopics({ topics: [topic] });
    const there = async () => (await admin.listTopics()).includes(topic);
    for (let i = 0; i < 50 && (await there()); i++) await new Promise((r) => setTimeout(r, 50));
    equal("gone", await there(), false);
  });
  await check("describes the cluster", async () => {
    const cluster = await admin.describeCluster();
    equal("controller is a broker", cluster.brokers.some((b) => b.nodeId === cluster.controller), true);
  });
  await check("a group goes on where it committed", groupResumes);
  await check("members share and hand over", groupShares);
  await check("admin: groups listed, described, offsets set, deleted", groupAdmin);
  await require("./transactions.js")({ kafka, check, equal, fresh, create, until, admin });
  await admin.disconnect();
  process.exit(failed ? 1 : 0);
}

main();
