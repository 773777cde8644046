// kafkajs against a broker: producer and admin. Its consumer needs groups, so records are read back by their offsets.
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
  await admin.disconnect();
  process.exit(failed ? 1 : 0);
}

main();
