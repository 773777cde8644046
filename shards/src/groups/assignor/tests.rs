//! The examples of contract G13 verbatim, and the properties of every assignment.

use proptest::prelude::*;

use super::*;

const TOPIC: TopicId = TopicId(1);
const OTHER: TopicId = TopicId(2);

fn set(topic: TopicId, indexes: impl IntoIterator<Item = i32>) -> Partitions {
    indexes.into_iter().map(|index| PartitionKey { topic, index }).collect()
}

/// Members with an id, an instance, topics and what they had.
type Said<'a> = (&'a str, Option<&'a str>, Vec<TopicId>, Partitions);

fn run(assignor: &str, topics: &[(TopicId, i32)], said: &[Said<'_>]) -> Vec<Partitions> {
    let topics: BTreeMap<_, _> = topics.iter().copied().collect();
    let mut subscriptions: Vec<Vec<TopicId>> = Vec::new();
    let mut members = Vec::new();
    for (id, instance_id, wanted, had) in said {
        let at = subscriptions.iter().position(|known| known == wanted).unwrap_or_else(|| {
            subscriptions.push(wanted.clone());
            subscriptions.len() - 1
        });
        members.push(Subscriber { id, instance_id: *instance_id, subscription: at, had });
    }
    assign(assignor, &Input { topics: &topics, subscriptions: &subscriptions, members: &members })
}

/// `uniform` on six partitions for members who had these.
fn six(had: &[(&str, Vec<i32>)]) -> Vec<Partitions> {
    let said: Vec<Said<'_>> =
        had.iter().map(|(id, had)| (*id, None, vec![TOPIC], set(TOPIC, had.iter().copied()))).collect();
    run("uniform", &[(TOPIC, 6)], &said)
}

#[test]
fn g13_2_uniform_keeps_and_fills_as_told() {
    assert_eq!(six(&[("a", vec![])]), [set(TOPIC, 0..6)]);
    assert_eq!(six(&[("a", (0..6).collect()), ("b", vec![])]), [set(TOPIC, 0..3), set(TOPIC, 3..6)]);
    let three = six(&[("a", vec![0, 1, 2]), ("b", vec![3, 4, 5]), ("c", vec![])]);
    assert_eq!(three, [set(TOPIC, [0, 1]), set(TOPIC, [3, 4]), set(TOPIC, [2, 5])]);
    let two = six(&[("a", vec![0, 1]), ("c", vec![2, 5])]);
    assert_eq!(two, [set(TOPIC, [0, 1, 3]), set(TOPIC, [2, 4, 5])]);
}

#[test]
fn g13_2_whoever_has_one_more_keeps_it() {
    let said: Vec<Said<'_>> =
        vec![("a", None, vec![TOPIC], set(TOPIC, [0, 1])), ("b", None, vec![TOPIC], set(TOPIC, [2, 3, 4]))];
    assert_eq!(run("uniform", &[(TOPIC, 5)], &said), [set(TOPIC, [0, 1]), set(TOPIC, [2, 3, 4])]);
}

#[test]
fn g13_3_range_gives_contiguous_ranges_by_member_and_static_members_first() {
    let both = vec![TOPIC, OTHER];
    let said: Vec<Said<'_>> = ["AAA", "BBB", "CCC"].map(|id| (id, None, both.clone(), Partitions::default())).into();
    let mut expected = [set(TOPIC, [0, 1]), set(TOPIC, [2]), set(TOPIC, [3])];
    expected[0].insert(PartitionKey { topic: OTHER, index: 0 });
    expected[1].insert(PartitionKey { topic: OTHER, index: 1 });
    assert_eq!(run("range", &[(TOPIC, 4), (OTHER, 2)], &said), expected);
    let said: Vec<Said<'_>> = vec![
        ("a", None, vec![TOPIC], Partitions::default()),
        ("b", Some("z"), vec![TOPIC], Partitions::default()),
        ("c", Some("y"), vec![TOPIC], Partitions::default()),
        ("d", None, vec![OTHER], Partitions::default()),
    ];
    let expected = [set(TOPIC, [2]), set(TOPIC, [1]), set(TOPIC, [0]), set(OTHER, 0..2)];
    assert_eq!(run("range", &[(TOPIC, 3), (OTHER, 2)], &said), expected);
}

#[test]
fn g13_4_uniform_with_different_subscriptions_balances_all() {
    let said: Vec<Said<'_>> =
        vec![("a", None, vec![TOPIC], Partitions::default()), ("b", None, vec![TOPIC, OTHER], Partitions::default())];
    let assigned = run("uniform", &[(TOPIC, 6), (OTHER, 2)], &said);
    assert_eq!(assigned.iter().map(Partitions::len).collect::<Vec<_>>(), [4, 4]);
    assert!((0..2).all(|index| assigned[1].has(PartitionKey { topic: OTHER, index })));
}

