"""Kafka's request and response layouts at every version, from the message definitions inside kafka-clients.

Values are plain dicts with the definitions' own field names; what a dict leaves out takes the definition's default.
"""

import functools
import json
import re
import struct
import zipfile

from servers import CACHE


@functools.lru_cache(None)
def _definitions():
    """Every message definition by name, and the request name of every API key."""
    jar = next((CACHE / "kafka" / "libs").glob("kafka-clients-*.jar"))
    by_name, keys = {}, {}
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.namelist():
            if entry.startswith("common/message/") and entry.endswith(".json"):
                text = re.sub(r"(?m)^\s*//.*$", "", archive.read(entry).decode())
                message = json.loads(text)
                by_name[message["name"]] = message
                if message["type"] == "request":
                    keys[message["apiKey"]] = message["name"][: -len("Request")]
    return by_name, keys


def api_name(key):
    return _definitions()[1][key]


def api_key(name):
    return _definitions()[0][name + "Request"]["apiKey"]


@functools.lru_cache(None)
def _range(text):
    if text in (None, "none"):
        return (1, 0)
    if text.endswith("+"):
        return (int(text[:-1]), 32767)
    low, _, high = text.partition("-")
    return (int(low), int(high or low))


def _within(text, version):
    low, high = _range(text)
    return low <= version <= high


def flexible(name, version):
    return _within(_definitions()[0][name].get("flexibleVersions"), version)


INTS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d"}


def uvarint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


class Layout:
    """One message at one version."""

    def __init__(self, name, version):
        self.message = _definitions()[0][name]
        self.version = version
        self.flexible = flexible(name, version)
        self.structs = {s["name"]: s["fields"] for s in self.message.get("commonStructs", [])}

    def _fields(self, fields):
        """The fields of this version, and those of them that travel as tags."""
        here = [f for f in fields if _within(f.get("versions"), self.version)]
        tagged = [f for f in here if "tag" in f and _within(f.get("taggedVersions", f["versions"]), self.version)]
        return [f for f in here if f not in tagged], sorted(tagged, key=lambda f: f["tag"])

    def _inner(self, field, kind):
        return field.get("fields") or self.structs.get(kind)

    def encode(self, value, tags=None):
        return self._write_struct(self.message["fields"], value, tags)

    def _write_struct(self, fields, value, tags=None):
        plain, tagged = self._fields(fields)
        unknown = set(value) - {f["name"] for f in fields}
        assert not unknown, f"{self.message['name']} has no field {unknown}"
        out = b"".join(self._write(f, f["type"], value.get(f["name"], self._default(f))) for f in plain)
        if self.flexible:
            sent = [(f["tag"], self._write(f, f["type"], value[f["name"]])) for f in tagged if f["name"] in value]
            sent += tags or []
            out += uvarint(len(sent)) + b"".join(uvarint(t) + uvarint(len(b)) + b for t, b in sent)
        return out

    def _default(self, field):
        kind, default = field["type"], field.get("default")
        if kind.startswith("[]"):
            return None if default == "null" else []
        if kind in ("string", "bytes", "records"):
            return None if default == "null" else (default or "") if kind == "string" else b""
        if kind == "bool":
            return str(default).lower() == "true"
        if kind == "uuid":
            return bytes(16)
        if kind in INTS:
            return float(default or 0) if kind == "float64" else int(str(default or 0), 0)
        return None if default == "null" else {}

    def _length(self, n, short=False):
        if self.flexible:
            return uvarint(n + 1)
        return struct.pack(">h" if short else ">i", n)

    def _write(self, field, kind, value):
        if kind in INTS:
            return struct.pack(">" + INTS[kind], value)
        if kind == "bool":
            return bytes([int(value)])
        if kind == "uuid":
            return value
        if kind == "string":
            compact_null = b"\0" if self.flexible else b"\xff\xff"
            raw = value.encode() if isinstance(value, str) else value
            return compact_null if raw is None else self._length(len(raw), short=True) + raw
        if kind in ("bytes", "records"):
            null = b"\0" if self.flexible else b"\xff\xff\xff\xff"
            return null if value is None else self._length(len(value)) + value
        if kind.startswith("[]"):
            if value is None:
                return b"\0" if self.flexible else b"\xff\xff\xff\xff"
            return self._length(len(value)) + b"".join(self._write(field, kind[2:], v) for v in value)
        if value is None:
            return b"\xff"
        # Only a field that is one structure has a byte for null; an element of an array has none.
        marked = field["type"] == kind and _within(field.get("nullableVersions"), self.version)
        return (b"\1" if marked else b"") + self._write_struct(self._inner(field, kind), value)

    def decode(self, body, at=0):
        reader = Reader(body, at)
        value = self._read_struct(self.message["fields"], reader)
        assert reader.at == len(body), f"{len(body) - reader.at} bytes behind the answer"
        return value

    def _read_struct(self, fields, r):
        plain, tagged = self._fields(fields)
        out = {f["name"]: self._read(f, f["type"], r) for f in plain}
        if self.flexible:
            known = {f["tag"]: f for f in tagged}
            for _ in range(r.uvarint()):
                tag, size = r.uvarint(), r.uvarint()
                end = r.at + size
                if tag in known:
                    out[known[tag]["name"]] = self._read(known[tag], known[tag]["type"], r)
                    assert r.at == end, f"tag {tag} has {end - r.at} bytes too many"
                else:
                    out[f"tag {tag}"] = r.take(size)
        return out

    def _size(self, r, short=False):
        return r.uvarint() - 1 if self.flexible else r.number("h" if short else "i")

    def _read(self, field, kind, r):
        if kind in INTS:
            return r.number(INTS[kind])
        if kind == "bool":
            return r.take(1) != b"\0"
        if kind == "uuid":
            return r.take(16)
        if kind in ("string", "bytes", "records"):
            size = self._size(r, short=kind == "string")
            raw = None if size < 0 else r.take(size)
            return raw.decode() if kind == "string" and raw is not None else raw
        if kind.startswith("[]"):
            size = self._size(r)
            return None if size < 0 else [self._read(field, kind[2:], r) for _ in range(size)]
        marked = field["type"] == kind and _within(field.get("nullableVersions"), self.version)
        if marked and r.number("b") < 0:
            return None
        return self._read_struct(self._inner(field, kind), r)


class Reader:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, n):
        assert 0 <= n <= len(self.data) - self.at, f"answer is cut: {n} bytes wanted at {self.at} of {len(self.data)}"
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, code):
        return struct.unpack(">" + code, self.take(struct.calcsize(code)))[0]

    def uvarint(self):
        n = shift = 0
        while True:
            byte = self.take(1)[0]
            n |= (byte & 0x7F) << shift
            if byte < 0x80:
                return n
            shift += 7


@functools.lru_cache(None)
def layout(name, version):
    return Layout(name, version)
