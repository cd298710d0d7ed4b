// Command franz runs one story with franz-go and prints what it has seen, a name and a value on each line.
//
//	franz produce SERVERS TOPIC CODEC[,CODEC...]
//	franz group SERVERS TOPIC GROUP classic|consumer
//	franz transactions SERVERS TOPIC COPIES GROUP TRANSACTIONAL_ID
//	franz share SERVERS TOPIC GROUP
//	franz admin SERVERS TOPIC GROUP
//	franz secure SERVERS TOPIC CA MECHANISM USER PASSWORD
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"headrace.tests/clients/story"
)

var ctx = context.Background()

func main() {
	story.Run(map[string]func(args []string){
		"produce":      func(a []string) { produce(a[0], a[1], strings.Split(a[2], ",")) },
		"group":        func(a []string) { group(a[0], a[1], a[2], a[3]) },
		"transactions": func(a []string) { transactions(a[0], a[1], a[2], a[3], a[4]) },
		"share":        func(a []string) { share(a[0], a[1], a[2]) },
		"admin":        func(a []string) { admin(a[0], a[1], a[2]) },
		"secure":       func(a []string) { secure(a[0], a[1], a[2], a[3], a[4], a[5]) },
	})
}

// options returns those that every client has.
func options(servers string) []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(servers)}
	if story.Release() != "" {
		opts = append(opts, kgo.MaxVersions(kversion.FromString("v"+story.Release())))
	}
	return opts
}

func client(servers string, opts ...kgo.Opt) *kgo.Client {
	opened, err := kgo.NewClient(append(options(servers), opts...)...)
	story.Check(err)
	return opened
}

// take polls until count records have come.
func take(source *kgo.Client, count int) []*kgo.Record {
	limited, cancel := context.WithTimeout(ctx, story.Patience)
	defer cancel()
	var records []*kgo.Record
	for len(records) < count {
		fetches := source.PollFetches(limited)
		story.Check(fetches.Err())
		records = append(records, fetches.Records()...)
	}
	return records
}

// secure produces and consumes a record over TLS after a login.
func secure(servers, topic, ca, mechanism, user, password string) {
	trusted := x509.NewCertPool()
	pem, err := os.ReadFile(ca)
	story.Check(err)
	trusted.AppendCertsFromPEM(pem)
	logins := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: user, Pass: password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: user, Pass: password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: user, Pass: password}.AsSha512Mechanism(),
	}
	limited, cancel := context.WithTimeout(ctx, story.Patience)
	defer cancel()
	both := client(servers,
		kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}),
		kgo.SASL(logins[mechanism]),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	defer both.Close()
	if err := both.Ping(limited); err != nil {
		story.Say("refused", "%t", errors.Is(err, kerr.SaslAuthenticationFailed))
		return
	}
	story.Check(both.ProduceSync(limited, &kgo.Record{Topic: topic, Value: []byte("value")}).FirstErr())
	story.Say("consumed", "%s", take(both, 1)[0].Value)
}

func produce(servers, topic string, names []string) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	var end int64
	for batch, name := range names {
		producer := client(servers, kgo.ProducerBatchCompression(codecs[name]), kgo.DefaultProduceTopic(topic))
		records := make([]*kgo.Record, story.BatchSize)
		for i := range records {
			records[i] = &kgo.Record{
				Key: []byte("key"), Value: []byte(story.Value(i)), Timestamp: story.Time(batch, i),
				Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(name)}},
			}
		}
		results := producer.ProduceSync(ctx, records...)
		story.Check(results.FirstErr())
		end = results[len(results)-1].Record.Offset + 1
		producer.Close()
	}
	story.Say("produced", "%d", end)

	source := client(servers, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	defer source.Close()
	right := 0
	for i, record := range take(source, int(end)) {
		batch, number := i/story.BatchSize, i%story.BatchSize
		if record.Offset == int64(i) && string(record.Key) == "key" && string(record.Value) == story.Value(number) &&
			record.Timestamp.Equal(story.Time(batch, number)) && string(record.Headers[0].Value) == names[batch] {
			right++
		}
	}
	story.Say("right", "%d", right)
}

// member is a group member whose partitions are known at any time.
type member struct {
	*kgo.Client
	mu    sync.Mutex
	owned map[int32]bool
}

