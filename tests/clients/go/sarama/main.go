// Command sarama runs one story with sarama and prints what it has seen, a name and a value on each line.
//
//	sarama produce SERVERS TOPIC CODEC[,CODEC...]
//	sarama group SERVERS TOPIC GROUP range|cooperative-sticky
//	sarama transactions SERVERS TOPIC COPIES GROUP TRANSACTIONAL_ID
//	sarama admin SERVERS TOPIC GROUP
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"headrace.tests/clients/story"
)

func main() {
	story.Run(map[string]func(args []string){
		"produce":      func(a []string) { produce(a[0], a[1], strings.Split(a[2], ",")) },
		"group":        func(a []string) { group(a[0], a[1], a[2], a[3]) },
		"transactions": func(a []string) { transactions(a[0], a[1], a[2], a[3], a[4]) },
		"admin":        func(a []string) { administer(a[0], a[1], a[2]) },
	})
}

// settings returns those of the release of the story, or of the newest that sarama knows, for idempotent
// producers and new groups.
func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	if story.Release() != "" {
		version, err := sarama.ParseKafkaVersion(story.Release() + ".0")
		story.Check(err)
		config.Version = version
	}
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	return config
}

func producer(servers string, config *sarama.Config) sarama.SyncProducer {
	opened, err := sarama.NewSyncProducer([]string{servers}, config)
	story.Check(err)
	return opened
}

// read returns the first records of partition 0.
func read(servers, topic string, count int) []*sarama.ConsumerMessage {
	source, err := sarama.NewConsumer([]string{servers}, settings())
	story.Check(err)
	partition, err := source.ConsumePartition(topic, 0, sarama.OffsetOldest)
	story.Check(err)
	messages := take(partition.Messages(), count)
	story.Check(partition.Close())
	story.Check(source.Close())
	return messages
}

func take(source <-chan *sarama.ConsumerMessage, count int) []*sarama.ConsumerMessage {
	var messages []*sarama.ConsumerMessage
	timeout := time.After(story.Patience)
	for len(messages) < count {
		select {
		case message := <-source:
			messages = append(messages, message)
		case <-timeout:
			panic(fmt.Sprintf("got %d of %d records", len(messages), count))
		}
	}
	return messages
}

func produce(servers, topic string, names []string) {
	var end int64
	for batch, name := range names {
		config := settings()
		story.Check(config.Producer.Compression.UnmarshalText([]byte(name)))
		config.Producer.Flush.Messages = story.BatchSize
		writer := producer(servers, config)
		messages := make([]*sarama.ProducerMessage, story.BatchSize)
		for i := range messages {
			messages[i] = &sarama.ProducerMessage{
				Topic: topic, Key: sarama.StringEncoder("key"), Value: sarama.StringEncoder(story.Value(i)),
				Headers: []sarama.RecordHeader{{Key: []byte("codec"), Value: []byte(name)}}, Timestamp: story.Time(batch, i),
			}
		}
		story.Check(writer.SendMessages(messages))
		end = messages[len(messages)-1].Offset + 1
		story.Check(writer.Close())
	}
	story.Say("produced", "%d", end)

	right := 0
	for i, message := range read(servers, topic, int(end)) {
		batch, number := i/story.BatchSize, i%story.BatchSize
		if message.Offset == int64(i) && string(message.Key) == "key" && string(message.Value) == story.Value(number) &&
			message.Timestamp.Equal(story.Time(batch, number)) && string(message.Headers[0].Value) == names[batch] {
			right++
		}
	}
	story.Say("right", "%d", right)
}

// member is a group member; it implements sarama.ConsumerGroupHandler.
type member struct {
	group    sarama.ConsumerGroup
	session  atomic.Pointer[sarama.ConsumerGroupSession]
	claims   atomic.Int32
	messages chan *sarama.ConsumerMessage
	stop     context.CancelFunc
	ended    sync.WaitGroup
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.session.Store(&session)
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	m.claims.Add(1)
	defer m.claims.Add(-1)
	for message := range claim.Messages() {
		m.messages <- message
	}
	return nil
}

