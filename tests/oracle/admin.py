"""What tools and UIs open with: log directories, elections, quotas, SCRAM, cluster, listings (contract K29-K75)."""

from table import by_version, case

ZERO = bytes(16)


@case("K29 K30 K31 ACLs without an authorizer")
def _(o):
    anything = {
        "ResourceTypeFilter": 1,
        "ResourceNameFilter": None,
        "PatternTypeFilter": 1,
        "PrincipalFilter": None,
        "HostFilter": None,
        "Operation": 1,
        "PermissionType": 1,
    }
    creation = {
        "ResourceType": 2,
        "ResourceName": "x",
        "ResourcePatternType": 3,
        "Principal": "User:a",
        "Host": "*",
        "Operation": 3,
        "PermissionType": 3,
    }

    def describe(v):
        got = o.call("DescribeAcls", v, anything)
        return [got["ErrorCode"], got["Resources"]]

    return {
        "describe": by_version((1, 2, 3), describe),
        "create": by_version(
            (1, 2, 3),
            lambda v: [r["ErrorCode"] for r in o.call("CreateAcls", v, {"Creations": [creation, creation]})["Results"]],
        ),
        "delete": by_version(
            (1, 2, 3),
            lambda v: [
                [r["ErrorCode"], r["MatchingAcls"]]
                for r in o.call("DeleteAcls", v, {"Filters": [anything]})["FilterResults"]
            ],
        ),
        "none": [o.call("CreateAcls", 3, {})["Results"], o.call("DeleteAcls", 3, {})["FilterResults"]],
    }


@case("K35 DescribeLogDirs")
def _(o):
    topic = o.topic(2)
    o.fill(topic, 3, size=100)

    def ask(version, topics):
        answer = o.cluster.to_leader(topic, 0, "DescribeLogDirs", version, {"Topics": topics})
        rows = []
        for d in answer["Results"]:
            held = sorted(
                [p["PartitionIndex"], p["PartitionSize"], p["OffsetLag"], p["IsFutureKey"]]
                for t in d["Topics"]
                if t["Name"] == topic
                for p in t["Partitions"]
                if p["PartitionIndex"] == 0
            )
            rows.append(
                [d["ErrorCode"], d["LogDir"] != "", held, d.get("TotalBytes", 1) > 0, d.get("UsableBytes", 1) > 0]
            )
        return [answer.get("ErrorCode"), rows]

    one = [{"Topic": topic, "Partitions": [0]}]
    return {
        "one": by_version(range(1, 6), lambda v: ask(v, one)),
        "all": ask(4, None),
        "none": ask(4, []),
        "unknown": ask(4, [{"Topic": "oracle-never-created", "Partitions": [0]}]),
        "unknown partition": ask(4, [{"Topic": topic, "Partitions": [77]}]),
    }


@case("K43 ElectLeaders")
def _(o):
    topic = o.topic()

    def ask(version, entries, kind=0):
        value = {"TopicPartitions": entries, "TimeoutMs": 5000}
        if version >= 1:
            value["ElectionType"] = kind
        answer = o.call("ElectLeaders", version, value)
        rows = [
            [p["PartitionId"], p["ErrorCode"]] for t in answer["ReplicaElectionResults"] for p in t["PartitionResult"]
        ]
        return [answer.get("ErrorCode"), rows]

    here = [{"Topic": topic, "Partitions": [0]}]
    return {
        "preferred": by_version((0, 1, 2), lambda v: ask(v, here)),
        "unclean": by_version((1, 2), lambda v: ask(v, here, 1)),
        "type 2": by_version((1, 2), lambda v: ask(v, here, 2)),
        "unknown": ask(2, [{"Topic": topic, "Partitions": [9]}, {"Topic": "oracle-never-created", "Partitions": [0]}]),
        "all": ask(2, None),
        "none": ask(2, []),
    }


@case("K45 K46 reassignments")
def _(o):
    topic = o.topic()
    answer = o.call("Metadata", 9, {"Topics": [{"Name": topic}]})
    leader = answer["Topics"][0]["Partitions"][0]["LeaderId"]

    def ask(replicas, partition=0, name=topic):
        got = o.call(
            "AlterPartitionReassignments",
            0,
            {
                "TimeoutMs": 5000,
                "Topics": [{"Name": name, "Partitions": [{"PartitionIndex": partition, "Replicas": replicas}]}],
            },
        )
        return [got["ErrorCode"], [p["ErrorCode"] for t in got["Responses"] for p in t["Partitions"]]]

    def listed(topics):
        got = o.call("ListPartitionReassignments", 0, {"TimeoutMs": 5000, "Topics": topics})
        return [got["ErrorCode"], got["Topics"]]

    return {
        "same": ask([leader]),
        "unknown node": ask([98765]),
        "empty": ask([]),
        "twice": ask([leader, leader]),
        "cancel": ask(None),
        "unknown": ask([leader], name="oracle-never-created"),
        "unknown partition": ask([leader], partition=9),
        "list all": listed(None),
        "list one": listed([{"Name": topic, "PartitionIndexes": [0]}]),
        "list unknown": listed([{"Name": "oracle-never-created", "PartitionIndexes": [0]}]),
    }


