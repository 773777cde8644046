package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const txnRecords = 600

func transactional(seed, id string, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(opts, kgo.SeedBrokers(seed), kgo.TransactionalID(id),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
}

// inTxn writes records marked alike in one transaction and ends it.
func inTxn(ctx context.Context, cl *kgo.Client, topic, mark string, count int, end kgo.TransactionEndTry) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	for i := 0; i < count; i++ {
		r := &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: fmt.Appendf(nil, "%s%d", mark, i)}
		cl.Produce(ctx, r, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	return cl.EndTransaction(ctx, end)
}

// committed reads what read_committed readers see, and a little on.
func committed(ctx context.Context, seed, topic string, count int) (map[string]int, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	got := map[string]int{}
	for n, quiet := 0, 0; quiet < 2; {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%d of %d records", n, count)
		}
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		records := cl.PollFetches(short).Records()
		cancel()
		for _, r := range records {
			got[string(r.Value)]++
		}
		if n += len(records); len(records) == 0 && n >= count {
			quiet++
		}
	}
	return got, nil
}

func exactly(got map[string]int, count int, marks ...string) error {
	if len(got) != count*len(marks) {
		return fmt.Errorf("%d values, not %d", len(got), count*len(marks))
	}
	for _, mark := range marks {
		for i := 0; i < count; i++ {
			if n := got[fmt.Sprintf("%s%d", mark, i)]; n != 1 {
				return fmt.Errorf("%s%d is there %d times", mark, i, n)
			}
		}
	}
	return nil
}

func outcomes(ctx context.Context, seed string) error {
	topic := name("txn")
	cl, err := transactional(seed, topic)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := newTopic(ctx, cl, topic); err != nil {
		return err
	}
	for _, step := range []struct {
		mark string
		end  kgo.TransactionEndTry
	}{{"a", kgo.TryCommit}, {"b", kgo.TryAbort}, {"c", kgo.TryCommit}} {
		if err := inTxn(ctx, cl, topic, step.mark, 300, step.end); err != nil {
			return fmt.Errorf("%s: %w", step.mark, err)
		}
	}
	got, err := committed(ctx, seed, topic, 600)
	if err != nil {
		return err
	}
	return exactly(got, 300, "a", "c")
}

func fences(ctx context.Context, seed string) error {
	topic := name("fence")
	first, err := transactional(seed, topic)
	if err != nil {
		return err
	}
	defer first.Close()
	if err := newTopic(ctx, first, topic); err != nil {
		return err
	}
	if err := inTxn(ctx, first, topic, "a", 30, kgo.TryCommit); err != nil {
		return err
	}
	second, err := transactional(seed, topic)
	if err != nil {
		return err
	}
	defer second.Close()
	if err := inTxn(ctx, second, topic, "b", 30, kgo.TryCommit); err != nil {
		return err
	}
	// At the first's epoch nothing gets in; the client may find its feet again by itself, and then it aborts.
	if err := first.BeginTransaction(); err != nil {
		return err
	}
	late := first.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("late")}).FirstErr()
	if !errors.Is(late, kerr.InvalidProducerEpoch) && !errors.Is(late, kerr.ProducerFenced) {
		return fmt.Errorf("a fenced producer's record: %v", late)
	}
	got, err := committed(ctx, seed, topic, 60)
	if err != nil {
		return err
	}
	return exactly(got, 30, "a", "b")
}

// etl copies a topic exactly once with a member that is replaced on the way; every third transaction is aborted.
func etl(ctx context.Context, seed string, next bool) error {
	in, out := name("etl-in"), name("etl-out")
	if err := fillTopic(ctx, seed, in, 0, txnRecords, true); err != nil {
		return err
	}
	admin, err := kgo.NewClient(kgo.SeedBrokers(seed))
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := newTopic(ctx, admin, out); err != nil {
		return err
	}
	done := 0
	for turn, limit := range []int{txnRecords / 2, txnRecords} {
		n, err := etlMember(ctx, seed, in, out, fmt.Sprintf("%s-%d", out, turn), limit-done, next)
		if err != nil {
			return fmt.Errorf("member %d: %w", turn, err)
		}
		done += n
	}
	got, err := committed(ctx, seed, out, txnRecords)
	if err != nil {
		return err
	}
	return exactly(got, txnRecords, "")
}

func etlMember(ctx context.Context, seed, in, out, id string, limit int, next bool) (int, error) {
	opts := append(protocol(next), kgo.SeedBrokers(seed), kgo.TransactionalID(id), kgo.ConsumerGroup("g-"+in),
		kgo.ConsumeTopics(in), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	session, err := kgo.NewGroupTransactSession(opts...)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	done := 0
	for round := 0; done < limit; round++ {
		if ctx.Err() != nil {
			return done, fmt.Errorf("%d copied: %w", done, ctx.Err())
		}
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		records := session.PollRecords(short, 80).Records()
		cancel()
		if len(records) == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return done, err
		}
		for _, r := range records {
			session.Produce(ctx, &kgo.Record{Topic: out, Partition: r.Partition, Value: r.Value}, nil)
		}
		ended, err := session.End(ctx, kgo.TransactionEndTry(round%3 != 1))
		if err != nil {
			return done, err
		}
		if ended {
			done += len(records)
		}
	}
	return done, nil
}

func transactionChecks(seed string) {
	check("transactions commit and abort", func(ctx context.Context) error { return outcomes(ctx, seed) })
	check("a second producer with the id fences the first", func(ctx context.Context) error {
		return fences(ctx, seed)
	})
	for _, next := range []bool{false, true} {
		label := map[bool]string{false: "classic", true: "KIP-848"}[next]
		check("transactional member copies and is replaced, "+label, func(ctx context.Context) error {
			return etl(ctx, seed, next)
		})
	}
}
