// Run one story with @platformatic/kafka and print what was seen, a name and a value on each line.
//
//   node platformatic.mjs produce SERVERS TOPIC CODEC[,CODEC...]
//   node platformatic.mjs group SERVERS TOPIC GROUP classic|consumer
//   node platformatic.mjs transactions SERVERS TOPIC COPIES GROUP TRANSACTIONAL_ID
//   node platformatic.mjs admin SERVERS TOPIC GROUP

import { inspect } from 'node:util'
import {
  Admin, ConfigResourceTypes, Consumer, FetchIsolationLevels, IncrementalAlterConfigOperationTypes, Producer,
  stringDeserializers, stringSerializers,
} from '@platformatic/kafka'
import { BATCH_SIZE, eventually, run, say, settled, time, value } from './story.mjs'

const client = servers => ({ clientId: 'platformatic', bootstrapBrokers: [servers] })

const producer = (servers, options = {}) =>
  new Producer({ ...client(servers), serializers: stringSerializers, idempotent: true, ...options })

// Return true if the error, or an error in it, has one of these names of Kafka.
const names = (error, ...codes) => codes.some(code => inspect(error, { depth: 10 }).includes(code))

// A group member that keeps the records it has got.
class Member {
  records = []

  static async join (servers, topic, groupId, groupProtocol) {
    const member = new Member()
    const times = groupProtocol === 'consumer' ? {} : { heartbeatInterval: 300, sessionTimeout: 10_000 }
    member.consumer = new Consumer({
      ...client(servers), groupId, groupProtocol, deserializers: stringDeserializers, maxWaitTime: 200, ...times,
    })
    member.stream = await member.consumer.consume({
      topics: [topic], autocommit: false, mode: 'committed', fallbackMode: 'earliest',
      isolationLevel: FetchIsolationLevels.READ_COMMITTED,
    })
    member.stream.on('data', record => member.records.push(record))
    // A fetch on its way when the consumer is closed fails with "Client is closed".
    member.stream.on('error', error => { if (!member.closing) throw error })
    return member
  }

  get owned () { return (this.consumer.assignments ?? []).flatMap(({ partitions }) => partitions).length }

  async take (count) {
    await eventually(`${count} records`, () => this.records.length >= count)
    return this.records.splice(0, count)
  }

  close () {
    this.closing = true
    return this.consumer.close(true)
  }
}

async function produce (servers, topic, codecs) {
  const codecNames = codecs.split(',')
  let end = 0
  for (const [batch, compression] of codecNames.entries()) {
    const writer = producer(servers, { compression })
    const messages = Array.from({ length: BATCH_SIZE }, (_, i) => ({
      topic, key: 'key', value: value(i), timestamp: BigInt(time(batch, i)), headers: { codec: compression },
    }))
    const { offsets: [sent] } = await writer.send({ messages })
    end = Number(sent.offset) + BATCH_SIZE
    await writer.close()
  }
  say('produced', end)

  const reader = await Member.join(servers, topic, `${topic}-reader`, 'classic')
  const right = (await reader.take(end)).filter((record, i) => {
    const batch = Math.floor(i / BATCH_SIZE)
    const number = i % BATCH_SIZE
    return record.offset === BigInt(i) && record.key === 'key' && record.value === value(number) &&
      record.timestamp === BigInt(time(batch, number)) && record.headers.get('codec') === codecNames[batch]
  })
  say('right', right.length)
  await reader.close()
}

async function group (servers, topic, groupId, protocol) {
  const writer = producer(servers)
  for (let i = 0; i < 20; i++) await writer.send({ messages: [{ topic, partition: i % 2, value: value(i) }] })
  await writer.close()

  let first = await Member.join(servers, topic, groupId, protocol)
  say('consumed', (await first.take(20)).length)
  const offset = (partition, offset) => ({ topic, partition, offset, leaderEpoch: -1 })
  await first.consumer.commit({ offsets: [offset(0, 7n), offset(1, 10n)] })
  await first.close()

  first = await Member.join(servers, topic, groupId, protocol)
  say('resumed', (await first.take(3)).map(record => `${record.partition}:${record.offset}`).join(' '))
  const second = await Member.join(servers, topic, groupId, protocol)
  await eventually('each member to own one partition', () => first.owned === 1 && second.owned === 1)
  say('shared', `${first.owned}+${second.owned}`)
  await second.close()
  await eventually('the first member to take over', () => first.owned === 2)
  say('alone', first.owned)
  await first.close()
}

