// Run one story with kafkajs and print what was seen, a name and a value on each line.
//
//   node kafkajs.mjs produce SERVERS TOPIC CODEC[,CODEC...]
//   node kafkajs.mjs group SERVERS TOPIC GROUP classic
//   node kafkajs.mjs transactions SERVERS TOPIC COPIES GROUP TRANSACTIONAL_ID
//   node kafkajs.mjs admin SERVERS TOPIC GROUP

import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import { BATCH_SIZE, eventually, run, say, settled, time, value } from './story.mjs'

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, Partitioners, logLevel } = kafkajs

CompressionCodecs[CompressionTypes.Snappy] = snappy

const kafka = servers => new Kafka({ clientId: 'kafkajs', brokers: [servers], logLevel: logLevel.NOTHING })

async function producer (servers, options = {}) {
  const opened = kafka(servers).producer({
    createPartitioner: Partitioners.DefaultPartitioner, idempotent: true, maxInFlightRequests: 1, ...options,
  })
  await opened.connect()
  return opened
}

// A group member that keeps the records it has got and knows its partitions.
class Member {
  records = []
  owned = []

  static async join (servers, topic, groupId) {
    const member = new Member()
    member.consumer = kafka(servers).consumer({ groupId, heartbeatInterval: 300, maxWaitTimeInMs: 200 })
    member.consumer.on(member.consumer.events.GROUP_JOIN, ({ payload }) => {
      member.owned = payload.memberAssignment[topic] ?? []
    })
    await member.consumer.connect()
    await member.consumer.subscribe({ topic, fromBeginning: true })
    await member.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => { member.records.push({ partition, ...message }) },
    })
    return member
  }

  async take (count) {
    await eventually(`${count} records`, () => this.records.length >= count)
    return this.records.splice(0, count)
  }

  close () { return this.consumer.disconnect() }
}

async function produce (servers, topic, names) {
  const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
  const codecNames = names.split(',')
  let end = 0
  for (const [batch, name] of codecNames.entries()) {
    const writer = await producer(servers)
    const messages = Array.from({ length: BATCH_SIZE }, (_, i) => ({
      key: 'key', value: value(i), timestamp: String(time(batch, i)), headers: { codec: name },
    }))
    const [sent] = await writer.send({ topic, messages, compression: codecs[name] })
    end = Number(sent.baseOffset) + BATCH_SIZE
    await writer.disconnect()
  }
  say('produced', end)

  const reader = await Member.join(servers, topic, `${topic}-reader`)
  const right = (await reader.take(end)).filter((record, i) => {
    const batch = Math.floor(i / BATCH_SIZE)
    const number = i % BATCH_SIZE
    return record.offset === String(i) && String(record.key) === 'key' && String(record.value) === value(number) &&
      record.timestamp === String(time(batch, number)) && String(record.headers.codec) === codecNames[batch]
  })
  say('right', right.length)
  await reader.close()
}

async function group (servers, topic, groupId) {
  const writer = await producer(servers)
  for (let i = 0; i < 20; i++) {
    await writer.send({ topic, messages: [{ partition: i % 2, value: value(i) }] })
  }
  await writer.disconnect()

  let first = await Member.join(servers, topic, groupId)
  say('consumed', (await first.take(20)).length)
  await first.consumer.commitOffsets([{ topic, partition: 0, offset: '7' }, { topic, partition: 1, offset: '10' }])
  await first.close()

  first = await Member.join(servers, topic, groupId)
  say('resumed', (await first.take(3)).map(record => `${record.partition}:${record.offset}`).join(' '))
  const second = await Member.join(servers, topic, groupId)
  await eventually('each member to own one partition', () => first.owned.length === 1 && second.owned.length === 1)
  say('shared', `${first.owned.length}+${second.owned.length}`)
  await second.close()
  await eventually('the first member to take over', () => first.owned.length === 2)
  say('alone', first.owned.length)
  await first.close()
}

async function transactions (servers, topic, copies, groupId, transactionalId) {
  const writer = await producer(servers, { transactionalId })
  for (const text of ['kept', 'dropped', 'last']) {
    const transaction = await writer.transaction()
    for (let i = 0; i < 3; i++) await transaction.send({ topic, messages: [{ value: text }] })
    await (text === 'dropped' ? transaction.abort() : transaction.commit())
  }

  const source = await Member.join(servers, topic, groupId)
  const copier = await producer(servers, { transactionalId: `${transactionalId}-copy` })
  const transaction = await copier.transaction()
  const records = await source.take(6)
  await transaction.send({ topic: copies, messages: records.map(record => ({ value: record.value })) })
  const offset = String(Number(records[5].offset) + 1)
  await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic, partitions: [{ partition: 0, offset }] }] })
  await transaction.commit()
  await copier.disconnect()
  await source.close()
  say('committed', records.map(record => String(record.value)).join(' '))
  say('ended', !transaction.isActive())

  const admin = kafka(servers).admin()
  await admin.connect()
  say('offset', (await committed(admin, groupId, topic)))
  await admin.disconnect()

  const successor = await producer(servers, { transactionalId })
  await (await successor.transaction()).abort()
  const late = await writer.transaction()
  const error = await late.send({ topic, messages: [{ value: 'late' }] }).catch(error => error)
  say('fenced', ['PRODUCER_FENCED', 'INVALID_PRODUCER_EPOCH'].includes(error?.type))
  await successor.disconnect()
}

// Return the committed offset of partition 0, or -1.
async function committed (admin, groupId, topic) {
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
  return Number(partitions.find(({ partition }) => partition === 0).offset)
}

async function administer (servers, topic, groupId) {
  const admin = kafka(servers).admin()
  await admin.connect()
  const retention = value => [{ name: 'retention.ms', value }]
  const described = async () => {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }]
    return (await admin.describeConfigs({ resources })).resources[0].configEntries[0].configValue
  }
  const partitionCount = async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
  const isListed = async () => (await admin.listGroups()).groups.some(group => group.groupId === groupId)
  const creation = { topics: [{ topic, numPartitions: 2, replicationFactor: 1, configEntries: retention('123456') }] }

  await admin.createTopics(creation)
  say('created', await partitionCount())
  say('again', !(await admin.createTopics(creation)))
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
  say('partitions', await settled(4, partitionCount))
  const before = await described()
  await admin.alterConfigs({
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: retention('654321') }],
  })
  say('config', before, await settled('654321', described))

  const writer = await producer(servers)
  for (let i = 0; i < 10; i++) await writer.send({ topic, messages: [{ partition: 0, value: 'x' }] })
  await writer.disconnect()
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '3' }] })
  const { low, high } = (await admin.fetchTopicOffsets(topic)).find(({ partition }) => partition === 0)
  say('range', low, high)

  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '5' }] })
  const { groups: [{ state }] } = await admin.describeGroups([groupId])
  say('group', await isListed(), state, await committed(admin, groupId, topic))
  await admin.deleteGroups([groupId])
  await admin.deleteTopics({ topics: [topic] })
  say('left', await isListed())
  await admin.disconnect()
}

await run({ produce, group, transactions, admin: administer })
