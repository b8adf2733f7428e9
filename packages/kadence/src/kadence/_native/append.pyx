"""The way into the accumulator. `FastAppender.put` is all that most calls of ``send()`` run."""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.kadence._native.builder import RecordEncoder, kd_add_plain

from kadence import clock
from kadence._native.shared import MOST_HEADERS, failed, made_bytes
from kadence.errors import KafkaError
from kadence.errors.local import AnswerPendingError

FOREVER = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
BATCH_OVERHEAD = cython.declare(cython.longlong, 61)
RECORD_OVERHEAD = cython.declare(cython.longlong, 21)
HEADER_OVERHEAD = cython.declare(cython.longlong, 10)


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2, 32 bits, with Kafka's seed; unsigned."""
    return kd_murmur2(cython.cast(cython.p_uchar, PyBytes_AS_STRING(data)), PyBytes_GET_SIZE(data))


def estimated_size(key: bytes | None, value: bytes | None, headers) -> int:
    """Most bytes that a record can take in an uncompressed batch: Kafka's bound on its varints, and the data."""
    size: cython.longlong = RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, data in headers:
        size += HEADER_OVERHEAD + 4 * len(name) + (0 if data is None else len(data))
    return size


@cython.cclass
class ProduceRequestResult:
    """The common result of a batch's records, and the callbacks for it.

    Attributes:
        gate: the producer's lock. done: whether all are decided. is_written: whether all are in the log.
        topic, partition: of the batch. direct: see `FastAppender`.
        outstanding: the number of undecided parts.
        expedite: called with it under the gate, once, when somebody waits for it; None where that changes nothing.
        asked: its request, while no thread but one of the application has it; else None. Under the gate.

    With the interpreter's lock no other thread runs in the middle of a method.
    """

    def __init__(self, topic: str, partition, gate, unnotified: set | None = None):
        self.begin(topic, partition, gate, gate._is_owned, set() if unnotified is None else unnotified)

    @cython.cfunc
    def begin(self, topic: str, partition: object, gate: object, is_mine: object, unnotified: object) -> object:
        """As ``__init__``. Lists of what most results never have are made when they are needed."""
        self.topic = topic
        self.partition = partition
        self.gate = gate
        self._is_mine = is_mine
        self._unnotified = unnotified
        self.outstanding = 1
        return None

    def add_callback(self, callback, future) -> bool:
        """Keep a callback of a record's future for `end`. False: that has come already. Any thread."""
        if not self.done and self._is_mine():
            self.gate.check_entry()
        # Before the look: it may let another thread in.
        first: list = [] if self._callbacks is None else None
        with cython.critical_section(self):
            if self.done:
                return False
            if self._callbacks is None:
                self._callbacks = first
            self._callbacks.append(callback)
            self._callbacks.append(future)
            return True

    @property
    def has_callbacks(self) -> bool:
        """True if something is to be called, or a task woken, once it is decided. Under the gate."""
        return self.is_watched()

    @cython.cfunc
    def is_watched(self) -> cython.bint:
        if self._callbacks is not None and len(self._callbacks) > 0:
            return True
        # Dictionaries, or None: their truth runs no code.
        return True if self._watchers or self._waiters else False  # noqa: SIM210 - this makes no object

    def written_alone(self, base_offset: cython.longlong, log_append_time: cython.longlong) -> bool:
        """All records are in the log, by one answer. Under the gate.

        False, and nothing was changed: `end` has something to give.
        """
        return self.write_alone(base_offset, log_append_time)

    @cython.cfunc
    def write_alone(self, base_offset: cython.longlong, log_append_time: cython.longlong) -> cython.bint:
        with cython.critical_section(self):
            if self._callbacks is not None and len(self._callbacks) > 0:
                return False
            self._base_offset = base_offset
            self._log_append_time = log_append_time
            self._parts = None
            self.outstanding = 0
            self.is_written = True
            self.done = True
        self.gate.notify_all()
        return True

    @property
    def alone(self) -> tuple | None:
        """The arguments of `written_alone`, which has decided it; else None."""
        if self.done and self.is_written and self._parts is None:
            return self._base_offset, self._log_append_time
        return None

    def end(self) -> list:
        """All are decided. Returns each callback and its future, one behind the other."""
        nothing: list = []
        with cython.critical_section(self):
            callbacks: list = nothing if self._callbacks is None else self._callbacks
            self.done = True
            self._callbacks = None
            return callbacks


