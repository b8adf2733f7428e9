#!/usr/bin/env bash
# @platformatic/kafka 2.12.1 on Apache Kafka 4.4.0: a consumer with READ_COMMITTED gets records of aborted transactions.
#
# Guess: with READ_COMMITTED, which is this client's own choice if nothing is said, no record of an aborted transaction is seen.
# Seen: of each producer it keeps one aborted transaction per answer of the broker, the last. Where two are in one answer, the
#       records of the first are delivered. And it drops records only up to a marker in the same answer: of a transaction
#       that is longer than one answer, all but the last part is delivered.
# Who meets it: whoever reads what a transactional producer wrote who retries after an abort, or writes much at a time. The same
#       topic gives other records to a consumer that was there all the time, since its answers are cut elsewhere. There is
#       no sign of it, and no setting against it: a larger maxBytes, by itself 50 MiB, only leaves the second case out.
# Needs Java 17, Maven, npm. Takes a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it
# could not tell.
# Output seen:
#   two aborted transactions of one record, one committed: aborted 1, committed
#   one aborted transaction of 30 records, 3 MB, one committed: 20 aborted, committed
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

cat >"$work/read.mjs" <<'JS'
import { Admin, Consumer, FetchIsolationLevels, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const client = { clientId: 'findings', bootstrapBrokers: [process.argv[2]] }
// The timeout is the transactions', too.
const producer = new Producer({
  ...client, transactionalId: 'writer', idempotent: true, timeout: 60_000, serializers: stringSerializers
})

async function write (topic, values, end) {
  const transaction = await producer.beginTransaction()
  for (const value of values) await transaction.send({ messages: [{ topic, value }] })
  await transaction[end]()
}

/** The values that a new consumer sees, up to the committed one. */
async function read (topic) {
  const consumer = new Consumer({ ...client, groupId: topic, deserializers: stringDeserializers })
  const stream = await consumer.consume({
    topics: [topic],
    mode: 'earliest',
    autocommit: false,
    isolationLevel: FetchIsolationLevels.READ_COMMITTED,
    maxBytes: 1_048_576
  })
  const seen = []
  for await (const { value } of stream) {
    seen.push(value.trim())
    if (value === 'committed') break
  }
  return seen
}

await new Admin(client).createTopics({ topics: ['two', 'long'], partitions: 1, replicas: 1 })
await write('two', ['aborted 1'], 'abort')
await write('two', ['aborted 2'], 'abort')
await write('two', ['committed'], 'commit')
const two = await read('two')
console.log(`two aborted transactions of one record, one committed: ${two.join(', ')}`)
await write('long', Array(30).fill('aborted'.padEnd(100_000)), 'abort')
await write('long', ['committed'], 'commit')
const aborted = (await read('long')).filter(value => value === 'aborted')
console.log(`one aborted transaction of 30 records, 3 MB, one committed: ${aborted.length} aborted, committed`)
process.exit(0)
JS
timeout 900 "$node" "$work/read.mjs" "$servers" 2>"$work/errors" | tee "$work/seen" || { cat "$work/errors"; exit 2; }
sed -n 's/^#   \(.* aborted transactions\? .*\)/\1/p' "$here/platformatic_kafka_reads_aborted.sh" >"$work/expected"
[ -s "$work/expected" ] || exit 2
cmp -s "$work/seen" "$work/expected" || { echo changed; exit 1; }
