"""ApiVersions (contract K18, G2, D1) and what happens to keys and versions that are not served (KC.5)."""

import struct

from schema import api_name, layout
from table import by_version, case, outcome
from wire import frame

CLIENT = {"ClientSoftwareName": "oncilla-tests", "ClientSoftwareVersion": "1.0"}


def raw_answer(o, version, body=None, client=CLIENT):
    connection = o.connect(seconds=3)
    connection.send(connection.request("ApiVersions", version, client if version >= 3 else {}, raw=body))
    return connection, connection.answer()[1]


@case("K18.1 the announced keys and versions")
def _(o):
    out = {}
    for version in range(0, 5):
        answer = o.call("ApiVersions", version, CLIENT if version >= 3 else {})
        keys = [k["ApiKey"] for k in answer["ApiKeys"]]
        out[f"v{version}"] = {"code": answer["ErrorCode"], "ascending": keys == sorted(set(keys))}
    out["keys"] = {str(k["ApiKey"]): [k["MinVersion"], k["MaxVersion"]] for k in answer["ApiKeys"]}
    return out


@case("K18.1 the layout to the byte")
def _(o):
    out = {}
    for version in range(0, 5):
        _, body = raw_answer(o, version)
        if version < 3:
            code, count = struct.unpack_from(">hi", body)
            out[f"v{version}"] = [code, len(body) - 6 - 6 * count]
        else:
            answer = layout("ApiVersionsResponse", version).decode(body)
            # Written again from the parts: equal bytes mean no default tag is spelled out (contract D1).
            kept = {k: v for k, v in answer.items() if k not in TAGS}
            tags = [k for k in TAGS if k in answer]
            whole = layout("ApiVersionsResponse", version).encode(answer)
            out[f"v{version}"] = [answer["ErrorCode"], answer["ThrottleTimeMs"], tags, whole == body, len(kept)]
    return out


TAGS = ("SupportedFeatures", "FinalizedFeaturesEpoch", "FinalizedFeatures", "ZkMigrationReady")


@case("K18.2 features")
def _(o):
    out = {}
    for version in (3, 4):
        answer = o.call("ApiVersions", version, CLIENT)
        out[f"supported v{version}"] = {
            f["Name"]: [f["MinVersion"], f["MaxVersion"]] for f in answer["SupportedFeatures"]
        }
        out[f"finalized v{version}"] = {
            f["Name"]: [f["MinVersionLevel"], f["MaxVersionLevel"]] for f in answer["FinalizedFeatures"]
        }
        out[f"epoch v{version}"] = answer["FinalizedFeaturesEpoch"] >= 0
    return out


@case("K18.3 any other version")
def _(o):
    out = {}
    for version in (5, 6, 99, 32767):
        connection = o.connect(seconds=3)
        head = struct.pack(">hhi", 18, version, 7) + struct.pack(">h", 1) + b"x"
        connection.send(frame(head + b"\0" + b"any body"))
        got = outcome(lambda c=connection: c.answer()[1].hex())
        out[str(version)] = [got, outcome(lambda c=connection: c.call("ApiVersions", 0)["ErrorCode"])]
    connection = o.connect(seconds=3)
    connection.send(frame(struct.pack(">hhih", 18, -1, 7, 1) + b"x"))
    out["-1"] = outcome(lambda: connection.answer()[1].hex())
    connection = o.connect(seconds=3)
    connection.send(frame(struct.pack(">hhih", 18, 99, 7, 1) + b"x"))
    out["99 without a tag section"] = outcome(lambda: connection.answer()[1].hex())
    return out


@case("K18.4 client names")
def _(o):
    names = {
        "usual": ("java", "4.3.1"),
        "empty name": ("", "1"),
        "empty version": ("x", ""),
        "blank": ("a b", "1"),
        "dash at the end": ("ab-", "1"),
        "dash inside": ("a-b.c", "1"),
        "dot at the start": (".a", "1"),
        "not ascii": ("ä", "1"),
        "long": ("x" * 3000, "1"),
    }
    out = {}
    for label, (name, version) in names.items():
        _, body = raw_answer(o, 4, client={"ClientSoftwareName": name, "ClientSoftwareVersion": version})
        out[label] = "served" if body[:2] == b"\0\0" else body.hex()
    return out


@case("K18 repeated, late, and with bytes behind the body")
def _(o):
    connection = o.connect(seconds=3)
    codes = [connection.call("Metadata", 1, {"Topics": []})["ControllerId"] >= 0]
    codes += [connection.call("ApiVersions", v, CLIENT if v >= 3 else {})["ErrorCode"] for v in (0, 3, 4, 1)]
    _, body = raw_answer(o, 4, layout("ApiVersionsRequest", 4).encode(CLIENT) + b"more")
    return [codes, body[:2].hex()]


@case("KC.5 keys that are not served close")
def _(o):
    keys = (4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 93, 100, 1000, 32767, -1, -32768)
    return {str(key): outcome(lambda k=key: ask(o, k, 0)) for key in keys}


RANGES = {
    0: (3, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    10: (0, 6),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    32: (1, 4),
    33: (0, 2),
    35: (1, 5),
    37: (0, 3),
    44: (0, 1),
    60: (0, 2),
    61: (0, 0),
    74: (0, 1),
    75: (0, 0),
}


@case("KC.5 versions outside the range close")
def _(o):
    return {
        f"{api_name(key)} {version}": outcome(lambda k=key, v=version: ask(o, k, v))
        for key, (low, high) in RANGES.items()
        for version in (low - 1, high + 1, 1000)
        if version != -1
    }


@case("KU.6 every announced version of the built APIs answers an empty or small request")
def _(o):
    small = {
        "Produce": {"Acks": -1},
        "Fetch": {},
        "ListOffsets": {"ReplicaId": -1},
        "Metadata": {"Topics": []},
        "CreateTopics": {"timeoutMs": 100},
        "DeleteTopics": {"TimeoutMs": 100},
        "DeleteRecords": {},
        "InitProducerId": {"TransactionalId": None, "TransactionTimeoutMs": 1},
        "OffsetForLeaderEpoch": {},
        "DescribeConfigs": {},
        "AlterConfigs": {},
        "DescribeLogDirs": {"Topics": []},
        "CreatePartitions": {},
        "IncrementalAlterConfigs": {},
        "DescribeCluster": {},
        "DescribeProducers": {},
        "ListConfigResources": {},
        "DescribeTopicPartitions": {"Topics": [], "Cursor": None},
        "FindCoordinator": {},
    }
    out = {}
    for key, (low, high) in RANGES.items():
        name = api_name(key)

        def one(version, name=name):
            fields = {f["name"] for f in layout(name + "Request", version).message["fields"]}
            return isinstance(o.call(name, version, {k: v for k, v in small[name].items() if k in fields}), dict)

        out[name] = by_version(range(low, high + 1), one)
    return out


def ask(o, key, version):
    connection = o.connect(seconds=2)
    connection.send(connection.request(key, version, raw=b"\0" * 16))
    return "answered " + connection.answer()[1][:2].hex()