def call_back(callbacks: list, failed) -> None:
    """Call what `ProduceRequestResult.end` gave; ``failed`` where a callback raises.

    Any exception: sys.exit() must not end the network thread, which other threads wait for.
    """
    at: cython.Py_ssize_t
    for at in range(0, len(callbacks), 2):
        try:
            callbacks[at](callbacks[at + 1])
        except BaseException:
            failed()


@cython.cclass
class FutureRecordMetadata:
    """The data of a record's future.

    Attributes:
        delivery: of its batch. index: its place among the batch's records. timestamp: its own (ms).
    """

    def __init__(self, delivery, index: cython.Py_ssize_t, timestamp: cython.longlong):
        self.delivery = delivery
        self.index = index
        self.timestamp = timestamp

    def _written(self) -> tuple | None:
        """Topic, partition, offset and time of the record, if one answer wrote all of its batch; else None."""
        result: ProduceRequestResult = self.delivery
        if not result.done or not result.is_written or result._parts is not None:
            return None
        offset: cython.longlong = result._base_offset
        when: cython.longlong = result._log_append_time
        return (
            result.topic,
            result.partition,
            offset if offset < 0 else offset + self.index,
            self.timestamp if when < 0 else when,
        )


@cython.cclass
class OpenBatch:
    """A batch, as the code that adds records sees it, and what becomes of it.

    Attributes:
        builder: its records, encoded. delivery: what their futures wait for. size: estimated uncompressed bytes.
        limit: the size up to which it takes records.
        is_open: whether it takes more records; never again once it was taken to be sent.
        tp: its partition. first: index of its first record in the delivery; above 0 for a later piece of a batch that
            was split.
        created: when its first record came. deadline: when it fails.
        attempts: how often it was sent. not_before: earliest time of the next attempt.
        producer_id, epoch, base_sequence: its identity at the broker once it has one; -1 before.
        encoded: its bytes, kept for retries: a repeated batch must be the same to be recognised. Uncompressed they lie
            in the memory of the builder.
        last_error: the error of the last attempt.
        lingers: whether it waits for more records before it is sent for the first time.
    """

    def __init__(
        self,
        tp,
        created: cython.longlong,
        deadline: cython.longlong,
        builder: RecordEncoder,
        delivery,
        limit: cython.longlong,
    ):
        self.begin(tp, created, deadline, builder, delivery, limit)

    @cython.cfunc
    def begin(
        self,
        tp: object,
        created: cython.longlong,
        deadline: cython.longlong,
        builder: RecordEncoder,
        delivery: object,
        limit: cython.longlong,
    ) -> object:
        """As ``__init__``."""
        self.tp = tp
        self.created = created
        self.deadline = deadline
        self.builder = builder
        self.delivery = delivery
        self.size = BATCH_OVERHEAD
        self.limit = limit
        self.is_open = self.lingers = True
        self.producer_id = self.epoch = self.base_sequence = -1
        return None

    @property
    def count(self) -> int:
        return self.builder.frame.count


@cython.cclass
class Sticky:
    """The partition that records without a key stay with.

    Attributes:
        current: that partition, -1 before the first. used: bytes it got. switch_bytes: how many it may get.
    """

    def __init__(self, switch_bytes: cython.longlong):
        self.switch_bytes = switch_bytes
        self.current = -1


@cython.cclass
class TopicInfo:
    """The data of a topic for ``send()``, for as long as its metadata stay the same.

    Attributes:
        infos: its partitions in the metadata. partitions, count: all of them.
        available: numbers of those that have a leader.
        sticky: of records without a key. open_batches: the batch that each partition fills, None where none was begun.
    """

    def __init__(self, infos: tuple, partitions: tuple, available: tuple, sticky: Sticky):
        self.infos = infos
        self.partitions = partitions
        self.available = available
        self.sticky = sticky
        self.count = len(partitions)
        self.open_batches = [None] * self.count