func (m *member) close() {
	m.stop()
	m.ended.Wait()
	story.Check(m.group.Close())
}

func join(servers, topic, group, assignor string) *member {
	strategies := map[string]sarama.BalanceStrategy{
		"range":              sarama.NewBalanceStrategyRange(),
		"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky(),
	}
	config := settings()
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[assignor]}
	opened, err := sarama.NewConsumerGroup([]string{servers}, group, config)
	story.Check(err)
	ctx, stop := context.WithCancel(context.Background())
	m := &member{group: opened, stop: stop, messages: make(chan *sarama.ConsumerMessage, 100)}
	m.ended.Go(func() {
		for ctx.Err() == nil {
			story.Check(opened.Consume(ctx, []string{topic}, m))
		}
	})
	return m
}

func group(servers, topic, group, assignor string) {
	writer := producer(servers, settings())
	for i := range 20 {
		_, _, err := writer.SendMessage(&sarama.ProducerMessage{
			Topic: topic, Partition: int32(i % 2), Value: sarama.StringEncoder(story.Value(i)),
		})
		story.Check(err)
	}
	story.Check(writer.Close())

	first := join(servers, topic, group, assignor)
	story.Say("consumed", "%d", len(take(first.messages, 20)))
	session := *first.session.Load()
	session.MarkOffset(topic, 0, 7, "")
	session.MarkOffset(topic, 1, 10, "")
	session.Commit()
	first.close()

	first = join(servers, topic, group, assignor)
	var resumed []string
	for _, message := range take(first.messages, 3) {
		resumed = append(resumed, fmt.Sprintf("%d:%d", message.Partition, message.Offset))
	}
	story.Say("resumed", "%s", strings.Join(resumed, " "))
	second := join(servers, topic, group, assignor)
	story.Eventually("each member to own one partition", func() bool {
		return first.claims.Load() == 1 && second.claims.Load() == 1
	})
	story.Say("shared", "%d+%d", first.claims.Load(), second.claims.Load())
	second.close()
	story.Eventually("the first member to take over", func() bool { return first.claims.Load() == 2 })
	story.Say("alone", "%d", first.claims.Load())
	first.close()
}

func transactional(servers, id string) sarama.SyncProducer {
	config := settings()
	config.Producer.Transaction.ID = id
	return producer(servers, config)
}

func transactions(servers, topic, copies, group, id string) {
	writer := transactional(servers, id)
	for _, value := range []string{"kept", "dropped", "last"} {
		story.Check(writer.BeginTxn())
		for range 3 {
			_, _, err := writer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
			story.Check(err)
		}
		if value == "dropped" {
			story.Check(writer.AbortTxn())
		} else {
			story.Check(writer.CommitTxn())
		}
	}

	copier := transactional(servers, id+"-copy")
	var values []string
	story.Check(copier.BeginTxn())
	for _, message := range read(servers, topic, 6) {
		values = append(values, string(message.Value))
		_, _, err := copier.SendMessage(&sarama.ProducerMessage{Topic: copies, Value: sarama.ByteEncoder(message.Value)})
		story.Check(err)
		story.Check(copier.AddMessageToTxn(message, group, nil))
	}
	err := copier.CommitTxn()
	story.Check(copier.Close())
	story.Say("committed", "%s", strings.Join(values, " "))
	story.Say("ended", "%v", err == nil)

	admin, err := sarama.NewClusterAdmin([]string{servers}, settings())
	story.Check(err)
	story.Say("offset", "%d", committed(admin, group, topic))
	story.Check(admin.Close())

	successor := transactional(servers, id)
	story.Check(writer.BeginTxn())
	_, _, err = writer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("late")})
	story.Say("fenced", "%v", errors.Is(err, sarama.ErrProducerFenced) || errors.Is(err, sarama.ErrInvalidProducerEpoch))
	story.Check(successor.Close())
	_ = writer.Close()
}

