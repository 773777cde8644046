//! DeleteTopics (contract K20).

use std::collections::BTreeMap;

use super::{Refusal, refuse, timed_out};
use crate::code::ErrorCode;
use crate::ids::TopicId;
use crate::image::{Change, Image};

/// What one entry of a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteTarget {
    /// Name, if given.
    pub name: Option<String>,
    /// Id; zero if not given.
    pub id: TopicId,
}

/// What the decision needs beside the image and the targets.
#[derive(Clone, Copy, Debug)]
pub struct DeleteRules {
    /// `delete.topic.enable`
    pub enabled: bool,
    /// Timeout of the request.
    pub timeout_ms: i32,
}

/// The answer for one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteAnswer {
    /// Its name; `None` for an id that is not known, and for one that is refused without a look at the topic.
    pub name: Option<String>,
    /// Its id; zero for a name that is not known, and for one that is refused without a look at the topic.
    pub id: TopicId,
    /// What came of it.
    pub result: Result<(), Refusal>,
}

/// What a target turned out to be.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Topic(TopicId),
    NoName(String),
    NoId(TopicId),
}

/// How often a request names a topic.
#[derive(Clone, Copy, Default)]
struct Times {
    by_name: usize,
    by_id: usize,
}

/// Decides a DeleteTopics request.
#[must_use]
pub fn decide_delete(image: &Image, targets: &[DeleteTarget], rules: DeleteRules) -> (Vec<Change>, Vec<DeleteAnswer>) {
    let mut changes = Vec::new();
    let mut answers = Vec::with_capacity(targets.len());
    let mut found: BTreeMap<Found, Times> = BTreeMap::new();
    for target in targets {
        let contradicts = match (&target.name, target.id) {
            (Some(_), TopicId::ZERO) | (None, _) if target.name.is_some() || target.id != TopicId::ZERO => None,
            (Some(_), _) => Some("A topic is named by its name or by its id, not by both"),
            (None, _) => Some("Neither a name nor an id is given"),
        };
        if let Some(why) = contradicts {
            let result = refuse(ErrorCode::InvalidRequest, why);
            answers.push(DeleteAnswer { name: target.name.clone(), id: target.id, result });
            continue;
        }
        let times = found.entry(find(image, target)).or_default();
        match target.name {
            Some(_) => times.by_name += 1,
            None => times.by_id += 1,
        }
    }
    for (found, times) in found {
        let answer = decide_one(image, found, times, rules);
        if answer.result.is_ok() {
            changes.push(Change::DeleteTopic { id: answer.id });
        }
        answers.push(answer);
    }
    (changes, answers)
}

fn find(image: &Image, target: &DeleteTarget) -> Found {
    match &target.name {
        Some(name) => match image.topic(name) {
            Some(topic) => Found::Topic(topic.id),
            None => Found::NoName(name.clone()),
        },
        None => match image.topic_by_id(target.id) {
            Some(topic) => Found::Topic(topic.id),
            None => Found::NoId(target.id),
        },
    }
}

fn decide_one(image: &Image, found: Found, times: Times, rules: DeleteRules) -> DeleteAnswer {
    let early = if times.by_name + times.by_id > 1 {
        refuse(ErrorCode::InvalidRequest, "The topic is named twice")
    } else if rules.timeout_ms <= 0 {
        timed_out()
    } else {
        Ok(())
    };
    let unknown = |code, what: String| refuse(code, format!("There is no topic {what}"));
    match found {
        Found::Topic(id) => {
            let name = image.topic_by_id(id).map(|topic| topic.name.to_string());
            let disabled = || refuse(ErrorCode::TopicDeletionDisabled, "delete.topic.enable is false");
            match early.and_then(|()| if rules.enabled { Ok(()) } else { disabled() }) {
                Ok(()) => DeleteAnswer { name, id, result: Ok(()) },
                // K20.2, K20.3: the answer names the topic in the way of the request and tells nothing more of it.
                refused => DeleteAnswer {
                    name: name.filter(|_| times.by_name > 0),
                    id: if times.by_id > 0 { id } else { TopicId::ZERO },
                    result: refused,
                },
            }
        }
        Found::NoName(name) => {
            let result = early.and_then(|()| unknown(ErrorCode::UnknownTopicOrPartition, name.clone()));
            DeleteAnswer { name: Some(name), id: TopicId::ZERO, result }
        }
        Found::NoId(id) => {
            let result = early.and_then(|()| unknown(ErrorCode::UnknownTopicId, format!("with id {id}")));
            DeleteAnswer { name: None, id, result }
        }
    }
}