async function transactions (servers, topic, copies, groupId, transactionalId) {
  const writer = producer(servers, { transactionalId })
  for (const text of ['kept', 'dropped', 'last']) {
    const transaction = await writer.beginTransaction()
    for (let i = 0; i < 3; i++) await transaction.send({ messages: [{ topic, partition: 0, value: text }] })
    await (text === 'dropped' ? transaction.abort() : transaction.commit())
  }

  const source = await Member.join(servers, topic, groupId, 'classic')
  const copier = producer(servers, { transactionalId: `${transactionalId}-copy` })
  const transaction = await copier.beginTransaction()
  const records = await source.take(6)
  await transaction.send({ messages: records.map(record => ({ topic: copies, value: record.value })) })
  await transaction.addConsumer(source.consumer)
  await transaction.addOffset(records[5])
  await transaction.commit()
  await copier.close()
  await source.close()
  say('committed', records.map(record => record.value).join(' '))
  say('ended', transaction.completed)

  const admin = new Admin(client(servers))
  say('offset', await committed(admin, groupId, topic))
  await admin.close()

  const successor = producer(servers, { transactionalId })
  // Without these values it says that it is producer 0, and is fenced itself.
  await successor.beginTransaction({ producerId: -1n, producerEpoch: -1 })
  const error = await writer.beginTransaction()
    .then(late => late.send({ messages: [{ topic, partition: 0, value: 'late' }] }))
    .catch(error => error)
  say('fenced', names(error, 'PRODUCER_FENCED', 'INVALID_PRODUCER_EPOCH'))
}

// Return the committed offset of partition 0, or -1.
async function committed (admin, groupId, topic) {
  const groups = [{ groupId, topics: [{ name: topic, partitionIndexes: [0] }] }]
  const [{ topics }] = await admin.listConsumerGroupOffsets({ groups })
  return Number(topics[0].partitions[0].committedOffset)
}

async function administer (servers, topic, groupId) {
  const admin = new Admin(client(servers))
  const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }
  const described = async () => {
    const resources = [{ ...resource, configurationKeys: ['retention.ms'] }]
    return (await admin.describeConfigs({ resources }))[0].configs[0].value
  }
  const partitionCount = async () => (await admin.metadata({ topics: [topic], forceUpdate: true })).topics.get(topic).partitionsCount
  const isListed = async () => (await admin.listGroups()).has(groupId)
  const at = async timestamp => {
    const [{ partitions }] = await admin.listOffsets({ topics: [{ name: topic, partitions: [{ partitionIndex: 0, timestamp }] }] })
    return Number(partitions[0].offset)
  }
  const alterOffset = () => admin.alterConsumerGroupOffsets({
    groupId, topics: [{ name: topic, partitionOffsets: [{ partition: 0, offset: 5n }] }],
  })
  const creation = { topics: [topic], partitions: 2, replicas: 1, configs: [{ name: 'retention.ms', value: '123456' }] }

  const [created] = await admin.createTopics(creation)
  say('created', created.partitions)
  say('again', names(await admin.createTopics(creation).catch(error => error), 'TOPIC_ALREADY_EXISTS'))
  await admin.createPartitions({ topics: [{ name: topic, count: 4, assignments: null }] })
  say('partitions', await settled(4, partitionCount))
  const before = await described()
  const change = { name: 'retention.ms', value: '654321', configOperation: IncrementalAlterConfigOperationTypes.SET }
  await admin.incrementalAlterConfigs({ resources: [{ ...resource, configs: [change] }] })
  say('config', before, await settled('654321', described))

  const writer = producer(servers)
  for (let i = 0; i < 10; i++) await writer.send({ messages: [{ topic, partition: 0, value: 'x' }] })
  await writer.close()
  await admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset: 3n }] }] })
  say('range', await at(-2n), await at(-1n))
  const [{ results }] = await admin.describeLogDirs({ topics: [{ name: topic, partitions: [0] }] })
  const sizes = results.flatMap(({ topics }) => topics.flatMap(({ partitions }) => partitions.map(({ partitionSize }) => partitionSize)))
  say('stored', sizes.some(size => size > 0n))

  await alterOffset()
  const group = (await admin.describeGroups({ groups: [groupId] })).get(groupId)
  say('group', await isListed(), group.state, await committed(admin, groupId, topic))
  await admin.deleteConsumerGroupOffsets({ groupId, topics: [{ name: topic, partitionIndexes: [0] }] })
  say('offsets', (await committed(admin, groupId, topic)) >= 0 ? 1 : 0)
  await alterOffset()
  await admin.deleteGroups({ groups: [groupId] })
  await admin.deleteTopics({ topics: [topic] })
  say('left', await isListed())
  await admin.close()
}

await run({ produce, group, transactions, admin: administer })