def system_wall_ms() -> int:
    """The time of the system in ms since 1970."""
    return kd_wall_ms()


@cython.cclass
class FastAppender:
    """The part of the accumulator that takes records which need nothing but a place in a batch.

    Attributes:
        gate: the producer's lock. places: by topic; one is dropped when its metadata change.
        batch_size, buffer_memory: bounds. largest: most bytes of one record.
        wall_ms: the time of records that have none.
        used_bytes: bytes of all undecided batches. claimed_bytes: for the record that has waited for room the longest;
            no other gets them. is_usable: False once the producer is closed, failed or forked.
        has_news: a batch was begun, and nobody has woken the network thread since. A signal may have come in between, so
            the next record does it, by the long way.
        now_ms: the clock of batches; None where they are begun on the long way.
        direct: sends batches on the thread that appends or awaits them (`DirectSends`); None: the network thread sends
            all.
        expedite: see `ProduceRequestResult`.
        incomplete: every batch whose delivery is undecided, sent or not.
        unnotified: deliveries of decided batches whose futures may not be resolved yet, or whose callbacks have not all
            run.
        waiting: batches that were never sent, by partition, oldest first. A partition without any is not here.
        _limits: the batch size for topics whose brokers have refused larger batches.
        _busy: partitions whose last batch was not small: the next gets its memory at once, and need not grow.
    """

    def __init__(
        self,
        gate,
        future_type,
        batch_size: cython.longlong,
        buffer_memory: cython.longlong,
        largest: cython.longlong,
        wall_ms,
        delivery_timeout_ms: cython.longlong,
        delivery_type,
        builder_type,
        batch_type,
    ):
        self.gate = gate
        self.acquire = gate.acquire
        self.release = gate.release
        self.check_entry = gate.check_entry
        self.is_mine = gate._is_owned
        self.future_type = future_type
        self.is_system = wall_ms is clock.wall_ms and kd_wall_ms() >= 0
        # One clock for all records, also for those that go the long way while a test has stopped Python's.
        self.wall_ms = system_wall_ms if self.is_system else wall_ms
        self.places = {}
        self.incomplete = set()
        self.unnotified = set()
        self.waiting = {}
        self._limits = {}
        self._busy = set()
        self.delivery_timeout_ms = delivery_timeout_ms
        self.delivery_type = delivery_type
        self.builder_type = builder_type
        self.batch_type = batch_type
        self.process = kd_process()
        self.batch_size = batch_size
        self.buffer_memory = buffer_memory
        self.largest = largest
        self.is_usable = True

    def hold(self, batch: OpenBatch) -> None:
        """A batch is undecided: count its memory, once, in a step that no signal handler interrupts. Under the gate."""
        self.holds(batch)

    @cython.cfunc
    def holds(self, batch: OpenBatch) -> object:
        if batch not in self.incomplete:
            self.incomplete.add(batch)
            self.used_bytes += batch.size
        return None

    def let_go(self, batch: OpenBatch) -> None:
        """A batch is decided: free its memory, likewise."""
        self.lets_go(batch)

    @cython.cfunc
    def lets_go(self, batch: OpenBatch) -> object:
        if batch in self.incomplete:
            self.incomplete.discard(batch)
            self.used_bytes -= batch.size
        return None

    def new_batch(self, tp, now: cython.longlong) -> OpenBatch:
        """An empty batch of a partition."""
        return self.make(tp, now)

    @cython.cfunc
    def make(self, tp: object, now: cython.longlong) -> OpenBatch:
        topic: object = cython.cast(tuple, tp)[0]
        limit: cython.longlong = self.batch_size
        deadline: cython.longlong = FOREVER
        result: ProduceRequestResult = kd_made(self.delivery_type, ())
        result.begin(topic, cython.cast(tuple, tp)[1], self.gate, self.is_mine, self.unnotified)
        result.direct = self.direct
        result.expedite = self.expedite
        builder: RecordEncoder = kd_made(self.builder_type, ())
        if self._limits:
            limit = self._limits.get(topic, limit)
        if self._busy and tp in self._busy:
            builder.reserve(limit)
        # As `add_ms`.
        if self.delivery_timeout_ms < FOREVER - now:
            deadline = now + self.delivery_timeout_ms
        batch: OpenBatch = kd_made(self.batch_type, ())
        batch.begin(tp, now, deadline, builder, result, limit)
        return batch

    def put(self, topic, value, key, partition, timestamp, headers=()) -> object:
        """Add a record to the batch that its partition is filling, and give its future.

        None, and no effect, in all but the usual case: a topic must be begun, this record fills its batch,
        memory is short, or arguments must be checked. The long way (`Producer.send`) then starts from the beginning.
        """
        return self.place(topic, value, key, partition, timestamp, headers, False)

    @cython.cfunc
    def place(
        self,
        topic: object,
        value: object,
        key: object,
        partition: object,
        timestamp: object,
        headers: object,
        is_anywhere: cython.bint,
    ) -> object:
        """As `put`; ``is_anywhere``: the key does not choose the partition."""
        place: TopicInfo
        number: cython.longlong
        when: cython.longlong
        key_at: cython.p_uchar = cython.NULL
        value_at: cython.p_uchar = cython.NULL
        key_size: cython.Py_ssize_t = -1
        value_size: cython.Py_ssize_t = -1
        more: cython.longlong
        size: cython.longlong = RECORD_OVERHEAD
        if type(value) is bytes:
            value_at = cython.cast(cython.p_uchar, PyBytes_AS_STRING(value))
            value_size = PyBytes_GET_SIZE(value)
            size += value_size
        elif value is not None:
            return None
        if type(key) is bytes:
            key_at = cython.cast(cython.p_uchar, PyBytes_AS_STRING(key))
            key_size = PyBytes_GET_SIZE(key)
            size += key_size
        elif key is not None:
            return None
        if type(topic) is not str:
            return None
        if headers:
            more = size_of_plain(headers)
            if more < 0:
                return None
            size += more
        found = self.places.get(topic)
        if found is None or size > self.largest:
            return None
        place = found
        if partition is not None:
            if type(partition) is not int or not 0 <= partition < place.count:
                return None
            number = partition
        elif key_size >= 0 and not is_anywhere:
            number = (kd_murmur2(key_at, key_size) & 0x7FFFFFFF) % cython.cast(cython.uint, place.count)
        else:
            number = -1
        if timestamp is None:
            # Python's own call and its numbers cost as much as all of `add`.
            when = kd_wall_ms() if self.is_system else self.wall_ms()
        elif type(timestamp) is not int or not 0 <= timestamp <= 0x7FFFFFFFFFFFFFFF:
            return None
        else:
            when = timestamp
        if self.is_mine():
            self.check_entry()
        # Before the lock is taken: it may begin a collection, and a finalizer that sends would be refused under it.
        future: FutureRecordMetadata = kd_new(self.future_type, ())
        self.acquire()
        try:
            return self.add(
                place,
                number,
                when,
                key_at,
                key_size,
                value_at,
                value_size,
                size,
                key,
                value,
                headers,
                future,
            )
        finally:
            self.release()

    @cython.cfunc
    @cython.inline
    def add(
        self,
        place: TopicInfo,
        number: cython.longlong,
        when: cython.longlong,
        key: cython.p_uchar,
        key_size: cython.Py_ssize_t,
        value: cython.p_uchar,
        value_size: cython.Py_ssize_t,
        size: cython.longlong,
        key_object: object,
        value_object: object,
        headers: object,
        future: FutureRecordMetadata,
    ) -> object:
        """Into the batch that the partition is filling, if it stays below its size; under the gate."""
        sticky: Sticky = place.sticky
        batch: OpenBatch
        is_spread: cython.bint = number < 0
        if is_spread:
            # Read once: other threads may choose another one, which `Rows.assign` lets them.
            number = sticky.current
            if sticky.used >= sticky.switch_bytes or not 0 <= number < place.count:
                # The record's own bytes are counted below, or when it comes again by the long way.
                number = cython.cast(object, sticky).choose(0, place.count, place.available)
                if not 0 <= number < place.count:
                    raise IndexError(f"partition {number} was chosen, and there are {place.count}")
        open_batch = place.open_batches[number]
        if open_batch is None:
            found = self.add_first(
                place, number, when, key, key_size, value, value_size, size, key_object, value_object, headers, future
            )
            if is_spread and found is not None:
                sticky.used += size
            return found
        batch = open_batch
        if (
            not batch.is_open
            or not self.is_usable
            or self.has_news
            or batch.size + size >= batch.limit
            or self.used_bytes + self.claimed_bytes + size > self.buffer_memory
        ):
            return None
        index: cython.Py_ssize_t = batch.builder.frame.count
        if headers:
            batch.builder._append(when, key_object, value_object, headers)
        elif kd_add_plain(cython.address(batch.builder.frame), when, key, key_size, value, value_size) <= 0:
            return None
        batch.size += size
        self.used_bytes += size
        if is_spread:
            sticky.used += size
        future.delivery = batch.delivery
        future.index = index
        future.timestamp = when
        return future

    @cython.cfunc
    def add_first(
        self,
        place: TopicInfo,
        number: cython.longlong,
        when: cython.longlong,
        key: cython.p_uchar,
        key_size: cython.Py_ssize_t,
        value: cython.p_uchar,
        value_size: cython.Py_ssize_t,
        size: cython.longlong,
        key_object: object,
        value_object: object,
        headers: object,
        future: FutureRecordMetadata,
    ) -> object:
        """As `add`, into a batch that is begun for the record."""
        if self.now_ms is None or not self.is_usable or self.claimed_bytes:
            return None
        if size >= self.batch_size or self.used_bytes + size > self.buffer_memory:
            return None
        # Python's fork hooks do not run when a C library forks.
        if kd_process() != self.process:
            return None
        batch: OpenBatch = self.make(place.partitions[number], self.now_ms())
        if batch.size + size >= batch.limit:
            return None
        if headers:
            batch.builder._append(when, key_object, value_object, headers)
        elif kd_add_plain(cython.address(batch.builder.frame), when, key, key_size, value, value_size) <= 0:
            return None
        batch.size += size
        future.delivery = batch.delivery
        future.index = 0
        future.timestamp = when
        if self.direct is None or not self.direct.send_first(batch):
            accumulator: object = self
            accumulator.queue(batch)
            accumulator.announce()
        return future


