//! Series of consumer groups, of the first `metrics.groups.max` groups by name: a client can make any number of groups,
//! and a page of millions of series ends the monitoring of all of them.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::gauge_value;
use crate::group_metrics::{GroupRow, GroupRows, Lag};
use crate::metrics::ShardMetrics;

type Row = (&'static str, &'static str, fn(&GroupRow) -> Option<u64>);

/// Gauges of one group.
const GAUGES: &[Row] = &[
    ("kafka_consumer_group_consumers", "Members of the group", |row| Some(row.members as u64)),
    ("kafka_consumer_group_topics", "Topics with a committed offset", |row| Some(row.topics as u64)),
    ("kafka_consumer_group_lag_max", "Records behind, in the partition furthest behind", |row| {
        row.lag.map(|Lag { max, .. }| max)
    }),
    ("kafka_consumer_group_lag_sum", "Records behind, in all partitions", |row| row.lag.map(|Lag { sum, .. }| sum)),
];

pub(super) fn encode(shards: &[Arc<ShardMetrics>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let boards: Vec<Arc<GroupRows>> = shards.iter().map(|shard| shard.groups.get()).collect();
    let total: usize = boards.iter().map(|board| board.total).sum();
    let groups_max = boards.iter().map(|board| board.groups_max).max().unwrap_or(0);
    let mut rows: Vec<&GroupRow> = boards.iter().flat_map(|board| &board.rows).collect();
    rows.sort_unstable_by(|a, b| a.group.cmp(&b.group));
    rows.truncate(groups_max);
    for (name, help, value) in [
        ("kafka_consumer_groups", "Groups", total),
        ("kafka_consumer_groups_left_out", "Groups without series of their own", total - rows.len()),
    ] {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        family.encode_gauge(&gauge_value(value as u64))?;
    }
    let mut partitions = encoder.encode_descriptor(
        "kafka_consumer_group_committed_offset",
        "Committed offset",
        None,
        MetricType::Gauge,
    )?;
    for row in &rows {
        for (topic, index, offset) in &row.committed {
            let index = index.to_string();
            let labels = [("group", row.group.as_str()), ("topic", topic), ("partition", &index)];
            partitions.encode_family(&labels)?.encode_gauge(offset)?;
        }
    }
    for (name, help, of) in GAUGES {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for row in &rows {
            if let Some(value) = of(row) {
                family.encode_family(&[("group", row.group.as_str())])?.encode_gauge(&gauge_value(value))?;
            }
        }
    }
    let help = "Committed offsets without a series of their own";
    let mut left_out =
        encoder.encode_descriptor("kafka_consumer_group_offsets_left_out", help, None, MetricType::Gauge)?;
    let offsets: usize = rows.iter().map(|row| row.offsets_left_out).sum();
    left_out.encode_gauge(&gauge_value(offsets as u64))
}

#[cfg(test)]
mod tests {
    use oncilla_shards::ids::ShardId;

    use super::*;
    use crate::web::exposition::text;

    fn row(group: &str) -> GroupRow {
        let committed = vec![("t".into(), 0, 5)];
        let lag = Some(Lag { max: 7, sum: 9 });
        GroupRow { group: group.into(), members: 2, topics: 1, lag, committed, offsets_left_out: 3 }
    }

    #[test]
    fn groups_have_series_up_to_the_bound_and_the_rest_is_counted() {
        let shards = [0, 1].map(|shard| Arc::new(ShardMetrics::new(ShardId(shard))));
        shards[0].groups.put(GroupRows { rows: vec![row("b"), row("d")], total: 4, groups_max: 2 });
        shards[1].groups.put(GroupRows { rows: vec![row("a\"\n")], total: 1, groups_max: 2 });
        let page = text(&shards).expect("a page");
        for line in [
            "oncilla_kafka_consumer_groups 5\n",
            "oncilla_kafka_consumer_groups_left_out 3\n",
            "oncilla_kafka_consumer_group_committed_offset{group=\"b\",topic=\"t\",partition=\"0\"} 5\n",
            "oncilla_kafka_consumer_group_lag_max{group=\"b\"} 7\n",
            "oncilla_kafka_consumer_group_lag_sum{group=\"b\"} 9\n",
            "oncilla_kafka_consumer_group_consumers{group=\"b\"} 2\n",
            "oncilla_kafka_consumer_group_topics{group=\"b\"} 1\n",
            "oncilla_kafka_consumer_group_offsets_left_out 6\n",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
        assert!(!page.contains("group=\"d\""));
        // Case 98: an id is text, and stays one label whatever is in it.
        assert!(page.contains("oncilla_kafka_consumer_group_topics{group=\"a\\\"\\n\"} 1\n"), "{page}");
    }
}