#[test]
fn nobody_and_nothing_can_be_assigned() {
    for assignor in ["uniform", "range"] {
        assert_eq!(run(assignor, &[(TOPIC, 3)], &[]), Vec::<Partitions>::new());
        let said: Vec<Said<'_>> = vec![("a", None, vec![], set(TOPIC, 0..3))];
        assert_eq!(run(assignor, &[], &said), [Partitions::default()]);
    }
}

/// A mask of topics, and what the member had before: topics and indexes that may not exist.
type Drawn = (u8, Vec<(u8, i32)>);

#[derive(Debug, Clone)]
struct World {
    topics: Vec<(TopicId, i32)>,
    members: Vec<Drawn>,
}

fn world() -> impl Strategy<Value = World> {
    let member = (any::<u8>(), prop::collection::vec((0u8..5, 0..14), 0..12));
    (prop::collection::vec(1..12, 1..5), prop::collection::vec(member, 1..9))
        .prop_map(|(counts, members)| World { topics: (1..).map(TopicId).zip(counts).collect(), members })
}

impl World {
    fn said<'a>(&self, ids: &'a [String], even: bool) -> Vec<Said<'a>> {
        let one = |(at, (mask, had)): (usize, &Drawn)| {
            let bits = if even { 0xff } else { *mask };
            let wanted = self.topics.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
            let wanted: Vec<_> = wanted.map(|(_, (id, _))| *id).collect();
            let had =
                had.iter().map(|(topic, index)| PartitionKey { topic: TopicId(u128::from(*topic)), index: *index });
            (ids[at].as_str(), None, wanted, had.collect())
        };
        self.members.iter().enumerate().map(one).collect()
    }
}

proptest! {
    #[test]
    fn each_partition_has_one_subscriber_and_shares_are_even(
        world in world(),
        even in any::<bool>(),
        range in any::<bool>(),
    ) {
        let ids: Vec<String> = (0..world.members.len()).map(|at| format!("m{at}")).collect();
        let said = world.said(&ids, even);
        let assignor = if range { "range" } else { "uniform" };
        let all = run(assignor, &world.topics, &said);
        prop_assert_eq!(&run(assignor, &world.topics, &said), &all, "the same input gives the same");
        for (topic, count) in &world.topics {
            let subscribers: Vec<_> = (0..said.len()).filter(|at| said[*at].2.contains(topic)).collect();
            for index in 0..*count {
                let key = PartitionKey { topic: *topic, index };
                let owners: Vec<_> = (0..all.len()).filter(|at| all[*at].has(key)).collect();
                prop_assert_eq!(owners.len(), usize::from(!subscribers.is_empty()), "{} at {:?}", key, owners);
                prop_assert!(owners.iter().all(|at| subscribers.contains(at)));
            }
            // `range` is even in each topic, `uniform` in all together.
            let counts = |key: &PartitionKey| !range || key.topic == *topic;
            let sizes = |at: &usize| all[*at].iter().filter(counts).count();
            let most = subscribers.iter().filter(|at| all[**at].iter().any(|key| key.topic == *topic)).map(sizes).max();
            let least = subscribers.iter().map(sizes).min();
            if let (Some(most), Some(least)) = (most, least) {
                prop_assert!(most <= least + 1, "{most} and {least} of {topic}");
            }
        }
        let assigned: usize = all.iter().map(Partitions::len).sum();
        let is_wanted = |id: &TopicId| said.iter().any(|member| member.2.contains(id));
        let wanted: i32 = world.topics.iter().filter(|(id, _)| is_wanted(id)).map(|(_, count)| count).sum();
        prop_assert_eq!(assigned, usize::try_from(wanted).expect("few"), "nothing that does not exist");
    }

    #[test]
    fn what_is_even_already_stays(world in world(), even in any::<bool>()) {
        let ids: Vec<String> = (0..world.members.len()).map(|at| format!("m{at}")).collect();
        let mut said = world.said(&ids, even);
        let first = run("uniform", &world.topics, &said);
        for (member, had) in said.iter_mut().zip(&first) {
            member.3 = had.clone();
        }
        prop_assert_eq!(run("uniform", &world.topics, &said), first);
    }

    #[test]
    fn a_newcomer_moves_no_more_than_its_share(world in world()) {
        let ids: Vec<String> = (0..world.members.len()).map(|at| format!("m{at}")).collect();
        let mut said = world.said(&ids, true);
        let first = run("uniform", &world.topics, &said);
        for (member, had) in said.iter_mut().zip(&first) {
            member.3 = had.clone();
        }
        let wanted = said[0].2.clone();
        said.push(("new", None, wanted, Partitions::default()));
        let second = run("uniform", &world.topics, &said);
        let kept: usize = first.iter().zip(&second).map(|(a, b)| a.iter().filter(|key| b.has(*key)).count()).sum();
        let total: usize = first.iter().map(Partitions::len).sum();
        prop_assert_eq!(total - kept, second.last().expect("the newcomer").len());
    }
}