func join(servers, topic, group, protocol string) *member {
	m := &member{owned: map[int32]bool{}}
	note := func(has bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, partition := range partitions[topic] {
				if has {
					m.owned[partition] = true
				} else {
					delete(m.owned, partition)
				}
			}
		}
	}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false)),
	}
	if protocol == "consumer" {
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	m.Client = client(servers, opts...)
	return m
}

// pollUntilClosed lets the member take part in rebalances.
func (m *member) pollUntilClosed() {
	for !m.PollFetches(ctx).IsClientClosed() {
	}
}

func (m *member) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.owned)
}

func group(servers, topic, group, protocol string) {
	producer := client(servers, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic))
	for i := range 20 {
		story.Check(producer.ProduceSync(ctx, &kgo.Record{Partition: int32(i % 2), Value: []byte(story.Value(i))}).FirstErr())
	}
	producer.Close()

	first := join(servers, topic, group, protocol)
	story.Say("consumed", "%d", len(take(first.Client, 20)))
	offsets := map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 7}, 1: {Epoch: -1, Offset: 10}}}
	first.CommitOffsetsSync(ctx, offsets, nil)
	first.Close()

	first = join(servers, topic, group, protocol)
	var resumed []string
	for _, record := range take(first.Client, 3) {
		resumed = append(resumed, fmt.Sprintf("%d:%d", record.Partition, record.Offset))
	}
	story.Say("resumed", "%s", strings.Join(resumed, " "))
	go first.pollUntilClosed()
	second := join(servers, topic, group, protocol)
	go second.pollUntilClosed()
	story.Eventually("each member to own one partition", func() bool { return first.count() == 1 && second.count() == 1 })
	story.Say("shared", "%d+%d", first.count(), second.count())
	second.Close()
	story.Eventually("the first member to take over", func() bool { return first.count() == 2 })
	story.Say("alone", "%d", first.count())
	first.Close()
}

func transactions(servers, topic, copies, group, id string) {
	producer := client(servers, kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic))
	for _, value := range []string{"kept", "dropped", "last"} {
		story.Check(producer.BeginTransaction())
		for range 3 {
			story.Check(producer.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr())
		}
		story.Check(producer.EndTransaction(ctx, kgo.TransactionEndTry(value != "dropped")))
	}

	session, err := kgo.NewGroupTransactSession(append(
		options(servers), kgo.TransactionalID(id+"-copy"), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DefaultProduceTopic(copies),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
	)...)
	story.Check(err)
	var values []string
	story.Check(session.Begin())
	for len(values) < 6 {
		fetches := session.PollFetches(ctx)
		story.Check(fetches.Err())
		for record := range fetches.RecordsAll() {
			values = append(values, string(record.Value))
			story.Check(session.ProduceSync(ctx, kgo.SliceRecord(record.Value)).FirstErr())
		}
	}
	committed, err := session.End(ctx, kgo.TryCommit)
	story.Check(err)
	session.Close()
	story.Say("committed", "%s", strings.Join(values, " "))
	story.Say("ended", "%v", committed)

	reader := kadm.NewClient(producer)
	offsets, err := reader.FetchOffsets(ctx, group)
	story.Check(err)
	story.Say("offset", "%d", offsets[topic][0].At)

	successor := client(servers, kgo.TransactionalID(id))
	_, _, err = successor.ProducerID(ctx)
	story.Check(err)
	story.Check(producer.BeginTransaction())
	err = producer.ProduceSync(ctx, kgo.StringRecord("late")).FirstErr()
	story.Say("fenced", "%v", errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch))
	successor.Close()
	producer.Close()
}