@case("K48 K49 client quotas")
def _(o):
    def ask(version, *components, strict=False):
        got = o.call("DescribeClientQuotas", version, {"Components": list(components), "Strict": strict})
        return [got["ErrorCode"], got["Entries"]]

    part = lambda kind, match, value: {"EntityType": kind, "MatchType": match, "Match": value}
    change = {
        "Entries": [
            {
                "Entity": [{"EntityType": "user", "EntityName": "a"}],
                "Ops": [{"Key": "no.such.quota", "Value": 1.0, "Remove": False}],
            }
        ],
        "ValidateOnly": True,
    }
    return {
        "all": by_version((0, 1), lambda v: ask(v)),
        "user": ask(1, part("user", 0, "a")),
        "unknown type": ask(1, part("planet", 0, "a")),
        "empty type": ask(1, part("", 0, "a")),
        "unknown match": ask(1, part("user", 9, None)),
        "exact null": ask(1, part("user", 0, None)),
        "default with a name": ask(1, part("user", 1, "a")),
        "alter refused": [e["ErrorCode"] != 0 for e in o.call("AlterClientQuotas", 1, change)["Entries"]],
    }


@case("K50 K51 SCRAM users")
def _(o):
    def ask(users):
        got = o.call(
            "DescribeUserScramCredentials", 0, {"Users": None if users is None else [{"Name": u} for u in users]}
        )
        return [got["ErrorCode"], [r["ErrorCode"] for r in got["Results"]]]

    absent = {"Deletions": [{"Name": "nobody", "Mechanism": 9}], "Upsertions": []}
    return {
        "all": ask(None),
        "empty": ask([]),
        "unknown": ask(["nobody"]),
        "twice": ask(["nobody", "nobody"]),
        "alter": [r["ErrorCode"] for r in o.call("AlterUserScramCredentials", 0, absent)["Results"]],
    }


@case("K55 DescribeQuorum")
def _(o):
    def ask(version, name, partition=0):
        got = o.call(
            "DescribeQuorum", version, {"Topics": [{"TopicName": name, "Partitions": [{"PartitionIndex": partition}]}]}
        )
        p = got["Topics"][0]["Partitions"][0]
        return [
            got["ErrorCode"],
            p["ErrorCode"],
            len(p["CurrentVoters"]),
            p["LeaderEpoch"] > 0 if not p["ErrorCode"] else 0,
        ]

    return {
        "cluster": by_version((0, 1, 2), lambda v: ask(v, "__cluster_metadata")),
        "other topic": by_version((0, 1, 2), lambda v: ask(v, "other")),
    }


@case("K57 UpdateFeatures")
def _(o):
    def ask(version, *updates, **more):
        rows = [
            {"Feature": n, "MaxVersionLevel": level, **({"UpgradeType": 1} if version >= 1 else {})}
            for n, level in updates
        ]
        got = o.call("UpdateFeatures", version, {"timeoutMs": 5000, "FeatureUpdates": rows, **more})
        return [got["ErrorCode"], [r["ErrorCode"] for r in got.get("Results", [])]]

    return {
        "none": by_version((0, 1, 2), lambda v: ask(v)),
        "same": by_version((0, 1, 2), lambda v: ask(v, ("metadata.version", 30))),
        "unknown": by_version((0, 1, 2), lambda v: ask(v, ("no.such", 1))),
        "out of range": by_version((0, 1, 2), lambda v: ask(v, ("metadata.version", 500))),
    }


@case("K60 DescribeCluster")
def _(o):
    meta = o.call("Metadata", 10, {"Topics": []})

    def ask(version, operations=False, **more):
        got = o.call("DescribeCluster", version, {"IncludeClusterAuthorizedOperations": operations, **more})
        ids = [b["BrokerId"] for b in got["Brokers"]]
        return [
            got["ErrorCode"],
            got["ErrorMessage"] is None,
            got["ClusterId"] == meta["ClusterId"],
            got["ControllerId"] in ids or got["ControllerId"],
            ids == sorted(ids),
            set(ids) == {b["NodeId"] for b in meta["Brokers"]},
            got["ClusterAuthorizedOperations"],
            got.get("EndpointType"),
            [b.get("IsFenced") for b in got["Brokers"]][:1],
        ]

    return {
        "plain": by_version((0, 1, 2), lambda v: ask(v)),
        "operations": by_version((0, 1, 2), lambda v: ask(v, True)),
        **{f"endpoint {t}": by_version((1, 2), lambda v, t=t: ask(v, EndpointType=t)) for t in (1, 2, 0, 3)},
    }


@case("K74 ListConfigResources")
def _(o):
    topic = o.topic()

    def ask(*types):
        got = o.call("ListConfigResources", 1, {"ResourceTypes": list(types)})
        kinds = sorted({r["ResourceType"] for r in got["ConfigResources"]})
        return [
            got["ErrorCode"],
            kinds,
            (topic, 2) in [(r["ResourceName"], r["ResourceType"]) for r in got["ConfigResources"]],
        ]

    v0 = o.call("ListConfigResources", 0, {})
    return {
        "v0": [v0["ErrorCode"], len(v0["ConfigResources"])],
        "topics": ask(2),
        "brokers": ask(4),
        "metrics": ask(16),
        "unknown": ask(3),
        "unknown too": ask(2, 1),
    }
