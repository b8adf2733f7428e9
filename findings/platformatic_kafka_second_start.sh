#!/usr/bin/env bash
# @platformatic/kafka 2.12.1 on Apache Kafka 4.4.0: a transactional producer cannot be started a second time.
#
# Guess: a transactional id stays the same over restarts. The new producer takes it over: what its forerunner left open is
#       aborted, and the forerunner is fenced, not the new one.
# Seen: it asks for its producer id with 0 where Kafka's protocol has -1 for "I have none yet". A transactional id that the
#       broker does not know gets one. One that it knows has another number, so the new producer is told that it is
#       fenced, each time. Only the id that came first in the cluster has the number 0; it can be used again, so a test on a
#       fresh broker with one producer passes.
# Who meets it: whoever restarts a service that writes in transactions. It cannot write until the broker has forgotten the id,
#       seven days by itself, and what a crash left open holds the readers up until its timeout. A new id each time starts,
#       but fences nobody. Give the producer producerId: -1n, producerEpoch: -1.
# Needs Java 17, Maven, npm. Takes a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it
# could not tell.
# Output seen:
#   the cluster's first id: committed, committed
#   its second id: committed, PRODUCER_FENCED, PRODUCER_FENCED
#   its second id, with producerId -1: committed
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
    transaction.state.log.num.partitions=1

cat >"$work/start.mjs" <<'JS'
import { Admin, Producer, stringSerializers } from '@platformatic/kafka'

const client = { clientId: 'findings', bootstrapBrokers: [process.argv[2]] }

/** Starts a producer, commits a transaction, closes it, and says how that ended. */
async function start (transactionalId, more) {
  // The timeout is the transactions', too.
  const producer = new Producer({
    ...client, transactionalId, idempotent: true, timeout: 60_000, serializers: stringSerializers, ...more
  })
  try {
    const transaction = await producer.beginTransaction()
    await transaction.send({ messages: [{ topic: 'records', value: 'record' }] })
    await transaction.commit()
    return 'committed'
  } catch (error) {
    if (!error.errors?.[0]?.apiId) throw error
    return error.errors[0].apiId
  } finally {
    await producer.close()
  }
}

async function starts (said, transactionalId, times, more) {
  const seen = []
  while (seen.length < times) seen.push(await start(transactionalId, more))
  console.log(`${said}: ${seen.join(', ')}`)
}

await new Admin(client).createTopics({ topics: ['records'], partitions: 1, replicas: 1 })
await starts("the cluster's first id", 'first', 2, {})
await starts('its second id', 'second', 3, {})
await starts('its second id, with producerId -1', 'second', 1, { producerId: -1n, producerEpoch: -1 })
process.exit(0)
JS
timeout 900 "$node" "$work/start.mjs" "$servers" 2>"$work/errors" | tee "$work/seen" || { cat "$work/errors"; exit 2; }
sed -n "s/^#   \(the cluster's first id\|its second id\)\(.*\)/\1\2/p" "$here/platformatic_kafka_second_start.sh" >"$work/expected"
[ -s "$work/expected" ] || exit 2
cmp -s "$work/seen" "$work/expected" || { echo changed; exit 1; }