func share(servers, topic, group string) {
	client := client(
		servers, kgo.ShareGroup(group), kgo.ConsumeTopics(topic), kgo.DefaultProduceTopic(topic),
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	for i := range 10 {
		story.Check(client.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr())
	}
	for _, record := range take(client, 10) {
		switch record.Offset {
		case 5, 6:
			record.Ack(kgo.AckRelease)
		case 7:
			record.Ack(kgo.AckReject)
		default:
			record.Ack(kgo.AckAccept)
		}
	}
	story.Check(client.FlushAcks(ctx))
	var again []string
	for _, record := range take(client, 2) {
		again = append(again, fmt.Sprintf("%d:%d", record.Offset, record.DeliveryCount()))
		record.Ack(kgo.AckAccept)
	}
	sort.Strings(again)
	story.Say("again", "%s", strings.Join(again, " "))
	story.Check(client.FlushAcks(ctx))

	admin := kadm.NewClient(client)
	described, err := admin.DescribeShareGroups(ctx, group)
	story.Check(err)
	story.Say("state", "%s members %d", described[group].GroupState, len(described[group].Members))
	offsets, err := admin.DescribeShareGroupOffsets(ctx, group)
	story.Check(err)
	partition, _ := offsets[group].Offsets.Lookup(topic, 0)
	story.Say("lag", "%d", partition.Lag)
	client.Close()
}

func admin(servers, topic, group string) {
	client := client(servers, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic))
	defer client.Close()
	admin := kadm.NewClient(client)
	configs := map[string]*string{"retention.ms": kadm.StringPtr("123456")}
	created, err := admin.CreateTopic(ctx, 2, 1, configs, topic)
	story.Check(err)
	story.Say("created", "%d", created.NumPartitions)
	_, err = admin.CreateTopic(ctx, 2, 1, nil, topic)
	story.Say("again", "%v", errors.Is(err, kerr.TopicAlreadyExists))
	_, err = admin.UpdatePartitions(ctx, 4, topic)
	story.Check(err)
	story.Say("partitions", "%d", story.Settled(4, func() int {
		details, err := admin.ListTopics(ctx, topic)
		story.Check(err)
		return len(details[topic].Partitions)
	}))

	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("654321")}}
	before := retention(admin, topic)
	_, err = admin.AlterTopicConfigs(ctx, change, topic)
	story.Check(err)
	story.Say("config", "%s %s", before, story.Settled("654321", func() string { return retention(admin, topic) }))

	for range 10 {
		story.Check(client.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr())
	}
	_, err = admin.DeleteRecords(ctx, offset(topic, 3))
	story.Check(err)
	starts, err := admin.ListStartOffsets(ctx, topic)
	story.Check(err)
	ends, err := admin.ListEndOffsets(ctx, topic)
	story.Check(err)
	story.Say("range", "%d %d", starts[topic][0].Offset, ends[topic][0].Offset)
	directories, err := admin.DescribeAllLogDirs(ctx, nil)
	story.Check(err)
	stored := int64(0)
	directories.Each(func(d kadm.DescribedLogDir) {
		story.Check(d.Err)
		stored += d.Topics[topic][0].Size
	})
	story.Say("stored", "%v", stored > 0)

	story.Check(admin.CommitAllOffsets(ctx, group, offset(topic, 5)))
	groups, err := admin.DescribeGroups(ctx, group)
	story.Check(err)
	listed, err := admin.ListGroups(ctx)
	story.Check(err)
	offsets, err := admin.FetchOffsets(ctx, group)
	story.Check(err)
	_, isListed := listed[group]
	story.Say("group", "%v %s %d", isListed, groups[group].State, offsets[topic][0].At)
	deleted, err := admin.DeleteOffsets(ctx, group, offset(topic, 5).TopicsSet())
	story.Check(err)
	story.Check(deleted.Error())
	offsets, err = admin.FetchOffsets(ctx, group)
	story.Check(err)
	story.Say("offsets", "%d", len(offsets[topic]))
	story.Check(admin.CommitAllOffsets(ctx, group, offset(topic, 5)))
	_, err = admin.DeleteGroup(ctx, group)
	story.Check(err)
	listed, err = admin.ListGroups(ctx)
	story.Check(err)
	_, isListed = listed[group]
	_, err = admin.DeleteTopic(ctx, topic)
	story.Check(err)
	story.Say("left", "%v", isListed)
}

func offset(topic string, at int64) kadm.Offsets {
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, at, -1)
	return offsets
}

func retention(admin *kadm.Client, topic string) string {
	described, err := admin.DescribeTopicConfigs(ctx, topic)
	story.Check(err)
	for _, config := range described[0].Configs {
		if config.Key == "retention.ms" {
			return config.MaybeValue()
		}
	}
	return ""
}
