#!/usr/bin/env bash
# @platformatic/kafka 2.12.1 on Apache Kafka 4.4.0: of offsets that are added to a transaction at once, one is committed.
#
# Guess: once each promise of transaction.addOffset() is fulfilled, the commit of the transaction commits each of the offsets,
#       whether one waited for them one by one or by Promise.all().
# Seen: a call that is made while another one is on its way is taken for the same call. It sends nothing, and its promise is
#       fulfilled with the other's. The records are committed, the offsets of all partitions but one are not, without an
#       error.
# Who meets it: whoever reads a batch, writes the results and adds its offsets by Promise.all(), as one does in JavaScript. The
#       next member of the group reads those records again, and writes their results twice: exactly once is at least once.
#       Await each addOffset() before the next one.
# Needs Java 17, Maven, npm. Takes a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it
# could not tell.
# Output seen:
#   one-by-one: 4 promises fulfilled, transaction committed, offsets of partitions 0 to 3: 1, 1, 1, 1
#   at-once: 4 promises fulfilled, transaction committed, offsets of partitions 0 to 3: 1, none, none, none
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill -KILL "$broker" 2>/dev/null || true; rm -rf "$work"' EXIT
# shellcheck source=_node.sh
. "$here/_node.sh"
install_npm "$work" @platformatic/kafka@2.12.1
# shellcheck source=_kafka.sh
. "$here/_kafka.sh"
start_kafka 4.4.0 "$work" transaction.state.log.replication.factor=1 transaction.state.log.min.isr=1 \
    transaction.state.log.num.partitions=1 group.initial.rebalance.delay.ms=0

cat >"$work/move.mjs" <<'JS'
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const client = { clientId: 'findings', bootstrapBrokers: [process.argv[2]] }
const partitions = [0, 1, 2, 3]
// The timeout is the transactions', too.
const producer = new Producer({
  ...client, transactionalId: 'mover', idempotent: true, timeout: 60_000, serializers: stringSerializers
})

/** Moves a record of each partition in one transaction, and says which offsets the group has then. */
async function move (groupId, add) {
  const consumer = new Consumer({ ...client, groupId, deserializers: stringDeserializers })
  const stream = await consumer.consume({ topics: ['from'], mode: 'committed', fallbackMode: 'earliest', autocommit: false })
  const messages = []
  for await (const message of stream) {
    messages.push(message)
    if (messages.length === partitions.length) break
  }
  messages.sort((one, other) => one.partition - other.partition)
  const transaction = await producer.beginTransaction()
  await transaction.addConsumer(consumer)
  await transaction.send({ messages: messages.map(({ value }) => ({ topic: 'to', value })) })
  const added = await add(messages, transaction)
  await transaction.commit()
  // They come in with the transaction's marker, all of them at one time.
  let offsets = []
  while (!offsets.some(offset => offset > 0n)) {
    offsets = (await consumer.listCommittedOffsets({ topics: [{ topic: 'from', partitions }] })).get('from')
  }
  const said = offsets.map(offset => offset < 0n ? 'none' : offset).join(', ')
  console.log(`${groupId}: ${added.length} promises fulfilled, transaction committed, offsets of partitions 0 to 3: ${said}`)
}

const admin = new Admin(client)
await admin.createTopics({ topics: ['from'], partitions: partitions.length, replicas: 1 })
await admin.createTopics({ topics: ['to'], partitions: 1, replicas: 1 })
const first = new Producer({ ...client, serializers: stringSerializers })
await first.send({ messages: partitions.map(partition => ({ topic: 'from', partition, value: 'record' })) })
await move('one-by-one', async (messages, transaction) => {
  const added = []
  for (const message of messages) added.push(await transaction.addOffset(message))
  return added
})
await move('at-once', (messages, transaction) => Promise.all(messages.map(message => transaction.addOffset(message))))
process.exit(0)
JS
timeout 900 "$node" "$work/move.mjs" "$servers" 2>"$work/errors" | tee "$work/seen" || { cat "$work/errors"; exit 2; }
sed -n 's/^#   \(one-by-one\|at-once\): /\1: /p' "$here/platformatic_kafka_offsets_at_once.sh" >"$work/expected"
[ -s "$work/expected" ] || exit 2
cmp -s "$work/seen" "$work/expected" || { echo changed; exit 1; }