@cython.cfunc
@cython.exceptval(-2, check=False)
def size_of_plain(headers: object) -> cython.longlong:
    """Most bytes that the headers of a record take; -1 where they are looked at the long way."""
    size: cython.longlong = 0
    if type(headers) is not list and type(headers) is not tuple:
        return -1
    if len(headers) > MOST_HEADERS:
        return -1
    for pair in headers:
        if type(pair) is not tuple or len(pair) != 2:
            return -1
        name, data = pair
        if type(name) is not str or not name.isascii():
            return -1
        size += HEADER_OVERHEAD + 4 * len(name)
        if type(data) is bytes:
            size += len(data)
        elif data is not None:
            return -1
    return size


@cython.cclass
class ShortWay:
    """The way of most calls of ``send()``, once their topic is known: serialise a record, choose its partition, add it.

    Args:
        appender: takes it. key_serializer, value_serializer: None takes bytes as they are.
        choose: the partition by topic, key and metadata of the topic; None for Kafka's default.
        looked_at: makes what `put` gives where the record was made bytes, and the appender did not take it.
        not_taken: called with a `KafkaError` that ``choose`` raises.

    Attributes:
        held: topics whose records wait on the long way, so that none may overtake them; the waiting ones, in order.
        is_plain: whether there are neither serialisers nor ``choose``. is_serializing: whether a serialiser is called.
    """

    def __init__(
        self, appender: FastAppender, key_serializer, value_serializer, choose, looked_at, not_taken
    ):
        self.appender = appender
        self.key_method = getattr(key_serializer, "serialize", None)
        self.value_method = getattr(value_serializer, "serialize", None)
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        self.shows_headers = self.key_method is not None or self.value_method is not None
        self.choose = choose
        self.is_plain = key_serializer is None and value_serializer is None and choose is None
        self.looked_at = looked_at
        self.not_taken = not_taken
        self.held = {}
        self.is_serializing = False

    def only_on(self, loop, running, check) -> None:
        """Call ``check`` where another event loop runs than this one."""
        self.loop = loop
        self.running = running
        self.check = check

    def put(self, topic, value, key, partition, timestamp, headers=()) -> object:
        """Add a record to the batch that its partition is filling, and give its future.

        None, and no effect, in all but the usual case, or if a serialiser must wait for a response.
        Otherwise serialisers and partitioner are called.
        If the appender does not take the record, the serialised one is returned for the long way.

        Raises:
            SerializationError: a serialiser failed, or made no bytes.
        """
        appender: FastAppender = self.appender
        is_anywhere: cython.bint = False
        if self.running is not None and self.running() is not self.loop:
            self.check()
        if self.is_plain:
            taken = appender.place(topic, value, key, partition, timestamp, headers, False)
            if taken is not None or not (
                is_alike(value) or is_alike(key) or (headers and type(headers) is dict)
            ):
                return taken
        if type(topic) is not str or not appender.is_usable:
            return None
        place = appender.places.get(topic)
        if (
            place is None
            or topic in self.held
            or (self.value_serializer is None and not is_ready(value))
            or (self.key_serializer is None and not is_ready(key))
            or (partition is not None and type(partition) is not int)
        ):
            return None
        if timestamp is not None and (type(timestamp) is not int or not 0 <= timestamp <= 0x7FFFFFFFFFFFFFFF):
            return None
        if not headers:
            # A serialiser may add some.
            headers = [] if self.shows_headers else ()
        elif type(headers) is dict:
            headers = list(headers.items())
        elif self.shows_headers and (type(headers) is list or type(headers) is tuple):
            # The caller's own stay as they are.
            headers = list(headers)
        if headers and size_of_plain(headers) < 0:
            return None
        self.is_serializing = True
        try:
            value = self.made("value", self.value_serializer, self.value_method, topic, headers, value)
            key = self.made("key", self.key_serializer, self.key_method, topic, headers, key)
        except AnswerPendingError:
            return None
        finally:
            self.is_serializing = False
        if partition is None and self.choose is not None:
            try:
                partition = self.choose(topic, key, place)
            except KafkaError as error:
                self.not_taken(error)
                raise
            is_anywhere = True
        taken = appender.place(topic, value, key, partition, timestamp, headers, is_anywhere)
        if taken is not None:
            return taken
        if timestamp is None:
            timestamp = appender.wall_ms()
        return self.looked_at(topic, value, key, partition, timestamp, tuple(headers), is_anywhere)

    @cython.cfunc
    def made(
        self,
        field: str,
        serializer: object,
        method: object,
        topic: str,
        headers: object,
        data: object,
    ) -> object:
        """The result of a serialiser for a key or value; bytes that have no serialiser stay."""
        if data is None:
            return None
        if serializer is None:
            return data if type(data) is bytes else bytes(data)
        try:
            made = serializer(data) if method is None else method(topic, headers, data)
        except Exception as error:
            raise failed(field, topic, error) from error
        return made if type(made) is bytes else made_bytes(field, topic, made)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_alike(data: object) -> cython.bint:
    """True if these are bytes of another type."""
    return type(data) is bytearray or type(data) is memoryview


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_ready(data: object) -> cython.bint:
    """True if these are bytes, or None."""
    return data is None or type(data) is bytes or is_alike(data)