// committed returns the offset of partition 0, or -1.
func committed(admin sarama.ClusterAdmin, group, topic string) int64 {
	response, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0}})
	story.Check(err)
	return response.GetBlock(topic, 0).Offset
}

func administer(servers, topic, group string) {
	client, err := sarama.NewClient([]string{servers}, settings())
	story.Check(err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	story.Check(err)
	first, second := "123456", "654321"
	detail := &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &first},
	}
	story.Check(admin.CreateTopic(topic, detail, false))
	story.Say("created", "%d", story.Settled(2, func() int32 {
		topics, err := admin.ListTopics()
		story.Check(err)
		return topics[topic].NumPartitions
	}))
	story.Say("again", "%v", errors.Is(admin.CreateTopic(topic, detail, false), sarama.ErrTopicAlreadyExists))
	story.Check(admin.CreatePartitions(topic, 4, nil, false))
	story.Say("partitions", "%d", story.Settled(4, func() int {
		described, err := admin.DescribeTopics([]string{topic})
		story.Check(err)
		return len(described[0].Partitions)
	}))

	before := retention(admin, topic)
	change := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &second},
	}
	story.Check(admin.IncrementalAlterConfig(sarama.TopicResource, topic, change, false))
	story.Say("config", "%s %s", before, story.Settled(second, func() string { return retention(admin, topic) }))

	writer, err := sarama.NewSyncProducerFromClient(client)
	story.Check(err)
	for range 10 {
		_, _, err := writer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("x")})
		story.Check(err)
	}
	story.Check(admin.DeleteRecords(topic, map[int32]int64{0: 3}))
	start, err := client.GetOffset(topic, 0, sarama.OffsetOldest)
	story.Check(err)
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	story.Check(err)
	story.Say("range", "%d %d", start, end)
	story.Say("stored", "%v", stored(admin, topic) > 0)

	offsets := map[string]map[int32]sarama.OffsetAndMetadata{topic: {0: {Offset: 5, LeaderEpoch: -1}}}
	_, err = admin.AlterConsumerGroupOffsets(group, offsets, nil)
	story.Check(err)
	groups, err := admin.DescribeConsumerGroups([]string{group})
	story.Check(err)
	story.Say("group", "%v %s %d", isListed(admin, group), groups[0].State, committed(admin, group, topic))
	story.Check(admin.DeleteConsumerGroupOffset(group, topic, 0))
	count := 0
	if committed(admin, group, topic) >= 0 {
		count++
	}
	story.Say("offsets", "%d", count)
	_, err = admin.AlterConsumerGroupOffsets(group, offsets, nil)
	story.Check(err)
	story.Check(admin.DeleteConsumerGroup(group))
	story.Check(admin.DeleteTopic(topic))
	story.Say("left", "%v", isListed(admin, group))
	story.Check(writer.Close())
	story.Check(admin.Close())
}

func isListed(admin sarama.ClusterAdmin, group string) bool {
	groups, err := admin.ListConsumerGroups()
	story.Check(err)
	_, listed := groups[group]
	return listed
}

// stored returns the size of a topic on disk, in bytes.
func stored(admin sarama.ClusterAdmin, topic string) int64 {
	brokers, _, err := admin.DescribeCluster()
	story.Check(err)
	directories, err := admin.DescribeLogDirs([]int32{brokers[0].ID()})
	story.Check(err)
	size := int64(0)
	for _, directory := range directories[brokers[0].ID()] {
		for _, stored := range directory.Topics {
			for _, partition := range stored.Partitions {
				if stored.Topic == topic {
					size += partition.Size
				}
			}
		}
	}
	return size
}

func retention(admin sarama.ClusterAdmin, topic string) string {
	entries, err := admin.DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"},
	})
	story.Check(err)
	return entries[0].Value
}
