"""Record batches of the current format: built right or with any part wrong, and read back."""

import gzip
import struct
import time

import crc32c as crc

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HEADER = 61


def varint(n):
    zigzag = (n << 1) ^ (n >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def read_varint(data, at):
    n = shift = 0
    while True:
        byte = data[at]
        at += 1
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (n >> 1) ^ -(n & 1), at
        shift += 7


def sized(part):
    return varint(-1) if part is None else varint(len(part)) + part


def record(offset_delta, value, key=None, timestamp_delta=0, headers=(), attributes=0):
    pairs = b"".join(sized(k) + sized(v) for k, v in headers)
    body = (
        bytes([attributes])
        + varint(timestamp_delta)
        + varint(offset_delta)
        + sized(key)
        + sized(value)
        + varint(len(headers))
        + pairs
    )
    return varint(len(body)) + body


def compress(codec, data):
    if codec == "gzip":
        return gzip.compress(data)
    if codec == "snappy":
        import cramjam

        return bytes(cramjam.snappy.compress_raw(data))
    if codec == "lz4":
        import lz4.frame

        return lz4.frame.compress(data, block_linked=False)
    if codec == "zstd":
        import zstandard

        return zstandard.compress(data)
    return data


def decompress(codec, data):
    if codec == 1:
        return gzip.decompress(data)
    if codec == 2:
        import cramjam

        if data[:8] != b"\x82SNAPPY\0":
            return bytes(cramjam.snappy.decompress_raw(data))
        out, at = b"", 16
        while at < len(data):
            size = struct.unpack_from(">i", data, at)[0]
            out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
            at += 4 + size
        return out
    if codec == 3:
        import lz4.frame

        return lz4.frame.decompress(data)
    if codec == 4:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


def now_ms():
    return int(time.time() * 1000)


def batch(
    values=(b"v",),
    *,
    codec="none",
    pid=-1,
    epoch=-1,
    seq=-1,
    transactional=False,
    control=False,
    key=None,
    timestamp=None,
    timestamps=None,
    attributes=None,
    records=None,
    count=None,
    last_offset_delta=None,
    base_offset=0,
    leader_epoch=-1,
    magic=2,
    length=None,
    crc_xor=0,
    max_timestamp=None,
    tail=b"",
):
    """One batch. Everything that a client could get wrong can be given; the CRC is right unless `crc_xor` is set."""
    first = now_ms() if timestamp is None else timestamp
    deltas = [0] * len(values) if timestamps is None else [t - first for t in timestamps]
    if records is None:
        records = b"".join(record(i, v, key, deltas[i]) for i, v in enumerate(values))
        records = compress(codec, records)
    if attributes is None:
        attributes = CODECS[codec] | (0x10 if transactional else 0) | (0x20 if control else 0)
    count = len(values) if count is None else count
    last = count - 1 if last_offset_delta is None else last_offset_delta
    newest = max([first + d for d in deltas], default=first) if max_timestamp is None else max_timestamp
    checked = struct.pack(">hiqqqhii", attributes, last, first, newest, pid, epoch, seq, count) + records
    body = struct.pack(">ibI", leader_epoch, magic, crc.crc32c(checked) ^ crc_xor) + checked
    return struct.pack(">qi", base_offset, len(body) if length is None else length) + body + tail


def old_message(magic, value=b"v"):
    """A message set of one message in the format that Kafka 4 refuses."""
    import zlib

    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", now_ms()) if magic == 1 else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


class Batch:
    """A batch as read from a log or an answer."""

    def __init__(self, data, at):
        (
            self.base_offset,
            self.length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_delta,
            self.first_timestamp,
            self.max_timestamp,
            self.pid,
            self.epoch,
            self.seq,
            self.count,
        ) = struct.unpack_from(">qiibIhiqqqhii", data, at)
        self.data = data[at : at + 12 + self.length]
        self.last_offset = self.base_offset + self.last_delta

    def crc_holds(self):
        return crc.crc32c(self.data[21:]) == self.crc

    def records(self):
        """(offset, timestamp, key, value, headers) of every record."""
        payload = decompress(self.attributes & 7, self.data[HEADER:])
        at, out = 0, []
        for _ in range(self.count):
            _, at = read_varint(payload, at)
            at += 1
            timestamp, at = read_varint(payload, at)
            offset, at = read_varint(payload, at)
            parts = []
            for _ in range(2):
                size, at = read_varint(payload, at)
                parts.append(None if size < 0 else payload[at : at + size])
                at += max(size, 0)
            headers, at = read_varint(payload, at)
            pairs = []
            for _ in range(headers * 2):
                size, at = read_varint(payload, at)
                pairs.append(None if size < 0 else payload[at : at + size])
                at += max(size, 0)
            pairs = list(zip(pairs[::2], pairs[1::2]))
            out.append((self.base_offset + offset, self.first_timestamp + timestamp, *parts, pairs))
        return out


def batches(data):
    """The whole batches of `data`; a cut one at its end is left out."""
    at, out = 0, []
    while at + HEADER <= len(data or b""):
        one = Batch(data, at)
        if at + 12 + one.length > len(data):
            break
        out.append(one)
        at += 12 + one.length
    return out
