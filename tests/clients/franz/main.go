// Command franz checks a broker with franz-go: produce, direct consumption of partitions, groups in both protocols,
// and transactions.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const partitions = 3

var failed bool

func check(name string, run func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		failed = true
		fmt.Printf("check FAIL %s: %v\n", name, err)
		return
	}
	fmt.Printf("check ok %s\n", name)
}

func main() {
	seed := os.Args[1]
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		check("idempotent producer and direct consumer, "+name, func(ctx context.Context) error {
			return roundTrip(ctx, seed, kgo.ProducerBatchCompression(codecs[name]))
		})
	}
	check("acks 1 without idempotence", func(ctx context.Context) error {
		return roundTrip(ctx, seed, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	})
	check("a topic created twice is told so", func(ctx context.Context) error { return createdTwice(ctx, seed) })
	check("a consumer starts in the middle and at a time", func(ctx context.Context) error { return middle(ctx, seed) })
	groupChecks(seed)
	transactionChecks(seed)
	if failed {
		os.Exit(1)
	}
}

func newTopic(ctx context.Context, cl *kgo.Client, name string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 20000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

func name(kind string) string { return fmt.Sprintf("franz-%s-%d", kind, time.Now().UnixNano()) }

func roundTrip(ctx context.Context, seed string, opts ...kgo.Opt) error {
	topic := name("rt")
	opts = append(opts, kgo.SeedBrokers(seed), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(500))
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := newTopic(ctx, cl, topic); err != nil {
		return err
	}
	const count = 3000
	told := make([]*kgo.Record, 0, count)
	results := make(chan *kgo.Record, count)
	errs := make(chan error, count)
	for i := 0; i < count; i++ {
		r := &kgo.Record{Topic: topic, Partition: int32(i % partitions), Key: fmt.Appendf(nil, "k%d", i),
			Value: fmt.Appendf(nil, "value-%06d-%0100d", i, i)}
		cl.Produce(ctx, r, func(r *kgo.Record, err error) {
			if err != nil {
				errs <- err
			}
			results <- r
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	for i := 0; i < count; i++ {
		told = append(told, <-results)
	}
	select {
	case err := <-errs:
		return err
	default:
	}
	got, err := read(ctx, seed, topic, count, kgo.NewOffset().AtStart())
	if err != nil {
		return err
	}
	for p, records := range got {
		for i, r := range records {
			want := fmt.Sprintf("value-%06d-%0100d", i*partitions+int(p), i*partitions+int(p))
			if string(r.Value) != want || r.Offset != int64(i) {
				return fmt.Errorf("partition %d, record %d: %.20q at %d", p, i, r.Value, r.Offset)
			}
		}
	}
	for _, r := range told {
		if string(got[r.Partition][r.Offset].Key) != string(r.Key) {
			return fmt.Errorf("partition %d, offset %d was told for key %s", r.Partition, r.Offset, r.Key)
		}
	}
	return nil
}

func read(ctx context.Context, seed, topic string, count int, from kgo.Offset) (map[int32][]*kgo.Record, error) {
	offsets := map[int32]kgo.Offset{}
	for p := int32(0); p < partitions; p++ {
		offsets[p] = from
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	got := map[int32][]*kgo.Record{}
	for n := 0; n < count; {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", n, count, err)
		}
		for _, e := range fetches.Errors() {
			return nil, e.Err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got[r.Partition] = append(got[r.Partition], r)
			n++
		})
	}
	return got, nil
}

func createdTwice(ctx context.Context, seed string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seed))
	if err != nil {
		return err
	}
	defer cl.Close()
	topic := name("twice")
	if err := newTopic(ctx, cl, topic); err != nil {
		return err
	}
	if err := newTopic(ctx, cl, topic); !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("created again: %v", err)
	}
	return nil
}

func middle(ctx context.Context, seed string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	topic := name("mid")
	if err := newTopic(ctx, cl, topic); err != nil {
		return err
	}
	base := time.UnixMilli(1_600_000_000_000)
	for i := 0; i < 30; i++ {
		r := &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: fmt.Appendf(nil, "%d", i/partitions),
			Timestamp: base.Add(time.Duration(i/partitions) * time.Second)}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			return err
		}
	}
	for label, from := range map[string]kgo.Offset{"offset 6": kgo.NewOffset().At(6),
		"time": kgo.NewOffset().AfterMilli(base.Add(5500 * time.Millisecond).UnixMilli()),
		"end":  kgo.NewOffset().AtEnd().Relative(-4)} {
		got, err := read(ctx, seed, topic, 4*partitions, from)
		if err != nil {
			return fmt.Errorf("%s: %w", label, err)
		}
		for p, records := range got {
			if string(records[0].Value) != "6" || len(records) != 4 {
				return fmt.Errorf("%s: partition %d begins at %s and has %d", label, p, records[0].Value, len(records))
			}
		}
	}
	return nil
}
