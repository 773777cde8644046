package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const groupRecords = 600

// ledger counts what the members of a group took, by partition and offset.
type ledger struct {
	mu   sync.Mutex
	took map[int32]map[int64]int
	by   map[string]int
	n    int
}

func newLedger() *ledger {
	return &ledger{took: map[int32]map[int64]int{}, by: map[string]int{}}
}

func (l *ledger) add(who string, records []*kgo.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		if l.took[r.Partition] == nil {
			l.took[r.Partition] = map[int64]int{}
		}
		l.took[r.Partition][r.Offset]++
		l.by[who]++
		l.n++
	}
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

func (l *ledger) check(total int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := int32(0); p < partitions; p++ {
		for o := int64(0); o < int64(total/partitions); o++ {
			if n := l.took[p][o]; n != 1 {
				return fmt.Errorf("partition %d, offset %d was taken %d times", p, o, n)
			}
		}
		if len(l.took[p]) != total/partitions {
			return fmt.Errorf("partition %d: %d offsets", p, len(l.took[p]))
		}
	}
	return nil
}

func protocol(next bool) []kgo.Opt {
	if next {
		ctx := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
		return []kgo.Opt{kgo.WithContext(ctx)}
	}
	return []kgo.Opt{kgo.HeartbeatInterval(300 * time.Millisecond), kgo.SessionTimeout(6 * time.Second)}
}

func groupMember(seed, group, topic string, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(opts, kgo.SeedBrokers(seed), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())...)
}

// take polls until `enough`, commits what it got and counts it once the commit was acknowledged.
func take(ctx context.Context, cl *kgo.Client, who string, l *ledger, enough func() bool) error {
	for !enough() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: %d records were taken: %w", who, l.count(), err)
		}
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		fetches := cl.PollRecords(short, 40)
		cancel()
		records := fetches.Records()
		if len(records) > 0 {
			if err := cl.CommitRecords(ctx, records...); err != nil {
				return fmt.Errorf("%s: commit: %w", who, err)
			}
			l.add(who, records)
		}
		cl.AllowRebalance()
	}
	return nil
}

func fillTopic(ctx context.Context, seed, topic string, first, count int, create bool) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	if create {
		if err := newTopic(ctx, cl, topic); err != nil {
			return err
		}
	}
	for i := first; i < first+count; i++ {
		cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: fmt.Appendf(nil, "%d", i)}, nil)
	}
	return cl.Flush(ctx)
}

// groupResumes: a member takes a part and leaves, the next one goes on where it committed.
func groupResumes(ctx context.Context, seed string, opts func() []kgo.Opt) error {
	topic, l := name("resume"), newLedger()
	if err := fillTopic(ctx, seed, topic, 0, groupRecords, true); err != nil {
		return err
	}
	for turn, limit := range []int{150, 350, groupRecords} {
		cl, err := groupMember(seed, "g-"+topic, topic, opts()...)
		if err != nil {
			return err
		}
		err = take(ctx, cl, fmt.Sprint(turn), l, func() bool { return l.count() >= limit })
		cl.CloseAllowingRebalance()
		if err != nil {
			return err
		}
	}
	return l.check(groupRecords)
}

// groupShares: a second member comes, both take, it leaves, the first goes on alone.
func groupShares(ctx context.Context, seed, want string, opts func() []kgo.Opt) error {
	topic, l := name("share"), newLedger()
	if err := fillTopic(ctx, seed, topic, 0, groupRecords, true); err != nil {
		return err
	}
	a, err := groupMember(seed, "g-"+topic, topic, opts()...)
	if err != nil {
		return err
	}
	defer a.CloseAllowingRebalance()
	if err := take(ctx, a, "a", l, func() bool { return l.count() >= 100 }); err != nil {
		return err
	}
	b, err := groupMember(seed, "g-"+topic, topic, opts()...)
	if err != nil {
		return err
	}
	seen := func(who string) int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.by[who]
	}
	errs := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		errs <- take(ctx, b, "b", l, func() bool {
			select {
			case <-done:
				return true
			default:
				return false
			}
		})
		b.CloseAllowingRebalance()
		errs <- nil
	}()
	// More is written until the second member has got some.
	total := groupRecords
	err = take(ctx, a, "a", l, func() bool {
		if seen("b") == 0 && l.count() >= total && ctx.Err() == nil {
			if fillTopic(ctx, seed, topic, total, 30, false) == nil {
				total += 30
			}
		}
		return seen("b") > 0 && l.count() >= total
	})
	close(done)
	if err != nil {
		return err
	}
	for range 2 {
		if err := <-errs; err != nil {
			return err
		}
	}
	if err := fillTopic(ctx, seed, topic, total, 300, false); err != nil {
		return err
	}
	if err := take(ctx, a, "a", l, func() bool { return l.count() >= total+300 }); err != nil {
		return err
	}
	if err := ofKind(ctx, a, "g-"+topic, want); err != nil {
		return err
	}
	return l.check(total + 300)
}

// ofKind: the group is of the type that the check means, so that no client falls back unseen.
func ofKind(ctx context.Context, cl *kgo.Client, group, want string) error {
	for _, shard := range cl.RequestSharded(ctx, kmsg.NewPtrListGroupsRequest()) {
		if shard.Err != nil {
			return shard.Err
		}
		for _, g := range shard.Resp.(*kmsg.ListGroupsResponse).Groups {
			if g.Group == group && g.GroupType == want {
				return nil
			}
		}
	}
	return fmt.Errorf("no group %s of type %s is listed", group, want)
}

// groupChecks runs both in each protocol, and with static members.
func groupChecks(seed string) {
	with := func(next bool, balancer kgo.GroupBalancer) func() []kgo.Opt {
		return func() []kgo.Opt { return append(protocol(next), kgo.Balancers(balancer)) }
	}
	kinds := []struct {
		label, want string
		opts        func() []kgo.Opt
	}{
		{"classic range", "classic", with(false, kgo.RangeBalancer())},
		{"cooperative-sticky", "classic", with(false, kgo.CooperativeStickyBalancer())},
		{"KIP-848", "consumer", with(true, kgo.StickyBalancer())},
	}
	for _, kind := range kinds {
		check("group goes on where it committed, "+kind.label, func(ctx context.Context) error {
			return groupResumes(ctx, seed, kind.opts)
		})
		check("group shares and hands over, "+kind.label, func(ctx context.Context) error {
			return groupShares(ctx, seed, kind.want, kind.opts)
		})
	}
	check("static member goes on where it committed", func(ctx context.Context) error {
		return groupResumes(ctx, seed, func() []kgo.Opt { return append(protocol(false), kgo.InstanceID("kiosk")) })
	})
}
